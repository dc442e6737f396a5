package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
)

// The rules of the allocator's books, beside those of blocks (B1 to B5, see
// internal/block) and heaps (C1 to C5, see internal/heap):
//
//	C6  the pools of a device hold what counts against its limit
//	C7  a heap is found by the blocks that name it and by its stream, and no
//	    block names a stream that is not there
//	C8  the requests that mapped memory or got new memory are at most those that took a lock

// Check verifies every rule of the books and returns the first that is
// broken, by its number. It stops all streams' allocations meanwhile. With
// Config.Sanitize it also looks at the memory of streams that have no work under
// way, and returns the blocks that were found to be corrupted since Check,
// EmptyCache or Close last did, each as a *CorruptionError.
func (c *Pool) Check() error {
	if err := c.made("check"); err != nil {
		return err
	}
	heaps, unlock := c.heaps.lockAll()
	defer unlock()
	var got [2]heap.Census
	for _, h := range heaps {
		if err := h.Check(h.pending.Bytes() + h.quarantine.Bytes()); err != nil {
			return err
		}
		if err := c.heaps.checkNames(h); err != nil {
			return err
		}
		h.Count(&got)
	}
	t := c.heaps.sum(heaps)
	if err := c.space.Compare(t, &got, c.budget.Held()); err != nil {
		return err
	}
	if n, most := c.mapped.Load()+c.grown.Load(), t[all][ledger.OutBlocks].Added-t[all][ledger.MagazineHits].Added; n > most {
		return fmt.Errorf("C8: %d requests mapped memory or got new memory, and only %d took a lock", n, most)
	}
	if err := c.dev.check(); err != nil || c.sanitizer == nil {
		return err
	}
	for _, h := range heaps {
		h.lookLocked()
	}
	return c.sanitizer.Findings()
}

// checkNames verifies C7.
func (t *heapTable) checkNames(h *streamHeap) error {
	if t.at(h.Index()) != h {
		return fmt.Errorf("C7: heap %d of stream %d is not where blocks look for it", h.Index(), h.stream.number)
	}
	streams := t.dev.streams.All()
	for slot, n := range h.pending.Carried() {
		if n < 0 || n > 0 && (slot >= len(streams) || streams[slot] == nil) {
			return fmt.Errorf("C7: %d blocks of heap %d name the stream of slot %d", n, h.Index(), slot)
		}
	}
	return nil
}
