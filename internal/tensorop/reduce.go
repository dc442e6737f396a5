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
		r, err := asMiddle(d, axis-k, func(three *tensor.Dense, axis int) (tensor.Tensor, error) {
			return f(tensor.StdEng{}, three, axis)
		})
		if err != nil {
			return nil, err
		}
		d = r.(*tensor.Dense)
	}
	return d, nil
}

// asMiddle calls f, which reduces along an axis, with the elements of a row-major tensor where that
// axis is the middle one of three.
func asMiddle(d *tensor.Dense, axis int, f func(three *tensor.Dense, axis int) (tensor.Tensor, error)) (tensor.Tensor, error) {
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
	return r, r.(*tensor.Dense).Reshape(left...)
}

// Norm computes the Norm of tensors, which is right along all axes.
func (ops *Ops) Norm(t *tensor.Dense, ord tensor.NormOrder, axes []int) (*tensor.Dense, error) {
	return ops.Compute(func(h []*tensor.Dense) (*tensor.Dense, error) {
		if len(axes) != 1 || !skips(h[0].Dims(), axes) {
			return h[0].Norm(ord, axes...)
		}
		r, err := asMiddle(h[0], axes[0], func(three *tensor.Dense, axis int) (tensor.Tensor, error) {
			r, err := three.Norm(ord, axis)
			if err != nil {
				return nil, err
			}
			return r, nil
		})
		if err != nil {
			return nil, err
		}
		return r.(*tensor.Dense), nil
	}, []*tensor.Dense{t})
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

// reduce computes f, a reduction along one axis by functions of the program's own.
func (ops *Ops) reduce(op string, f func(a tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error), a tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	return ops.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		d, ok := h[0].(*tensor.Dense)
		if !ok || !skips(d.Dims(), []int{axis}) || len(opts) > 0 {
			return f(h[0], axis, opts...)
		}
		return asMiddle(d, axis, func(three *tensor.Dense, axis int) (tensor.Tensor, error) { return f(three, axis) })
	}, opts, a)
}
