package cupool

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop"
)

// The methods of tensor.StdEng. They are written out, as a nil Engine has no method of
// what it embeds: Go panics.

// noOps are the operations of no engine: they fail.
var noOps = tensorop.New((*opMemory)(nil), nil)

// isNone reports whether this is nil or the zero Engine.
func (e *Engine) isNone() bool { return e == nil || e.ops == nil }

// made fails with ErrInvalidHandle for such an Engine.
func (e *Engine) made(op string) error {
	if e.isNone() {
		return noEngine(op)
	}
	return nil
}

func noEngine(op string) error {
	return engineError(op, fmt.Errorf("the Engine is nil, or NewEngine did not make it: %w", ErrInvalidHandle))
}

// std returns the engine's operations.
func (e *Engine) std() *tensorop.Ops {
	if e.isNone() {
		return noOps
	}
	return e.ops
}

// Add implements tensor.Adder: a + b.
func (e *Engine) Add(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Add", tensor.StdEng.Add, a, b, opts)
}

// AddScalar implements tensor.Adder: t + s.
func (e *Engine) AddScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("AddScalar", tensor.StdEng.AddScalar, t, s, leftTensor, opts)
}

// Sub implements tensor.Suber: a − b.
func (e *Engine) Sub(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Sub", tensor.StdEng.Sub, a, b, opts)
}

// SubScalar implements tensor.Suber: t − s.
func (e *Engine) SubScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("SubScalar", tensor.StdEng.SubScalar, t, s, leftTensor, opts)
}

// Mul implements tensor.Muler: a × b, element by element.
func (e *Engine) Mul(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Mul", tensor.StdEng.Mul, a, b, opts)
}

// MulScalar implements tensor.Muler: t × s.
func (e *Engine) MulScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("MulScalar", tensor.StdEng.MulScalar, t, s, leftTensor, opts)
}

// Div implements tensor.Diver: a / b.
func (e *Engine) Div(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Div", tensor.StdEng.Div, a, b, opts)
}

// DivScalar implements tensor.Diver: t / s.
func (e *Engine) DivScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("DivScalar", tensor.StdEng.DivScalar, t, s, leftTensor, opts)
}

// Pow implements tensor.Power: a to the power of b.
func (e *Engine) Pow(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Pow", tensor.StdEng.Pow, a, b, opts)
}

// PowScalar implements tensor.Power: t to the power of s.
func (e *Engine) PowScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("PowScalar", tensor.StdEng.PowScalar, t, s, leftTensor, opts)
}

// Mod implements tensor.Moder: what is left of a / b.
func (e *Engine) Mod(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Binary("Mod", tensor.StdEng.Mod, a, b, opts)
}

// ModScalar implements tensor.Moder: what is left of t / s.
func (e *Engine) ModScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BinaryScalar("ModScalar", tensor.StdEng.ModScalar, t, s, leftTensor, opts)
}

// Gt implements tensor.Gter: a > b.
func (e *Engine) Gt(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("Gt", tensor.StdEng.Gt, a, b, opts)
}

// GtScalar implements tensor.Gter: t > s.
func (e *Engine) GtScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("GtScalar", tensor.StdEng.GtScalar, t, s, leftTensor, opts)
}

// Gte implements tensor.Gteer: a ≥ b.
func (e *Engine) Gte(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("Gte", tensor.StdEng.Gte, a, b, opts)
}

// GteScalar implements tensor.Gteer: t ≥ s.
func (e *Engine) GteScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("GteScalar", tensor.StdEng.GteScalar, t, s, leftTensor, opts)
}

// Lt implements tensor.Lter: a < b.
func (e *Engine) Lt(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("Lt", tensor.StdEng.Lt, a, b, opts)
}

// LtScalar implements tensor.Lter: t < s.
func (e *Engine) LtScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("LtScalar", tensor.StdEng.LtScalar, t, s, leftTensor, opts)
}

