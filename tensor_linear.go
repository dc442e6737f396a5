package cupool

import (
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/tensor"
)

// Layers of a network: products of matrices with what comes before and after
// them. Their tensors are those of the other fused steps (tensor_layers.go).

// Linear sets y to act(x·w + bias), what a layer makes of a batch: x has a
// sample in each row, w a row for each input and a column for each output, and
// bias, a vector or one row, an element for each output. y must not overlap the
// others. A GPU does it in one step where the product is small.
func (e *Engine) Linear(x, w, bias, y tensor.Tensor, act Activation) error {
	const op = "Linear"
	l, err := e.layer(op, x, w, want{t: bias}, want{t: y})
	if err == nil {
		err = fitApart(op, []tensor.Tensor{y}, x, w, bias)
	}
	if err != nil || l.rows*l.out == 0 {
		return err
	}
	if ok, err := e.gpu.linear(l, x, w, bias, y, act); ok {
		return err
	}
	if l.in > 0 {
		err = e.MatMul(x, w, y)
	} else {
		err = e.Zero(y)
	}
	if err != nil {
		return engineError(op, err)
	}
	return e.BiasActivate(y, bias, act)
}

// LinearBack goes back through a layer. dz is the gradient by x·w + bias. It
// sets dw and db, which have the sizes of w and bias, to the gradients by those,
// and dx to the gradient by what the layer's input was made from: x = act(that).
// So dx is what LinearBack of the layer before takes; with NoActivation it is
// the gradient by x. Any of dx, dw and db may be nil, but for dw with a db; none
// may overlap another tensor. A GPU does it in one step where the products are
// small.
func (e *Engine) LinearBack(x, w, dz, dx, dw, db tensor.Tensor, act Activation) error {
	const op = "LinearBack"
	l, err := e.layer(op, x, w, want{t: db, optional: true}, want{t: dz})
	if err == nil {
		err = e.fit(op, x.Dtype(), want{dx, l.rows * l.in, true}, want{dw, l.in * l.out, true})
	}
	if err == nil && isNil(dw) && !isNil(db) {
		err = engineError(op, fmt.Errorf("db without dw: %w", ErrNotSupported))
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{dx, dw, db}, x, w, dz)
	}
	if err != nil {
		return err
	}
	if ok, err := e.gpu.linearBack(l, x, w, dz, dx, dw, db, act); ok {
		return err
	}
	return engineError(op, errors.Join(e.weightsBack(l, x, dz, dw, db), e.inputBack(l, x, w, dz, dx, act)))
}

// layerSize is how many samples a batch has, and a layer inputs and outputs.
type layerSize struct{ rows, in, out int }

// layer returns the size that x and w say, if bias and y, or their gradients,
// fit.
func (e *Engine) layer(op string, x, w tensor.Tensor, bias, y want) (l layerSize, err error) {
	if l.rows, l.in, err = matrixShape(op, x); err != nil {
		return l, err
	}
	inputs, out, err := matrixShape(op, w)
	if err != nil {
		return l, err
	}
	if inputs != l.in {
		return l, engineError(op, fmt.Errorf("%v times %v: %w", x.Shape(), w.Shape(), ErrSizeMismatch))
	}
	l.out = out
	bias.n, y.n = out, l.rows*out
	return l, e.fit(op, x.Dtype(), want{t: x, n: l.rows * l.in}, want{t: w, n: l.in * out}, bias, y)
}

// fitApart fails where an output shares memory with an input or another output.
func fitApart(op string, outputs []tensor.Tensor, inputs ...tensor.Tensor) error {
	for i, out := range outputs {
		if isNil(out) {
			continue
		}
		others := append(inputs[:len(inputs):len(inputs)], outputs[:i]...)
		if !apart(out, others) {
			return engineError(op, fmt.Errorf("an output of shape %v overlaps another tensor: %w", out.Shape(), ErrNotSupported))
		}
	}
	return nil
}

// weightsBack sets dw and db in steps of their own.
func (e *Engine) weightsBack(l layerSize, x, dz, dw, db tensor.Tensor) error {
	if l.rows*l.out == 0 || isNil(dw) {
		return errors.Join(e.Zero(dw), e.Zero(db))
	}
	var err error
	if l.in > 0 {
		err = e.MatMul(turned(x), dz, dw)
		runtime.KeepAlive(x)
	}
	if err == nil && !isNil(db) {
		err = e.BiasActivateBack(dz, dz, db, NoActivation) // leaves dz as it is
	}
	return err
}

// inputBack sets dx in steps of its own.
func (e *Engine) inputBack(l layerSize, x, w, dz, dx tensor.Tensor, act Activation) error {
	var err error
	switch {
	case isNil(dx) || l.rows*l.in == 0:
		return nil
	case l.out == 0:
		err = e.Zero(dx)
	default:
		err = e.MatMul(dz, turned(w), dx)
		runtime.KeepAlive(w)
	}
	if err != nil || act == NoActivation {
		return err
	}
	return e.BiasActivateBack(x, dx, nil, act)
}

// turned returns a tensor over the memory of t, a matrix, that is marked as its
// transpose. t has to be kept alive.
func turned(t tensor.Tensor) *tensor.Dense {
	p, n := extent(t)
	d := tensor.NewDense(t.Dtype(), t.Shape().Clone(), tensor.FromMemory(uintptr(p), uintptr(n)), tensor.WithEngine(t.Engine()))
	if err := d.T(); err != nil {
		panic(err) // a matrix can always be transposed
	}
	return d
}
