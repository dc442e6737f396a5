package tensorop

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// The reductions of tensor.StdEng, by their form.
type (
	AxesOp func(e tensor.StdEng, a tensor.Tensor, along ...int) (tensor.Tensor, error)
	AxisOp func(e tensor.StdEng, t tensor.Tensor, axis int) (tensor.Tensor, error)
)

// Along reduces a tensor along axes, or to one element where there are none.
func (ops *Ops) Along(op string, f AxesOp, a tensor.Tensor, along []int) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	defer operand.KeepAlive(a)
	if r, ok, err := ops.gpu.Reduce(op, a, along); ok {
		return r, err
	}
	return ops.run(op, func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		if err := ops.hasAxes(op, h[0], along); err != nil {
			return nil, err
		}
		if d, ok := h[0].(*tensor.Dense); ok && skips(d.Dims(), along) {
			return reduced(f, d, along)
		}
		return f(tensor.StdEng{}, h[0], slices.Clone(along)...) // which StdEng sorts
	}, nil, a)
}

// hasAxes fails for axes that a does not have, and for one that is named twice. StdEng
// reduces all elements then, or those along the next axis. A vector may be reduced along
// any one axis from 0 on, as the nuclear norm of package tensor does.
func (ops *Ops) hasAxes(op string, a tensor.Tensor, axes []int) error {
	if a.Dims() == 1 && len(axes) == 1 && axes[0] >= 0 {
		return nil
	}
	for i, axis := range axes {
		if axis < 0 || axis >= a.Dims() || slices.Contains(axes[:i], axis) {
			return ops.m.Error(op, fmt.Errorf("%v are not different axes of shape %v: %w", axes, a.Shape(), device.ErrNotSupported))
		}
	}
	return nil
}

// skips reports whether a tensor with so many axes is reduced along one that has at least
// two before it and one behind it. StdEng adds up other elements there.
func skips(dims int, along []int) bool {
	axes := slices.Sorted(slices.Values(along))
	for k, axis := range axes {
		if axis-k >= 2 && axis < dims-1 {
			return true
		}
	}
	return false
}

// reduced reduces a row-major tensor along axes, each as the middle one of three.
func reduced(f AxesOp, d *tensor.Dense, along []int) (tensor.Tensor, error) {
	for k, axis := range slices.Sorted(slices.Values(along)) {
		var err error
		if d, err = asMiddle(d, axis-k, func(three *tensor.Dense, axis int) (*tensor.Dense, error) {
			return denseOf(f(tensor.StdEng{}, three, axis))
		}); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// denseOf returns a result as a *tensor.Dense.
func denseOf(t tensor.Tensor, err error) (*tensor.Dense, error) {
	if err != nil {
		return nil, err
	}
	return t.(*tensor.Dense), nil
}

// asMiddle calls f, which reduces along an axis, with the elements of a row-major tensor where that
// axis is the middle one of three.
func asMiddle(d *tensor.Dense, axis int, f func(three *tensor.Dense, axis int) (*tensor.Dense, error)) (*tensor.Dense, error) {
	shape := d.Shape()
	left := slices.Delete(shape.Clone(), axis, axis+1)
	three := d.ShallowClone()
	if err := three.Reshape(shape[:axis].TotalSize(), shape[axis], shape[axis+1:].TotalSize()); err != nil {
		return nil, err
	}
	r, err := f(three, 1)
	if err != nil {
		return nil, err
	}
	return r, r.Reshape(left...)
}

// Norm computes the Norm of tensors, which is right along all axes.
func (ops *Ops) Norm(t *tensor.Dense, ord tensor.NormOrder, axes []int) (r *tensor.Dense, err error) {
	defer ops.caught("Norm", &err)
	defer operand.KeepAlive(t)
	if r, ok, err := ops.gpu.Norm(t, ord, axes); ok {
		return r, err
	}
	return ops.compute("Norm", func(h []*tensor.Dense) (*tensor.Dense, error) {
		d := h[0]
		if err := ops.hasAxes("Norm", d, axes); err != nil {
			return nil, err
		}
		switch dims := d.Dims(); {
		case len(axes) == 1 && skips(dims, axes):
			return asMiddle(d, axes[0], func(three *tensor.Dense, axis int) (*tensor.Dense, error) { return three.Norm(ord, axis) })
		case len(axes) == 2 && dims > 2:
			return normsOf(d, ord, axes[0], axes[1])
		}
		return d.Norm(ord, slices.Clone(axes)...)
	}, t)
}

// normsOf computes the norm of each matrix that a row-major tensor has along two of its axes. StdEng
// reduces other elements, and has no norms that go by singular values, of more than three axes.
func normsOf(d *tensor.Dense, ord tensor.NormOrder, rows, columns int) (*tensor.Dense, error) {
	others := operand.Rest(d.Dims(), []int{rows, columns})
	matrices, err := ordered(d, append(others, rows, columns))
	if err != nil {
		return nil, err
	}
	left := matrices.Shape()[:len(others)].Clone()
	if err := matrices.Reshape(left.TotalSize(), d.Shape()[rows], d.Shape()[columns]); err != nil {
		return nil, err
	}
	r := tensor.NewDense(d.Dtype(), left)
	for i := range left.TotalSize() {
		one, err := matrixAt(matrices, i).Norm(ord, 0, 1)
		if err != nil {
			return nil, err
		}
		r.Set(i, one.Get(0))
	}
	runtime.KeepAlive(matrices) // matrixAt has only addresses
	return r, nil
}

// Arg finds the places of elements along an axis, or of all elements with
// tensor.AllAxes.
func (ops *Ops) Arg(op string, f AxisOp, t tensor.Tensor, axis int) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	defer operand.KeepAlive(t)
	if r, ok, err := ops.gpu.ArgReduce(op, t, axis); ok {
		return r, err
	}
	return ops.run(op, func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], axis)
	}, nil, t)
}

