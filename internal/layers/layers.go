// Package layers has the fused steps of a network's layers, losses and
// optimizers on a CPU, over slices. Matrices are in row-major order.
// internal/kernels does the same on a GPU, in layer.cu, softmax.cu and
// optimizer.cu.
package layers

import (
	"fmt"
	"math"
)

// Float is what all of it computes with.
type Float interface{ float32 | float64 }

// Activation is a function applied to every element; the values are those of
// the kernels.
type Activation int

// The activations.
const (
	None Activation = iota
	ReLU
	Sigmoid
	Tanh
	Rectify // ReLU whose slope at 0 is 1, and whose result is −0 below that
)

// String returns "none", "ReLU", "sigmoid", "tanh" or "rectify".
func (a Activation) String() string {
	switch a {
	case None:
		return "none"
	case ReLU:
		return "ReLU"
	case Sigmoid:
		return "sigmoid"
	case Tanh:
		return "tanh"
	case Rectify:
		return "rectify"
	}
	return fmt.Sprintf("Activation(%d)", int(a))
}

// BiasActivate sets x to act(x + b), with b added to each of x's rows.
func BiasActivate[T Float](x, b []T, act Activation) {
	for len(x) > 0 {
		for c, v := range b {
			x[c] = activate(act, x[c]+v)
		}
		x = x[len(b):]
	}
}

// ActivateBack sets dx to dy times the slope of act where its result is y.
func ActivateBack[T Float](dx, y, dy []T, act Activation) {
	for i, v := range y {
		dx[i] = dy[i] * slope(act, v)
	}
}

func activate[T Float](act Activation, x T) T {
	switch act {
	case ReLU:
		if x < 0 {
			return 0
		}
	case Sigmoid:
		return T(1 / (1 + math.Exp(-float64(x))))
	case Tanh:
		return T(math.Tanh(float64(x)))
	case Rectify:
		if x >= 0 {
			return x + 0 // −0 becomes 0
		}
		return x * 0 // −0, or NaN
	}
	return x
}

// slope is the derivative of act where its result is y.
func slope[T Float](act Activation, y T) T {
	switch act {
	case ReLU:
		if !(y > 0) {
			return 0
		}
	case Sigmoid:
		return y * (1 - y)
	case Tanh:
		return 1 - y*y
	case Rectify:
		if y != y || math.Signbit(float64(y)) {
			return 0
		}
	}
	return 1
}

// BiasActivateBack turns dy, the gradient by y = BiasActivate(x, b), into that
// by x, and sets db to that by b: the sum of its rows of cols elements. db may
// be nil.
func BiasActivateBack[T Float](y, dy, db []T, cols int, act Activation) {
	if act != None {
		for i, v := range y {
			dy[i] *= slope(act, v)
		}
	}
	clear(db)
	for ; db != nil && len(dy) > 0; dy = dy[cols:] {
		for c, d := range dy[:cols] {
			db[c] += d
		}
	}
}

// CrossEntropy compares rows of logits x with targets. It adds -Σ t log
// SoftMax(x) of each row to loss, and sets grad to scale times its gradient by
// x. target returns the weight of class c in row r.
func CrossEntropy[T Float](x, loss, grad []T, cols int, scale float64, target func(r, c int) T) {
	for r := range loss {
		row, g := x[r*cols:][:cols], grad[r*cols:][:cols]
		top := math.Inf(-1)
		for _, v := range row {
			top = max(top, float64(v))
		}
		var sum, weight, dot float64
		for c, v := range row {
			t := float64(target(r, c))
			sum += math.Exp(float64(v) - top)
			weight += t
			if t != 0 {
				dot += t * (float64(v) - top)
			}
		}
		for c, v := range row {
			g[c] = T(scale * (math.Exp(float64(v)-top)/sum*weight - float64(target(r, c))))
		}
		loss[r] += T(weight*math.Log(sum) - dot)
	}
}

// SGD moves w against its gradient g:
//
//	v ← momentum·v + g + decay·w
//	w ← w − lr·v
//
// v may be nil for no momentum.
func SGD[T Float](w, g, v []T, lr, momentum, decay float64) {
	rate, mu, wd := T(lr), T(momentum), T(decay)
	g = g[:len(w)]
	if v == nil {
		for i, x := range w {
			w[i] = x - rate*(g[i]+wd*x)
		}
		return
	}
	v = v[:len(w)]
	for i, x := range w {
		d := g[i] + wd*x + mu*v[i]
		v[i] = d
		w[i] = x - rate*d
	}
}

// AdamOptions are the constants of Adam.
type AdamOptions struct{ LR, Beta1, Beta2, Epsilon, Decay float64 }

// Adam moves w against its gradient g, after Kingma and Ba (2015, algorithm
// 1), with decoupled weight decay (Loshchilov and Hutter, 2019). m and v are
// the moments, step is the number of the step, from 1.
func Adam[T Float](w, g, m, v []T, step float64, o AdamOptions) {
	c1, c2 := o.corrections(step)
	b1, b2, rate, root := T(o.Beta1), T(o.Beta2), T(o.LR/c1), T(1/math.Sqrt(c2))
	rest, eps := T(1-o.LR*o.Decay), T(o.Epsilon)
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i, d := range g {
		mean := b1*m[i] + (1-b1)*d
		variance := b2*v[i] + (1-b2)*d*d
		m[i], v[i] = mean, variance
		w[i] = rest*w[i] - rate*mean/(T(math.Sqrt(float64(variance)))*root+eps)
	}
}

// corrections returns what the moments are short of after so many steps.
func (o AdamOptions) corrections(step float64) (c1, c2 float64) {
	return 1 - math.Pow(o.Beta1, step), 1 - math.Pow(o.Beta2, step)
}
