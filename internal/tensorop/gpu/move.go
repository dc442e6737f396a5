package gpu

import (
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// copyView copies elements between tensors of one shape and type, through views.
func (g *Ops) copyView(op string, dst, src *view) (bool, error) {
	k, ok := kernels.Copy.OfSize(dst.dt.Size())
	walk, fits := walk3(dst.shape, dst.strides, src.strides)
	if !ok || !fits || dst.dt != src.dt || !slices.Equal(dst.shape, src.shape) || dst.clashes(src) {
		return false, nil
	}
	args := kernels.CopyArgs{Dst: dst.address(), A: src.address(), N: int64(dst.n), Walk: walk}
	return true, g.Each(op, k, dst.n, unsafe.Pointer(&args))
}

// Copy copies the elements of a tensor to another of the same shape and type.
func (g *Ops) Copy(dst, src tensor.Tensor) (bool, error) {
	if g == nil {
		return false, nil
	}
	to, okTo := g.operandOf(dst)
	from, okFrom := g.operandOf(src)
	if !okTo || !okFrom {
		return false, nil
	}
	return g.copyView("copy", &to, &from)
}

// Materialize returns a copy in row-major order.
func (g *Ops) Materialize(t tensor.Tensor) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	v, ok := g.operandOf(t)
	if _, sized := kernels.Copy.OfSize(t.Dtype().Size()); !ok || !sized || len(v.shape) > kernels.MaxDims {
		return nil, false, nil
	}
	dst, err := g.materialized(&v)
	if err != nil {
		return nil, true, err
	}
	return dst.d, true, nil
}

// materialized is Materialize for an operand that copy serves.
func (g *Ops) materialized(v *view) (view, error) {
	dst, err := g.fresh(v.dt, v.shape)
	if err != nil {
		return dst, err
	}
	if _, err := g.copyView("materialize", &dst, v); err != nil {
		_ = g.m.FreeTensor(dst.d)
		return dst, err
	}
	return dst, nil
}

// Transpose moves a tensor's elements to where its shape and new strides say,
// by way of a copy.
func (g *Ops) Transpose(t tensor.Tensor, strides []int) (bool, error) {
	if g == nil {
		return false, nil
	}
	v, ok := g.operandOf(t)
	if _, sized := kernels.Copy.OfSize(t.Dtype().Size()); !ok || !sized || len(v.shape) > kernels.MaxDims || len(strides) != len(v.shape) {
		return false, nil
	}
	moved, err := g.materialized(&v)
	if err != nil {
		return true, err
	}
	defer g.m.FreeTensor(moved.d)
	to := v
	to.strides = strides
	walk, _ := walk3(to.shape, to.strides, moved.strides)
	k, _ := kernels.Copy.OfSize(v.dt.Size())
	args := kernels.CopyArgs{Dst: to.address(), A: moved.address(), N: int64(v.n), Walk: walk}
	return true, g.Each("transpose", k, v.n, unsafe.Pointer(&args))
}

// Fill sets all elements of a tensor, which may be a view.
func (g *Ops) Fill(d *tensor.Dense, pattern []byte) (bool, error) {
	if g == nil {
		return false, nil
	}
	v, ok := g.operandOf(d)
	if !ok {
		return false, nil
	}
	walk, ok := walk3(v.shape, v.strides)
	if !ok {
		return false, nil
	}
	return g.fillWalk(v.p, v.n, walk, pattern)
}

// fillWalk sets n elements to a pattern of their size.
func (g *Ops) fillWalk(p device.Ptr, n int, walk kernels.Walk3, pattern []byte) (bool, error) {
	k, ok := kernels.Copy.OfSize(uintptr(len(pattern)))
	if g == nil || !ok {
		return false, nil
	}
	args := kernels.CopyArgs{Dst: uint64(p), N: int64(n), Walk: walk}
	for i, b := range pattern {
		args.Value |= uint64(b) << (8 * i)
	}
	return true, g.Each("memset", k, n, unsafe.Pointer(&args))
}

// FillRange sets n bytes to a pattern, of which they are a multiple.
func (g *Ops) FillRange(p device.Ptr, n int64, pattern []byte) (bool, error) {
	size := n / int64(len(pattern))
	return g.fillWalk(p, int(size), kernels.Walk3{Dims: 1, Shape: [kernels.MaxDims]int64{size}, Stride: [3][kernels.MaxDims]int64{{1}}}, pattern)
}

