package adaptor

import (
	"errors"

	"github.com/cupool/cupool"
)

// Fallback goes on with a second allocator when the first is out of memory:
// with managed or pinned memory behind that of the device, for instance, or
// with a private pool that is kept for that.
type Fallback struct{ several }

// NewFallback returns an allocator that allocates from first, and what that has
// no memory for from second. Both are of the same device, or of devices whose
// streams are the same (a GPU's device, managed and pinned memory). A block is
// freed where it is from, whichever that is.
//
// A Caching that is full tries everything, up to collecting Go's garbage, each
// time before it says so. Where that happens often, a Limiting in front of it
// says so at once.
func NewFallback(first, second cupool.Allocator) *Fallback {
	return &Fallback{several{all: []cupool.Allocator{first, second}}}
}

// Alloc implements cupool.Allocator. When neither has the memory it fails with
// what both say.
func (f *Fallback) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := f.all[0].Alloc(size, s)
	if !errors.Is(err, cupool.ErrOutOfMemory) {
		return b, err
	}
	now, failed := f.streamOf(1, s)
	if failed == nil {
		if b, failed = f.all[1].Alloc(size, now); failed == nil {
			return b, nil
		}
	}
	return cupool.Block{}, errors.Join(err, failed)
}
