package nn

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Convert sets y to the numbers of x in another type. One of them has the type
// tensor.Int, and the other float32 or float64. Fractions are cut off. NaN and what
// an int cannot hold become the smallest int. x and y have one size and do not
// overlap.
func Convert(e *cupool.Engine, x, y tensor.Tensor) error {
	defer operand.KeepAlive(x, y)
	const op = "Convert"
	if operand.IsNil(x) || operand.IsNil(y) {
		return unsupported(op, "no tensor")
	}
	ints, floats := x, y
	toInt := y.Dtype() == tensor.Int
	if toInt {
		ints, floats = y, x
	}
	n := x.Shape().TotalSize()
	if err := fitType(e, op, tensor.Int, want{t: ints, n: n}); err != nil {
		return err
	}
	if err := fit(e, op, floats.Dtype(), want{t: floats, n: n}); err != nil {
		return err
	}
	if err := fitApart(op, []tensor.Tensor{y}, x); err != nil || n == 0 {
		return err
	}
	if ok, err := convertOnGPU(tensorop.Of(e).GPU(), x, y, toInt, isDouble(floats)); ok {
		return err
	}
	if toInt {
		return onHost(e, op, floats, []tensor.Tensor{x}, []tensor.Tensor{y}, toInts[float32], toInts[float64])
	}
	return onHost(e, op, floats, []tensor.Tensor{x}, []tensor.Tensor{y}, toFloats[float32], toFloats[float64])
}

func toFloats[T layers.Float](in, out []*tensor.Dense) {
	y := operand.Slice[T](out[0])
	for i, v := range operand.Slice[int](in[0]) {
		y[i] = T(v)
	}
}

func toInts[T layers.Float](in, out []*tensor.Dense) {
	y := operand.Slice[int](out[0])
	for i, v := range operand.Slice[T](in[0]) {
		if v >= math.MinInt64 && v < -math.MinInt64 {
			y[i] = int(v)
		} else {
			y[i] = math.MinInt64
		}
	}
}

func convertOnGPU(g *gpu.Ops, x, y tensor.Tensor, toInt, double bool) (bool, error) {
	n := x.Shape().TotalSize()
	args := kernels.ConvertArgs{N: int64(n)}
	if !g.Addresses([]*uint64{&args.A, &args.Dst}, x, y) {
		return false, nil
	}
	if toInt {
		args.ToInt = 1
	}
	return true, g.Each("Convert", kernels.Convert.Of(double), n, unsafe.Pointer(&args))
}

// DiagFlat sets y, a matrix of n rows and n columns, to x's n elements on the
// diagonal and zeros elsewhere. They do not overlap.
func DiagFlat(e *cupool.Engine, x, y tensor.Tensor) error {
	defer operand.KeepAlive(x, y)
	const op = "DiagFlat"
	if operand.IsNil(x) {
		return unsupported(op, "no tensor")
	}
	n := x.Shape().TotalSize()
	if err := fit(e, op, x.Dtype(), want{t: x, n: n}, want{t: y, n: n * n}); err != nil {
		return err
	}
	if err := fitApart(op, []tensor.Tensor{y}, x); err != nil || n == 0 {
		return err
	}
	if err := e.Zero(y); err != nil {
		return fail(op, err)
	}
	if ok, err := diagonalOnGPU(tensorop.Of(e).GPU(), x, y, n); ok {
		return err
	}
	return onHost(e, op, x, []tensor.Tensor{x}, []tensor.Tensor{y}, diagonalOnHost[float32], diagonalOnHost[float64])
}

func diagonalOnHost[T layers.Float](in, out []*tensor.Dense) {
	x, y := operand.Slice[T](in[0]), operand.Slice[T](out[0])
	for i, v := range x {
		y[i*(len(x)+1)] = v
	}
}

func diagonalOnGPU(g *gpu.Ops, x, y tensor.Tensor, n int) (bool, error) {
	args := kernels.CopyArgs{N: int64(n), Walk: oneByOne(n)}
	args.Walk.Stride[0][0] = int64(n + 1)
	k, sized := kernels.Copy.OfSize(x.Dtype().Size())
	if !sized || !g.Addresses([]*uint64{&args.A, &args.Dst}, x, y) {
		return false, nil
	}
	return true, g.Each("DiagFlat", k, n, unsafe.Pointer(&args))
}
