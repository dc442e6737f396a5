// Package adaptor has Allocators that stand in front of other Allocators, as the
// memory resource adaptors of RMM (github.com/rapidsai/rmm) do. Each adaptor does
// one thing, and they combine in any order:
//
//	var a cupool.Allocator = pool
//	limited, err := adaptor.NewLimiting(a, 4<<30)
//	tracked := adaptor.NewTracking(limited)
//	eng, err := cupool.NewEngine(tracked)
//
//	Limiting         bounds the bytes that are live
//	Statistics       counts blocks and bytes, by nested sections of a program
//	Tracking         lists the live blocks with the Go stacks that allocated them
//	Logging          logs the calls to a *slog.Logger
//	Recording        writes a trace that `cupool replay` replays
//	FailureCallback  asks the program when memory ran out
//	Fallback         goes on with a second allocator when the first is full
//	BySize           chooses among several allocators by size
//
// A block that was allocated through an adaptor has to be freed through it, or
// through an adaptor in front of it. All adaptors are safe from several
// goroutines. Errors are those of the allocator behind, unless a comment says
// otherwise. The calls of a zero adaptor, and of one over nil or a nil pointer, fail
// with cupool.ErrInvalidHandle. A nil adaptor is none: Go panics when a method of it
// is called. What takes a cupool.Allocator refuses one.
package adaptor

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/nilptr"
)

// Unwrap is the method that adaptors have beside an Allocator's.
type Unwrap interface {
	// Unwrap returns the allocator behind, and the first of several.
	Unwrap() cupool.Allocator
}

// Find returns the first allocator that is a T: a itself, the allocator behind it,
// and so on. A program finds its *cupool.Pool with it, for statistics.
func Find[T any](a cupool.Allocator) (T, bool) {
	for !nilptr.Is(a) {
		if t, ok := a.(T); ok {
			return t, true
		}
		w, ok := a.(Unwrap)
		if !ok {
			break
		}
		a = w.Unwrap()
	}
	var zero T
	return zero, false
}

// errNone is what methods of a zero adaptor fail with that are not an Allocator's.
var errNone = fmt.Errorf("adaptor: it is zero, and no function of this package made it: %w", cupool.ErrInvalidHandle)

// none is a Pool that is none: its methods fail with cupool.ErrInvalidHandle.
var none cupool.Allocator = (*cupool.Pool)(nil)

// orNone is a, or none for nil and a nil pointer.
func orNone(a cupool.Allocator) cupool.Allocator {
	if nilptr.Is(a) {
		return none
	}
	return a
}

// over is what adaptors of one allocator have in common. A zero one is over none. A
// nil stream stands for the default one, and its handle is that one's, 0.
type over struct{ behind cupool.Allocator } // from orNone

// Unwrap returns the allocator behind.
func (o *over) Unwrap() cupool.Allocator {
	if o.behind == nil {
		return none
	}
	return o.behind
}

// Driver implements cupool.Allocator.
func (o *over) Driver() cupool.Driver { return o.Unwrap().Driver() }

// DefaultStream implements cupool.Allocator.
func (o *over) DefaultStream() *cupool.Stream { return o.Unwrap().DefaultStream() }

// NewStream implements cupool.Allocator.
func (o *over) NewStream() (*cupool.Stream, error) { return o.Unwrap().NewStream() }

// Lookup implements cupool.Allocator.
func (o *over) Lookup(p cupool.Ptr) (cupool.Block, error) { return o.Unwrap().Lookup(p) }

// RecordStream implements cupool.Allocator.
func (o *over) RecordStream(b cupool.Block, s *cupool.Stream) error {
	return o.Unwrap().RecordStream(b, s)
}

// Free implements cupool.Allocator.
func (o *over) Free(b cupool.Block) error { return o.Unwrap().Free(b) }

// FreePtr implements cupool.Allocator.
func (o *over) FreePtr(p cupool.Ptr, size int64) error { return o.Unwrap().FreePtr(p, size) }

// freePtr is FreePtr for an adaptor that has to know the block. It finds the block
// and calls free with it.
func freePtr(behind cupool.Allocator, p cupool.Ptr, size int64, free func(cupool.Block) error) error {
	b, err := behind.Lookup(p)
	if err != nil || b.Ptr() != p || size >= 0 && size != b.Size() {
		return behind.FreePtr(p, size) // its error says what is wrong
	}
	return free(b)
}
