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

// Function is a function of one number that the Engine has no method for. Apply
// computes it.
type Function int

// The functions. Logistic is 1 / (1 + exp(−x)), Softplus is log(1 + exp(x)).
const (
	Sin      = Function(kernels.Sin)
	Cos      = Function(kernels.Cos)
	Ceil     = Function(kernels.Ceil)
	Floor    = Function(kernels.Floor)
	Log1p    = Function(kernels.Log1p)
	Expm1    = Function(kernels.Expm1)
	Softplus = Function(kernels.Softplus)
	Logistic = Function(kernels.Sigmoid)
)

// functions are what the CPU computes. Numbers of float32 are rounded at the end.
var functions = map[Function]struct {
	name string
	f    func(float64) float64
}{
	Sin: {"sin", math.Sin}, Cos: {"cos", math.Cos}, Ceil: {"ceil", math.Ceil}, Floor: {"floor", math.Floor},
	Log1p: {"log1p", math.Log1p}, Expm1: {"expm1", math.Expm1},
	Softplus: {"softplus", func(x float64) float64 {
		if x > 0 {
			return x + math.Log1p(math.Exp(-x))
		}
		return math.Log1p(math.Exp(x))
	}},
	Logistic: {"logistic", func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
}

// String returns the function's name in small letters, or "unknown".
func (f Function) String() string {
	if known, ok := functions[f]; ok {
		return known.name
	}
	return "unknown"
}

// Apply sets each element of y to f of that of x. x and y have one size, and y may
// be x.
func Apply(e *cupool.Engine, f Function, x, y tensor.Tensor) error {
	defer operand.KeepAlive(x, y)
	const op = "Apply"
	known, ok := functions[f]
	if !ok {
		return unsupported(op, "function %d", int(f))
	}
	n, err := fitPair(e, op, x, y)
	if err != nil || n == 0 {
		return err
	}
	if ok, err := applyOnGPU(tensorop.Of(e).GPU(), f, x, y, n); ok {
		return err
	}
	return onHost(e, op, x, []tensor.Tensor{x}, []tensor.Tensor{y}, applyOnHost[float32](known.f), applyOnHost[float64](known.f))
}

func applyOnHost[T layers.Float](f func(float64) float64) hostStep {
	return func(in, out []*tensor.Dense) {
		y := operand.Slice[T](out[0])
		for i, v := range operand.Slice[T](in[0]) {
			y[i] = T(f(float64(v)))
		}
	}
}

func applyOnGPU(g *gpu.Ops, f Function, x, y tensor.Tensor, n int) (bool, error) {
	args := kernels.UnaryArgs{Op: int64(f), N: int64(n), Walk: oneByOne(n)}
	if !g.Addresses([]*uint64{&args.A, &args.Dst}, x, y) {
		return false, nil
	}
	return true, g.Each("Apply", kernels.Unary.Of(isDouble(x)), n, unsafe.Pointer(&args))
}

// oneByOne is the way through tensors of n elements without gaps.
func oneByOne(n int) kernels.Walk3 {
	w := kernels.Walk3{Dims: 1}
	w.Shape[0] = int64(n)
	for i := range w.Stride {
		w.Stride[i][0] = 1
	}
	return w
}
