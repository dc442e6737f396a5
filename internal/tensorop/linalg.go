package tensorop

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Linear algebra.

// ProductOp is an operation of tensor.StdEng that writes the product of two
// tensors to a third.
type ProductOp func(e tensor.StdEng, a, b, prealloc tensor.Tensor) error

// Product computes MatMul, MatVecMul or Outer, as op names it.
func (ops *Ops) Product(op string, f ProductOp, a, b, prealloc tensor.Tensor) (err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, a, b, prealloc); err != nil {
		return err
	}
	defer operand.KeepAlive(a, b, prealloc)
	if x, y, z := a.Shape(), b.Shape(), prealloc.Shape(); !fits(op, x, y, z) {
		return ops.m.Error(op, fmt.Errorf("%v times %v to %v: %w", x, y, z, device.ErrSizeMismatch))
	}
	if ok, err := ops.gpu.Product(op, a, b, prealloc); ok {
		return err
	}
	// StdEng errs with results in column-major order: Outer overwrites them, and MatMul of a column and
	// a row computes the transpose. All of them overwrite operands that they still read.
	if dst, ok := prealloc.(*tensor.Dense); ok && operand.IsRowMajor(dst) && operand.Apart(dst, []tensor.Tensor{a, b}) && ops.multiplies(a) && ops.multiplies(b) && ops.reaches(dst) {
		if err := ops.m.Ready(); err != nil {
			return err
		}
		return f(tensor.StdEng{}, a, b, prealloc)
	}
	return ops.runInto(op, prealloc, func(dst tensor.Tensor, h []tensor.Tensor) error {
		separate(dst, h)
		return f(tensor.StdEng{}, h[0], h[1], dst)
	}, a, b)
}

// fits reports whether z has the shape of the product of x and y. StdEng computes with the
// parts that fit.
func fits(op string, x, y, z tensor.Shape) bool {
	switch op {
	case "MatMul":
		return len(x) == 2 && len(y) == 2 && len(z) == 2 && x[1] == y[0] && z[0] == x[0] && z[1] == y[1]
	case "MatVecMul":
		return len(x) == 2 && x[1] == y.TotalSize() && x[0] == z.TotalSize()
	default: // Outer
		return len(z) == 2 && z[0] == x.TotalSize() && z[1] == y.TotalSize()
	}
}

// separate puts copies in the place of host tensors that share memory with dst.
func separate(dst tensor.Tensor, h []tensor.Tensor) {
	for i := range h {
		if !operand.Apart(dst, h[i:i+1]) {
			h[i] = rowMajor(h[i].(*tensor.Dense))
		}
	}
}

// multiplies is serves for the operand of a product, which is in row-major order
// or a transposed matrix.
func (ops *Ops) multiplies(t tensor.Tensor) bool {
	d, ok := t.(*tensor.Dense)
	return ok && (operand.IsRowMajor(d) || operand.IsTransposed(d)) && ops.reaches(t)
}

// Contract sums up products of a's and b's elements along pairs of axes.
func (ops *Ops) Contract(a, b *tensor.Dense, aAxes, bAxes []int) (r *tensor.Dense, err error) {
	defer ops.caught("Contract", &err)
	defer operand.KeepAlive(a, b)
	if r, ok, err := ops.gpu.Contract(a, b, aAxes, bAxes); ok {
		return r, err
	}
	return ops.compute("Contract", func(h []*tensor.Dense) (*tensor.Dense, error) {
		if !operand.Paired(h[0].Shape(), h[1].Shape(), aAxes, bAxes) {
			return h[0].TensorMul(h[1], aAxes, bAxes)
		}
		return contracted(h[0], h[1], aAxes, bAxes)
	}, a, b)
}

// contracted is Contract for row-major host tensors. TensorMul writes the axes of b that
// are left over those of a, where its slice of them has room for one more.
func contracted(a, b *tensor.Dense, aAxes, bAxes []int) (*tensor.Dense, error) {
	restA, restB := operand.Rest(a.Dims(), aAxes), operand.Rest(b.Dims(), bAxes)
	x, errX := ordered(a, slices.Concat(restA, aAxes))
	y, errY := ordered(b, slices.Concat(bAxes, restB))
	if err := errors.Join(errX, errY); err != nil {
		return nil, err
	}
	shape := slices.Concat(x.Shape()[:len(restA)], y.Shape()[len(bAxes):])
	terms := y.Shape()[:len(bAxes)].TotalSize()
	if err := errors.Join(x.Reshape(x.Size()/terms, terms), y.Reshape(terms, y.Size()/terms)); err != nil {
		return nil, err
	}
	r, err := x.MatMul(y)
	if err != nil {
		return nil, err
	}
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	return r, r.Reshape(shape...)
}

