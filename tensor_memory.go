package cupool

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// noMemory is the memory of zero bytes.
var noMemory operand.Memory

// zeroOnStream is the size in bytes from which Alloc has the device zero
// memory that the CPU could zero itself: about where a stream's set-up costs
// no more than a tenth of the zeroing.
const zeroOnStream = 4 << 20

// alloc takes a block from the allocator, which the caller notes (enter). Its
// contents are undefined.
func (e *Engine) alloc(size int64) (Block, error) {
	b, err := e.source().Alloc(size, e.s)
	if err != nil {
		return Block{}, engineError("alloc", err)
	}
	return b, nil
}

// blockOf returns the live block that t is a part of, and the empty Block where t
// has no elements, or has its data in Go's heap. It fails with ErrUseAfterFree
// for memory that was freed, with ErrInvalidRange where t leaves its block, and
// with ErrNotSupported for elements that hold Go pointers. Where the memory is
// another block's since, only a tensor that the engine cares for (WithLifetimes)
// tells.
func blockOf(t tensor.Tensor) (Block, error) {
	d, ok := t.(*tensor.Dense)
	if !ok || d == nil {
		return Block{}, nil
	}
	if operand.IsFreed(d) {
		return Block{}, ErrUseAfterFree
	}
	e := EngineOf(d)
	p, n := operand.Extent(d)
	if e == nil || n == 0 {
		return Block{}, nil
	}
	b, err := e.lookup(p)
	o, cared := d.Engine().(*owner)
	switch {
	case cared && o.had(p) && b != o.block:
		return Block{}, &BlockError{Op: "access", Ptr: p, Size: n, Err: ErrUseAfterFree, Detail: fmt.Sprintf("the tensor was made in block %v", o.block)}
	case errors.Is(err, ErrForeignPointer):
		return Block{}, nil
	case err != nil:
		return Block{}, err
	case p+Ptr(n) > b.ptr+Ptr(b.size):
		return Block{}, &BlockError{Op: "access", Ptr: p, Size: n, Err: ErrInvalidRange, Detail: fmt.Sprintf("beyond the end of block %v", b)}
	case e.copies.Awaited() && e.copies.Misses(b):
		return Block{}, e.errNotMaterialized()
	case !operand.IsPlain(d.Dtype().Type):
		return Block{}, fmt.Errorf("elements of type %v hold Go pointers: %w", d.Dtype(), ErrNotSupported)
	}
	return b, nil
}

// errNotMaterialized says what is wrong with what the engine's copies miss.
func (e *Engine) errNotMaterialized() error {
	return fmt.Errorf("tensor's Materialize of a view with gaps did not copy its elements, which lie in memory of %s that the CPU cannot touch; Engine.Materialize does: %w", e.d.Name(), ErrNotSupported)
}

// checkMemory is blockOf's error where mem is a tensor, and inPool's for other memory. It
// fails with ErrNotSupported for a stranger's tensor.
func (e *Engine) checkMemory(mem tensor.Memory) error {
	d, ok := mem.(*tensor.Dense)
	if !ok {
		p, n := operand.Extent(mem)
		if n == 0 {
			return nil
		}
		_, err := e.inPool(p, n)
		return err
	}
	if o := e.stranger(d); o != nil {
		return fmt.Errorf("the CPU cannot touch the memory of a tensor of another engine, %v; Copy takes it: %w", o, ErrNotSupported)
	}
	_, err := blockOf(d)
	return err
}

// stranger returns the engine of a tensor that lies in memory which the CPU cannot touch
// and this engine does not know, or nil.
func (e *Engine) stranger(t tensor.Tensor) *Engine {
	o := EngineOf(t)
	if o == nil || o == e || o.accessible {
		return nil
	}
	if p, n := operand.Extent(t); n == 0 || e.owns(p) {
		return nil
	}
	return o
}

