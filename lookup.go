package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/block"
)

// FreePtr implements Allocator.
func (c *Pool) FreePtr(p Ptr, size int64) error {
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	if c.freeAt(p, size) {
		return nil
	}
	b, err := c.blockAt(p, size)
	if err != nil {
		return err
	}
	return c.shed(c.freeSlow(b))
}

// blockAt returns the live block that begins at an address, for a free of size bytes.
func (c *Pool) blockAt(p Ptr, size int64) (Block, error) {
	if p == 0 && size <= 0 {
		return Block{}, nil
	}
	b, err := c.lookup("free", p, size, true)
	if err == nil && size >= 0 && size != b.size {
		err = &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("%d bytes were allocated there", b.size)}
	}
	return b, err
}

// freeAt frees the homed block that begins at an address and is of a size,
// if that is not negative, without a lock. It reports whether there is one.
// What it reads is of the block as the word says, or else the word is another.
func (c *Pool) freeAt(p Ptr, size int64) bool {
	id, b := c.space.At(uint64(p))
	if id == 0 {
		return false
	}
	w := b.Word()
	return w == block.MakeWord(w.Gen(), block.Live|block.Homed) && b.Addr() == uint64(p) && (size < 0 || size == b.Requested()) &&
		b.FreeHomed(w.Gen())
}

// Lookup implements Allocator.
func (c *Pool) Lookup(p Ptr) (Block, error) {
	id, _ := c.space.At(uint64(p))
	if h, ok := c.liveAt(p, id); ok {
		return h, nil
	}
	if h, ok := c.liveAt(p, c.space.Found(uint64(p))); ok {
		return h, nil
	}
	h, err := c.lookup("look-up", p, -1, false)
	if err == nil && h.pool() == c.id {
		c.space.NoteFound(uint64(p), h.id())
	}
	return h, err
}

// liveAt returns the block of a number if it is live and around an address, without a
// lock. Until its word changes it is the block that was read.
func (c *Pool) liveAt(p Ptr, id block.ID) (Block, bool) {
	if id == 0 || c.closed.Load() {
		return Block{}, false
	}
	b := c.space.Blocks.At(id)
	w := b.Word()
	h := newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, c.id)
	return h, w.State() == block.Live && p-h.ptr < Ptr(h.size) && b.Word() == w
}

// lookup finds the live block at an address or, unless exact, around it.
func (c *Pool) lookup(op string, p Ptr, size int64, exact bool) (Block, error) {
	fail := func(of *Stream, reason error, detail string) (Block, error) {
		e := &BlockError{Op: op, Ptr: p, Size: size, Err: reason, Detail: detail}
		if of != nil {
			e.Stream = of.handle
		}
		return Block{}, e
	}
	if c.closed.Load() {
		return fail(nil, ErrClosed, "the allocator is closed")
	}
	h, seg := c.lockSegment(p)
	if h == nil {
		if o := c.dev.holder(p); o != nil && o != c {
			return o.lookup(op, p, size, exact)
		}
		return fail(nil, ErrForeignPointer, "no segment of this allocator holds the address")
	}
	defer h.mu.Unlock()
	id, b := h.blockAt(seg, p)
	if b == nil || b.Word().State() == block.Gap {
		return fail(h.stream, ErrForeignPointer, "it is an address that this allocator has reserved, but without memory")
	}
	w := b.Word()
	switch {
	case w.State() == block.Live && exact && b.Addr() != uint64(p):
		return fail(h.streamOfLocked(id), ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", uint64(p)-b.Addr(), Ptr(b.Addr()), b.Requested()))
	case w.State() == block.Live:
		return newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, c.id), nil
	case exact && b.Addr() == uint64(p):
		return fail(h.stream, ErrDoubleFree, "no block is live there")
	case exact:
		return fail(h.stream, ErrForeignPointer, fmt.Sprintf("it is inside memory of this allocator that is not live (%s at %v)", b, Ptr(b.Addr())))
	default:
		return fail(h.stream, ErrUseAfterFree, "no block is live there")
	}
}

// blockAt returns the block of a segment that holds an address: by the map of
// addresses when a live block begins there, else by walking the segment.
func (h *streamHeap) blockAt(seg *block.Segment, p Ptr) (block.ID, *block.Block) {
	// A block that is live and of this heap stays so with the lock held.
	if id, b := h.c.space.At(uint64(p)); id != 0 && b.Word().State() == block.Live && b.Owner() == h.Index() && h.SegmentOf(b) == seg {
		return id, b
	}
	return seg.Find(&h.c.space.Blocks, uint64(p))
}

// lockSegment finds the segment that holds an address and locks its heap.
func (c *Pool) lockSegment(p Ptr) (*streamHeap, *block.Segment) {
	for {
		e, ok := c.space.Index.Find(uint64(p))
		if !ok {
			return nil, nil
		}
		h := c.heapAt(e.Owner)
		if h == nil {
			continue // the segment has another heap by now, or is gone
		}
		h.mu.Lock()
		if now, ok := c.space.Index.Find(uint64(p)); ok && now.Seg == e.Seg && now.Owner == e.Owner && h.Has(e.Seg) {
			return h, e.Seg
		}
		h.mu.Unlock()
	}
}

// StreamOf returns the stream that a live block was allocated for, or nil for
// a block of another allocator. Blocks of a stream that was closed are the
// default stream's; while Close is at work it may be either. It takes no lock, but for
// blocks that were recorded on a stream.
func (c *Pool) StreamOf(b Block) *Stream {
	if b.pool() != c.id || !c.space.Blocks.Known(b.id()) {
		return nil
	}
	x := c.space.Blocks.At(b.id())
	owner := x.Owner()
	h := c.heapAt(owner)
	switch {
	case x.Owner() != owner: // its stream was closed meanwhile
		return c.StreamOf(b)
	case h == nil:
		return nil
	}
	if !x.Word().Has(block.Used) {
		return h.stream
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streamOfLocked(b.id())
}
