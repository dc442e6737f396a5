package cupool

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
)

// The fused steps of training: what would be several operations of tensor, in
// one pass over the memory, with nothing allocated. All tensors are of float32
// or all of float64, belong to one engine and lie in row-major order without
// gaps. Their methods fail with an *EngineError around ErrNotSupported or
// ErrSizeMismatch where that is not so, and then have changed nothing, or
// around what the device says.

// Activation is a function that BiasActivate applies to every element.
type Activation = layers.Activation

// The activations. Rectify is ReLU but at 0, where its slope is 1, as that of
// Gorgonia's: what is below 0 becomes −0, which tells it from 0.
const (
	NoActivation Activation = layers.None
	ReLU         Activation = layers.ReLU
	Sigmoid      Activation = layers.Sigmoid
	Tanh         Activation = layers.Tanh
	Rectify      Activation = layers.Rectify
)

// BiasActivate sets x, a matrix, to act(x + bias): bias, a vector or one row
// as long as x's rows, is added to each of them.
func (e *Engine) BiasActivate(x, bias tensor.Tensor, act Activation) error {
	defer keepAlive(x, bias)
	const op = "BiasActivate"
	rows, cols, err := matrixShape(op, x)
	if err == nil {
		err = e.fit(op, x.Dtype(), want{t: x, n: rows * cols}, want{t: bias, n: cols})
	}
	if err != nil {
		return err
	}
	if ok, err := e.gpu.biasActivate(x, bias, rows, cols, act); ok {
		return err
	}
	return e.onHost(op, []tensor.Tensor{bias}, []tensor.Tensor{x}, func(in, out []*tensor.Dense) {
		if isDouble(x) {
			layers.BiasActivate(slice[float64](out[0]), slice[float64](in[0]), act)
		} else {
			layers.BiasActivate(slice[float32](out[0]), slice[float32](in[0]), act)
		}
	})
}

// BiasActivateBack goes back through BiasActivate: it turns dy, the gradient by
// its result y, into the gradient by x, and sets db, which has the size of
// bias, to that by bias, unless db is nil.
func (e *Engine) BiasActivateBack(y, dy, db tensor.Tensor, act Activation) error {
	defer keepAlive(y, dy, db)
	const op = "BiasActivateBack"
	rows, cols, err := matrixShape(op, y)
	if err == nil {
		err = e.fit(op, y.Dtype(), want{t: y, n: rows * cols}, want{t: dy, n: rows * cols}, want{db, cols, true})
	}
	if err != nil {
		return err
	}
	if ok, err := e.gpu.biasActivateBack(y, dy, db, rows, cols, act); ok {
		return err
	}
	return e.onHost(op, []tensor.Tensor{y}, []tensor.Tensor{dy, db}, func(in, out []*tensor.Dense) {
		if isDouble(y) {
			layers.BiasActivateBack(slice[float64](in[0]), slice[float64](out[0]), slice[float64](out[1]), cols, act)
		} else {
			layers.BiasActivateBack(slice[float32](in[0]), slice[float32](out[0]), slice[float32](out[1]), cols, act)
		}
	})
}

// CrossEntropy compares logits, one row a sample, with the classes that are
// wanted: target has either the index of a class for each row, of type
// tensor.Int, or the weights of all classes, as the logits have them. It adds
// -Σ weight·log SoftMax(logits) of each row to loss, a vector, so that losses
// can be added up over steps, and sets grad to the gradient of their mean by
// the logits. An index that is out of range wants no class.
func (e *Engine) CrossEntropy(logits, target, loss, grad tensor.Tensor) error {
	return e.crossEntropy("CrossEntropy", logits, target, loss, grad, lossSize{mean: true})
}

// ScaledCrossEntropy is CrossEntropy that sets loss, in place of adding to it,
// and sets grad to scale times the gradient of the sum of the rows' losses.
func (e *Engine) ScaledCrossEntropy(logits, target, loss, grad tensor.Tensor, scale float64) error {
	return e.crossEntropy("ScaledCrossEntropy", logits, target, loss, grad, lossSize{scale: scale})
}

