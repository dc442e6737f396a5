package cupool

import (
	"fmt"
	"reflect"
	"runtime"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
)

// What the fused steps (tensor_layers.go) have in common.

// want is a tensor and how many elements it has to have. An optional one may
// be nil.
type want struct {
	t        tensor.Tensor
	n        int
	optional bool
}

// fit fails for tensors that a fused step does not take: of another type or
// size than is wanted, not of floats, of another engine, or with gaps.
func (e *Engine) fit(op string, dt tensor.Dtype, ws ...want) error {
	if !isFloat(dt) {
		return engineError(op, fmt.Errorf("elements of type %v: %w", dt, ErrNotSupported))
	}
	return e.fitType(op, dt, ws...)
}

// fitType is fit for any type.
func (e *Engine) fitType(op string, dt tensor.Dtype, ws ...want) error {
	for i, w := range ws {
		d, ok := w.t.(*tensor.Dense)
		switch {
		case isNil(w.t) && w.optional:
		case ok && isFreed(d):
			return engineError(op, fmt.Errorf("tensor %d of shape %v: %w", i+1, d.Shape(), ErrUseAfterFree))
		case !ok || d == nil || w.n > 0 && d.IsMasked() || w.n > 1 && (d.RequiresIterator() || d.DataOrder() != 0):
			return engineError(op, fmt.Errorf("tensor %d of type %T is not one without gaps in row-major order: %w", i+1, w.t, ErrNotSupported))
		case d.Dtype() != dt || e.ownerOf(d) != e:
			return engineError(op, fmt.Errorf("tensor %d has type %v, and must have %v and be of this engine: %w", i+1, d.Dtype(), dt, ErrNotSupported))
		case d.Shape().TotalSize() != w.n:
			return engineError(op, fmt.Errorf("tensor %d has shape %v, and must have %d elements: %w", i+1, d.Shape(), w.n, ErrSizeMismatch))
		}
	}
	return nil
}

// fitParam is fit for a parameter and what an optimizer remembers of it.
func (e *Engine) fitParam(op string, p Param, more ...tensor.Tensor) error {
	if isNil(p.Value) || isNil(p.Grad) {
		return engineError(op, fmt.Errorf("a parameter without a value or gradient: %w", ErrNotSupported))
	}
	n := p.Value.Shape().TotalSize()
	ws := append(make([]want, 0, 4), want{t: p.Value, n: n}, want{t: p.Grad, n: n}) // no Go memory
	for _, t := range more {
		ws = append(ws, want{t, n, true})
	}
	return e.fit(op, p.Value.Dtype(), ws...)
}

// matrixShape returns the two dimensions of a matrix.
func matrixShape(op string, t tensor.Tensor) (rows, cols int, err error) {
	if isNil(t) || t.Dims() != 2 {
		return 0, 0, engineError(op, fmt.Errorf("a matrix is needed: %w", ErrNotSupported))
	}
	return t.Shape()[0], t.Shape()[1], nil
}

func isDouble(t tensor.Tensor) bool { return t.Dtype() == tensor.Float64 }

// slice returns the elements of a host tensor, or nil where it has none or they
// are of another type.
func slice[T layers.Float | int](d *tensor.Dense) []T {
	if d == nil || d.MemSize() == 0 || d.Dtype().Type != reflect.TypeFor[T]() {
		return nil
	}
	p, n := extent(d)
	return sliceAt[T](p, int(n)/int(d.Dtype().Size()))
}

// onHost calls f with host twins of in and out, whose data it changes. There
// are none of tensors that are nil.
func (e *Engine) onHost(op string, in, out []tensor.Tensor, f func(in, out []*tensor.Dense)) error {
	c := call{e: e, op: op}
	if err := e.pendingError(); err != nil {
		return err
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	twins := func(ts []tensor.Tensor, out bool) ([]*tensor.Dense, error) {
		ds := make([]*tensor.Dense, len(ts))
		for i, t := range ts {
			if isNil(t) || t.MemSize() == 0 {
				continue
			}
			h, err := c.twin(t, out)
			if err != nil {
				return nil, err
			}
			ds[i] = h.(*tensor.Dense) // as fit made sure
		}
		return ds, nil
	}
	hin, err := twins(in, false)
	if err != nil {
		return err
	}
	hout, err := twins(out, true)
	if err != nil {
		return err
	}
	f(hin, hout)
	runtime.KeepAlive(hin) // slice has only addresses
	runtime.KeepAlive(hout)
	return c.writeBack()
}
