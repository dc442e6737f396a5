package cupool

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"

	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Buffer is an array of n elements of type T in device memory. T is of a
// fixed size and without Go pointers: numbers, bools, and arrays and structs
// of them.
//
// A Buffer works on one stream, by default the one that it was allocated
// for; On gives the same memory on another. Its methods are safe from
// several goroutines as far as their order does not matter. When the memory was
// freed, through this Buffer or its block, Free fails with ErrDoubleFree, and every
// other method that returns an error with ErrUseAfterFree.
//
// CopyFrom, CopyTo and ToHost copy between a Buffer and Go's memory, CopyBuffer
// between two Buffers. They check the lengths, and that the memory was not freed,
// so take them where there is a Buffer. Stream.CopyIn, CopyOut and Copy take
// addresses and check nothing. Tensors have Engine.FromHost, ToHost and Copy.
//
// The zero Buffer and a nil one have no memory: methods that return an error
// fail with ErrInvalidHandle.
type Buffer[T any] struct {
	a     Allocator
	s     *Stream
	block Block // the whole allocation
	ptr   Ptr   // of the first element
	n     int
	view  bool // shares another Buffer's memory
}

// NewBuffer allocates n elements for work on s (nil: the default stream).
// The contents are undefined. It fails as Alloc does, with ErrInvalidSize
// for a negative n or when n elements overflow, with ErrNotSupported for a T
// that holds Go pointers, and with a *ConfigError without an allocator.
func NewBuffer[T any](a Allocator, n int, s *Stream) (*Buffer[T], error) {
	t := reflect.TypeFor[T]()
	if !operand.IsPlain(t) {
		return nil, fmt.Errorf("cupool: buffer of %v: elements must not hold Go pointers: %w", t, ErrNotSupported)
	}
	hi, bytes := bits.Mul64(uint64(max(n, 0)), uint64(t.Size()))
	if n < 0 || hi != 0 || bytes > 1<<62 {
		return nil, fmt.Errorf("cupool: buffer of %d elements of %v, %d bytes each: %w", n, t, t.Size(), ErrInvalidSize)
	}
	if isNoAllocator(a) {
		return nil, &ConfigError{Field: "Allocator", Value: nil, Reason: "a buffer's memory needs one"}
	}
	if s == nil {
		s = a.DefaultStream()
	}
	b, err := a.Alloc(int64(bytes), s)
	if err != nil {
		return nil, fmt.Errorf("cupool: buffer of %d elements of %v: %w", n, t, err)
	}
	return &Buffer[T]{a: a, s: s, block: b, ptr: b.Ptr(), n: n}, nil
}

// isNoAllocator reports whether an allocator is nil, a nil pointer, or over no device, as
// the zero Pool.
func isNoAllocator(a Allocator) bool { return nilptr.Is(a) || a.Driver() == nil }

// WithBuffer runs f with a Buffer of n elements and frees it afterwards,
// however f ends. Take it for memory that one function needs; a Scope is for
// tensors, and a Buffer that outlives the function that makes it has NewBuffer
// and Free. It fails as NewBuffer and Free do, with f's error, and with ErrInvalidHandle
// without an f.
func WithBuffer[T any](a Allocator, n int, s *Stream, f func(*Buffer[T]) error) (err error) {
	if f == nil {
		return fmt.Errorf("cupool: buffer of %d elements: the function is nil: %w", n, ErrInvalidHandle)
	}
	b, err := NewBuffer[T](a, n, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Free()) }()
	return f(b)
}

// BufferFrom allocates a Buffer for the elements of src and copies them. It
// fails as NewBuffer and CopyFrom do.
func BufferFrom[T any](a Allocator, src []T, s *Stream) (*Buffer[T], error) {
	b, err := NewBuffer[T](a, len(src), s)
	if err != nil {
		return nil, err
	}
	if err := b.CopyFrom(src); err != nil {
		return nil, errors.Join(err, b.Free())
	}
	return b, nil
}

// Len returns the number of elements.
func (b *Buffer[T]) Len() int { return b.orZero().n }

// Bytes returns the size in bytes.
func (b *Buffer[T]) Bytes() int64 { return int64(b.Len()) * operand.PlainSize[T]() }

// Ptr returns the address of the first element, for kernels.
func (b *Buffer[T]) Ptr() Ptr { return b.orZero().ptr }

// Block returns the handle of the allocation that holds the elements.
func (b *Buffer[T]) Block() Block { return b.orZero().block }

// Stream returns the stream that the methods work on.
func (b *Buffer[T]) Stream() *Stream { return b.orZero().s }

// orZero is the Buffer, or a zero one for nil.
func (b *Buffer[T]) orZero() *Buffer[T] {
	if b == nil {
		return new(Buffer[T])
	}
	return b
}

// check fails when the memory is not this Buffer's any more, or never was.
func (b *Buffer[T]) check(op string) error {
	if err := b.checkMade(op); err != nil || b.block.IsEmpty() {
		return err
	}
	if now, err := b.a.Lookup(b.block.Ptr()); err == nil && now == b.block {
		return nil
	} else if errors.Is(err, ErrClosed) {
		return err
	}
	return &BlockError{Op: op, Ptr: b.ptr, Size: b.Bytes(), Stream: b.s.handle, Err: ErrUseAfterFree, Detail: "the buffer was freed before"}
}

