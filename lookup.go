package cupool

import (
	"github.com/cupool/cupool/internal/block"
)

// FreePtr implements Allocator.
func (c *Pool) FreePtr(p Ptr, size int64) error {
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	if c.heaps.freeAt(p, size) {
		return nil
	}
	b, err := c.holding(p).blockAt(p, size)
	if err != nil {
		return err
	}
	return c.Free(b)
}

// holding returns the heaps of the pool of the device that has an address, or the pool's own.
func (c *Pool) holding(p Ptr) *heapTable {
	if _, ok := c.space.Index.Find(uint64(p)); !ok && !c.closed.Load() {
		if o := c.dev.holder(p); o != nil {
			return &o.heaps
		}
	}
	return &c.heaps
}

// Lookup implements Allocator.
func (c *Pool) Lookup(p Ptr) (Block, error) {
	id, _ := c.space.At(uint64(p))
	if h, ok := c.heaps.liveAt(p, id); ok {
		return h, nil
	}
	if h, ok := c.heaps.liveAt(p, c.space.Found(uint64(p))); ok {
		return h, nil
	}
	h, err := c.holding(p).lookup("look-up", p, -1, false)
	if err == nil && h.pool() == c.id {
		c.space.NoteFound(uint64(p), h.id())
	}
	return h, err
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
	h := c.heaps.at(owner)
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
