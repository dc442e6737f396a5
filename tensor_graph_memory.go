package cupool

import (
	"errors"
	"fmt"
	"sync"
)

// heldMemory is an Allocator whose blocks, once freed, are handed out again
// for the same size only, and go back to where they came from all together. It
// is no private pool, as that could not use what the engine's allocator caches.
//
// Between a Fork and the Join, two streams work. What is freed then goes to
// later, which only Forks are served from, unless it was allocated outside of
// them and since the last one: all that a Fork did not see the end of comes
// before the next one, but nothing of the side stream before Join.
type heldMemory struct {
	Allocator
	from Allocator // of its blocks: the same, or a pool (ScopeIn)

	mu          sync.Mutex
	blocks      map[Ptr]*heldBlock
	idle, later heldLists
	forks       int  // so far
	open        bool // there was no Join since the last of them
	beside      bool // in one now
}

// heldLists are blocks that are free, by size.
type heldLists map[int64][]*heldBlock

type heldBlock struct {
	Block
	freed bool
	forks int // that have certainly nothing to do with it: so many were before it was allocated
}

func newHeldMemory(a, from Allocator) *heldMemory {
	return &heldMemory{Allocator: a, from: from, blocks: make(map[Ptr]*heldBlock), idle: make(heldLists), later: make(heldLists)}
}

// take removes the block that came last.
func (l heldLists) take(size int64) *heldBlock {
	n := len(l[size])
	if n == 0 {
		return nil
	}
	b := l[size][n-1]
	l[size] = l[size][:n-1]
	return b
}

// Alloc implements Allocator.
func (h *heldMemory) Alloc(size int64, s *Stream) (Block, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var own *heldBlock
	if h.beside {
		own = h.later.take(size)
	}
	if own == nil {
		own = h.idle.take(size)
	}
	if own == nil {
		b, err := h.from.Alloc(size, s)
		if err != nil || b.IsEmpty() {
			return b, err
		}
		own = &heldBlock{Block: b}
		h.blocks[b.ptr] = own
	}
	own.freed, own.forks = false, h.forks
	if h.beside {
		own.forks-- // this one has
	}
	return own.Block, nil
}

// Free implements Allocator.
func (h *heldMemory) Free(b Block) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.blocks[b.ptr]
	if own == nil || own.Block != b {
		return h.Allocator.Free(b)
	}
	return h.freeLocked(own)
}

// FreePtr implements Allocator.
func (h *heldMemory) FreePtr(p Ptr, size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.blocks[p]
	switch {
	case own == nil:
		return h.Allocator.FreePtr(p, size)
	case size >= 0 && size != own.size:
		return &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("it has %d bytes", own.size)}
	}
	return h.freeLocked(own)
}

func (h *heldMemory) freeLocked(b *heldBlock) error {
	if b.freed {
		return &BlockError{Op: "free", Ptr: b.ptr, Size: b.size, Err: ErrDoubleFree, Detail: "during a capture"}
	}
	b.freed = true
	to := h.idle
	if h.beside || h.open && b.forks < h.forks {
		to = h.later
	}
	to[b.size] = append(to[b.size], b)
	return nil
}

// fork begins a Fork.
func (h *heldMemory) fork() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forks++
	h.open, h.beside = true, true
}

// endFork ends it.
func (h *heldMemory) endFork() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beside = false
}

// join has what was freed serve again, as the streams are one after the other.
func (h *heldMemory) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
	for size, bs := range h.later {
		h.idle[size] = append(h.idle[size], bs...)
	}
	clear(h.later)
}

// release frees all blocks.
func (h *heldMemory) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, b := range h.blocks {
		errs = append(errs, h.from.Free(b.Block))
	}
	clear(h.blocks)
	clear(h.idle)
	clear(h.later)
	return errors.Join(errs...)
}