// checkMade fails for a Buffer that no function of this package made.
func (b *Buffer[T]) checkMade(op string) error {
	if b == nil || b.a == nil {
		return &BlockError{Op: op, Size: -1, Err: ErrInvalidHandle, Detail: "the buffer is nil, or the zero Buffer"}
	}
	return nil
}

// checkLen is check for a copy of n elements.
func (b *Buffer[T]) checkLen(op string, n int) error {
	if err := b.checkMade(op); err != nil {
		return err
	}
	if n != b.n {
		return &BlockError{Op: op, Ptr: b.ptr, Size: b.Bytes(), Stream: b.s.handle, Err: ErrSizeMismatch, Detail: fmt.Sprintf("the other side has %d elements, the buffer %d", n, b.n)}
	}
	return b.check(op)
}

// CopyFrom copies src, which has as many elements as the Buffer, to the
// device in the order of the stream. src may be reused when it returns. It
// fails with ErrSizeMismatch for another number of elements.
func (b *Buffer[T]) CopyFrom(src []T) error {
	if err := b.checkLen("copy to", len(src)); err != nil || b.Bytes() == 0 {
		return err
	}
	return b.s.CopyIn(b.ptr, operand.PlainBytes(src))
}

// CopyTo waits for the stream and copies the elements to dst, which has as
// many as the Buffer. Take it, rather than ToHost, where there is a slice to
// fill. It fails with ErrSizeMismatch for another number of elements.
func (b *Buffer[T]) CopyTo(dst []T) error {
	if err := b.checkLen("copy from", len(dst)); err != nil || b.Bytes() == 0 {
		return err
	}
	return b.s.CopyOut(operand.PlainBytes(dst), b.ptr)
}

// ToHost returns a copy of the elements in a new slice. It waits for the stream.
// A part of them is View(i, j).ToHost().
func (b *Buffer[T]) ToHost() ([]T, error) {
	if err := b.checkMade("copy from"); err != nil {
		return nil, err
	}
	dst := make([]T, b.n)
	return dst, b.CopyTo(dst)
}

// CopyBuffer copies another Buffer of the same length on the device, in the
// order of this Buffer's stream. The caller orders the streams when src
// works on another one.
func (b *Buffer[T]) CopyBuffer(src *Buffer[T]) error {
	if err := src.checkMade("copy from"); err != nil {
		return err
	}
	if err := b.checkLen("copy to", src.n); err != nil || b.Bytes() == 0 {
		return err
	}
	if err := src.check("copy from"); err != nil {
		return err
	}
	return b.s.Copy(b.ptr, src.ptr, b.Bytes())
}

// Memset sets every byte to value, in the order of the stream.
func (b *Buffer[T]) Memset(value byte) error {
	if err := b.check("memset"); err != nil || b.Bytes() == 0 {
		return err
	}
	return b.s.Memset(b.ptr, value, b.Bytes())
}

// View returns the elements from i up to, not including, j as a Buffer that
// shares this one's memory. It is not freed: its parent is. It fails with
// ErrInvalidRange.
func (b *Buffer[T]) View(i, j int) (*Buffer[T], error) {
	if err := b.checkMade("view"); err != nil {
		return nil, err
	}
	if i < 0 || j < i || j > b.n {
		return nil, &BlockError{Op: "view", Ptr: b.ptr, Size: b.Bytes(), Err: ErrInvalidRange, Detail: fmt.Sprintf("[%d:%d] of %d elements", i, j, b.n)}
	}
	if err := b.check("view"); err != nil {
		return nil, err
	}
	v := *b
	v.ptr, v.n, v.view = b.ptr+Ptr(int64(i)*operand.PlainSize[T]()), j-i, true
	return &v, nil
}

// On returns the same memory for work on another stream (nil: the default
// stream). The stream is recorded on the block: after Free, the memory is not
// reused before s is done with what it has been given until then. The caller
// orders the two streams (Stream.WaitStream). The result is a view.
func (b *Buffer[T]) On(s *Stream) (*Buffer[T], error) {
	if err := b.check("record stream"); err != nil {
		return nil, err
	}
	if s == nil {
		s = b.a.DefaultStream()
	}
	if err := b.a.RecordStream(b.block, s); err != nil {
		return nil, err
	}
	v := *b
	v.s, v.view = s, true
	return &v, nil
}

// Free gives the memory back. It fails with ErrDoubleFree, and for a view
// with ErrInteriorPointer.
func (b *Buffer[T]) Free() error {
	if err := b.checkMade("free"); err != nil {
		return err
	}
	if b.view {
		return &BlockError{Op: "free", Ptr: b.ptr, Size: b.Bytes(), Err: ErrInteriorPointer, Detail: "a view is not freed; its parent is"}
	}
	return b.a.Free(b.block)
}