// Lte implements tensor.Lteer: a ≤ b.
func (e *Engine) Lte(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("Lte", tensor.StdEng.Lte, a, b, opts)
}

// LteScalar implements tensor.Lteer: t ≤ s.
func (e *Engine) LteScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("LteScalar", tensor.StdEng.LteScalar, t, s, leftTensor, opts)
}

// ElEq implements tensor.ElEqer: a = b.
func (e *Engine) ElEq(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("ElEq", tensor.StdEng.ElEq, a, b, opts)
}

// EqScalar implements tensor.ElEqer: t = s.
func (e *Engine) EqScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("EqScalar", tensor.StdEng.EqScalar, t, s, leftTensor, opts)
}

// ElNe implements tensor.ElEqer: a ≠ b.
func (e *Engine) ElNe(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Compare("ElNe", tensor.StdEng.ElNe, a, b, opts)
}

// NeScalar implements tensor.ElEqer: t ≠ s.
func (e *Engine) NeScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().CompareScalar("NeScalar", tensor.StdEng.NeScalar, t, s, leftTensor, opts)
}

// MinBetween implements tensor.MinBetweener: the smaller of a and b.
func (e *Engine) MinBetween(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Between("MinBetween", tensor.StdEng.MinBetween, a, b, opts)
}

// MinBetweenScalar implements tensor.MinBetweener: the smaller of t and s.
func (e *Engine) MinBetweenScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BetweenScalar("MinBetweenScalar", tensor.StdEng.MinBetweenScalar, t, s, leftTensor, opts)
}

// MaxBetween implements tensor.MaxBetweener: the larger of a and b.
func (e *Engine) MaxBetween(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Between("MaxBetween", tensor.StdEng.MaxBetween, a, b, opts)
}

// MaxBetweenScalar implements tensor.MaxBetweener: the larger of t and s.
func (e *Engine) MaxBetweenScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().BetweenScalar("MaxBetweenScalar", tensor.StdEng.MaxBetweenScalar, t, s, leftTensor, opts)
}

// Neg implements tensor.Neger: −a.
func (e *Engine) Neg(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Neg", tensor.StdEng.Neg, a, opts)
}

// Inv implements tensor.Inver: 1 / a.
func (e *Engine) Inv(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Inv", tensor.StdEng.Inv, a, opts)
}

// Square implements tensor.Squarer: a².
func (e *Engine) Square(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Square", tensor.StdEng.Square, a, opts)
}

// Cube implements tensor.Cuber: a³.
func (e *Engine) Cube(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Cube", tensor.StdEng.Cube, a, opts)
}

// Exp implements tensor.Exper: e to the power of a.
func (e *Engine) Exp(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Exp", tensor.StdEng.Exp, a, opts)
}

// Tanh implements tensor.Tanher: the hyperbolic tangent of a.
func (e *Engine) Tanh(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Tanh", tensor.StdEng.Tanh, a, opts)
}

// Log implements tensor.Loger: the natural logarithm of a.
func (e *Engine) Log(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Log", tensor.StdEng.Log, a, opts)
}

// Log2 implements tensor.Log2er: the logarithm of a to base 2.
func (e *Engine) Log2(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Log2", tensor.StdEng.Log2, a, opts)
}

// Log10 implements tensor.Log10er: the logarithm of a to base 10.
func (e *Engine) Log10(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Log10", tensor.StdEng.Log10, a, opts)
}

// Sqrt implements tensor.Sqrter: the square root of a.
func (e *Engine) Sqrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Sqrt", tensor.StdEng.Sqrt, a, opts)
}

// Cbrt implements tensor.Cbrter: the cube root of a.
func (e *Engine) Cbrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Cbrt", tensor.StdEng.Cbrt, a, opts)
}

// InvSqrt implements tensor.InvSqrter: 1 / √a.
func (e *Engine) InvSqrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("InvSqrt", tensor.StdEng.InvSqrt, a, opts)
}

