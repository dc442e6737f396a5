// Package adaptor holds Allocators that stand in front of others, after the
// memory resource adaptors of RMM (github.com/rapidsai/rmm). Each does one
// thing, and they go together in any order:
//
//	var a cupool.Allocator = pool
//	limited, err := adaptor.NewLimiting(a, 4<<30)
//	tracked := adaptor.NewTracking(limited)
//	eng, err := cupool.NewEngine(tracked)
//
//	Limiting         bounds the bytes that are live
//	Statistics       counts blocks and bytes, by nested sections of a program
//	Tracking         knows what is live and the Go stack that allocated it
//	Logging          says to a *slog.Logger what is called
//	Recording        writes a trace that `cupool replay` replays
//	FailureCallback  asks the program when memory ran out
//	Fallback         goes on with a second allocator when the first is full
//	BySize           chooses among several allocators by size
//
// What is allocated through an adaptor has to be freed through it, or through
// one in front of it: it knows only what passes. Like every Allocator, they are
// safe from several goroutines, so there is none for that. Errors are those of
// the allocator behind, where nothing else is said.
package adaptor

import "github.com/cupool/cupool"

// Unwrap is what adaptors have beside an Allocator's methods.
type Unwrap interface {
	// Unwrap returns the allocator behind; of several, the first.
	Unwrap() cupool.Allocator
}

// Find returns the first allocator that is a T: a itself, the one behind it,
// and so on, as *cupool.Caching for its statistics.
func Find[T any](a cupool.Allocator) (T, bool) {
	for a != nil {
		if t, ok := a.(T); ok {
			return t, true
		}
		w, ok := a.(Unwrap)
		if !ok {
			break
		}
		a = w.Unwrap()
	}
	var none T
	return none, false
}

// freePtr is FreePtr for an adaptor that has to know the block: it is freed by
// free.
func freePtr(behind cupool.Allocator, p cupool.Ptr, size int64, free func(cupool.Block) error) error {
	b, err := behind.Lookup(p)
	if err != nil || b.Ptr() != p || size >= 0 && size != b.Size() {
		return behind.FreePtr(p, size) // which says what is wrong with it
	}
	return free(b)
}