// part returns the part of v that begins at an index of an axis and is size
// long there.
func (v *view) part(axis, from, size int) view {
	w := *v
	w.shape = slices.Clone(v.shape)
	w.shape[axis] = size
	w.n = v.n / v.shape[axis] * size
	w.p += device.Ptr(from*v.strides[axis]) * device.Ptr(v.dt.Size())
	return w
}

// Concat puts tensors side by side along an axis that they have.
func (g *Ops) Concat(t tensor.Tensor, axis int, others []tensor.Tensor) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	parts := make([]view, 0, 1+len(others))
	for _, t := range append([]tensor.Tensor{t}, others...) {
		v, ok := g.operandOf(t)
		if !ok || axis < 0 || axis >= len(v.shape) || len(v.shape) > kernels.MaxDims {
			return nil, false, nil
		}
		parts = append(parts, v)
	}
	shape := slices.Clone(parts[0].shape)
	shape[axis] = 0
	for i := range parts {
		shape[axis] += parts[i].shape[axis]
		rest := slices.Clone(parts[i].shape)
		rest[axis] = parts[0].shape[axis]
		if parts[i].dt != parts[0].dt || !slices.Equal(rest, parts[0].shape) {
			return nil, false, nil
		}
	}
	return g.assemble("Concat", parts, shape, axis)
}

// Stack puts tensors of one shape side by side along a new axis.
func (g *Ops) Stack(t tensor.DenseTensor, axis int, others []tensor.DenseTensor) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	parts := make([]view, 0, 1+len(others))
	for _, t := range append([]tensor.DenseTensor{t}, others...) {
		v, ok := g.operandOf(t)
		if !ok || axis < 0 || axis > len(v.shape) || len(v.shape) >= kernels.MaxDims {
			return nil, false, nil
		}
		if len(parts) > 0 && (v.dt != parts[0].dt || len(v.shape)+1 != len(parts[0].shape) || !slices.Equal(slices.Insert(slices.Clone(v.shape), axis, 1), parts[0].shape)) {
			return nil, false, nil
		}
		v.shape = slices.Insert(slices.Clone(v.shape), axis, 1)
		v.strides = slices.Insert(slices.Clone(v.strides), axis, 1)
		parts = append(parts, v)
	}
	shape := slices.Clone(parts[0].shape)
	shape[axis] = len(parts)
	return g.assemble("Stack", parts, shape, axis)
}

// assemble copies parts to a new tensor, one after the other along an axis.
func (g *Ops) assemble(op string, parts []view, shape []int, axis int) (tensor.Tensor, bool, error) {
	if _, ok := kernels.Copy.OfSize(parts[0].dt.Size()); !ok {
		return nil, false, nil
	}
	dst, err := g.fresh(parts[0].dt, shape)
	if err != nil {
		return nil, true, err
	}
	from := 0
	for i := range parts {
		to := dst.part(axis, from, parts[i].shape[axis])
		if ok, err := g.copyView(op, &to, &parts[i]); !ok || err != nil {
			_ = g.m.FreeTensor(dst.d)
			return nil, ok, err
		}
		from += parts[i].shape[axis]
	}
	return dst.d, true, nil
}

// repeatEach repeats the slices along an axis, each as often as times says, into
// reuse if that is not nil. They are selected by an index for each that there
// will be.
func (g *Ops) repeatEach(t, reuse tensor.Tensor, axis int, times []int) (tensor.Tensor, bool, error) {
	if g.m.Capturing() || axis < 0 || axis >= t.Dims() || len(times) != t.Shape()[axis] || slices.Min(times) < 0 || slices.Max(times) == 0 {
		return nil, false, nil
	}
	var picks []int
	for i, n := range times {
		picks = append(picks, slices.Repeat([]int{i}, n)...)
	}
	at, err := g.m.FromHost(tensor.New(tensor.WithBacking(picks)))
	if err != nil {
		return nil, true, err
	}
	defer g.m.FreeTensor(at)
	return g.SelectByIndices(t, at, axis, &operand.Options{Reuse: reuse})
}

