package cupool

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"gorgonia.org/tensor"
)

// owns reports whether the address is in live memory of the allocator.
func (e *Engine) owns(p Ptr) bool {
	_, err := e.lookup(p)
	return err == nil
}

// Owns reports whether t's data is live memory of the engine's allocator. A
// view or ShallowClone of a pool tensor is owned too; a tensor of no elements
// is not. The tensor's own flags and engine do not tell.
func (e *Engine) Owns(t tensor.Tensor) bool {
	p, n := extent(t)
	return n > 0 && e.owns(p)
}

// FreeTensor gives the memory of tensors back to the pool. Each must be whole:
// not a view of a part of another one. The tensor that is given is left
// without data, so that its use is an error rather than a read of somebody
// else's memory; views and ShallowClones of it dangle. nil and tensors of no
// elements are ignored.
//
// It frees all it can and joins the errors, each an *EngineError around
// ErrDoubleFree, ErrForeignPointer (also for memory of Go's heap),
// ErrInteriorPointer or ErrSizeMismatch (also for views).
func (e *Engine) FreeTensor(ts ...tensor.Tensor) error {
	var errs []error
	for _, t := range ts {
		if !isNil(t) {
			errs = append(errs, e.freeTensor(t))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) freeTensor(t tensor.Tensor) error {
	if isFreed(t) {
		return engineError("free", fmt.Errorf("tensor of shape %v: %w", t.Shape(), ErrDoubleFree))
	}
	p, n := extent(t)
	if n == 0 {
		return nil
	}
	if err := e.freePtr(p, n); err != nil {
		return engineError("free", err)
	}
	if d, ok := t.(*tensor.Dense); ok {
		setMemory(d, 0, 0)
	}
	return nil
}

// isFreed reports whether mem is a tensor that FreeTensor took the data from.
func isFreed(mem tensor.Memory) bool {
	d, ok := mem.(*tensor.Dense)
	return ok && d != nil && d.MemSize() == 0 && d.Shape().TotalSize() != 0
}

// setMemory makes memory outside Go's heap the data of d.
func setMemory(d *tensor.Dense, p Ptr, n int64) {
	tensor.FromMemory(uintptr(p), uintptr(n))(d)
}

// setEngine makes e the engine of d.
func setEngine(d *tensor.Dense, e tensor.Engine) { tensor.WithEngine(e)(d) }

// Empty returns a tensor in the pool whose elements are undefined: cheaper
// than tensor.New where all of them are about to be written. It fails with
// an *EngineError around what the allocator says.
func (e *Engine) Empty(dt tensor.Dtype, shape ...int) (*tensor.Dense, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	b, err := e.alloc(n)
	if err != nil {
		return nil, err
	}
	d := tensor.NewDense(dt, shape, tensor.FromMemory(uintptr(b.ptr), uintptr(b.size)), tensor.WithEngine(e))
	e.own(d, b)
	return d, nil
}

// sizeOf returns the bytes of a tensor.
func sizeOf(dt tensor.Dtype, shape tensor.Shape) (int64, error) {
	if !isPlain(dt.Type) {
		return 0, engineError("alloc", fmt.Errorf("elements of type %v hold Go pointers: %w", dt, ErrNotSupported))
	}
	n := int64(dt.Size())
	for _, d := range shape {
		if d < 0 || d > 0 && n > maxTensorBytes/int64(d) {
			return 0, engineError("alloc", fmt.Errorf("shape %v of %v: %w", shape, dt, ErrInvalidSize))
		}
		n *= int64(d)
	}
	return n, nil
}

const maxTensorBytes = 1<<63 - 1

// adopt moves the data of r, a tensor in Go's heap that nobody else has, to
// the pool and makes r the engine's. What cannot live there stays.
func (e *Engine) adopt(r *tensor.Dense) (*tensor.Dense, error) {
	if !isPlain(r.Dtype().Type) {
		return r, nil
	}
	if r.IsView() {
		r = r.Clone().(*tensor.Dense) // leaves the gaps and the parent behind
	}
	p, n := extent(r)
	b, err := e.alloc(n)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		if err := e.write(b.ptr, cpuBytes(p, n)); err != nil {
			return nil, errors.Join(err, e.free(b))
		}
		runtime.KeepAlive(r)
		setMemory(r, b.ptr, n)
	}
	setEngine(r, e)
	e.own(r, b)
	if !e.accessible {
		e.fallbacks.bytes.Add(n)
	}
	return r, nil
}

// ToHost returns a copy of t in Go's heap with tensor.StdEng for its engine,
// in row-major order when t is a view or transposed, otherwise in t's order.
// It waits for the engine's work on t. t may belong to another Engine too.
// It fails with an *EngineError around ErrUseAfterFree or what the device
// says.
func (e *Engine) ToHost(t tensor.Tensor) (*tensor.Dense, error) {
	defer keepAlive(t)
	d, ok := t.(*tensor.Dense)
	if !ok || d == nil {
		return nil, engineError("copy to host", fmt.Errorf("%T: %w", t, ErrNotSupported))
	}
	if err := e.pendingError(); err != nil {
		return nil, err
	}
	h, err := e.stage(d)
	if err != nil {
		return nil, err
	}
	if d.IsMaterializable() {
		h = h.Materialize().(*tensor.Dense)
	}
	return h, nil
}

// FromHost returns a copy of t in the pool. t may be any tensor, of Go's heap
// or of another engine, and views are copied without their gaps. It fails
// with an *EngineError around ErrNotSupported for elements that hold Go
// pointers, ErrUseAfterFree, or what the allocator or device says.
func (e *Engine) FromHost(t tensor.Tensor) (*tensor.Dense, error) {
	defer keepAlive(t)
	if isNil(t) {
		return nil, engineError("copy to the pool", fmt.Errorf("no tensor: %w", ErrNotSupported))
	}
	if !isPlain(t.Dtype().Type) {
		return nil, engineError("copy to the pool", fmt.Errorf("elements of type %v: %w", t.Dtype(), ErrNotSupported))
	}
	if err := e.pendingError(); err != nil {
		return nil, err
	}
	d, ok := t.(*tensor.Dense)
	if !ok || d.IsMaterializable() || !d.IsNativelyAccessible() || isFreed(d) {
		h, err := e.ToHost(t)
		if err != nil {
			return nil, err
		}
		return e.adopt(h)
	}
	if err := e.ownerOf(d).hostReady(); err != nil {
		return nil, err
	}
	h := relabel(d)
	h.SetMask(slices.Clone(d.Mask()))
	return e.adopt(h)
}

// Copy copies the elements of src to dst, which has the same shape and type.
// Either may be a view, in Go's heap or of any Engine. It fails with an
// *EngineError around ErrSizeMismatch, ErrUseAfterFree or what the device
// says.
func (e *Engine) Copy(dst, src tensor.Tensor) error {
	defer keepAlive(dst, src)
	if isNil(dst) || isNil(src) {
		return engineError("copy", fmt.Errorf("no tensor: %w", ErrNotSupported))
	}
	if !dst.Shape().Eq(src.Shape()) || dst.Dtype() != src.Dtype() {
		return engineError("copy", fmt.Errorf("%v of %v to %v of %v: %w", src.Shape(), src.Dtype(), dst.Shape(), dst.Dtype(), ErrSizeMismatch))
	}
	if isFreed(dst) || isFreed(src) {
		return engineError("copy", ErrUseAfterFree)
	}
	if !dst.RequiresIterator() && !src.RequiresIterator() && dst.DataOrder().HasSameOrder(src.DataOrder()) &&
		e.ownerOf(dst) == e && e.ownerOf(src) == e {
		return e.Memcpy(dst, src)
	}
	if ok, err := e.gpu.copyTensor(dst, src); ok {
		return err
	}
	return e.runInto("copy", dst, func(dst tensor.Tensor, h []tensor.Tensor) error {
		return tensor.Copy(dst, h[0])
	}, src)
}

// Zero sets all elements of t, which may be a view, to zero. It fails with an
// *EngineError around ErrUseAfterFree or what the device says.
func (e *Engine) Zero(t tensor.Tensor) error {
	if isNil(t) {
		return nil
	}
	if v, ok := t.(tensor.View); ok && v.IsMaterializable() {
		return e.Memset(t, reflect.Zero(t.Dtype().Type).Interface())
	}
	if isFreed(t) {
		return engineError("zero", ErrUseAfterFree)
	}
	p, n := extent(t)
	if n == 0 {
		return nil
	}
	defer runtime.KeepAlive(t)
	return e.zero(p, n)
}
