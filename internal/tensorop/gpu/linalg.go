package gpu

import (
	"errors"
	"math"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// matrixOf returns a matrix for cuBLAS: rows without gaps between their
// elements, or such columns, which are the rows of its transpose. false: it is
// neither.
func (v *view) matrixOf(rows, cols, rowStride, colStride int) (cublas.Matrix, bool) {
	m := cublas.Matrix{P: uintptr(v.p), Rows: int64(rows), Cols: int64(cols)}
	switch {
	case (colStride == 1 || cols == 1) && (rowStride >= cols || rows == 1):
		m.Stride = int64(max(rowStride, cols))
		if rows == 1 {
			m.Stride = int64(cols)
		}
	case (rowStride == 1 || rows == 1) && (colStride >= rows || cols == 1):
		m.Transposed, m.Stride = true, int64(max(colStride, rows))
		if cols == 1 {
			m.Stride = int64(rows)
		}
	default:
		return m, false
	}
	return m, true
}

// matrix returns a tensor of two dimensions as a matrix. One that cuBLAS
// cannot read is copied; the copy, or nil, has to be freed.
func (g *Ops) matrix(v *view) (cublas.Matrix, *tensor.Dense, error) {
	if m, ok := v.matrixOf(v.shape[0], v.shape[1], v.strides[0], v.strides[1]); ok {
		return m, nil, nil
	}
	c, err := g.materialized(v)
	if err != nil {
		return cublas.Matrix{}, nil, err
	}
	m, _ := c.matrixOf(c.shape[0], c.shape[1], c.strides[0], c.strides[1])
	return m, c.d, nil
}

// column returns a vector as a matrix of one column, or as one row.
func (v *view) column() cublas.Matrix {
	return cublas.Matrix{P: uintptr(v.p), Rows: int64(v.n), Cols: 1, Stride: int64(max(1, v.strides[0]))}
}

func transposedMatrix(m cublas.Matrix) cublas.Matrix {
	m.Rows, m.Cols, m.Transposed = m.Cols, m.Rows, !m.Transposed
	return m
}

// Product computes the three products that tensor asks an engine for.
func (g *Ops) Product(op string, a, b, dst tensor.Tensor) (bool, error) {
	var v [3]view
	if g == nil || !g.floatsOf(v[:], a, b, dst) || v[2].overlaps(&v[0]) || v[2].overlaps(&v[1]) {
		return false, nil
	}
	x, y, z := &v[0], &v[1], &v[2]
	dims := [3]int{len(x.shape), len(y.shape), len(z.shape)}
	switch {
	case op == "MatMul" && dims == [3]int{2, 2, 2} && x.shape[1] == y.shape[0] && z.shape[0] == x.shape[0] && z.shape[1] == y.shape[1]:
		return g.matMul(op, x, y, z)
	case op == "MatVecMul" && dims == [3]int{2, 1, 1} && x.shape[1] == y.n && z.n == x.shape[0]:
		m, temp, err := g.matrix(x)
		if err != nil {
			return true, err
		}
		return g.multiply(op, &cublas.Product{A: m, B: y.column(), C: z.column(), Alpha: 1, Double: x.double()}, temp)
	case op == "Outer" && dims == [3]int{1, 1, 2} && z.shape[0] == x.n && z.shape[1] == y.n:
		c, ok := z.matrixOf(z.shape[0], z.shape[1], z.strides[0], z.strides[1])
		if !ok || c.Transposed {
			return false, nil
		}
		return g.multiply(op, &cublas.Product{A: x.column(), B: transposedMatrix(y.column()), C: c, Alpha: 1, Beta: 1, Double: x.double()})
	}
	return false, nil
}

// MatMul computes the product of two matrices, or of their transposes.
func (g *Ops) MatMul(a, b, dst tensor.Tensor, aTransposed, bTransposed bool) (bool, error) {
	var v [3]view
	if g == nil || !g.floatsOf(v[:], a, b, dst) || v[2].overlaps(&v[0]) || v[2].overlaps(&v[1]) {
		return false, nil
	}
	for i, transposed := range [3]bool{aTransposed, bTransposed, false} {
		if len(v[i].shape) != 2 {
			return false, nil
		}
		if transposed {
			v[i].shape, v[i].strides = []int{v[i].shape[1], v[i].shape[0]}, []int{v[i].strides[1], v[i].strides[0]}
		}
	}
	x, y, z := &v[0], &v[1], &v[2]
	if x.shape[1] != y.shape[0] || z.shape[0] != x.shape[0] || z.shape[1] != y.shape[1] {
		return false, nil
	}
	return g.matMul("MatMul", x, y, z)
}

func (g *Ops) matMul(op string, x, y, z *view) (bool, error) {
	c, ok := z.matrixOf(z.shape[0], z.shape[1], z.strides[0], z.strides[1])
	if !ok {
		return false, nil
	}
	a, tempA, err := g.matrix(x)
	if err != nil {
		return true, err
	}
	b, tempB, err := g.matrix(y)
	if err != nil {
		return true, errors.Join(err, g.free(tempA))
	}
	if c.Transposed { // (AB)ᵀ = BᵀAᵀ
		a, b, c = transposedMatrix(b), transposedMatrix(a), transposedMatrix(c)
	}
	return g.multiply(op, &cublas.Product{A: a, B: b, C: c, Alpha: 1, Double: x.double()}, tempA, tempB)
}

// BatchMatMul computes a batch of products whose shapes fit.
func (g *Ops) BatchMatMul(a, b, dst tensor.Tensor) (bool, error) {
	var v [3]view
	if g == nil || !g.floatsOf(v[:], a, b, dst) || v[2].overlaps(&v[0]) || v[2].overlaps(&v[1]) {
		return false, nil
	}
	var m [3]cublas.Matrix
	for i := range v {
		var ok bool
		if m[i], ok = v[i].matrixOf(v[i].shape[1], v[i].shape[2], v[i].strides[1], v[i].strides[2]); !ok {
			return false, nil
		}
		m[i].Next = int64(v[i].strides[0])
	}
	if m[2].Transposed { // (AB)ᵀ = BᵀAᵀ
		m[0], m[1], m[2] = transposedMatrix(m[1]), transposedMatrix(m[0]), transposedMatrix(m[2])
	}
	return g.multiply("BatchMatMul", &cublas.Product{A: m[0], B: m[1], C: m[2], Alpha: 1, Batch: int64(v[0].shape[0]), Double: v[0].double()})
}

// inner computes the product of two vectors into dst, a tensor of one element.
func (g *Ops) inner(op string, x, y, dst *view) (bool, error) {
	c := cublas.Matrix{P: uintptr(dst.p), Rows: 1, Cols: 1, Stride: 1}
	return g.multiply(op, &cublas.Product{A: transposedMatrix(x.column()), B: y.column(), C: c, Alpha: 1, Double: x.double()})
}

// vectors returns two vectors of one length and type.
func (g *Ops) vectors(a, b tensor.Tensor) (v [2]view, ok bool) {
	ok = g != nil && g.floatsOf(v[:], a, b) && len(v[0].shape) == 1 && len(v[1].shape) == 1 && v[0].n == v[1].n
	return v, ok
}

// Dot computes the product of two vectors as a new scalar, or of tensors one of
// which has more than two dimensions.
func (g *Ops) Dot(a, b tensor.Tensor, o *operand.Options) (tensor.Tensor, bool, error) {
	if g != nil && max(a.Dims(), b.Dims()) > 2 && min(a.Dims(), b.Dims()) > 0 {
		var v [2]view
		if !o.Fresh() || !g.floatsOf(v[:], a, b) {
			return nil, false, nil
		}
		return g.contract(&v[0], &v[1])
	}
	v, ok := g.vectors(a, b)
	if !ok || !o.Fresh() {
		return nil, false, nil
	}
	dst, err := g.fresh(v[0].dt, nil)
	if err != nil {
		return nil, true, err
	}
	if ok, err := g.inner("Dot", &v[0], &v[1], &dst); !ok || err != nil {
		_ = g.m.FreeTensor(dst.d)
		return nil, ok, err
	}
	return dst.d, true, nil
}

// contract computes the product along x's last axis and y's last but one, as a
// new tensor of the axes that are left.
func (g *Ops) contract(x, y *view) (r tensor.Tensor, ok bool, err error) {
	last, along := len(x.shape)-1, max(len(y.shape)-2, 0)
	inner := x.shape[last]
	if inner != y.shape[along] || max(len(x.shape), len(y.shape)) > kernels.MaxDims {
		return nil, false, nil
	}
	right := *y // that axis first
	right.shape = append([]int{inner}, slices.Delete(slices.Clone(y.shape), along, along+1)...)
	right.strides = append([]int{y.strides[along]}, slices.Delete(slices.Clone(y.strides), along, along+1)...)
	dst, err := g.fresh(x.dt, append(slices.Clone(x.shape[:last]), right.shape[1:]...))
	if err != nil {
		return nil, true, err
	}
	var temps []*tensor.Dense
	defer func() {
		err = errors.Join(err, g.free(temps...))
		if !ok || err != nil {
			r, err = nil, errors.Join(err, g.m.FreeTensor(dst.d))
		}
	}()
	operands := [2]view{*x, right}
	for i, rows := range [2]int{x.n / inner, inner} {
		if v := &operands[i]; !v.rowMajor() {
			if *v, err = g.materialized(v); err != nil {
				return nil, true, err
			}
			temps = append(temps, v.d)
		}
		operands[i] = operands[i].matrixOfRows(rows)
	}
	z := dst.matrixOfRows(x.n / inner)
	ok, err = g.matMul("Dot", &operands[0], &operands[1], &z)
	return dst.d, ok, err
}

// matrixOfRows returns v, whose elements lie in row-major order, with two
// dimensions.
func (v view) matrixOfRows(rows int) view {
	v.shape, v.strides = []int{rows, v.n / rows}, []int{v.n / rows, 1}
	return v
}

// Inner is dot with the result as a Go value, for which it waits.
func (g *Ops) Inner(a, b tensor.Tensor) (interface{}, bool, error) {
	if _, ok := g.vectors(a, b); !ok { // of others Dot is another product
		return nil, false, nil
	}
	r, ok, err := g.Dot(a, b, &operand.Options{})
	if !ok || err != nil {
		return nil, ok, err
	}
	x, err := g.number(r)
	return x, true, errors.Join(err, g.m.FreeTensor(r))
}

// number reads a tensor of one element.
func (g *Ops) number(r tensor.Tensor) (interface{}, error) {
	if r.Dtype() == tensor.Float64 {
		var x float64
		err := g.m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&x)), 8), device.Ptr(r.Uintptr()))
		return x, err
	}
	var x float32
	err := g.m.Read(unsafe.Slice((*byte)(unsafe.Pointer(&x)), 4), device.Ptr(r.Uintptr()))
	return x, err
}