func (e *Engine) crossEntropy(op string, logits, target, loss, grad tensor.Tensor, s lossSize) (err error) {
	defer keepAlive(logits, target, loss, grad)
	s.rows, s.cols, err = matrixShape(op, logits)
	if err == nil {
		err = e.fit(op, logits.Dtype(), want{t: logits, n: s.rows * s.cols}, want{t: loss, n: s.rows}, want{t: grad, n: s.rows * s.cols})
	}
	s.weights = err == nil && target != nil && target.Dtype() == logits.Dtype()
	switch {
	case err != nil:
	case s.weights:
		err = e.fit(op, logits.Dtype(), want{t: target, n: s.rows * s.cols})
	default:
		err = e.fitType(op, tensor.Int, want{t: target, n: s.rows})
	}
	if err != nil {
		return err
	}
	if s.mean {
		s.scale = 1 / float64(s.rows)
	}
	if ok, err := e.gpu.crossEntropy(op, s, logits, target, loss, grad); ok {
		return err
	}
	return e.onHost(op, []tensor.Tensor{logits, target}, []tensor.Tensor{loss, grad}, func(in, out []*tensor.Dense) {
		if isDouble(logits) {
			crossEntropyOnHost[float64](s, in, out)
		} else {
			crossEntropyOnHost[float32](s, in, out)
		}
	})
}

// lossSize is what there is to a cross entropy beside its tensors.
type lossSize struct {
	rows, cols int
	weights    bool    // targets are weights of classes
	mean       bool    // the gradient is that of the mean, and losses are added up
	scale      float64 // of the gradient
}

func crossEntropyOnHost[T layers.Float](s lossSize, in, out []*tensor.Dense) {
	loss := slice[T](out[0])
	if !s.mean {
		clear(loss)
	}
	classes := slice[int](in[1])
	target := func(r, c int) T {
		if classes[r] == c {
			return 1
		}
		return 0
	}
	if s.weights {
		ws := slice[T](in[1])
		target = func(r, c int) T { return ws[r*s.cols+c] }
	}
	layers.CrossEntropy(slice[T](in[0]), loss, slice[T](out[1]), s.cols, s.scale, target)
}

// Seed selects random numbers: each Stream of each Seed is a sequence of its
// own, the same on every device but for rounding.
type Seed struct{ Seed, Stream uint64 }

// Uniform fills t with random numbers in [lo, hi).
func (e *Engine) Uniform(t tensor.Tensor, lo, hi float64, s Seed) error {
	return e.random("Uniform", t, false, lo, hi-lo, s)
}

// Normal fills t with normally distributed random numbers.
func (e *Engine) Normal(t tensor.Tensor, mean, deviation float64, s Seed) error {
	return e.random("Normal", t, true, mean, deviation, s)
}

func (e *Engine) random(op string, t tensor.Tensor, normal bool, p, q float64, s Seed) error {
	defer keepAlive(t)
	if isNil(t) {
		return engineError(op, fmt.Errorf("no tensor: %w", ErrNotSupported))
	}
	if err := e.fit(op, t.Dtype(), want{t: t, n: t.Shape().TotalSize()}); err != nil {
		return err
	}
	if ok, err := e.gpu.random(op, t, normal, p, q, s); ok {
		return err
	}
	return e.onHost(op, nil, []tensor.Tensor{t}, func(_, out []*tensor.Dense) {
		if isDouble(t) {
			randomOnHost(slice[float64](out[0]), normal, p, q, s)
		} else {
			randomOnHost(slice[float32](out[0]), normal, p, q, s)
		}
	})
}

func randomOnHost[T layers.Float](dst []T, normal bool, p, q float64, s Seed) {
	if normal {
		philox.Normal(dst, p, q, s.Stream, s.Seed)
	} else {
		philox.Uniform(dst, p, q, s.Stream, s.Seed)
	}
}
