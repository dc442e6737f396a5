package adaptor

import (
	"errors"

	"github.com/cupool/cupool"
)

// Failure is an allocation that failed for lack of memory.
type Failure struct {
	Size    int64 // bytes as requested
	Stream  *cupool.Stream
	Attempt int   // 1 for the first
	Err     error // matches cupool.ErrOutOfMemory
}

// FailureCallback asks the program when memory ran out.
type FailureCallback struct {
	over
	ask func(Failure) (retry bool)
}

// NewFailureCallback returns an allocator that calls ask when an allocation fails
// for lack of memory, and tries again for as long as ask returns true. It calls
// ask without locks, from the goroutine that allocates. ask may use the allocator.
func NewFailureCallback(a cupool.Allocator, ask func(Failure) (retry bool)) *FailureCallback {
	return &FailureCallback{over: over{orNone(a)}, ask: ask}
}

// Alloc implements cupool.Allocator.
func (f *FailureCallback) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	for attempt := 1; ; attempt++ {
		b, err := f.Unwrap().Alloc(size, s)
		if !errors.Is(err, cupool.ErrOutOfMemory) || f.ask == nil || !f.ask(Failure{Size: size, Stream: s, Attempt: attempt, Err: err}) {
			return b, err
		}
	}
}
