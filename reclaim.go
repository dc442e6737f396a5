package cupool

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/decay"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/snapshot"
)

// reclaimer gives memory of a pool back to the device. One goroutine at a time does so;
// the others wait for the lock, or go on without.
type reclaimer struct {
	*pool
	heaps *heapTable
	idle  *lending
	*budget.ReclaimLock
	decay decay.Decay // calls releaseDecayed

	// Guarded by the lock:
	regrets  heap.Regrets // segments given back too early
	found    []heap.Idle  // what a release looks through
	contents []contents   // what Sleep kept
}

// upTo gives cached segments back, largest first, until at least need
// bytes came back, and returns how many did.
func (r *reclaimer) upTo(ctx context.Context, need int64) (released int64, err error) {
	if !r.LockUntil(ctx) {
		return 0, nil // another goroutine releases
	}
	defer r.Unlock()
	if r.asleep.Load() || r.closed.Load() || r.memory != nil && r.isolated.Load() {
		return 0, nil
	}
	return r.upToLocked(ctx, need)
}

// upToLocked gives wholly free segments of any heap back to the device,
// the largest first, until at least need bytes came back, and returns how many
// did. It waits for work until ctx is done. The lock is held.
func (r *reclaimer) upToLocked(ctx context.Context, need int64) (released int64, err error) {
	defer nvtx.Start("give memory back", need).End()
	if r.isolated.Load() { // captured work that uses free blocks may have been submitted again since
		if err := r.dev.syncAll(ctx); err != nil {
			return 0, err
		}
	}
	if r.memory == nil {
		return r.inOrderLocked(ctx, need, true, heap.Order(r.cfg.TrimOldest))
	}
	if _, err := r.heaps.settle(epoch.Peek); onlyLost(err) != nil {
		return 0, err
	}
	released, err = r.chunksLocked(ctx, need, true)
	left := r.budget.Held() // no more than that is reserved on purpose
	r.heaps.each(func(h *streamHeap) { left = h.KeepAtMost(left) })
	return released, err
}

// unkeptLocked is upToLocked in an order of the caller's, without what was
// reserved on purpose. There is no virtual memory.
func (r *reclaimer) unkeptLocked(ctx context.Context, need int64, order func(a, b heap.Idle) int) (released int64, err error) {
	released, err = r.inOrderLocked(ctx, need, false, order)
	return released, notLate(err)
}

// inOrderLocked gives segments back, with those that were reserved on purpose or
// without them. Where all of them have to go, they go heap by heap: to sort many
// by their addresses would take longer than all else.
func (r *reclaimer) inOrderLocked(ctx context.Context, need int64, kept bool, order func(a, b heap.Idle) int) (released int64, err error) {
	if err := r.retry(); err != nil {
		return 0, err
	}
	if _, err := r.heaps.settle(epoch.Peek); onlyLost(err) != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.idle.dropEmpty()) }()
	found, bytes := r.findIdle(kept)
	if len(found) > 0 && need > 0 && ctx.Done() != nil { // MemFree waits for the device
		if err := r.dev.syncAll(ctx); onlyLostOrLate(err) != nil {
			clear(r.found)
			return 0, err
		}
	}
	if bytes > need {
		slices.SortFunc(found, order)
	}
	defer func() { clear(r.found) }()
	for len(found) > 0 && released < need {
		batch := heap.Together(found, need-released)
		n, err := r.togetherLocked(batch)
		if released += n; err != nil {
			return released, err
		}
		found = found[len(batch):]
	}
	return released, nil
}

// findIdle lists the wholly free segments and returns their bytes. kept adds those that
// were reserved on purpose. The list is the pool's, and is used again.
func (r *reclaimer) findIdle(kept bool) (found []heap.Idle, bytes int64) {
	found = r.found[:0]
	r.heaps.each(func(h *streamHeap) {
		h.MergeFast()
		found = h.AppendIdle(found)
	})
	r.found = found
	if !kept {
		found = slices.DeleteFunc(found, func(f heap.Idle) bool { return f.Seg.Kept })
	}
	for i := range found {
		bytes += found[i].Seg.Size
	}
	return found, bytes
}