// BatchMatMul writes the products of as many pairs of matrices as a has to
// prealloc.
func (ops *Ops) BatchMatMul(a, b, prealloc tensor.Tensor) (err error) {
	defer ops.caught("BatchMatMul", &err)
	defer operand.KeepAlive(a, b, prealloc)
	const op = "BatchMatMul"
	if err := ops.made(op); err != nil {
		return err
	}
	var s [3]tensor.Shape
	for i, t := range []tensor.Tensor{a, b, prealloc} {
		if operand.IsNil(t) || t.Dims() != 3 {
			return ops.m.Error(op, fmt.Errorf("operand %d has not three dimensions: %w", i+1, device.ErrSizeMismatch))
		}
		s[i] = t.Shape()
	}
	if s[0][0] != s[1][0] || s[0][2] != s[1][1] || !s[2].Eq(tensor.Shape{s[0][0], s[0][1], s[1][2]}) {
		return ops.m.Error(op, fmt.Errorf("%v times %v to %v: %w", s[0], s[1], s[2], device.ErrSizeMismatch))
	}
	if ok, err := ops.gpu.BatchMatMul(a, b, prealloc); ok {
		return err
	}
	return ops.runInto(op, prealloc, func(dst tensor.Tensor, h []tensor.Tensor) error {
		return ops.m.Error(op, multiplyBatch(h[0], h[1], dst))
	}, a, b)
}

// multiplyBatch is BatchMatMul for host tensors.
func multiplyBatch(a, b, dst tensor.Tensor) error {
	x, y := tensor.NewDense(a.Dtype(), a.Shape().Clone()), tensor.NewDense(b.Dtype(), b.Shape().Clone())
	if err := errors.Join(tensor.Copy(x, a), tensor.Copy(y, b)); err != nil { // a clone of a view has its gaps, and is none
		return err
	}
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

// Inner computes StdEng.Inner.
func (ops *Ops) Inner(a, b tensor.Tensor) (r interface{}, err error) {
	defer ops.caught("Inner", &err)
	defer operand.KeepAlive(a, b)
	if err := ops.made("Inner", a, b); err != nil {
		return nil, err
	}
	if x, y := a.Shape(), b.Shape(); len(x) == 0 || len(y) == 0 || x.TotalSize() != y.TotalSize() {
		return nil, ops.m.Error("Inner", fmt.Errorf("%v and %v are not the shapes of two vectors of one length: %w", x, y, device.ErrSizeMismatch))
	}
	if v, ok, err := ops.gpu.Inner(a, b); ok {
		return v, err
	}
	return runValue(ops, "Inner", func(h []tensor.Tensor) (interface{}, error) { return tensor.StdEng{}.Inner(h[0], h[1]) }, a, b)
}

// Trace computes StdEng.Trace.
func (ops *Ops) Trace(a tensor.Tensor) (r interface{}, err error) {
	defer ops.caught("Trace", &err)
	defer operand.KeepAlive(a)
	if v, ok, err := ops.gpu.Trace(a); ok {
		return v, err
	}
	return runValue(ops, "Trace", func(h []tensor.Tensor) (interface{}, error) { return tensor.StdEng{}.Trace(h[0]) }, a)
}

// Dot computes StdEng.Dot, but for products with a matrix, which StdEng leaves to the engine of x and for
// which it changes how y is laid out.
func (ops *Ops) Dot(x, y tensor.Tensor, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught("Dot", &err)
	if err := ops.made("Dot", x, y); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(x, y)
	if isMatrixProduct(x.Shape(), y.Shape()) {
		return ops.dotMatrix(x, y, operand.ParseOptions(opts))
	}
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.Dot(x, y, &o); ok {
		return r, err
	}
	if x.Dims() == 0 || y.Dims() == 0 {
		return ops.run("Dot", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
			return tensor.StdEng{}.Dot(h[0], h[1], opts...)
		}, opts, x, y)
	}
	return ops.run("Dot", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		r, err := dot(h[0], h[1])
		if err != nil {
			return nil, err
		}
		switch o := operand.ParseOptions(opts); {
		case o.Incr != nil:
			return tensor.StdEng{}.Add(o.Incr, r, tensor.UseUnsafe())
		case o.Reuse != nil:
			if err := o.Reuse.Reshape(r.Shape().Clone()...); err != nil {
				return nil, err
			}
			return o.Reuse, tensor.Copy(o.Reuse, r)
		}
		return r, nil
	}, opts, x, y)
}