// onDevice is inPool where the CPU cannot touch the memory, and false elsewhere.
func (e *Engine) onDevice(p Ptr, n int64) (bool, error) {
	if e.accessible {
		return false, nil
	}
	return e.inPool(p, n)
}

// inPool reports whether [p, p+n) is pool memory. Addresses that the allocator does
// not know are the host's. It fails with ErrUseAfterFree, or ErrInvalidRange when the
// range leaves its block.
func (e *Engine) inPool(p Ptr, n int64) (bool, error) {
	b, err := e.lookup(p)
	switch {
	case errors.Is(err, ErrForeignPointer):
		return false, nil
	case err != nil:
		return false, err
	case p+Ptr(n) > b.ptr+Ptr(b.size):
		return false, &BlockError{Op: "access", Ptr: p, Size: n, Err: ErrInvalidRange, Detail: fmt.Sprintf("beyond the end of block %v", b)}
	}
	return true, nil
}

// zero clears memory: who reads it next, in the order of the stream or, where that is
// possible, on the CPU, reads zeros.
func (e *Engine) zero(p Ptr, n int64) error {
	own, err := e.inPool(p, n)
	if err != nil {
		return engineError("zero", err)
	}
	return e.clear(p, n, own && (!e.accessible || n >= zeroOnStream))
}