// Sign implements tensor.Signer: −1, 0 or 1 by the sign of a.
func (e *Engine) Sign(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Sign", tensor.StdEng.Sign, a, opts)
}

// Abs implements tensor.Abser: the absolute value of a.
func (e *Engine) Abs(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Unary("Abs", tensor.StdEng.Abs, a, opts)
}

// Clamp implements tensor.Clamper: a with what is below min or above max set to
// that.
func (e *Engine) Clamp(a tensor.Tensor, min, max interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Clamp(a, min, max, opts)
}

// Map implements tensor.Mapper: fn is a func of a's element type to itself.
func (e *Engine) Map(fn interface{}, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Map(fn, a, opts)
}

// FMA implements tensor.FMAer: it adds a × x to y.
func (e *Engine) FMA(a, x, y tensor.Tensor) (tensor.Tensor, error) {
	return e.Mul(a, x, tensor.WithIncr(y))
}

// FMAScalar implements tensor.FMAer: it adds a × x to y.
func (e *Engine) FMAScalar(a tensor.Tensor, x interface{}, y tensor.Tensor) (tensor.Tensor, error) {
	return e.MulScalar(a, x, true, tensor.WithIncr(y))
}

// SoftMax implements tensor.SoftMaxer. Unlike StdEng it heeds WithReuse and
// UseUnsafe, as do the other three. It fails with an *EngineError around
// ErrNotSupported for a scalar, which has no axes, and for WithIncr.
func (e *Engine) SoftMax(x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SoftMax("SoftMax", tensor.StdEng.SoftMax, x, axis, opts)
}

// LogSoftMax implements tensor.SoftMaxer.
func (e *Engine) LogSoftMax(x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SoftMax("LogSoftMax", tensor.StdEng.LogSoftMax, x, axis, opts)
}

// SoftMaxB implements tensor.SoftMaxer.
func (e *Engine) SoftMaxB(output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SoftMaxBack("SoftMaxB", tensor.StdEng.SoftMaxB, output, grad, axis, opts)
}

// LogSoftMaxB implements tensor.SoftMaxer.
func (e *Engine) LogSoftMaxB(output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SoftMaxBack("LogSoftMaxB", tensor.StdEng.LogSoftMaxB, output, grad, axis, opts)
}

// Sum implements tensor.Sumer: the sums along the axes, or of all elements
// where there are none.
func (e *Engine) Sum(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	return e.std().Along("Sum", tensor.StdEng.Sum, a, along)
}

// Min implements tensor.Miner: the smallest elements along the axes, or of all.
func (e *Engine) Min(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	return e.std().Along("Min", tensor.StdEng.Min, a, along)
}

// Max implements tensor.Maxer: the largest elements along the axes, or of all.
func (e *Engine) Max(a tensor.Tensor, along ...int) (tensor.Tensor, error) {
	return e.std().Along("Max", tensor.StdEng.Max, a, along)
}

// Argmax implements tensor.Argmaxer: where the largest elements along an axis
// are, or that of all elements with tensor.AllAxes.
func (e *Engine) Argmax(t tensor.Tensor, axis int) (tensor.Tensor, error) {
	return e.std().Arg("Argmax", tensor.StdEng.Argmax, t, axis)
}

// Argmin implements tensor.Argminer: where the smallest elements along an axis
// are, or that of all elements with tensor.AllAxes.
func (e *Engine) Argmin(t tensor.Tensor, axis int) (tensor.Tensor, error) {
	return e.std().Arg("Argmin", tensor.StdEng.Argmin, t, axis)
}

// Reduce implements tensor.Reducer. Unlike StdEng it heeds WithReuse.
func (e *Engine) Reduce(fn interface{}, a tensor.Tensor, axis int, defaultValue interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Reduce(fn, a, axis, defaultValue, opts)
}

