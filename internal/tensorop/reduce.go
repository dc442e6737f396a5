package tensorop

import (
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop/operand"
)

// The reductions of tensor.StdEng, by their form.
type (
	AxesOp func(e tensor.StdEng, a tensor.Tensor, along ...int) (tensor.Tensor, error)
	AxisOp func(e tensor.StdEng, t tensor.Tensor, axis int) (tensor.Tensor, error)
)

// Along reduces a tensor along axes, or to one element where there are none.
func (ops *Ops) Along(op string, f AxesOp, a tensor.Tensor, along []int) (tensor.Tensor, error) {
	defer operand.KeepAlive(a)
	if r, ok, err := ops.gpu.Reduce(op, a, along); ok {
		return r, err
	}
	return ops.run(op, func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		if d, ok := h[0].(*tensor.Dense); ok && skips(d.Dims(), along) {
			return reduced(f, d, along)
		}
		return f(tensor.StdEng{}, h[0], along...)
	}, nil, a)
}

// skips reports whether a tensor with so many axes is reduced along one that has at least
// two before it and one behind it. StdEng adds up other elements there.
func skips(dims int, along []int) bool {
	axes := slices.Sorted(slices.Values(along))
	for k, axis := range axes {
		if axis-k >= 2 && axis < dims-1 {
			return axes[0] >= 0 && axes[len(axes)-1] < dims && len(slices.Compact(slices.Clone(axes))) == len(axes)
		}
	}
	return false
}

// reduced reduces a row-major tensor along axes, each as the middle one of three.
func reduced(f AxesOp, d *tensor.Dense, along []int) (tensor.Tensor, error) {
	for k, axis := range slices.Sorted(slices.Values(along)) {
		shape := d.Shape()
		axis -= k
		left := slices.Delete(shape.Clone(), axis, axis+1)
		three := d.ShallowClone()
		if err := three.Reshape(shape[:axis].TotalSize(), shape[axis], shape[axis+1:].TotalSize()); err != nil {
			return nil, err
		}
		r, err := f(tensor.StdEng{}, three, 1)
		if err != nil {
			return nil, err
		}
		d = r.(*tensor.Dense)
		if err := d.Reshape(left...); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Arg finds the places of elements along an axis, or of all elements with
// tensor.AllAxes.
func (ops *Ops) Arg(op string, f AxisOp, t tensor.Tensor, axis int) (tensor.Tensor, error) {
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
	return ops.run("Reduce", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Reduce(fn, h[0], axis, defaultValue, opts...)
	}, opts, a)
}

// OptimizedReduce computes StdEng.OptimizedReduce.
func (ops *Ops) OptimizedReduce(a tensor.Tensor, axis int, firstFn, lastFn, defaultFn, defaultValue interface{}, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	return ops.run("OptimizedReduce", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.OptimizedReduce(h[0], axis, firstFn, lastFn, defaultFn, defaultValue, opts...)
	}, opts, a)
}