// Reduce computes StdEng.Reduce.
func (ops *Ops) Reduce(fn interface{}, a tensor.Tensor, axis int, defaultValue interface{}, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	return ops.reduce("Reduce", func(a tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Reduce(fn, a, axis, defaultValue, opts...)
	}, a, axis, opts)
}

// OptimizedReduce computes StdEng.OptimizedReduce.
func (ops *Ops) OptimizedReduce(a tensor.Tensor, axis int, firstFn, lastFn, defaultFn, defaultValue interface{}, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	return ops.reduce("OptimizedReduce", func(a tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.OptimizedReduce(a, axis, firstFn, lastFn, defaultFn, defaultValue, opts...)
	}, a, axis, opts)
}

// reduce computes f, a reduction along one axis by functions of the program's own. StdEng
// reuses no tensor but one of a's size.
func (ops *Ops) reduce(op string, f func(a tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error), a tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	if err := ops.madeWith(op, opts, a); err != nil {
		return nil, err
	}
	return ops.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		o := operand.ParseOptions(opts)
		d, ok := h[0].(*tensor.Dense)
		switch {
		case axis < 0: // StdEng would panic
			return nil, ops.m.Error(op, fmt.Errorf("axis %d: %w", axis, device.ErrNotSupported))
		case !ok || o.Unsafe || axis >= d.Dims():
			return f(h[0], axis, opts...)
		}
		dst, reuses := o.Reuse.(*tensor.Dense)
		if o.Incr != nil || reuses && dst.Dtype() != d.Dtype() {
			return nil, ops.m.Error(op, fmt.Errorf("a result that is added, or of another type: %w", device.ErrNotSupported))
		}
		var r *tensor.Dense
		var err error
		if skips(d.Dims(), []int{axis}) {
			r, err = asMiddle(d, axis, func(three *tensor.Dense, axis int) (*tensor.Dense, error) { return denseOf(f(three, axis)) })
		} else {
			r, err = denseOf(f(d, axis))
		}
		switch {
		case err != nil:
			return nil, err
		case !reuses:
			return r, nil
		}
		if err := dst.Reshape(r.Shape().Clone()...); err != nil {
			return nil, err
		}
		return dst, tensor.Copy(dst, r)
	}, opts, a)
}

// ordered returns a copy of a row-major tensor that has its axes in another order.
func ordered(d *tensor.Dense, axes []int) (*tensor.Dense, error) {
	moved := d.ShallowClone()
	if err := moved.T(axes...); err != nil {
		return nil, err
	}
	c := tensor.NewDense(d.Dtype(), moved.Shape().Clone())
	return c, tensor.Copy(c, moved)
}
