// Package nn has the fused steps of training over a cupool.Engine: layers,
// pooling, normalizations, losses, optimizers and random numbers. Each step does the work of several
// operations of package tensor in one pass over the memory. A step allocates
// nothing in the pool unless its comment says so. It runs where the engine
// computes: on the CPU, or on a GPU in the order of the engine's stream, without
// waiting.
//
// All tensors of a step have the type float32, or all have float64. They belong
// to one engine and lie in row-major order without gaps or masks. For other tensors a step
// fails with a *cupool.EngineError around ErrNotSupported, ErrSizeMismatch or
// ErrUseAfterFree, and has changed nothing. Where the device fails, a step fails
// with a *cupool.EngineError around the device's error. Several goroutines may run
// steps at once if none writes to a tensor that another one uses.
package nn

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// fail returns err as an error of the engine, and nil for nil.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &cupool.EngineError{Op: op, Err: err}
}

// hostStep computes a step on the CPU, on host twins of its tensors (InPlace).
type hostStep func(in, out []*tensor.Dense)

// onHost has the CPU compute a step on tensors of like's type.
func onHost(e *cupool.Engine, op string, like tensor.Tensor, in, out []tensor.Tensor, single, double hostStep) error {
	if isDouble(like) {
		single = double
	}
	return tensorop.Of(e).InPlace(op, in, out, single)
}

// Checks of the tensors that a step is given.

// want is a tensor and the number of elements that it must have. An optional
// tensor may be nil.
type want struct {
	t        tensor.Tensor
	n        int
	optional bool
}

// fit fails for tensors that a fused step does not take: tensors of another type
// or size than is wanted, of no floats, of another engine, or with gaps.
func fit(e *cupool.Engine, op string, dt tensor.Dtype, ws ...want) error {
	if !operand.IsFloat(dt) {
		return unsupported(op, "elements of type %v", dt)
	}
	return fitType(e, op, dt, ws...)
}

// fitType is fit for any type.
func fitType(e *cupool.Engine, op string, dt tensor.Dtype, ws ...want) error {
	for i, w := range ws {
		d, ok := w.t.(*tensor.Dense)
		switch {
		case operand.IsNil(w.t) && w.optional:
		case operand.IsNil(w.t):
			return fail(op, fmt.Errorf("tensor %d is missing: %w", i+1, cupool.ErrNotSupported))
		case ok && operand.IsFreed(d):
			return fail(op, fmt.Errorf("tensor %d of shape %v: %w", i+1, d.Shape(), cupool.ErrUseAfterFree))
		case !ok || w.n > 0 && d.IsMasked() || w.n > 1 && (d.RequiresIterator() || d.DataOrder() != 0):
			return fail(op, fmt.Errorf("tensor %d of type %T is not one in row-major order without gaps and a mask: %w", i+1, w.t, cupool.ErrNotSupported))
		case d.Dtype() != dt || !isOf(d, e):
			return fail(op, fmt.Errorf("tensor %d has type %v, and must have %v and be of this engine: %w", i+1, d.Dtype(), dt, cupool.ErrNotSupported))
		case d.Shape().TotalSize() != w.n:
			return fail(op, fmt.Errorf("tensor %d has shape %v, and must have %d elements: %w", i+1, d.Shape(), w.n, cupool.ErrSizeMismatch))
		}
	}
	return nil
}

// fitPair returns the size of the input and the output of a step that goes element
// by element. It fails for tensors of different sizes, or that overlap without
// being in the same place.
func fitPair(e *cupool.Engine, op string, from, to tensor.Tensor) (int, error) {
	if operand.IsNil(from) {
		return 0, unsupported(op, "no tensor")
	}
	n := from.Shape().TotalSize()
	if err := fit(e, op, from.Dtype(), want{t: from, n: n}, want{t: to, n: n}); err != nil {
		return 0, err
	}
	return n, fitOnto(op, to, from)
}

// unsupported returns an error of the engine around ErrNotSupported.
func unsupported(op, format string, args ...any) error {
	return fail(op, fmt.Errorf(format+": %w", append(args, cupool.ErrNotSupported)...))
}

// matrixShape returns the two dimensions of a matrix.
func matrixShape(op string, t tensor.Tensor) (rows, cols int, err error) {
	if operand.IsNil(t) || t.Dims() != 2 {
		return 0, 0, unsupported(op, "a matrix is needed")
	}
	return t.Shape()[0], t.Shape()[1], nil
}

func isDouble(t tensor.Tensor) bool { return t.Dtype() == tensor.Float64 }

// isOf reports whether e is the engine of d, or the engine of d is no
// cupool.Engine.
func isOf(d *tensor.Dense, e *cupool.Engine) bool {
	o := cupool.EngineOf(d)
	return o == nil || o == e
}