// dot is Dot for row-major host tensors that are no scalars, nor a matrix and another or a vector. Of more
// than two axes, StdEng panics where x has four and where the sums have one term.
func dot(x, y tensor.Tensor) (tensor.Tensor, error) {
	a, okA := x.(*tensor.Dense)
	b, okB := y.(*tensor.Dense)
	along, with := []int{x.Dims() - 1}, []int{max(y.Dims()-2, 0)}
	panics := x.Dims() > 3 || max(x.Dims(), y.Dims()) > 2 && x.Shape()[along[0]] == 1
	if !panics || !okA || !okB || !operand.Paired(x.Shape(), y.Shape(), along, with) {
		return tensor.StdEng{}.Dot(x, y)
	}
	return contracted(a, b, along, with)
}

// dotMatrix computes the product of a matrix and a vector, in either order, or of two matrices.
func (ops *Ops) dotMatrix(x, y tensor.Tensor, o operand.Options) (r tensor.Tensor, err error) {
	op, f, shape := "MatVecMul", ProductOp(tensor.StdEng.MatVecMul), tensor.Shape{x.Shape()[0]}
	switch {
	case x.Shape().IsVector():
		var turned, temp *tensor.Dense
		if turned, temp, err = ops.turned(y); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ops.free([]tensor.Tensor{temp})) }()
		x, y, shape = turned, x, tensor.Shape{y.Shape()[1]}
	case !y.Shape().IsVector():
		op, f, shape = "MatMul", tensor.StdEng.MatMul, tensor.Shape{x.Shape()[0], y.Shape()[1]}
	}
	if r = o.Reuse; r == nil {
		r, err = ops.into(x.Dtype(), shape, func(out *tensor.Dense) error { return ops.Product(op, f, x, y, out) })
	} else {
		if !slices.Equal(r.Shape(), shape) {
			err = r.Reshape(shape.Clone()...)
		}
		if err == nil {
			err = ops.Product(op, f, x, y, r)
		}
	}
	if err != nil || o.Incr == nil {
		return unless(err, r)
	}
	_, err = ops.Binary("Add", tensor.StdEng.Add, o.Incr, r, []tensor.FuncOpt{tensor.UseUnsafe()})
	if o.Reuse == nil {
		err = errors.Join(err, ops.m.FreeTensor(r))
	}
	return unless(err, o.Incr)
}

// turned returns the transpose of a matrix, and what is to be freed with it or nil. StdEng multiplies
// a row-major matrix and its transpose as they are.
func (ops *Ops) turned(t tensor.Tensor) (d, temp *tensor.Dense, err error) {
	d, ok := t.(*tensor.Dense)
	switch {
	case ok && operand.IsTransposed(d):
		p, n := operand.Extent(d)
		shape := tensor.Shape{d.Shape()[1], d.Shape()[0]}
		return tensor.NewDense(d.Dtype(), shape, tensor.FromMemory(uintptr(p), uintptr(n)), tensor.WithEngine(d.Engine())), nil, nil
	case !ok || !operand.IsRowMajor(d):
		if d, err = ops.m.Empty(t.Dtype(), t.Shape()...); err != nil {
			return nil, nil, err
		}
		temp = d
		if err = ops.Copy(d, t); err != nil {
			return nil, nil, errors.Join(err, ops.m.FreeTensor(d))
		}
	}
	return operand.Transposed(d), temp, nil
}

// isMatrixProduct reports whether StdEng.Dot leaves operands of these shapes
// to the methods MatMul and MatVecMul.
func isMatrixProduct(x, y tensor.Shape) bool {
	vectorOrMatrix := func(s tensor.Shape) bool { return s.IsVector() || s.IsMatrix() }
	return vectorOrMatrix(x) && vectorOrMatrix(y) && !(x.IsVector() && y.IsVector())
}

// SVD computes StdEng.SVD. u and v are nil without uv.
func (ops *Ops) SVD(a tensor.Tensor, uv, full bool) (s, u, v tensor.Tensor, err error) {
	defer ops.caught("SVD", &err)
	r, err := runValue(ops, "SVD", func(h []tensor.Tensor) (r [3]tensor.Tensor, err error) {
		r[0], r[1], r[2], err = tensor.StdEng{}.SVD(h[0], uv, full)
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
		if r[i], err = ops.m.Adopt(d); err != nil {
			return nil, nil, nil, errors.Join(err, ops.free(r[:i]))
		}
	}
	return r[0], r[1], r[2], nil
}

// free frees what is a tensor of ts.
func (ops *Ops) free(ts []tensor.Tensor) error {
	var errs []error
	for _, t := range ts {
		if !operand.IsNil(t) {
			errs = append(errs, ops.m.FreeTensor(t))
		}
	}
	return errors.Join(errs...)
}