// togetherLocked gives those back of the segments, which are of one heap,
// that are still there and wholly free. It returns their bytes.
func (r *reclaimer) togetherLocked(found []heap.Idle) (released int64, err error) {
	h := r.heaps.at(found[0].Owner)
	if h == nil {
		return 0, nil // it was closed meanwhile
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	gone, err := h.freeSegmentsLocked(found)
	if r.ownMemory && h.stream.clock.Captured() { // it cannot be waited for: its memory stays
		err = onlyLost(err)
	}
	return r.regret(h, gone), err
}

// regret notes segments of a heap that were given back, as the heap may miss them. That of a
// closed stream does not. It returns their bytes.
func (r *reclaimer) regret(h *streamHeap, gone []heap.Idle) (bytes int64) {
	if r.heaps.of(h.stream) == h {
		r.regrets.Enter(&h.Heap, gone)
	}
	for i := range gone {
		bytes += gone[i].Seg.Size
	}
	return bytes
}

// everything ends the life of all blocks of a pool at one moment, gives back what all heaps
// hold, and what earlier calls left, and lists the blocks that were live. No work is under
// way, and the lock is held. While blocks are held it fails with errHeld and changes nothing.
func (r *reclaimer) everything() (leaks []Leak, err error) {
	heaps, unlock := r.heaps.lockAll()
	if r.held.Load() > 0 {
		unlock()
		return nil, errHeld
	}
	var errs []error
	for _, h := range heaps {
		l, err := h.endLocked()
		leaks = append(leaks, l...)
		errs = append(errs, err)
	}
	unlock()
	for _, h := range heaps {
		errs = append(errs, h.releaseSegments())
	}
	return leaks, errors.Join(append(errs, r.retry())...)
}

// retry tries again to give back what the device refused to take.
func (r *reclaimer) retry() error {
	switch {
	case r.memory != nil:
		return r.memory.Retry()
	case r.guards != nil:
		return r.guards.Retry()
	}
	return nil
}

// forget drops what was noted of a heap that is not found by its stream any more, so that
// nobody enters regrets for it.
func (r *reclaimer) forget(h *streamHeap) {
	r.Lock()
	defer r.UnlockUntold()
	r.regrets.Forget(&h.Heap)
}

// chunksLocked is upToLocked for virtual memory, chunk by chunk. Without
// wait it leaves streams alone that have work under way, and with it those whose
// work is not done when ctx is, which the error names.
func (r *reclaimer) chunksLocked(ctx context.Context, need int64, wait bool) (released int64, err error) {
	if err := r.retry(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.idle.dropEmpty()) }()
	var late error
	for _, next := range r.inTrimOrder() {
		n, err := next.h.releaseChunks(ctx, need-released, wait, next.upTo)
		released += n
		switch {
		case released >= need:
			return released, notLate(err)
		case isLate(err):
			late = errors.Join(late, err)
		case err != nil:
			return released, err
		}
	}
	return released, late
}

// chunksUpTo are the chunks of a heap that are free since a tick or for longer.
type chunksUpTo struct {
	h    *streamHeap
	upTo uint64
}

// inTrimOrder lists what chunksLocked gives back, heap by heap or by age.
func (r *reclaimer) inTrimOrder() (list []chunksUpTo) {
	for _, h := range append(r.heaps.open(), r.idle.closedHeaps()...) {
		ages := []uint64{math.MaxUint64}
		if r.cfg.TrimOldest {
			h.locked(func(h *streamHeap) {
				ages = append(h.WholeChunks().Ages(), math.MaxUint64) // ranges without memory come last
			})
		}
		for _, tick := range ages {
			list = append(list, chunksUpTo{h, tick})
		}
	}
	slices.SortStableFunc(list, func(a, b chunksUpTo) int { return cmp.Compare(a.upTo, b.upTo) })
	return list
}

