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

// Sparsemax sets each row of y, along its last axis, to the probabilities that are
// nearest to that row of x, many of which are 0 (Martins and Astudillo, ICML 2016).
// A row with NaN or +Inf becomes NaN. x and y have one shape, and y may be x.
func Sparsemax(e *cupool.Engine, x, y tensor.Tensor) error {
	defer operand.KeepAlive(x, y)
	return sparse(e, "Sparsemax", x, nil, y)
}

// SparsemaxBack sets dx to the gradient of a Sparsemax by x, given y and dy, the
// gradient by y. All have one shape, and dx may be y or dy.
func SparsemaxBack(e *cupool.Engine, y, dy, dx tensor.Tensor) error {
	defer operand.KeepAlive(y, dy, dx)
	const op = "SparsemaxBack"
	if operand.IsNil(dy) {
		return unsupported(op, "no gradient")
	}
	return sparse(e, op, y, dy, dx)
}

func sparse(e *cupool.Engine, op string, x, g, y tensor.Tensor) error {
	n, err := fitPair(e, op, x, y)
	if err == nil && !operand.IsNil(g) {
		if err = fit(e, op, x.Dtype(), want{t: g, n: n}); err == nil {
			err = fitOnto(op, y, g)
		}
	}
	if err != nil || n == 0 {
		return err
	}
	cols := 1
	if s := x.Shape(); s.Dims() > 0 {
		cols = s[s.Dims()-1]
	}
	if ok, err := sparseOnGPU(tensorop.Of(e).GPU(), op, x, g, y, cols); ok {
		return err
	}
	return onHost(e, op, x, []tensor.Tensor{x, g}, []tensor.Tensor{y}, sparseOnHost[float32](cols), sparseOnHost[float64](cols))
}

func sparseOnHost[T layers.Float](cols int) hostStep {
	return func(in, out []*tensor.Dense) {
		x, g, y := operand.Slice[T](in[0]), operand.Slice[T](in[1]), operand.Slice[T](out[0])
		if g == nil {
			layers.Sparsemax(y, x, cols)
		} else {
			layers.SparsemaxBack(y, x, g, cols)
		}
	}
}

func sparseOnGPU(ops *gpu.Ops, op string, x, g, y tensor.Tensor, cols int) (bool, error) {
	rows := x.Shape().TotalSize() / cols
	args := kernels.SparsemaxArgs{Rows: int64(rows), N: int64(cols)}
	if !ops.Addresses([]*uint64{&args.A, &args.G, &args.Dst}, x, g, y) {
		return false, nil
	}
	k := kernels.Sparsemax
	if !operand.IsNil(g) {
		k = kernels.SparsemaxBack
	}
	return true, ops.Rows(op, k.Of(isDouble(x)), rows, unsafe.Pointer(&args))
}
