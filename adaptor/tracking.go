package adaptor

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/callstack"
	"github.com/cupool/cupool/internal/sanitize"
)

// Tracking knows the live blocks and where they were allocated. It makes an
// allocation about a microsecond slower, for the Go stack.
type Tracking struct {
	over
	mu   sync.Mutex
	live map[cupool.Block]origin
}

// origin is where a block was allocated.
type origin struct {
	stream cupool.StreamHandle
	pc     [32]uintptr
}

// NewTracking returns an allocator that keeps track of the blocks that are
// allocated through it.
func NewTracking(a cupool.Allocator) *Tracking {
	return &Tracking{over: over{orNone(a)}, live: map[cupool.Block]origin{}}
}

// Live lists the live blocks by address, each with the stack that allocated it.
func (t *Tracking) Live() (all []cupool.Leak) {
	t.mu.Lock()
	for b, o := range t.live {
		all = append(all, cupool.Leak{Ptr: b.Ptr(), Size: b.Size(), Stream: o.stream, Stack: callstack.Format(o.pc[:], nil)})
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b cupool.Leak) int { return cmp.Compare(a.Ptr, b.Ptr) })
	return all
}

// Check returns a *cupool.LeakError when any block is live, for the end of a
// phase or test.
func (t *Tracking) Check() error {
	live := t.Live()
	switch {
	case t.live == nil:
		return errNone
	case len(live) == 0:
		return nil
	}
	e := &cupool.LeakError{Leaks: live}
	for _, l := range live {
		e.Bytes += l.Size
	}
	return e
}

// Alloc implements cupool.Allocator.
func (t *Tracking) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := t.Unwrap().Alloc(size, s)
	if err != nil || b.IsEmpty() {
		return b, err
	}
	o := origin{stream: s.Handle()}
	runtime.Callers(2, o.pc[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[b] = o
	return b, nil
}

// Free implements cupool.Allocator.
func (t *Tracking) Free(b cupool.Block) error {
	err := t.Unwrap().Free(b)
	if sanitize.WasFreed(err) {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.live, b) // its generation tells it from every other block
	}
	return err
}

// FreePtr implements cupool.Allocator.
func (t *Tracking) FreePtr(p cupool.Ptr, size int64) error {
	return freePtr(t.Unwrap(), p, size, t.Free)
}