// releaseChunks gives memory of whole free chunks back to the device until
// need bytes went, of those that are free since a tick or for longer, and returns
// how many did. Nothing may use the memory when it is unmapped. So the heap's lock is
// held, and the stream's work is waited for or, without wait, nothing is done unless it
// is over.
func (h *streamHeap) releaseChunks(ctx context.Context, need int64, wait bool, upTo uint64) (released int64, err error) {
	if need <= 0 {
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait && !h.stream.clock.Captured() && (!h.WholeChunks().Empty() || h.GapRanges() > 0) { // it has something to give
		if err := h.awaitLocked(ctx, h.FreedAt); err != nil {
			if h.stream.clock.Captured() && !isLate(err) { // since: its memory stays, as below
				return 0, onlyLost(err)
			}
			return 0, err
		}
	}
	chunks, polls := h.WholeChunks().UpTo(upTo), provePolls
	if chunks.Empty() && h.GapRanges() == 0 || h.stream.clock.Captured() || !wait && !h.idleLocked(&polls) {
		return 0, nil
	}
	out, err := h.Detach(chunks, need)
	err = errors.Join(err, h.Release(out), h.DropGaps(false))
	h.checkLocked()
	return out.Bytes(), err
}

// liveBlocks lists what the program holds, by heap and address; all heaps are
// locked.
func liveBlocks(heaps []*streamHeap) (live []Block) {
	for _, h := range heaps {
		h.eachLive(func(id block.ID, b *block.Block) {
			live = append(live, newBlock(Ptr(b.Addr()), b.Requested(), b.Word().Gen(), id, h.c.id))
		})
	}
	return live
}

// empty is EmptyCache that leaves it to the caller to tell
// Config.OnRelease. It waits for work until ctx is done.
func (r *reclaimer) empty(ctx context.Context) error {
	r.Lock()
	defer r.UnlockUntold()
	return r.emptyLocked(ctx)
}

// emptyLocked is empty with the lock held.
func (r *reclaimer) emptyLocked(ctx context.Context) error {
	defer nvtx.Start("empty cache", 0).End()
	if r.asleep.Load() {
		return r.asleepError("empty cache")
	}
	r.dev.drainLater()
	r.heaps.flush()
	_, late := r.dev.waitPending(ctx)
	if late != nil && !isLate(late) {
		return late
	}
	r.heaps.each(func(h *streamHeap) { h.Unkeep() })
	if _, err := r.dev.emptyQuarantines(ctx); err != nil && !isLate(err) {
		return err
	}
	released, err := r.upToLocked(ctx, math.MaxInt64)
	r.note(snapshot.Trim, 0, 0, released)
	return errors.Join(late, err)
}

// startDecay starts what gives idle memory back after a while, if it is wanted.
func (r *reclaimer) startDecay() {
	if r.cfg.Decay == 0 {
		return
	}
	r.decay.Idle = func() int64 {
		_, idle := r.heaps.usage()
		return idle - r.heaps.kept()
	}
	r.decay.Release = func(unused int64) int64 {
		released, err := r.releaseDecayed(unused)
		r.decayedBytes.Add(released)
		if err != nil {
			r.log.Warn("giving idle memory back failed", "error", err)
		}
		return released
	}
	r.decay.Start(r.cfg.Decay)
}

// noteReleased tells the program that memory went back to the device.
func (r *reclaimer) noteReleased(released int64) {
	r.log.Debug("memory went back to the device", "bytes", released)
	if r.cfg.OnRelease != nil {
		r.cfg.OnRelease(released)
	}
}

// releaseDecayed gives idle memory back as Trim does, but waits for nothing:
// memory of streams at work stays, and segments do while any stream is, as
// freeing them waits for the device.
func (r *reclaimer) releaseDecayed(need int64) (released int64, err error) {
	r.Lock()
	defer r.Unlock()
	return r.atOnceLocked(need)
}

// atOnceLocked is releaseDecayed with the lock held.
func (r *reclaimer) atOnceLocked(need int64) (released int64, err error) {
	if r.closed.Load() || r.asleep.Load() || r.isolated.Load() || r.dev.lost.Load() != nil {
		return 0, nil
	}
	if err := r.heaps.settleEverything(); err != nil {
		return 0, err
	}
	r.heaps.flush()
	if r.memory != nil {
		return r.chunksLocked(context.Background(), need, false)
	}
	for _, s := range r.dev.streams.All() { // one that is being closed may be at work, too
		if polls := provePolls; !s.calls.Idle(&polls) {
			return 0, nil
		}
	}
	return r.unkeptLocked(r.dev.calls.Patience.AtOnce(), need, heap.Order(r.cfg.TrimOldest))
}
