package tensorop

import (
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
		return f(tensor.StdEng{}, h[0], along...)
	}, nil, a)
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
