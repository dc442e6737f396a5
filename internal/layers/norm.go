package layers

import "math"

// Norm is a normalization of Channels, each of Plane elements in each sample of
// a Batch.
type Norm struct {
	Batch, Channels, Plane int
	Momentum, Epsilon      float64
	Training               bool
	Activation             Activation
}

// NormStats have a number for each channel. Running may be nil in training, the
// others without.
type NormStats[T Float] struct {
	Mean, Inverse, RunningMean, RunningVariance []T
}

// each calls f for the elements of a channel.
func (n *Norm) each(c int, f func(i int)) {
	for s := range n.Batch {
		from := (s*n.Channels + c) * n.Plane
		for i := from; i < from+n.Plane; i++ {
			f(i)
		}
	}
}

// BatchNorm sets y to act((x - mean)·inverse·scale + bias), with a mean and an
// inverse deviation for each channel.
func BatchNorm[T Float](n *Norm, x, scale, bias, y []T, s NormStats[T]) {
	for c := range n.Channels {
		if n.Training {
			learn(n, c, x, s)
		}
		mean, inverse := used(n, c, s)
		by, plus := inverse*orElse(scale, c, 1), orElse(bias, c, 0)
		n.each(c, func(i int) { y[i] = activate(n.Activation, (x[i]-mean)*by+plus) })
	}
}

// learn computes a channel's statistics, and moves the running ones towards them.
func learn[T Float](n *Norm, c int, x []T, s NormStats[T]) {
	count, sum, squares := float64(n.Batch*n.Plane), 0., 0.
	n.each(c, func(i int) { sum += float64(x[i]) })
	mean := sum / count
	n.each(c, func(i int) { squares += (float64(x[i]) - mean) * (float64(x[i]) - mean) })
	s.Mean[c], s.Inverse[c] = T(mean), T(1/math.Sqrt(squares/count+n.Epsilon))
	if s.RunningMean != nil {
		s.RunningMean[c] = T(n.Momentum*mean + (1-n.Momentum)*float64(s.RunningMean[c]))
		s.RunningVariance[c] = T(n.Momentum*(squares/(count-1)) + (1-n.Momentum)*float64(s.RunningVariance[c]))
	}
}

// used returns what a channel is normalized with.
func used[T Float](n *Norm, c int, s NormStats[T]) (mean, inverse T) {
	if n.Training {
		return s.Mean[c], s.Inverse[c]
	}
	return s.RunningMean[c], T(1 / math.Sqrt(float64(s.RunningVariance[c])+n.Epsilon))
}

// orElse returns xs[c], or x without xs.
func orElse[T Float](xs []T, c int, x T) T {
	if xs == nil {
		return x
	}
	return xs[c]
}

// BatchNormBack sets dx, and dscale and dbias where they are not nil, to the
// gradients of BatchNorm. y is not read without an activation.
func BatchNormBack[T Float](n *Norm, x, y, dy, scale, dx, dscale, dbias []T, s NormStats[T]) {
	copy(dx, dy)
	if n.Activation != None {
		for i, v := range y {
			dx[i] *= slope(n.Activation, v)
		}
	}
	for c := range n.Channels {
		mean, inverse := used(n, c, s)
		var sum, dot T
		n.each(c, func(i int) {
			sum += dx[i]
			dot += dx[i] * (x[i] - mean)
		})
		if dscale != nil {
			dscale[c] = dot * inverse
		}
		if dbias != nil {
			dbias[c] = sum
		}
		count, by := T(n.Batch*n.Plane), inverse*orElse(scale, c, 1)
		flat, tilt := sum/count, dot*inverse*inverse/count
		if !n.Training {
			flat, tilt = 0, 0
		}
		n.each(c, func(i int) { dx[i] = (dx[i] - flat - (x[i]-mean)*tilt) * by })
	}
}
