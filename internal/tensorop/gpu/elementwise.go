package gpu

import (
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// operation is a kernel and its operation, by the name of the Engine's method.
type operation struct {
	kernel kernels.Kernel
	op     int64
}

var binaries = map[string]operation{
	"Add": {kernels.Binary, kernels.Add}, "Sub": {kernels.Binary, kernels.Sub},
	"Mul": {kernels.Binary, kernels.Mul}, "Div": {kernels.Binary, kernels.Div},
	"Pow": {kernels.Binary, kernels.Pow}, "Mod": {kernels.Binary, kernels.Mod},
	"MinBetween": {kernels.Binary, kernels.Min}, "MaxBetween": {kernels.Binary, kernels.Max},
	"Gt": {kernels.CompareBool, kernels.Gt}, "Gte": {kernels.CompareBool, kernels.Gte},
	"Lt": {kernels.CompareBool, kernels.Lt}, "Lte": {kernels.CompareBool, kernels.Lte},
	"ElEq": {kernels.CompareBool, kernels.Eq}, "ElNe": {kernels.CompareBool, kernels.Ne},
}

var scalars = map[string]operation{
	"AddScalar": binaries["Add"], "SubScalar": binaries["Sub"],
	"MulScalar": binaries["Mul"], "DivScalar": binaries["Div"],
	"PowScalar": binaries["Pow"], "ModScalar": binaries["Mod"],
	"MinBetweenScalar": binaries["MinBetween"], "MaxBetweenScalar": binaries["MaxBetween"],
	"GtScalar": binaries["Gt"], "GteScalar": binaries["Gte"],
	"LtScalar": binaries["Lt"], "LteScalar": binaries["Lte"],
	"EqScalar": binaries["ElEq"], "NeScalar": binaries["ElNe"],
}

var functions = map[string]int64{
	"Neg": kernels.Neg, "Inv": kernels.Inv, "Square": kernels.Square, "Cube": kernels.Cube, "Exp": kernels.Exp,
	"Tanh": kernels.Tanh, "Log": kernels.Log, "Log2": kernels.Log2, "Log10": kernels.Log10, "Sqrt": kernels.Sqrt,
	"Cbrt": kernels.Cbrt, "InvSqrt": kernels.InvSqrt, "Sign": kernels.Sign, "Abs": kernels.Abs,
}

// Binary computes an operation on two tensors of one shape; b may also be a
// vector as long as a's rows, or one row, which is used for all rows of a
// matrix a. dt is the type of a new result.
func (g *Ops) Binary(op string, a, b tensor.Tensor, o *operand.Options, dt tensor.Dtype) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	p, known := binaries[op]
	var v [2]view
	if !known || !g.floatsOf(v[:], a, b) {
		return nil, false, nil
	}
	strides := v[1].strides
	if !slices.Equal(v[0].shape, v[1].shape) {
		var ok bool
		if strides, ok = rowStrides(&v[0], &v[1]); !ok {
			return nil, false, nil
		}
	}
	args := kernels.BinaryArgs{A: v[0].address(), B: v[1].address(), Op: p.op}
	return g.elementwise(op, p.kernel, &args, &v[0], strides, v[:], o, dt)
}

// rowStrides returns the strides with which row, a vector or a matrix of one
// row, is walked along with every row of a matrix.
func rowStrides(matrix, row *view) ([]int, bool) {
	last := len(row.shape) - 1
	if len(matrix.shape) != 2 || last < 0 || last > 1 || row.n != matrix.shape[1] || row.shape[last] != row.n {
		return nil, false
	}
	return []int{0, row.strides[last]}, true
}

// BinaryScalar computes an operation on a tensor and a scalar: a Go value, or
// a tensor of one element.
func (g *Ops) BinaryScalar(op string, t tensor.Tensor, s interface{}, leftTensor bool, o *operand.Options, dt tensor.Dtype) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	p, known := scalars[op]
	var v [2]view
	if !known || !g.floatsOf(v[:1], t) {
		return nil, false, nil
	}
	var args kernels.BinaryArgs
	args.Op = p.op
	used := v[:1]
	if value, ok := floatOf(s, v[0].dt); ok {
		args.VB = value
	} else if st, ok := s.(tensor.Tensor); ok && g.floatsOf(v[1:], st) && v[1].n == 1 && v[1].dt == v[0].dt {
		args.B, used = v[1].address(), v[:2]
	} else {
		return nil, false, nil
	}
	args.A = v[0].address()
	strides := make([]int, len(v[0].shape))
	if !leftTensor && p.op != kernels.Min && p.op != kernels.Max { // those two begin with the tensor, whichever is left
		args.A, args.B, args.VA = args.B, args.A, args.VB
		return g.elementwiseFrom(op, p.kernel, &args, &v[0], strides, v[0].strides, used, o, dt)
	}
	return g.elementwise(op, p.kernel, &args, &v[0], strides, used, o, dt)
}