// OptimizedReduce implements tensor.OptimizedReducer.
func (e *Engine) OptimizedReduce(a tensor.Tensor, axis int, firstFn, lastFn, defaultFn, defaultValue interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().OptimizedReduce(a, axis, firstFn, lastFn, defaultFn, defaultValue, opts)
}

// Transpose implements tensor.Transposer: it moves the elements of a, which
// is marked as transposed already.
func (e *Engine) Transpose(a tensor.Tensor, expStrides []int) error {
	return e.std().Transpose(a, expStrides)
}

// Concat implements tensor.Concater: the tensors side by side along an axis that
// they have.
func (e *Engine) Concat(t tensor.Tensor, axis int, others ...tensor.Tensor) (tensor.Tensor, error) {
	return e.std().Concat(t, axis, others)
}

// StackDense implements tensor.DenseStacker: the tensors, of one shape, side by
// side along a new axis.
func (e *Engine) StackDense(t tensor.DenseTensor, axis int, others ...tensor.DenseTensor) (tensor.DenseTensor, error) {
	return e.std().StackDense(t, axis, others)
}

// Repeat implements tensor.Repeater: each slice of t along an axis as often as
// repeats say, which are one number for all slices or one for each.
func (e *Engine) Repeat(t tensor.Tensor, axis int, repeats ...int) (tensor.Tensor, error) {
	return e.std().Repeat(t, axis, repeats)
}

// RepeatReuse implements tensor.Repeater: Repeat into reuse.
func (e *Engine) RepeatReuse(t, reuse tensor.Tensor, axis int, repeats ...int) (tensor.Tensor, error) {
	return e.std().RepeatReuse(t, reuse, axis, repeats)
}

// Diag implements tensor.Diager. As StdEng's, the result has the shape of t,
// begins with the diagonal's elements, and is zero behind them.
func (e *Engine) Diag(t tensor.Tensor) (tensor.Tensor, error) { return e.std().Diag(t) }

// SelectByIndices implements tensor.ByIndiceser. Unlike StdEng it heeds
// WithReuse. It fails with an *EngineError around ErrNotSupported for WithIncr.
func (e *Engine) SelectByIndices(a, indices tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SelectByIndices(a, indices, axis, opts)
}

// SelectByIndicesB implements tensor.ByIndiceser. On a GPU, gradients of the same
// slice are added in the order of the indices, and indices that are out of range
// add to nothing. With WithReuse, as with WithIncr, they are added to what there was.
func (e *Engine) SelectByIndicesB(input, outGrad, indices tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().SelectByIndicesB(input, outGrad, indices, axis, opts)
}

// MatMul implements tensor.MatMuler: it writes a × b to prealloc.
func (e *Engine) MatMul(a, b, prealloc tensor.Tensor) error {
	return e.std().Product("MatMul", tensor.StdEng.MatMul, a, b, prealloc)
}

// MatVecMul implements tensor.MatVecMuler: it writes a × b to prealloc.
func (e *Engine) MatVecMul(a, b, prealloc tensor.Tensor) error {
	return e.std().Product("MatVecMul", tensor.StdEng.MatVecMul, a, b, prealloc)
}

// Inner implements tensor.InnerProder: the product of two vectors as a Go
// value, for which it waits.
func (e *Engine) Inner(a, b tensor.Tensor) (interface{}, error) { return e.std().Inner(a, b) }

// Trace implements tensor.Tracer: the sum of a matrix's diagonal as a Go value,
// for which it waits.
func (e *Engine) Trace(a tensor.Tensor) (interface{}, error) { return e.std().Trace(a) }

// Dot implements tensor.Dotter. Products with a matrix go to MatMul and
// MatVecMul.
func (e *Engine) Dot(x, y tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.std().Dot(x, y, opts)
}

// SVD implements tensor.SVDer. u and v are nil without uv.
func (e *Engine) SVD(a tensor.Tensor, uv, full bool) (s, u, v tensor.Tensor, err error) {
	return e.std().SVD(a, uv, full)
}
