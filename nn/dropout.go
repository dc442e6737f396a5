package nn

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Dropout sets each element of y to 0 with probability drop, which is in [0, 1],
// and otherwise to that of x divided by 1 − drop. x and y have one size, and y
// may be x. Which elements are dropped depends on s and their places alone.
func Dropout(e *cupool.Engine, x, y tensor.Tensor, drop float64, s Seed) error {
	return dropout(e, "Dropout", x, y, drop, scaleOf(drop), s)
}

// DropoutBack sets dx to the gradient of a Dropout by x, given dy, the gradient by
// y. It drops the elements that a Dropout with the same s drops, whose choice is
// made anew and not stored. dx may be dy.
func DropoutBack(e *cupool.Engine, dy, dx tensor.Tensor, drop float64, s Seed) error {
	return dropout(e, "DropoutBack", dy, dx, drop, scaleOf(drop), s)
}

// ScaledDropoutBack is DropoutBack that multiplies by scale in place of dividing
// by 1 − drop.
func ScaledDropoutBack(e *cupool.Engine, dy, dx tensor.Tensor, drop, scale float64, s Seed) error {
	return dropout(e, "ScaledDropoutBack", dy, dx, drop, scale, s)
}

// scaleOf returns what a kept element is multiplied by. Where none is kept, it
// does not matter.
func scaleOf(drop float64) float64 { return 1 / (1 - drop) }

func dropout(e *cupool.Engine, op string, from, to tensor.Tensor, drop, scale float64, s Seed) error {
	defer operand.KeepAlive(from, to, s.Draw)
	n, err := fitPair(e, op, from, to)
	switch {
	case err != nil:
		return err
	case !(drop >= 0 && drop <= 1):
		return unsupported(op, "%v is no probability", drop)
	}
	if err := s.fit(e, op); err != nil || n == 0 {
		return err
	}
	if ok, err := dropoutOnGPU(tensorop.Of(e).GPU(), op, from, to, 1-drop, scale, s); ok {
		return err
	}
	return onHost(e, op, from, []tensor.Tensor{from, s.Draw}, []tensor.Tensor{to}, dropoutOnHost[float32](1-drop, scale, s), dropoutOnHost[float64](1-drop, scale, s))
}

func dropoutOnHost[T layers.Float](keep, scale float64, s Seed) hostStep {
	return func(in, out []*tensor.Dense) {
		philox.Dropout(operand.Slice[T](out[0]), operand.Slice[T](in[0]), keep, scale, s.stream(in[1]), s.Seed)
	}
}

func dropoutOnGPU(g *gpu.Ops, op string, from, to tensor.Tensor, keep, scale float64, s Seed) (bool, error) {
	n := from.Shape().TotalSize()
	args := kernels.DropoutArgs{Seed: s.Seed, Stream: s.Stream, Keep: keep, Scale: scale, N: int64(n)}
	if !g.Addresses([]*uint64{&args.A, &args.Dst, &args.DrawAt}, from, to, s.Draw) {
		return false, nil
	}
	return true, g.Each(op, kernels.Dropout.Of(isDouble(from)), (n+3)/4, unsafe.Pointer(&args))
}
