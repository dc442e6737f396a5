package nn

import (
	"cmp"
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
// elements below 0 into −0, so that they differ from 0. For any other Activation a step fails
// with a *cupool.EngineError around ErrNotSupported.
const (
	NoActivation = Activation(layers.None)
	ReLU         = Activation(layers.ReLU)
	Sigmoid      = Activation(layers.Sigmoid)
	Tanh         = Activation(layers.Tanh)
	Rectify      = Activation(layers.Rectify)
)

// String returns "none", "ReLU", "sigmoid", "tanh" or "rectify".
func (a Activation) String() string { return layers.Activation(a).String() }

// fit fails for what is none of the activations.
func (a Activation) fit(op string) error {
	if a < NoActivation || a > Rectify {
		return unsupported(op, "activation %d", int(a))
	}
	return nil
}

// BiasActivate sets x, a matrix, to act(x + bias). It adds bias, a vector or one
// row as long as x's rows, to each row.
func BiasActivate(e *cupool.Engine, x, bias tensor.Tensor, act Activation) error {
	defer operand.KeepAlive(x, bias)
	const op = "BiasActivate"
	rows, cols, err := matrixShape(op, x)
	if err == nil {
		err = cmp.Or(act.fit(op), fit(e, op, x.Dtype(), want{t: x, n: rows * cols}, want{t: bias, n: cols}))
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
		err = cmp.Or(act.fit(op), fit(e, op, y.Dtype(), want{t: y, n: rows * cols}, want{t: dy, n: rows * cols}, want{db, cols, true}))
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

// Activate sets each element of y to act of that of x. x and y have one size, and
// y may be x.
func Activate(e *cupool.Engine, x, y tensor.Tensor, act Activation) error {
	return activate(e, "Activate", x, nil, y, act)
}

// ActivateBack sets dx to the gradient of Activate by x. y is the result of
// Activate, and dy the gradient by it. All have one size, and dx may be dy.
func ActivateBack(e *cupool.Engine, y, dy, dx tensor.Tensor, act Activation) error {
	if operand.IsNil(y) {
		return unsupported("ActivateBack", "no tensor")
	}
	return activate(e, "ActivateBack", dy, y, dx, act)
}

// activate computes both: with a y the gradient.
func activate(e *cupool.Engine, op string, from, y, to tensor.Tensor, act Activation) error {
	defer operand.KeepAlive(from, y, to)
	if operand.IsNil(from) {
		return unsupported(op, "no tensor")
	}
	n := from.Shape().TotalSize()
	err := cmp.Or(act.fit(op), fit(e, op, from.Dtype(), want{t: from, n: n}, want{t: to, n: n}, want{y, n, true}))
	if err == nil && !operand.IsNil(y) {
		err = fitApart(op, []tensor.Tensor{to}, y)
	}
	if err == nil {
		err = fitOnto(op, to, from)
	}
	if err != nil || n == 0 {
		return err
	}
	if ok, err := activateOnGPU(tensorop.Of(e).GPU(), op, from, y, to, act); ok {
		return err
	}
	return onHost(e, op, from, []tensor.Tensor{from, y}, []tensor.Tensor{to}, activateOnHost[float32](act), activateOnHost[float64](act))
}

func activateOnHost[T layers.Float](act Activation) hostStep {
	return func(in, out []*tensor.Dense) {
		from, y, to := operand.Slice[T](in[0]), operand.Slice[T](in[1]), operand.Slice[T](out[0])
		if y != nil {
			layers.ActivateBack(to, y, from, layers.Activation(act))
			return
		}
		copy(to, from)
		layers.Activate(to, layers.Activation(act))
	}
}

func activateOnGPU(g *gpu.Ops, op string, from, y, to tensor.Tensor, act Activation) (bool, error) {
	n := from.Shape().TotalSize()
	args := kernels.ActivateArgs{Activation: int64(act), N: int64(n)}
	if !g.Addresses([]*uint64{&args.A, &args.Y, &args.Dst}, from, y, to) {
		return false, nil
	}
	return true, g.Each(op, kernels.Activate.Of(isDouble(from)), (n+3)/4, unsafe.Pointer(&args))
}
