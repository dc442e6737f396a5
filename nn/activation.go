package nn

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Activation is a function that BiasActivate and Linear apply to every element.
type Activation int

// The activations. Rectify is Gorgonia's ReLU, whose slope at 0 is 1. It turns
// elements below 0 into −0, so that they differ from 0.
const (
	NoActivation = Activation(layers.None)
	ReLU         = Activation(layers.ReLU)
	Sigmoid      = Activation(layers.Sigmoid)
	Tanh         = Activation(layers.Tanh)
	Rectify      = Activation(layers.Rectify)
)

// String returns "none", "ReLU", "sigmoid", "tanh" or "rectify".
func (a Activation) String() string { return layers.Activation(a).String() }

// BiasActivate sets x, a matrix, to act(x + bias). It adds bias, a vector or one
// row as long as x's rows, to each row.
func BiasActivate(e *cupool.Engine, x, bias tensor.Tensor, act Activation) error {
	defer operand.KeepAlive(x, bias)
	const op = "BiasActivate"
	rows, cols, err := matrixShape(op, x)
	if err == nil {
		err = fit(e, op, x.Dtype(), want{t: x, n: rows * cols}, want{t: bias, n: cols})
	}
	if err != nil {
		return err
	}
	if ok, err := biasActivateOnGPU(tensorop.Of(e).GPU(), x, bias, rows, cols, act); ok {
		return err
	}
	return onHost(e, op, x, []tensor.Tensor{bias}, []tensor.Tensor{x}, biasOnHost[float32](act), biasOnHost[float64](act))
}

func biasOnHost[T layers.Float](act Activation) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.BiasActivate(operand.Slice[T](out[0]), operand.Slice[T](in[0]), layers.Activation(act))
	}
}

// BiasActivateBack computes the gradients of BiasActivate, whose result is y. It
// turns dy, the gradient by y, into the gradient by x. It sets db, which has the
// size of bias or is nil, to the gradient by bias.
func BiasActivateBack(e *cupool.Engine, y, dy, db tensor.Tensor, act Activation) error {
	defer operand.KeepAlive(y, dy, db)
	const op = "BiasActivateBack"
	rows, cols, err := matrixShape(op, y)
	if err == nil {
		err = fit(e, op, y.Dtype(), want{t: y, n: rows * cols}, want{t: dy, n: rows * cols}, want{db, cols, true})
	}
	if err != nil {
		return err
	}
	if ok, err := biasActivateBackOnGPU(tensorop.Of(e).GPU(), y, dy, db, rows, cols, act); ok {
		return err
	}
	return onHost(e, op, y, []tensor.Tensor{y}, []tensor.Tensor{dy, db}, biasBackOnHost[float32](cols, act), biasBackOnHost[float64](cols, act))
}

func biasBackOnHost[T layers.Float](cols int, act Activation) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.BiasActivateBack(operand.Slice[T](in[0]), operand.Slice[T](out[0]), operand.Slice[T](out[1]), cols, layers.Activation(act))
	}
}

func biasActivateOnGPU(g *gpu.Ops, x, bias tensor.Tensor, rows, cols int, act Activation) (bool, error) {
	args := kernels.BiasArgs{Activation: int64(act), Rows: int64(rows), Cols: int64(cols)}
	if !g.Addresses([]*uint64{&args.A, &args.B}, x, bias) {
		return false, nil
	}
	args.Dst = args.A
	return true, g.Each("BiasActivate", kernels.Bias.Of(isDouble(x)), rows*cols, unsafe.Pointer(&args))
}

func biasActivateBackOnGPU(g *gpu.Ops, y, dy, db tensor.Tensor, rows, cols int, act Activation) (bool, error) {
	args := kernels.BiasBackArgs{Activation: int64(act), Rows: int64(rows), Cols: int64(cols)}
	if !g.Addresses([]*uint64{&args.Y, &args.DY, &args.DB}, y, dy, db) {
		return false, nil
	}
	args.DX = args.DY
	l := kernels.Launch{Kernel: kernels.BiasBack.Of(isDouble(y)), X: gpu.Blocks(cols, gpu.Warp), Y: 1, Block: gpu.MaxBlock, Args: unsafe.Pointer(&args)}
	return true, g.Launch("BiasActivateBack", l)
}