// Trace adds up the diagonal of a matrix.
func (g *Ops) Trace(a tensor.Tensor) (interface{}, bool, error) {
	var v [1]view
	if g == nil || !g.floatsOf(v[:], a) || len(v[0].shape) != 2 {
		return nil, false, nil
	}
	args := kernels.ReduceArgs{A: v[0].address(), Op: kernels.Sum, Results: 1, N: int64(min(v[0].shape[0], v[0].shape[1]))}
	args.Outer, _ = walk1(nil, nil)
	args.Inner, _ = walk1([]int{int(args.N)}, []int{v[0].strides[0] + v[0].strides[1]})
	dst, err := g.fresh(v[0].dt, nil)
	if err != nil {
		return nil, true, err
	}
	err = g.reduceTo("Trace", dst.address(), &args, v[0].double())
	var x interface{}
	if err == nil {
		x, err = g.number(dst.d)
	}
	return x, true, errors.Join(err, g.m.FreeTensor(dst.d))
}

// multiply submits a small product as a launch of Linear, and others with a workspace
// from the pool. It frees temps and the workspace, which work of the stream that comes
// later may have at once. It does not serve what is too large for cuBLAS.
func (g *Ops) multiply(op string, p *cublas.Product, temps ...*tensor.Dense) (bool, error) {
	p.TF32 = g.tf32
	if l, ok := linearOf(p); ok {
		return true, errors.Join(g.LaunchLinear(op, false, l), g.free(temps...))
	}
	err := errors.Join(g.multiplyOn(op, p), g.free(temps...))
	if errors.Is(err, cublas.ErrSize) {
		return false, nil
	}
	return true, g.m.Error(op, err)
}