// floatOf returns a Go value, or the one element of a tensor in Go's heap, if
// it has the type.
func floatOf(s interface{}, dt tensor.Dtype) (float64, bool) {
	if d, ok := s.(*tensor.Dense); ok && d != nil && d.Engine() == tensor.Engine(tensor.StdEng{}) && d.MemSize() == d.Dtype().Size() {
		s = d.Get(0)
	}
	switch x := s.(type) {
	case float32:
		return float64(x), dt == tensor.Float32
	case float64:
		return x, dt == tensor.Float64
	}
	return 0, false
}

// elementwise is elementwiseFrom for an operation whose first operand is a.
func (g *Ops) elementwise(op string, k kernels.Kernel, args *kernels.BinaryArgs, a *view, strides []int, in []view, o *operand.Options, dt tensor.Dtype) (tensor.Tensor, bool, error) {
	return g.elementwiseFrom(op, k, args, a, a.strides, strides, in, o, dt)
}

// elementwiseFrom launches an operation whose result has a's shape, with
// operands that are walked with strides sa and sb. in are all operands.
func (g *Ops) elementwiseFrom(op string, k kernels.Kernel, args *kernels.BinaryArgs, a *view, sa, sb []int, in []view, o *operand.Options, dt tensor.Dtype) (tensor.Tensor, bool, error) {
	if k == kernels.CompareBool {
		if o.Unsafe || o.Incr != nil {
			return nil, false, nil
		}
		if o.Same {
			k = kernels.CompareSame
		}
	}
	dst, incr, ok, err := g.output(a, o, dt, a.shape)
	if !ok || err != nil {
		return nil, ok, err
	}
	walk, ok := walk3(a.shape, dst.strides, sa, sb)
	for i := range in {
		ok = ok && !dst.clashes(&in[i])
	}
	if !ok {
		g.drop(&dst, o)
		return nil, false, nil
	}
	args.Dst, args.N, args.Walk = dst.address(), int64(a.n), walk
	if incr {
		args.Incr = 1
	}
	return g.finish(&dst, o, g.Each(op, k.Of(a.double()), a.n, unsafe.Pointer(args)))
}

// unary computes a function of a tensor; p and q are its parameters.
func (g *Ops) unary(op string, kind int64, a tensor.Tensor, p, q float64, o *operand.Options) (tensor.Tensor, bool, error) {
	var v [1]view
	if g == nil || !g.floatsOf(v[:], a) {
		return nil, false, nil
	}
	dst, incr, ok, err := g.output(&v[0], o, v[0].dt, v[0].shape)
	if !ok || err != nil {
		return nil, ok, err
	}
	walk, ok := walk3(v[0].shape, dst.strides, v[0].strides)
	if !ok || dst.clashes(&v[0]) {
		g.drop(&dst, o)
		return nil, false, nil
	}
	args := kernels.UnaryArgs{Dst: dst.address(), A: v[0].address(), P: p, Q: q, Op: kind, N: int64(v[0].n), Walk: walk}
	if incr {
		args.Incr = 1
	}
	return g.finish(&dst, o, g.Each(op, kernels.Unary.Of(v[0].double()), v[0].n, unsafe.Pointer(&args)))
}

// Function is unary by the name of the Engine's method.
func (g *Ops) Function(op string, a tensor.Tensor, o *operand.Options) (tensor.Tensor, bool, error) {
	kind, known := functions[op]
	if !known {
		return nil, false, nil
	}
	return g.unary(op, kind, a, 0, 0, o)
}

// Clamp is unary for Clamp.
func (g *Ops) Clamp(a tensor.Tensor, lo, hi interface{}, o *operand.Options) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	p, okP := floatOf(lo, a.Dtype())
	q, okQ := floatOf(hi, a.Dtype())
	if !okP || !okQ {
		return nil, false, nil
	}
	return g.unary("Clamp", kernels.Clamp, a, p, q, o)
}
