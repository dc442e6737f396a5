package adaptor

import (
	"errors"

	"github.com/cupool/cupool"
)

// Fallback goes on with a second allocator when the first is out of memory. The
// second may have managed or pinned memory where the first has the device's, or
// be a private pool that is kept for this.
type Fallback struct{ several }

// NewFallback returns an allocator that allocates from first, and from second when
// first has no memory. Both are of the same device, or of devices with the same
// streams (a GPU's device, managed and pinned memory). Free gives a block to the
// allocator that it came from.
//
// A full Pool tries everything, up to collecting Go's garbage, before each
// refusal. Where refusals are frequent, a Limiting in front of it refuses at once.
func NewFallback(first, second cupool.Allocator) *Fallback {
	return &Fallback{several{all: []cupool.Allocator{orNone(first), orNone(second)}}}
}

// Alloc implements cupool.Allocator. When neither allocator has the memory, it
// fails with the errors of both.
func (f *Fallback) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := f.alloc(0, size, s)
	if !errors.Is(err, cupool.ErrOutOfMemory) {
		return b, err
	}
	b, failed := f.alloc(1, size, s)
	if failed != nil {
		return cupool.Block{}, errors.Join(err, failed)
	}
	return b, nil
}