// Repeat repeats every element along an axis n times, into reuse if that is not
// nil.
func (g *Ops) Repeat(t, reuse tensor.Tensor, axis int, repeats []int) (tensor.Tensor, bool, error) {
	if g != nil && len(repeats) > 1 {
		return g.repeatEach(t, reuse, axis, repeats)
	}
	if g == nil || len(repeats) != 1 || repeats[0] < 1 {
		return nil, false, nil
	}
	v, ok := g.operandOf(t)
	if _, sized := kernels.Copy.OfSize(t.Dtype().Size()); !ok || !sized || axis < 0 || axis >= len(v.shape) || len(v.shape) >= kernels.MaxDims || !v.rowMajor() {
		return nil, false, nil
	}
	n := repeats[0]
	shape := slices.Clone(v.shape)
	shape[axis] *= n
	o := operand.Options{Reuse: reuse}
	dst, _, ok, err := g.output(nil, &o, v.dt, shape)
	if !ok || err != nil {
		return nil, ok, err
	}
	if reuse != nil && dst.overlaps(&v) {
		return nil, false, nil
	}
	// An axis of v's size with the repeats inside it.
	src := view{d: v.d, p: v.p, dt: v.dt, n: v.n * n,
		shape: slices.Insert(slices.Clone(v.shape), axis+1, n), strides: slices.Insert(slices.Clone(v.strides), axis+1, 0)}
	to := dst
	to.shape = src.shape
	to.strides = slices.Insert(slices.Clone(dst.strides), axis+1, dst.strides[axis])
	to.strides[axis] = n * dst.strides[axis]
	if ok, err := g.copyView("Repeat", &to, &src); !ok || err != nil {
		g.drop(&dst, &o)
		return nil, ok, err
	}
	return dst.d, true, nil
}

// SelectByIndicesB sums up the slices of grad along an axis, each to where its index
// says, in a tensor like input. One index may be a scalar.
func (g *Ops) SelectByIndicesB(input, grad, indices tensor.Tensor, axis int, o *operand.Options) (tensor.Tensor, bool, error) {
	var v [2]view
	if g == nil || !o.Fresh() || !g.floatsOf(v[:], input, grad) {
		return nil, false, nil
	}
	at, ok := g.operandOf(indices)
	if !ok || axis < 0 || axis >= len(v[0].shape) || at.dt != tensor.Int || len(at.shape) > 1 || !at.rowMajor() || !v[1].rowMajor() {
		return nil, false, nil
	}
	shape := slices.Clone(v[0].shape)
	shape[axis] = at.n
	if !slices.Equal(shape, v[1].shape) {
		return nil, false, nil
	}
	dst, err := g.fresh(v[0].dt, v[0].shape)
	if err != nil {
		return nil, true, err
	}
	args := kernels.SelectBackArgs{Dst: dst.address(), G: v[1].address(), Index: at.address(), N: int64(v[0].shape[axis]), Picks: int64(at.n)}
	args.Outer, args.Inner = around(shape, axis)
	return g.finish(&dst, o, g.Rows("SelectByIndicesB", kernels.SelectBack.Of(dst.double()), dst.shape[axis], unsafe.Pointer(&args)))
}

// around returns how many elements the axes before one have, and those behind it.
func around(shape []int, axis int) (outer, inner int64) {
	outer, inner = 1, 1
	for _, size := range shape[:axis] {
		outer *= int64(size)
	}
	for _, size := range shape[axis+1:] {
		inner *= int64(size)
	}
	return outer, inner
}

// SelectByIndices copies the slices of a along an axis that the indices name. One index
// may be a scalar.
func (g *Ops) SelectByIndices(a, indices tensor.Tensor, axis int, o *operand.Options) (tensor.Tensor, bool, error) {
	if g == nil {
		return nil, false, nil
	}
	v, okA := g.operandOf(a)
	at, okI := g.operandOf(indices)
	if !okA || !okI || axis < 0 || axis >= len(v.shape) || at.dt != tensor.Int || len(at.shape) > 1 || !at.rowMajor() || !v.rowMajor() || o.Incr != nil || o.Unsafe {
		return nil, false, nil
	}
	if _, ok := kernels.Select.OfSize(v.dt.Size()); !ok {
		return nil, false, nil
	}
	shape := slices.Clone(v.shape)
	shape[axis] = at.n
	dst, _, ok, err := g.output(&v, o, v.dt, shape)
	if !ok || err != nil {
		return nil, ok, err
	}
	if !dst.rowMajor() || dst.overlaps(&v) || dst.overlaps(&at) {
		g.drop(&dst, o)
		return nil, false, nil
	}
	args := kernels.SelectArgs{Dst: dst.address(), A: v.address(), Index: at.address(), N: int64(v.shape[axis]), Picks: int64(at.n)}
	args.Outer, args.Inner = around(v.shape, axis)
	// By the largest elements that what is side by side can be moved in.
	n, size := dst.n, v.dt.Size()
	for size < 8 && args.Inner%2 == 0 && (args.A|args.Dst)%uint64(2*size) == 0 {
		n, size, args.Inner = n/2, 2*size, args.Inner/2
	}
	k, _ := kernels.Select.OfSize(size)
	return g.finish(&dst, o, g.Each("SelectByIndices", k, n, unsafe.Pointer(&args)))
}