// multiplyOn submits a product with a workspace, with the cuBLAS handle of the
// engine's own stream, or as a kernel where there is no cuBLAS.
func (g *Ops) multiplyOn(op string, p *cublas.Product) error {
	if g.slow.Load() {
		return g.multiplySlowly(op, p)
	}
	size := g.d.Workspace()
	at, err := g.m.Scratch(size)
	if err != nil {
		return err
	}
	p.Workspace, p.Size = uintptr(at), size
	own, work, err := g.m.Begin(op)
	if err != nil {
		return errors.Join(err, g.m.FreeScratch(at, size))
	}
	if err = g.d.Multiply(p, own, work); !errors.Is(err, cublas.ErrMissing) {
		return errors.Join(g.m.Submitted(op, err), g.m.FreeScratch(at, size))
	}
	_ = g.m.Submitted(op, nil)
	if !g.slow.Swap(true) {
		g.m.Warn("products of matrices are slower than they could be", err)
	}
	return errors.Join(g.multiplySlowly(op, p), g.m.FreeScratch(at, size))
}

// multiplySlowly launches a product as a kernel.
func (g *Ops) multiplySlowly(op string, p *cublas.Product) error {
	batch := max(p.Batch, 1)
	args := kernels.MatMulArgs{
		C: uint64(p.C.P), A: uint64(p.A.P), B: uint64(p.B.P), Alpha: p.Alpha, Beta: p.Beta,
		M: p.C.Rows, N: p.C.Cols, K: p.A.Cols, Batch: batch, CRow: p.C.Stride,
		ANext: p.A.Next, BNext: p.B.Next, CNext: p.C.Next,
	}
	args.ARow, args.AColumn = stridesOf(p.A)
	args.BRow, args.BColumn = stridesOf(p.B)
	blocks := ((args.M-1)/kernels.MatMulSide + 1) * ((args.N-1)/kernels.MatMulSide + 1)
	if blocks > math.MaxInt32 {
		return cublas.ErrSize
	}
	l := kernels.Launch{Kernel: kernels.MatMul.Of(p.Double), X: int(blocks), Y: int(min(batch, maxGrid)),
		Block: kernels.MatMulSide * kernels.MatMulSide, Args: unsafe.Pointer(&args)}
	return g.launch(op, l)
}

// stridesOf returns the elements between rows and between columns.
func stridesOf(m cublas.Matrix) (row, column int64) {
	if m.Transposed {
		return 1, m.Stride
	}
	return m.Stride, 1
}

func (g *Ops) free(temps ...*tensor.Dense) error {
	var errs []error
	for _, t := range temps {
		if t != nil {
			errs = append(errs, g.m.FreeTensor(t))
		}
	}
	return errors.Join(errs...)
}
