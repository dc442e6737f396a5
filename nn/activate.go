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
	err := fit(e, op, from.Dtype(), want{t: from, n: n}, want{t: to, n: n}, want{y, n, true})
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
