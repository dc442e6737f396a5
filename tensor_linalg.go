package cupool

import (
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/tensor"
)

// Linear algebra, as tensor.StdEng does it, with the result in the pool.

// matMulOp writes the product of two tensors to a third.
type matMulOp func(e tensor.StdEng, a, b, prealloc tensor.Tensor) error

func (e *Engine) product(op string, f matMulOp, a, b, prealloc tensor.Tensor) error {
	defer keepAlive(a, b, prealloc)
	if ok, err := e.gpu.product(op, a, b, prealloc); ok {
		return err
	}
	if e.serves(a, b, prealloc) {
		if err := e.hostReady(); err != nil {
			return err
		}
		return f(std, a, b, prealloc)
	}
	return e.runInto(op, prealloc, func(dst tensor.Tensor, h []tensor.Tensor) error {
		return f(std, h[0], h[1], dst)
	}, a, b)
}

// MatMul implements tensor.MatMuler: it writes a × b to prealloc.
func (e *Engine) MatMul(a, b, prealloc tensor.Tensor) error {
	return e.product("MatMul", tensor.StdEng.MatMul, a, b, prealloc)
}

// BatchMatMul writes the products of as many pairs of matrices as a has to
// prealloc: a is (n, i, k), b (n, k, j) and prealloc (n, i, j). It fails with an
// *EngineError around ErrSizeMismatch, ErrNotSupported for tensors of another
// engine, or what the device says.
func (e *Engine) BatchMatMul(a, b, prealloc tensor.Tensor) error {
	defer keepAlive(a, b, prealloc)
	const op = "BatchMatMul"
	var s [3]tensor.Shape
	for i, t := range []tensor.Tensor{a, b, prealloc} {
		if isNil(t) || t.Dims() != 3 {
			return engineError(op, fmt.Errorf("operand %d has not three dimensions: %w", i+1, ErrSizeMismatch))
		}
		s[i] = t.Shape()
	}
	if s[0][0] != s[1][0] || s[0][2] != s[1][1] || !s[2].Eq(tensor.Shape{s[0][0], s[0][1], s[1][2]}) {
		return engineError(op, fmt.Errorf("%v times %v to %v: %w", s[0], s[1], s[2], ErrSizeMismatch))
	}
	if ok, err := e.gpu.batchMatMul(a, b, prealloc); ok {
		return err
	}
	return e.runInto(op, prealloc, func(dst tensor.Tensor, h []tensor.Tensor) error {
		return engineError(op, multiplyBatch(h[0], h[1], dst))
	}, a, b)
}

// multiplyBatch is BatchMatMul for host tensors.
func multiplyBatch(a, b, dst tensor.Tensor) error {
	x, y := tensor.Materialize(a).(*tensor.Dense), tensor.Materialize(b).(*tensor.Dense)
	r := tensor.NewDense(a.Dtype(), dst.Shape().Clone())
	for i := range a.Shape()[0] {
		if _, err := tensor.MatMul(matrixAt(x, i), matrixAt(y, i), tensor.WithReuse(matrixAt(r, i))); err != nil {
			return err
		}
	}
	runtime.KeepAlive(x) // matrixAt has only addresses
	runtime.KeepAlive(y)
	return tensor.Copy(dst, r)
}

// matrixAt returns the i-th matrix of a host tensor in row-major order. Slice
// would drop its dimensions of one element.
func matrixAt(t *tensor.Dense, i int) *tensor.Dense {
	size := uintptr(t.Shape()[1]*t.Shape()[2]) * t.Dtype().Size()
	return tensor.NewDense(t.Dtype(), t.Shape()[1:].Clone(), tensor.FromMemory(t.Uintptr()+uintptr(i)*size, size))
}

// MatVecMul implements tensor.MatVecMuler: it writes a × b to prealloc.
func (e *Engine) MatVecMul(a, b, prealloc tensor.Tensor) error {
	return e.product("MatVecMul", tensor.StdEng.MatVecMul, a, b, prealloc)
}

// Outer implements tensor.OuterProder: it adds the outer product of two
// vectors to prealloc, a matrix.
func (e *Engine) Outer(a, b, prealloc tensor.Tensor) error {
	return e.product("Outer", tensor.StdEng.Outer, a, b, prealloc)
}

// Inner implements tensor.InnerProder.
func (e *Engine) Inner(a, b tensor.Tensor) (interface{}, error) {
	defer keepAlive(a, b)
	if v, ok, err := e.gpu.innerValue(a, b); ok {
		return v, err
	}
	return runValue(e, "Inner", func(h []tensor.Tensor) (interface{}, error) { return std.Inner(h[0], h[1]) }, a, b)
}

// Trace implements tensor.Tracer.
func (e *Engine) Trace(a tensor.Tensor) (interface{}, error) {
	return runValue(e, "Trace", func(h []tensor.Tensor) (interface{}, error) { return std.Trace(h[0]) }, a)
}

// Dot implements tensor.Dotter. Products with a matrix go to MatMul and
// MatVecMul.
func (e *Engine) Dot(x, y tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(x, y)
	if isMatrixProduct(x.Shape(), y.Shape()) {
		return std.Dot(x, y, opts...)
	}
	o := parseOpts(opts)
	if r, ok, err := e.gpu.dot(x, y, &o); ok {
		return r, err
	}
	return e.run("Dot", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Dot(h[0], h[1], opts...)
	}, opts, x, y)
}

// isMatrixProduct reports whether StdEng.Dot leaves operands of these shapes
// to the methods MatMul and MatVecMul.
func isMatrixProduct(x, y tensor.Shape) bool {
	vectorOrMatrix := func(s tensor.Shape) bool { return s.IsVector() || s.IsMatrix() }
	return vectorOrMatrix(x) && vectorOrMatrix(y) && !(x.IsVector() && y.IsVector())
}

// SVD implements tensor.SVDer. u and v are nil without uv.
func (e *Engine) SVD(a tensor.Tensor, uv, full bool) (s, u, v tensor.Tensor, err error) {
	r, err := runValue(e, "SVD", func(h []tensor.Tensor) (r [3]tensor.Tensor, err error) {
		r[0], r[1], r[2], err = std.SVD(h[0], uv, full)
		return r, err
	}, a)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, t := range r {
		d, ok := t.(*tensor.Dense)
		if !ok || d == nil {
			continue
		}
		if r[i], err = e.adopt(d); err != nil {
			return nil, nil, nil, errors.Join(err, e.FreeTensor(r[:i]...))
		}
	}
	return r[0], r[1], r[2], nil
}

// Norm returns the norm of t along the axes, as t.Norm does, but loses no
// temporaries.
func (e *Engine) Norm(t *tensor.Dense, ord tensor.NormOrder, axes ...int) (*tensor.Dense, error) {
	return e.Compute(func(h []*tensor.Dense) (*tensor.Dense, error) { return h[0].Norm(ord, axes...) }, t)
}

// Contract returns the product of two tensors along the axes, as
// tensor.Contract does, but loses no temporaries.
func (e *Engine) Contract(a, b *tensor.Dense, aAxes, bAxes []int) (*tensor.Dense, error) {
	return e.Compute(func(h []*tensor.Dense) (*tensor.Dense, error) { return h[0].TensorMul(h[1], aAxes, bAxes) }, a, b)
}
