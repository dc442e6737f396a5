package cupool

import "gorgonia.org/tensor"

// The elementwise operations of tensor. Each works as tensor.StdEng's does,
// with the same options, errors and numbers, but the result is in the pool.

// Add implements tensor.Adder.
func (e *Engine) Add(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Add", tensor.StdEng.Add, a, b, opts)
}

// AddScalar implements tensor.Adder.
func (e *Engine) AddScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("AddScalar", tensor.StdEng.AddScalar, t, s, leftTensor, opts)
}

// Sub implements tensor.Suber.
func (e *Engine) Sub(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Sub", tensor.StdEng.Sub, a, b, opts)
}

// SubScalar implements tensor.Suber.
func (e *Engine) SubScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("SubScalar", tensor.StdEng.SubScalar, t, s, leftTensor, opts)
}

// Mul implements tensor.Muler.
func (e *Engine) Mul(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Mul", tensor.StdEng.Mul, a, b, opts)
}

// MulScalar implements tensor.Muler.
func (e *Engine) MulScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("MulScalar", tensor.StdEng.MulScalar, t, s, leftTensor, opts)
}

// Div implements tensor.Diver.
func (e *Engine) Div(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Div", tensor.StdEng.Div, a, b, opts)
}

// DivScalar implements tensor.Diver.
func (e *Engine) DivScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("DivScalar", tensor.StdEng.DivScalar, t, s, leftTensor, opts)
}

// Pow implements tensor.Power.
func (e *Engine) Pow(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Pow", tensor.StdEng.Pow, a, b, opts)
}

// PowScalar implements tensor.Power.
func (e *Engine) PowScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("PowScalar", tensor.StdEng.PowScalar, t, s, leftTensor, opts)
}

// Mod implements tensor.Moder.
func (e *Engine) Mod(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("Mod", tensor.StdEng.Mod, a, b, opts)
}

// ModScalar implements tensor.Moder.
func (e *Engine) ModScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binaryScalar("ModScalar", tensor.StdEng.ModScalar, t, s, leftTensor, opts)
}

// Gt implements tensor.Gter.
func (e *Engine) Gt(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("Gt", tensor.StdEng.Gt, a, b, opts)
}

// GtScalar implements tensor.Gter.
func (e *Engine) GtScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("GtScalar", tensor.StdEng.GtScalar, t, s, leftTensor, opts)
}

// Gte implements tensor.Gteer.
func (e *Engine) Gte(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("Gte", tensor.StdEng.Gte, a, b, opts)
}

// GteScalar implements tensor.Gteer.
func (e *Engine) GteScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("GteScalar", tensor.StdEng.GteScalar, t, s, leftTensor, opts)
}

// Lt implements tensor.Lter.
func (e *Engine) Lt(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("Lt", tensor.StdEng.Lt, a, b, opts)
}

// LtScalar implements tensor.Lter.
func (e *Engine) LtScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("LtScalar", tensor.StdEng.LtScalar, t, s, leftTensor, opts)
}

// Lte implements tensor.Lteer.
func (e *Engine) Lte(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("Lte", tensor.StdEng.Lte, a, b, opts)
}

// LteScalar implements tensor.Lteer.
func (e *Engine) LteScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("LteScalar", tensor.StdEng.LteScalar, t, s, leftTensor, opts)
}

// ElEq implements tensor.ElEqer.
func (e *Engine) ElEq(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("ElEq", tensor.StdEng.ElEq, a, b, opts)
}

// EqScalar implements tensor.ElEqer.
func (e *Engine) EqScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("EqScalar", tensor.StdEng.EqScalar, t, s, leftTensor, opts)
}

// ElNe implements tensor.ElEqer.
func (e *Engine) ElNe(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compare("ElNe", tensor.StdEng.ElNe, a, b, opts)
}

// NeScalar implements tensor.ElEqer.
func (e *Engine) NeScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.compareScalar("NeScalar", tensor.StdEng.NeScalar, t, s, leftTensor, opts)
}

// MinBetween implements tensor.MinBetweener.
func (e *Engine) MinBetween(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.between("MinBetween", tensor.StdEng.MinBetween, a, b, opts)
}

// MinBetweenScalar implements tensor.MinBetweener.
func (e *Engine) MinBetweenScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.betweenScalar("MinBetweenScalar", tensor.StdEng.MinBetweenScalar, t, s, leftTensor, opts)
}

// MaxBetween implements tensor.MaxBetweener.
func (e *Engine) MaxBetween(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.between("MaxBetween", tensor.StdEng.MaxBetween, a, b, opts)
}

// MaxBetweenScalar implements tensor.MaxBetweener.
func (e *Engine) MaxBetweenScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.betweenScalar("MaxBetweenScalar", tensor.StdEng.MaxBetweenScalar, t, s, leftTensor, opts)
}

// Neg implements tensor.Neger.
func (e *Engine) Neg(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Neg", tensor.StdEng.Neg, a, opts)
}

// Inv implements tensor.Inver.
func (e *Engine) Inv(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Inv", tensor.StdEng.Inv, a, opts)
}

// Square implements tensor.Squarer.
func (e *Engine) Square(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Square", tensor.StdEng.Square, a, opts)
}

// Cube implements tensor.Cuber.
func (e *Engine) Cube(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Cube", tensor.StdEng.Cube, a, opts)
}

// Exp implements tensor.Exper.
func (e *Engine) Exp(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Exp", tensor.StdEng.Exp, a, opts)
}

// Tanh implements tensor.Tanher.
func (e *Engine) Tanh(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Tanh", tensor.StdEng.Tanh, a, opts)
}

// Log implements tensor.Loger.
func (e *Engine) Log(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Log", tensor.StdEng.Log, a, opts)
}

// Log2 implements tensor.Log2er.
func (e *Engine) Log2(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Log2", tensor.StdEng.Log2, a, opts)
}

// Log10 implements tensor.Log10er.
func (e *Engine) Log10(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Log10", tensor.StdEng.Log10, a, opts)
}

// Sqrt implements tensor.Sqrter.
func (e *Engine) Sqrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Sqrt", tensor.StdEng.Sqrt, a, opts)
}

// Cbrt implements tensor.Cbrter.
func (e *Engine) Cbrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Cbrt", tensor.StdEng.Cbrt, a, opts)
}

// InvSqrt implements tensor.InvSqrter.
func (e *Engine) InvSqrt(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("InvSqrt", tensor.StdEng.InvSqrt, a, opts)
}

// Sign implements tensor.Signer.
func (e *Engine) Sign(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Sign", tensor.StdEng.Sign, a, opts)
}

// Abs implements tensor.Abser.
func (e *Engine) Abs(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.unary("Abs", tensor.StdEng.Abs, a, opts)
}
