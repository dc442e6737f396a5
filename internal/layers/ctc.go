package layers

import "math"

// CTC is a batch for connectionist temporal classification (Graves and others, ICML
// 2006). Class 0 is the blank. A path goes through blanks and the targets between
// them.
type CTC[T Float] struct {
	LogProbs                 []T // frames × samples × classes
	Frames, Samples, Classes int
	Targets                  []int
	Width                    int // of a row of targets; 0: they lie one after the other
	Lengths, TargetLengths   []int
}

// CTCLoss returns the sum of the samples' losses or, with mean, the mean over
// samples of the loss by target.
func CTCLoss[T Float](c CTC[T], mean bool) (sum T) {
	for b := range c.Samples {
		loss := T(math.NaN())
		if s, ok := c.sample(b); ok {
			_, loss = s.alpha()
		}
		if mean {
			loss /= T(max(c.TargetLengths[b], 1))
		}
		sum += loss
	}
	if mean {
		sum /= T(c.Samples)
	}
	return sum
}

// CTCLossBack sets dx to scale times the gradient of the sum of the losses by what
// LogProbs is the LogSoftMax of.
func CTCLossBack[T Float](c CTC[T], dx []T, scale float64) {
	for b := range c.Samples {
		if s, ok := c.sample(b); ok {
			s.back(dx, T(scale))
			continue
		}
		for t := range c.Frames {
			for k := range c.Classes {
				dx[(t*c.Samples+b)*c.Classes+k] = T(math.NaN())
			}
		}
	}
}

// ctcSample is one sample and the classes of its path.
type ctcSample[T Float] struct {
	CTC[T]
	b, length int
	path      []int
}

// sample returns a sample; false: a length or a class is out of range.
func (c CTC[T]) sample(b int) (s ctcSample[T], ok bool) {
	from := b * c.Width
	for i := 0; c.Width == 0 && i < b; i++ {
		from += c.TargetLengths[i]
	}
	n, length := c.TargetLengths[b], c.Lengths[b]
	if n < 0 || from < 0 || n > len(c.Targets)-from || c.Width > 0 && n > c.Width || length < 1 || length > c.Frames {
		return s, false
	}
	s = ctcSample[T]{CTC: c, b: b, length: length, path: make([]int, 2*n+1)}
	for i, class := range c.Targets[from : from+n] {
		if class < 0 || class >= c.Classes {
			return s, false
		}
		s.path[2*i+1] = class
	}
	return s, true
}

// at is where a class has its number at a time.
func (s *ctcSample[T]) at(t, class int) int { return (t*s.Samples+s.b)*s.Classes + class }

// alpha returns the logarithms of the probabilities of all beginnings of paths, by
// time and place, and the loss.
func (s *ctcSample[T]) alpha() (alpha []T, loss T) {
	none, w := T(math.Inf(-1)), len(s.path)
	alpha = make([]T, s.length*w)
	for p, class := range s.path {
		if alpha[p] = none; p < 2 {
			alpha[p] = s.LogProbs[s.at(0, class)]
		}
	}
	for t := 1; t < s.length; t++ {
		last := alpha[(t-1)*w : t*w]
		for p, class := range s.path {
			step, jump := none, none
			if p > 0 {
				step = last[p-1]
			}
			if p > 1 && s.path[p-2] != class {
				jump = last[p-2]
			}
			alpha[t*w+p] = logAdd(last[p], step, jump) + s.LogProbs[s.at(t, class)]
		}
	}
	end := alpha[(s.length-1)*w:]
	if w == 1 {
		return alpha, -end[0]
	}
	return alpha, -logAdd(end[w-1], end[w-2], none)
}

// beta returns those of all ends of paths.
func (s *ctcSample[T]) beta() []T {
	none, w := T(math.Inf(-1)), len(s.path)
	beta := make([]T, s.length*w)
	for t := s.length - 1; t >= 0; t-- {
		for p, class := range s.path {
			v := none
			switch {
			case t < s.length-1:
				next, step, jump := beta[(t+1)*w:(t+2)*w], none, none
				if p < w-1 {
					step = next[p+1]
				}
				if p < w-2 && s.path[p+2] != class {
					jump = next[p+2]
				}
				v = logAdd(next[p], step, jump)
			case p >= w-2:
				v = 0
			}
			beta[t*w+p] = v + s.LogProbs[s.at(t, class)]
		}
	}
	return beta
}

func (s *ctcSample[T]) back(dx []T, scale T) {
	none, w := T(math.Inf(-1)), len(s.path)
	alpha, loss := s.alpha()
	beta := s.beta()
	for t := range s.Frames {
		through := make([]T, s.Classes)
		for class := range through {
			through[class] = none
		}
		for p := w - 1; p >= 0 && t < s.length; p-- {
			class := s.path[p]
			through[class] = logAdd(through[class], alpha[t*w+p]+beta[t*w+p], none)
		}
		for class, sum := range through {
			i := s.at(t, class)
			if dx[i] = 0; t < s.length {
				lp := float64(s.LogProbs[i])
				dx[i] = (T(math.Exp(lp)) - T(math.Exp(float64(sum+loss)-lp))) * scale
			}
		}
	}
}

// logAdd is log(exp x + exp y + exp z).
func logAdd[T Float](x, y, z T) T {
	top := max(x, y, z)
	if math.IsInf(float64(top), -1) {
		top = 0
	}
	return T(math.Log(math.Exp(float64(x-top))+math.Exp(float64(y-top))+math.Exp(float64(z-top)))) + top
}
