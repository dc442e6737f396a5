package cupool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/snapshot"
)

// How a heap grows: memory that it gets from the device.

// growLocked gets memory for the request from the device, as a block that is in
// no set.
func (h *streamHeap) growLocked(r *request) (block.ID, *block.Block, error) {
	defer nvtx.Start("grow the pool", r.rounded).End()
	if h.c.memory == nil {
		id, b, err := h.newSegmentForLocked(r)
		if r.kind == large && errors.Is(err, ErrOutOfMemory) {
			if spared, x := h.TakeSpared(r.rounded); spared != 0 {
				return spared, x, nil
			}
		}
		return id, b, err
	}
	allow := r.allow()
	id, b, err := h.TakeVirtual(r.kind, r.rounded, allow)
	if errors.Is(err, heap.ErrStitches) {
		polls := 0 // what the stream has not passed stays mapped: nobody waits with the lock held
		if err = h.DropStitchesBefore(h.c.dev.order.OverUntil(&h.stream.calls, h.FreedAt(), &polls)); err == nil {
			allow.MoreStitches = true
			id, b, err = h.TakeVirtual(r.kind, r.rounded, allow)
		}
	}
	return id, b, err
}

// newSegmentForLocked gets a segment for the request: of the size that the
// GrowthFactor wants, of the size that the configuration has for it, or of
// what it needs, whichever the device does not refuse.
func (h *streamHeap) newSegmentForLocked(r *request) (id block.ID, b *block.Block, err error) {
	cfg := &h.c.cfg
	want, least := r.segment(), sizeclass.RoundTo(r.rounded, cfg.SegmentRounding)
	extra := int64(0)
	if !h.c.space.Policy.NoSplit { // more than the block needs would be lost
		extra = h.Extra(cfg.SegmentRounding)
	}
	sizes := []int64{max(want, extra), want, min(want, least)}
	for _, size := range slices.Compact(sizes) {
		if id, b, err = h.newSegmentLocked(size, r.kind); !errors.Is(err, ErrOutOfMemory) {
			break
		}
	}
	return id, b, err
}

// newSegmentLocked asks the device for a segment and enters it in the books
// as one Free block that is in no set. The books change only after the
// device has said yes.
func (h *streamHeap) newSegmentLocked(size int64, k ledger.Kind) (block.ID, *block.Block, error) {
	c := h.c
	if err := h.Slots(2); err != nil {
		return 0, nil, err
	}
	if err := c.budget.Take(size); err != nil {
		return 0, nil, err
	}
	p, err := c.driver.MemAlloc(size)
	switch {
	case err != nil:
	case p == 0:
		err = fmt.Errorf("device returned no address: %w", ErrInvalidRange)
	case uint64(p)%uint64(min(c.cfg.MinBlock, sizeclass.Quantum)) != 0:
		err = errors.Join(fmt.Errorf("device returned the unaligned address %v: %w", p, ErrInvalidRange), c.driver.MemFree(p))
	}
	if err != nil {
		c.budget.Cancel(size)
		return 0, nil, c.dev.failed(fmt.Errorf("cupool: allocating a segment of %d bytes on %s for %v: %w", size, c.driver.Name(), h.stream.handle, err))
	}
	c.budget.Keep()
	c.driverAllocs.Add(1)
	c.note(snapshot.SegmentAlloc, h.stream.handle, p, size)
	id, b := h.AddSegment(p, size, k)
	return id, b, nil
}

// reserveInitial gets Config.InitialSize for the default stream. Segments
// stay below MaxSplit, so that any request can be cut from them.
func (c *Pool) reserveInitial() error {
	h := c.def
	h.mu.Lock()
	defer h.mu.Unlock()
	unit := c.cfg.SegmentRounding
	if c.memory != nil {
		unit = c.memory.Granularity
	}
	left := sizeclass.RoundTo(c.cfg.InitialSize, unit)
	for left > 0 {
		size := left
		if c.cfg.MaxSplit > 0 {
			size = min(size, max((c.cfg.MaxSplit-1)/unit, 1)*unit)
		}
		if err := h.prepareLocked(size); err != nil {
			return fmt.Errorf("cupool: reserving the initial size of %d bytes: %w", c.cfg.InitialSize, err)
		}
		left -= size
	}
	return nil
}

// prepareLocked adds size free bytes of the device for large blocks, which are kept.
func (h *streamHeap) prepareLocked(size int64) error {
	if h.c.memory != nil {
		err := h.Grow(large, size)
		if err == nil {
			h.KeepRanges(large, size)
		}
		return err
	}
	id, b, err := h.newSegmentLocked(size, large)
	if err == nil {
		h.KeepSegment(h.SegmentOf(b))
		h.AddFree(id, b)
	}
	return err
}