// clear is zero of memory that is known to be the pool's if the stream is to
// do it.
func (e *Engine) clear(p Ptr, n int64, onStream bool) error {
	if onStream {
		if err := e.work.Memset(p, 0, n); err != nil {
			return engineError("zero", err)
		}
		return e.hostReady()
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	clear(operand.Bytes(p, n))
	return nil
}

// read copies memory to dst, in stream order.
func (e *Engine) read(dst []byte, p Ptr) error {
	return e.transfer("read", p, len(dst), func() error { return e.s.CopyOut(dst, p) }, func(mem []byte) { copy(dst, mem) })
}

// write copies src to memory, in stream order.
func (e *Engine) write(p Ptr, src []byte) error {
	return e.transfer("write", p, len(src), func() error { return e.s.CopyIn(p, src) }, func(mem []byte) { copy(mem, src) })
}

// transfer calls onStream to copy size bytes between the memory at p and that of
// the host, or onCPU where the CPU can touch it.
func (e *Engine) transfer(op string, p Ptr, size int, onStream func() error, onCPU func(mem []byte)) error {
	n := int64(size)
	dev, err := e.onDevice(p, n)
	switch {
	case err != nil:
		return engineError(op, err)
	case dev && e.captured != nil:
		return engineError(op, errCaptured)
	case dev:
		return engineError(op, onStream())
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	onCPU(operand.Bytes(p, n))
	return nil
}

// copyWithin copies n bytes of the pool, which may overlap: devices promise nothing for a copy of
// such, so that they go by way of other memory.
func (e *Engine) copyWithin(dst, src Ptr, n int64) error {
	if dst == src {
		return nil
	}
	if dst+Ptr(n) <= src || src+Ptr(n) <= dst {
		return e.work.Copy(dst, src, n)
	}
	b, err := e.alloc(n)
	if err != nil {
		return err
	}
	if err = e.work.Copy(b.ptr, src, n); err == nil {
		err = e.work.Copy(dst, b.ptr, n)
	}
	return errors.Join(err, e.free(b))
}

// fill repeats pattern over [p, p+n); n is a multiple of its length.
func (e *Engine) fill(p Ptr, n int64, pattern []byte) error {
	dev, err := e.onDevice(p, n)
	if (dev || err != nil) && bytes.Count(pattern, pattern[:1]) == len(pattern) {
		if err == nil {
			err = e.work.Memset(p, pattern[0], n)
		}
		return engineError("memset", err)
	}
	return e.ops.FillBytes(p, n, pattern, dev)
}

// owns reports whether the address is in live memory of the allocator.
func (e *Engine) owns(p Ptr) bool {
	_, err := e.lookup(p)
	return err == nil
}

// Owns reports whether t's data is live memory of the engine's allocator. A
// view or ShallowClone of a pool tensor is owned too; a tensor of no elements
// is not. The tensor's own flags and engine do not tell.
func (e *Engine) Owns(t tensor.Tensor) bool {
	p, _ := operand.Extent(t) // of no elements: 0, which is in no pool
	return !e.isNone() && e.owns(p)
}

// FreeTensor gives the memory of tensors back to the pool. Each must be whole:
// not a view of a part of another one. The tensor that is given is left
// without data, so that its use is an error rather than a read of somebody
// else's memory. Operations of the engine on views and ShallowClones of it fail
// with ErrUseAfterFree until the memory is handed out again, and with
// WithLifetimes also then. nil and tensors of no elements are ignored.
//
// It frees all it can and joins the errors, each an *EngineError around
// ErrDoubleFree, ErrForeignPointer (also for memory of Go's heap),
// ErrInteriorPointer or ErrSizeMismatch (also for views).
func (e *Engine) FreeTensor(ts ...tensor.Tensor) error {
	if err := e.made("free"); err != nil {
		return err
	}
	var errs []error
	for _, t := range ts {
		if !operand.IsNil(t) {
			errs = append(errs, e.freeTensor(t))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) freeTensor(t tensor.Tensor) error {
	if operand.IsFreed(t) {
		return engineError("free", fmt.Errorf("tensor of shape %v: %w", t.Shape(), ErrDoubleFree))
	}
	p, n := operand.Extent(t)
	if n == 0 {
		return nil
	}
	if d, ok := t.(*tensor.Dense); ok {
		if o, cared := d.Engine().(*owner); cared && o.had(p) {
			if b, _ := e.lookup(p); b != o.block {
				return engineError("free", fmt.Errorf("tensor of shape %v, made in block %v: %w", t.Shape(), o.block, ErrDoubleFree))
			}
		}
	}
	err := e.freePtr(p, n)
	if d, ok := t.(*tensor.Dense); ok && sanitize.WasFreed(err) {
		operand.Disarm(d)
	}
	return engineError("free", err)
}

// Empty returns a tensor in the pool whose elements are undefined: cheaper
// than tensor.New where all of them are about to be written. It fails with
// an *EngineError around what the allocator says.
func (e *Engine) Empty(dt tensor.Dtype, shape ...int) (*tensor.Dense, error) {
	if err := e.made("alloc"); err != nil {
		return nil, err
	}
	if dt.Type == nil {
		return nil, engineError("alloc", fmt.Errorf("no type of elements: %w", ErrNotSupported))
	}
	if !operand.IsPlain(dt.Type) {
		return nil, engineError("alloc", fmt.Errorf("elements of type %v hold Go pointers: %w", dt, ErrNotSupported))
	}
	n, ok := operand.SizeOf(dt, shape)
	if !ok {
		return nil, engineError("alloc", fmt.Errorf("shape %v of %v: %w", tensor.Shape(shape), dt, ErrInvalidSize))
	}
	b, err := e.alloc(n)
	if err != nil {
		return nil, err
	}
	d := tensor.NewDense(dt, shape, tensor.FromMemory(uintptr(b.ptr), uintptr(b.size)), tensor.WithEngine(e))
	e.own(d, b)
	e.enter(b, d)
	return d, nil
}

// moveIn gives t, which tensor made for an outer product and zeroed on the CPU,
// memory of the pool in place of Go's heap.
func (e *Engine) moveIn(t tensor.Tensor) error {
	p, n := operand.Extent(t)
	if !e.copies.Awaited() || !e.copies.Arrive(p, Block{}) {
		return nil
	}
	b, err := e.alloc(n)
	if err != nil {
		return err
	}
	if err := e.clear(b.ptr, n, true); err != nil {
		return errors.Join(err, e.free(b))
	}
	d := t.(*tensor.Dense)
	operand.SetMemory(d, b.ptr, n)
	e.own(d, b)
	e.enter(b, d)
	return nil
}

// adopt moves the data of r, a tensor in Go's heap that nobody else has, to
// the pool and makes r the engine's. What cannot live there stays.
func (e *Engine) adopt(r *tensor.Dense) (*tensor.Dense, error) {
	if !operand.IsPlain(r.Dtype().Type) {
		return r, nil
	}
	if r.IsView() {
		r = r.Clone().(*tensor.Dense) // leaves the gaps and the parent behind
	}
	p, n := operand.Extent(r)
	b, err := e.alloc(n)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		if err := e.write(b.ptr, operand.Bytes(p, n)); err != nil {
			return nil, errors.Join(err, e.free(b))
		}
		runtime.KeepAlive(r)
		operand.SetMemory(r, b.ptr, n)
	}
	operand.SetEngine(r, e)
	e.own(r, b)
	e.enter(b, r)
	if !e.accessible {
		e.ops.Copied(n)
	}
	return r, nil
}

// ToHost returns a copy of t in Go's heap with tensor.StdEng for its engine,
// in row-major order when t is a view or transposed, otherwise in t's order.
// It waits for the engine's work on t. t may belong to another Engine too.
// It fails with an *EngineError around ErrUseAfterFree or what the device
// says.
func (e *Engine) ToHost(t tensor.Tensor) (*tensor.Dense, error) { return e.std().ToHost(t) }

// FromHost returns a copy of t in the pool. t may be any dense tensor, of Go's heap
// or of another engine, and views are copied without their gaps. It fails
// with an *EngineError around ErrNotSupported for elements that hold Go
// pointers and for sparse tensors, ErrUseAfterFree, or what the allocator or device says.
func (e *Engine) FromHost(t tensor.Tensor) (*tensor.Dense, error) {
	if err := e.made("copy to the pool"); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(t)
	if operand.IsNil(t) {
		return nil, engineError("copy to the pool", fmt.Errorf("no tensor: %w", ErrNotSupported))
	}
	if _, ok := t.(*tensor.Dense); !ok {
		return nil, engineError("copy to the pool", fmt.Errorf("%T: %w", t, ErrNotSupported))
	}
	if !operand.IsPlain(t.Dtype().Type) {
		return nil, engineError("copy to the pool", fmt.Errorf("elements of type %v: %w", t.Dtype(), ErrNotSupported))
	}
	h, err := e.ops.Staged(t)
	if err != nil {
		return nil, err
	}
	return e.adopt(h)
}

// Copy copies the elements of src to dst, which has the same shape and type.
// Take it where there is a tensor to fill; FromHost and ToHost make new ones.
// Either may be a view, in Go's heap or of any Engine. It fails with an
// *EngineError around ErrSizeMismatch, ErrUseAfterFree or what the device
// says.
func (e *Engine) Copy(dst, src tensor.Tensor) error { return e.std().Copy(dst, src) }

// Zero sets all elements of t, which may be a view and of any Engine, to zero. It
// fails with an *EngineError around ErrUseAfterFree or what the device says.
func (e *Engine) Zero(t tensor.Tensor) error {
	if err := e.made("zero"); err != nil {
		return err
	}
	if operand.IsNil(t) {
		return nil
	}
	if o := e.stranger(t); o != nil {
		return o.Zero(t)
	}
	if v, ok := t.(tensor.View); ok && v.IsMaterializable() {
		return e.Memset(t, reflect.Zero(t.Dtype().Type).Interface())
	}
	if _, err := blockOf(t); err != nil {
		return engineError("zero", err)
	}
	p, n := operand.Extent(t)
	if n == 0 {
		return nil
	}
	defer runtime.KeepAlive(t)
	return e.zero(p, n)
}
