package cupool

import (
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// FreePtr implements Allocator.
func (c *Pool) FreePtr(p Ptr, size int64) error {
	if err := c.made("free"); err != nil {
		return err
	}
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	if c.heaps.freeAt(p, size) {
		return nil
	}
	heaps := c.holding(p)
	if heaps != &c.heaps && heaps.freeAt(p, size) {
		return nil
	}
	b, err := heaps.blockAt(p, size)
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
	if err := c.made("look-up"); err != nil {
		return Block{}, err
	}
	for _, k := range [...]ledger.Kind{small, large} {
		if h, ok := c.heaps.liveAt(p, c.space.At(k, uint64(p))); ok {
			return h, nil
		}
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
	for _, k := range [...]ledger.Kind{small, large} {
		id := h.c.space.At(k, uint64(p))
		if id == 0 {
			continue
		}
		if b := h.c.space.Blocks.At(id); b.Owner() == h.Index() && b.Addr() == uint64(p) && b.Word().State() == block.Live && h.SegmentOf(b) == seg {
			return id, b
		}
	}
	return seg.Find(&h.c.space.Blocks, uint64(p))
}

// StreamOf returns the stream that a live block was allocated for, or nil for
// a block of another allocator. Blocks of a stream that was closed are the
// default stream's; while Close is at work it may be either. It takes no lock where
// Free takes none.
func (c *Pool) StreamOf(b Block) *Stream {
	if c.isNone() {
		return nil
	}
	if b.pool() != c.id || !c.space.Blocks.Known(b.id()) {
		return nil
	}
	x := c.space.Blocks.At(b.id())
	if _, _, _, ok := x.Homed(); ok { // it is lent to nobody
		if h := c.heaps.at(x.Owner()); h != nil {
			return h.stream
		}
	}
	h, _ := c.heaps.lockBlock(b.id())
	if h == nil {
		return nil
	}
	defer h.mu.Unlock()
	return h.streamOfLocked(b.id())
}
