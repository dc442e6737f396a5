package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/block"
)

// idAt returns the block that the address maps say begins at an address.
// They may be stale: entries are overwritten, never cleared.
func (c *Caching) idAt(p Ptr) (block.ID, *block.Block) {
	for _, m := range c.byAddr {
		if id := block.ID(m.Get(uint64(p))); id != 0 {
			if b := c.blocks.At(id); b.Addr() == uint64(p) {
				return id, b
			}
		}
	}
	return 0, nil
}

// FreePtr implements Allocator.
func (c *Caching) FreePtr(p Ptr, size int64) error {
	if p == 0 && size <= 0 {
		return nil // the empty block
	}
	if c.freeAt(p, size) {
		return nil
	}
	h, err := c.lookup("free", p, size, true)
	if err != nil {
		return err
	}
	if size >= 0 && size != h.size {
		return &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("%d bytes were allocated there", h.size)}
	}
	return c.Free(h)
}

// freeAt frees the homed block that begins at an address and is of a size,
// if that is not negative, without a lock. It reports whether there is one.
// What it reads is of the block as the word says, or else the word is another.
func (c *Caching) freeAt(p Ptr, size int64) bool {
	id, b := c.idAt(p)
	if id == 0 {
		return false
	}
	w := b.Word()
	return w == block.MakeWord(w.Gen(), block.Live|block.Homed) && b.Addr() == uint64(p) && (size < 0 || size == b.Requested()) &&
		b.FreeHomed(w.Gen())
}

// Lookup implements Allocator.
func (c *Caching) Lookup(p Ptr) (Block, error) {
	if h, ok := c.liveAt(p); ok {
		return h, nil
	}
	return c.lookup("look-up", p, -1, false)
}

// liveAt returns the live block that begins at an address, without a lock. Until
// its word changes it is the block that was read.
func (c *Caching) liveAt(p Ptr) (Block, bool) {
	id, b := c.idAt(p)
	if id == 0 || c.closed.Load() {
		return Block{}, false
	}
	w := b.Word()
	h := newBlock(p, b.Requested(), w.Gen(), id, c.id)
	return h, w.State() == block.Live && b.Addr() == uint64(p) && b.Word() == w
}

// lookup finds the live block at an address or, unless exact, around it.
func (c *Caching) lookup(op string, p Ptr, size int64, exact bool) (Block, error) {
	fail := func(s *Stream, reason error, detail string) (Block, error) {
		e := &BlockError{Op: op, Ptr: p, Size: size, Err: reason, Detail: detail}
		if s != nil {
			e.Stream = s.handle
		}
		return Block{}, e
	}
	if c.closed.Load() {
		return fail(nil, ErrClosed, "the allocator is closed")
	}
	s, seg := c.lockSegment(p)
	if s == nil {
		if o := c.family.at(p); o != nil && o != c {
			return o.lookup(op, p, size, exact)
		}
		return fail(nil, ErrForeignPointer, "no segment of this allocator holds the address")
	}
	defer s.mu.Unlock()
	id, b := s.blockAt(seg, p)
	if b == nil {
		return fail(s, ErrForeignPointer, "it is an address that this allocator has reserved, but without memory")
	}
	w := b.Word()
	switch {
	case w.State() == block.Live && exact && b.Addr() != uint64(p):
		return fail(s, ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", uint64(p)-b.Addr(), Ptr(b.Addr()), b.Requested()))
	case w.State() == block.Live:
		return newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, c.id), nil
	case exact && b.Addr() == uint64(p):
		return fail(s, ErrDoubleFree, "no block is live there")
	case exact:
		return fail(s, ErrForeignPointer, fmt.Sprintf("it is inside memory of this allocator that is not live (%s at %v)", b, Ptr(b.Addr())))
	default:
		return fail(s, ErrUseAfterFree, "no block is live there")
	}
}

// blockAt returns the block of a segment that holds an address: by the
// address map when it begins there, else by walking the segment.
func (s *Stream) blockAt(seg *block.Segment, p Ptr) (block.ID, *block.Block) {
	// Only the owner of a block that is not Free is settled.
	if id, b := s.c.idAt(p); id != 0 && b.Word().State() != block.Free && b.Owner() == s.index && s.segs[b.Seg] == seg {
		return id, b
	}
	return seg.Find(&s.c.blocks, uint64(p))
}

// lockSegment finds the segment that holds an address and locks its owner.
func (c *Caching) lockSegment(p Ptr) (*Stream, *block.Segment) {
	for {
		e, ok := c.segments.find(p)
		if !ok {
			return nil, nil
		}
		e.owner.mu.Lock()
		if now, ok := c.segments.find(p); ok && now.seg == e.seg && now.owner == e.owner {
			return e.owner, e.seg
		}
		e.owner.mu.Unlock()
	}
}

// lockOwner finds the stream that owns a handle's block and locks it, after
// which the block's state stays, but for the magazines. The handle must be
// of this allocator and its block live; else gone is the reason given.
func (c *Caching) lockOwner(op string, h Block, gone error) (*Stream, *block.Block, error) {
	if s, b := c.lockLive(h); s != nil {
		return s, b, nil
	}
	return nil, nil, c.notLive(op, h, gone)
}

// lockLive is lockOwner that returns nil and gives no reason.
func (c *Caching) lockLive(h Block) (*Stream, *block.Block) {
	if h.pool() != c.id || !c.blocks.Known(h.id()) {
		return nil, nil
	}
	b := c.blocks.At(h.id())
	s := c.stream(b.Owner())
	s.mu.Lock()
	for b.Owner() != s.index { // that stream was closed and its blocks moved
		s.mu.Unlock()
		s = c.stream(b.Owner())
		s.mu.Lock()
	}
	if w := b.Word(); w.Gen() != h.gen || w.State() != block.Live || c.closed.Load() {
		s.mu.Unlock()
		return nil, nil
	}
	return s, b
}

// notLive says why a handle's block is not live, which it will not be again.
func (c *Caching) notLive(op string, h Block, gone error) error {
	if h.pool() != c.id || !c.blocks.Known(h.id()) {
		return c.blockError(op, h, nil, ErrForeignPointer)
	}
	b := c.blocks.At(h.id())
	switch {
	case c.closed.Load():
		return c.blockError(op, h, nil, ErrClosed)
	case b.Word().Gen() != h.gen && gone == ErrDoubleFree:
		gone = ErrStaleBlock
	}
	return c.blockError(op, h, c.stream(b.Owner()), gone)
}

// blockError describes a call on a handle that failed for a reason.
func (c *Caching) blockError(op string, h Block, s *Stream, reason error) error {
	e := &BlockError{Op: op, Ptr: h.ptr, Size: h.size, Err: reason}
	if s != nil {
		e.Stream = s.handle
	}
	switch reason {
	case ErrForeignPointer:
		e.Detail = "the block was allocated by another allocator"
	case ErrStaleBlock:
		e.Detail = "its memory has been handed out again since; that block was left alone"
	case ErrDoubleFree, ErrUseAfterFree:
		e.Detail = "the block was freed before"
	case ErrForeignStream:
		e.Detail = "the stream was made by another allocator"
	case ErrClosed:
		e.Detail = "the allocator is closed"
	}
	return e
}
