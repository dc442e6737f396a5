// Package blockerr says what is wrong with calls on blocks, for the allocators that
// have books of their own: packages planner, native, arena and adaptor. Each finds a
// block in its own way, by request, in a sorted list or by an offset. What it tells a
// program is the same.
package blockerr

import (
	"fmt"

	"github.com/cupool/cupool"
)

var details = map[error]string{
	cupool.ErrForeignPointer: "the block was allocated by another allocator",
	cupool.ErrStaleBlock:     "its memory has been handed out again since; that block was left alone",
	cupool.ErrDoubleFree:     "the block was freed before",
	cupool.ErrUseAfterFree:   "the block was freed before",
	cupool.ErrForeignStream:  "the stream was made by another allocator",
	cupool.ErrClosed:         "the allocator is closed",
}

// Of describes a wrong call on a block. s is the stream that the call names or the
// memory is for, or nil.
func Of(op string, h cupool.Block, s *cupool.Stream, reason error) error {
	e := &cupool.BlockError{Op: op, Ptr: h.Ptr(), Size: h.Size(), Err: reason, Detail: details[reason]}
	if s != nil {
		e.Stream = s.Handle()
	}
	return e
}

// Gone returns the error of a call on a block that was freed: ErrDoubleFree of a
// free, else ErrUseAfterFree. A free after its memory was handed out again is
// ErrStaleBlock.
func Gone(reason error, again bool) error {
	if again && reason == cupool.ErrDoubleFree {
		return cupool.ErrStaleBlock
	}
	return reason
}

// At is what the books have at an address.
type At struct {
	Ptr    cupool.Ptr
	Stream *cupool.Stream // of the memory, or nil
	Live   cupool.Block   // the live block around the address, or the empty one
	Ours   bool           // the address is in the allocator's memory
	Began  bool           // a block that was freed began there
	Closed bool           // the allocator is
}

// Find returns the live block, which begins at the address if exact, and is of size
// bytes unless that is negative.
func (a At) Find(op string, size int64, exact bool) (cupool.Block, error) {
	fail := func(reason error, format string, args ...any) (cupool.Block, error) {
		e := &cupool.BlockError{Op: op, Ptr: a.Ptr, Size: size, Err: reason, Detail: fmt.Sprintf(format, args...)}
		if a.Stream != nil {
			e.Stream = a.Stream.Handle()
		}
		return cupool.Block{}, e
	}
	b := a.Live
	switch {
	case a.Closed:
		return fail(cupool.ErrClosed, "the allocator is closed")
	case !b.IsEmpty() && exact && b.Ptr() != a.Ptr:
		return fail(cupool.ErrInteriorPointer, "it is %d bytes into the block at %v of %d bytes", a.Ptr-b.Ptr(), b.Ptr(), b.Size())
	case !b.IsEmpty() && size >= 0 && size != b.Size():
		return fail(cupool.ErrSizeMismatch, "%d bytes were allocated there", b.Size())
	case !b.IsEmpty():
		return b, nil
	case !a.Ours:
		return fail(cupool.ErrForeignPointer, "no block of this allocator holds the address")
	case exact && a.Began:
		return fail(cupool.ErrDoubleFree, "no block is live there")
	case exact:
		return fail(cupool.ErrForeignPointer, "it is inside memory of this allocator that is not live")
	}
	return fail(cupool.ErrUseAfterFree, "no block is live there")
}
