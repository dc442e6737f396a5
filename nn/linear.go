package nn

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Linear sets y to act(x·w + bias), the output of a layer for a batch. x has a
// sample in each row. w has a row for each input and a column for each output.
// bias, a vector or one row, has an element for each output; nil is none. y must
// not overlap the other tensors. A GPU computes small products in one launch.
func Linear(e *cupool.Engine, x, w, bias, y tensor.Tensor, act Activation) error {
	const op = "Linear"
	l, err := layer(e, op, x, w, want{t: bias, optional: true}, want{t: y})
	if err == nil {
		err = cmp.Or(act.fit(op), fitApart(op, []tensor.Tensor{y}, x, w, bias))
	}
	if err != nil || l.rows*l.out == 0 {
		return err
	}
	if ok, err := linearOnGPU(tensorop.Of(e).GPU(), l, x, w, bias, y, act); ok {
		return err
	}
	if l.in > 0 {
		err = e.MatMul(x, w, y)
	} else {
		err = e.Zero(y)
	}
	switch {
	case err != nil:
		return fail(op, err)
	case operand.IsNil(bias):
		return Activate(e, y, y, act)
	}
	return BiasActivate(e, y, bias, act)
}

// LinearBack computes the gradients of a layer. dz is the gradient by
// x·w + bias. LinearBack sets dw and db, which have the sizes of w and bias, to
// the gradients by w and bias. The layer's input is x = act(u), with u the x·w +
// bias of the layer before, and LinearBack sets dx to the gradient by u. So dx is
// the dz of the layer before. With NoActivation dx is the gradient by x. Any of
// dx, dw and db may be nil, but a db needs a dw. None may overlap another tensor.
// A GPU computes small products in one launch.
func LinearBack(e *cupool.Engine, x, w, dz, dx, dw, db tensor.Tensor, act Activation) error {
	const op = "LinearBack"
	l, err := layer(e, op, x, w, want{t: db, optional: true}, want{t: dz})
	if err == nil {
		err = cmp.Or(act.fit(op), fit(e, op, x.Dtype(), want{dx, l.rows * l.in, true}, want{dw, l.in * l.out, true}))
	}
	if err == nil && operand.IsNil(dw) && !operand.IsNil(db) {
		err = unsupported(op, "db without dw")
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{dx, dw, db}, x, w, dz)
	}
	if err != nil {
		return err
	}
	if ok, err := linearBackOnGPU(tensorop.Of(e).GPU(), l, x, w, dz, dx, dw, db, act); ok {
		return err
	}
	return fail(op, errors.Join(weightsBack(e, l, x, dz, dw, db), inputBack(e, l, x, w, dz, dx, act)))
}

// layerSize is the number of a batch's samples, a layer's inputs and its outputs.
type layerSize struct{ rows, in, out int }

// layer returns the size of the layer with the input x and the weights w. It
// fails if bias and y, or their gradients, do not fit.
func layer(e *cupool.Engine, op string, x, w tensor.Tensor, bias, y want) (l layerSize, err error) {
	if l.rows, l.in, err = matrixShape(op, x); err != nil {
		return l, err
	}
	inputs, out, err := matrixShape(op, w)
	if err != nil {
		return l, err
	}
	if inputs != l.in {
		return l, fail(op, fmt.Errorf("%v times %v: %w", x.Shape(), w.Shape(), cupool.ErrSizeMismatch))
	}
	l.out = out
	bias.n, y.n = out, l.rows*out
	return l, fit(e, op, x.Dtype(), want{t: x, n: l.rows * l.in}, want{t: w, n: l.in * out}, bias, y)
}

// fitApart fails where an output shares memory with an input or another output.
func fitApart(op string, outputs []tensor.Tensor, inputs ...tensor.Tensor) error {
	for i, out := range outputs {
		if operand.IsNil(out) {
			continue
		}
		others := append(inputs[:len(inputs):len(inputs)], outputs[:i]...)
		if !operand.Apart(out, others) {
			return unsupported(op, "an output of shape %v overlaps another tensor", out.Shape())
		}
	}
	return nil
}

// fitOnto fails where an output of a step that goes element by element shares
// memory with an input of the same size, unless they are in the same place.
func fitOnto(op string, output, input tensor.Tensor) error {
	to, _ := operand.Extent(output)
	if from, _ := operand.Extent(input); from == to {
		return nil
	}
	return fitApart(op, []tensor.Tensor{output}, input)
}

// weightsBack sets dw and db by operations of their own.
func weightsBack(e *cupool.Engine, l layerSize, x, dz, dw, db tensor.Tensor) error {
	if l.rows*l.out == 0 || operand.IsNil(dw) {
		return errors.Join(e.Zero(dw), e.Zero(db))
	}
	var err error
	if l.in > 0 {
		err = e.MatMul(operand.Transposed(x), dz, dw)
		runtime.KeepAlive(x)
	}
	if err == nil && !operand.IsNil(db) {
		err = BiasActivateBack(e, dz, dz, db, NoActivation) // leaves dz as it is
	}
	return err
}

// inputBack sets dx by operations of its own.
func inputBack(e *cupool.Engine, l layerSize, x, w, dz, dx tensor.Tensor, act Activation) error {
	var err error
	switch {
	case operand.IsNil(dx) || l.rows*l.in == 0:
		return nil
	case l.out == 0:
		err = e.Zero(dx)
	default:
		err = e.MatMul(dz, operand.Transposed(w), dx)
		runtime.KeepAlive(w)
	}
	if err != nil || act == NoActivation {
		return err
	}
	return BiasActivateBack(e, x, dx, nil, act)
}
