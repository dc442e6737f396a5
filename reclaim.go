package cupool

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/snapshot"
)

// Idle memory: what a heap holds and does not use.
//
// A heap reuses its own memory in the order of its stream. What idle and closed streams
// cache would be lost to the others, tens of GiB in PyTorch's case. So a miss takes idle
// memory over from other heaps before it asks the device for more, and idle segments
// go back to the device before more is reserved than ever was.
//
// The work of a closed stream was waited for. Of an open stream, memory is taken that is
// free once an event has proven that the stream's work is over. Ordering the taker
// behind that work (StreamWaitEvent) could make streams wait for each other in a circle.
//
// Streams that take turns would take the same memory from each other for ever. So a miss
// takes memory of open streams, and gives segments back, only where the pool would
// otherwise reserve more than it ever did. A heap regrets memory when it misses after
// others took it. Memory that was regretted often stays with its heap where the pool
// wastes little, or is lent block by block.

// idleMemory is what a pool keeps track of for that.
type idleMemory struct {
	mu      sync.Mutex    // held while memory moves between heaps
	left    []*streamHeap // of closed streams, that hold memory; guarded by mu
	lenders []*streamHeap // that one request asks; guarded by mu

	regrets heap.Regrets // segments given back too early; guarded by Pool.reclaim
	found   []heap.Idle  // what a release looks through; guarded by Pool.reclaim
}

// lender is what is remembered of a heap whose idle memory others took; guarded
// by idleMemory.mu.
type lender struct {
	lent    bool // memory was taken since its last miss
	regrets int  // misses after that
}

// regretLimit is how often a heap may ask again for what it lost before such memory is
// left alone: a program that repeats itself comes to rest. Replays of programs that train
// reserve 3 to 5 % more with a limit below 4, and no less with a higher one.
const regretLimit = 4

// lendRegrets is how often a heap has to miss what others took before it lends blocks.
const lendRegrets = 2 // less costs a program that trains up to 1 %

// A pool wastes much when it holds more than the most that was in use and a
// wasteFraction of it. Replays reserve 1 to 4 % more with half of wastefulRegrets.
const (
	wasteFraction   = 8
	wastefulRegrets = 8
)

// A pool that holds less than idleFloor bytes keeps idle segments, and its heaps of less
// than takeFloor keep their memory: below that, sharing does not pay.
const (
	idleFloor = 256 << 20
	takeFloor = 32 << 20
)

// provePolls bounds how often one miss asks about events that are not done at once. A GPU
// passes one of an idle stream in a few µs, 64 queries take 10, growing by a chunk 30.
const provePolls = 64

// leftHeaps returns the heaps of closed streams.
func (c *Pool) leftHeaps() []*streamHeap {
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	return slices.Clone(c.idle.left)
}

// takeIdle gets memory for a request that other heaps leave idle.
func (c *Pool) takeIdle(r request) (found bool, err error) {
	switch {
	case c.memory == nil && len(c.heaps.All()) == 1:
		return false, nil
	case r.rounded > c.budget.Limit, c.memory != nil && r.rounded > c.memory.Capacity:
		return false, nil // what never fits must not take from those that do
	}
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	if l := &r.h.lender; l.lent {
		l.lent = false
		l.regrets++
	}
	polls := provePolls
	for _, from := range c.idle.left {
		n, err := c.take(r, from, r.h.lacks(r), &polls)
		if found = found || n > 0; err != nil {
			return found, err
		}
	}
	_ = c.dropEmptyLocked()
	need := c.excess(r)
	if need <= 0 {
		return found, nil
	}
	if _, err := c.settleAll(epoch.Peek); onlyLost(err) != nil {
		return found, err
	}
	for _, from := range c.lenders(r) {
		n, err := c.take(r, from, need, &polls)
		if n > 0 {
			found, from.lender.lent = true, true
		}
		if need = c.excess(r); err != nil || need <= 0 {
			return found, err
		}
	}
	return found, nil
}

// borrowIdle serves a large request by a free block of another stream's virtual memory,
// where streams took chunks from each other more than once. The block stays in the other
// heap, with the request's stream recorded on it.
func (c *Pool) borrowIdle(r request) (Block, bool) {
	if c.memory == nil || c.sanitizer != nil || r.kind == small || r.reserving || r.h.stream.clock.Captured() {
		return Block{}, false // a sanitizer fills blocks in the order of their heap's stream
	}
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	lenders := slices.DeleteFunc(c.lenders(r), func(h *streamHeap) bool { return h == r.h || h.lender.regrets < lendRegrets })
	if len(lenders) == 0 || c.excess(r) <= 0 {
		return Block{}, false
	}
	_, _ = c.settleAll(epoch.Ask) // what it cannot free stays pending
	polls := provePolls
	for _, from := range lenders {
		if b, ok := from.lend(r, &polls); ok {
			return b, true
		}
	}
	return Block{}, false
}

// borrowAny serves a request that would be refused otherwise, by a free block of another
// stream whose work is done. With wait it waits for that work.
func (c *Pool) borrowAny(r request, wait bool) (Block, bool) {
	if c.sanitizer != nil || r.reserving || r.h.stream.clock.Captured() {
		return Block{}, false
	}
	_, _ = c.settleAll(epoch.Ask)
	for _, from := range c.openHeaps() {
		if from == r.h || from.stream.clock.Captured() || !from.fits(r) || wait && from.awaitIdle(r.wait) != nil {
			continue
		}
		polls := provePolls
		if b, ok := from.lend(r, &polls); ok {
			return b, true
		}
	}
	return Block{}, false
}

// chunksSuffice reports whether the whole free chunks of all heaps, with what the device and the
// limits leave, cover a request, or there is nothing to choose.
func (c *Pool) chunksSuffice(r request) bool {
	if c.memory == nil || len(c.heaps.All()) == 1 || c.excess(r) <= 0 {
		return true
	}
	room, _ := c.budget.Room()
	if free, _, err := c.driver.MemInfo(); err == nil {
		room = min(room, free)
	}
	c.each(func(h *streamHeap) {
		if h != r.h && !h.stream.clock.Captured() {
			h.Flush()
			room += h.WholeChunks().Bytes()
		}
	})
	return r.h.lacks(r) <= room
}

// fits reports whether a free block of the heap would serve a request.
func (h *streamHeap) fits(r request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Fits(r.kind, r.rounded)
}

// lend serves a request of another stream, if a free block fits and the heap's own
// stream has nothing left to do.
func (h *streamHeap) lend(r request, polls *int) (Block, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil || !h.Fits(r.kind, r.rounded) || !h.idleLocked(polls) {
		return Block{}, false
	}
	if !r.h.stream.calls.Enter() { // a Take cannot be undone, so the stream must stay open
		return Block{}, false
	}
	defer r.h.stream.calls.Leave()
	id, b := h.Take(r.size, r.rounded, 0) // it finds no home here
	if id == 0 {
		return Block{}, false
	}
	h.pending.Record(b, r.h.stream.clock)
	b.MarkUsed()
	h.lent[id] = r.h.stream
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil
}

// lend serves a request of another pool from this pool's free blocks.
func (c *Pool) lend(r request) (Block, bool) {
	h := c.findHeap(r.h.stream)
	if h == nil {
		return Block{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil {
		return Block{}, false
	}
	id, b := h.Take(r.size, r.rounded, 0) // it finds no home here
	if id == 0 {
		h.collectLocked()
		h.Flush()
		if id, b = h.Take(r.size, r.rounded, 0); id == 0 {
			return Block{}, false
		}
	}
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil
}

// inheritLent makes the blocks that were lent to a stream, which is closed, the default
// stream's.
func (c *Pool) inheritLent(s *Stream) {
	c.each(func(h *streamHeap) {
		for id, to := range h.lent {
			if to == s {
				h.lent[id] = c.def.stream
				h.pending.Record(c.space.Blocks.At(id), c.def.stream.clock)
			}
		}
	})
}

// excess returns the bytes that a request lacks beyond a sufficient reserve.
func (c *Pool) excess(r request) int64 {
	lacks := r.h.lacks(r)
	return min(lacks, c.budget.Held()+lacks-c.budget.Sufficient(0))
}

// lacks returns the bytes that the device would be asked for, 0 when the heap has enough.
func (h *streamHeap) lacks(r request) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c.memory == nil {
		if h.Fits(r.kind, r.rounded) {
			return 0
		}
		return r.segment()
	}
	return sizeclass.RoundTo(h.Missing(r.kind, r.rounded, r.allow()), h.c.memory.Granularity)
}

// lenders lists the heaps that idle memory may be taken from, those that regretted it
// least first, in a list that the pool keeps. Beyond the soft limit chunks of the taker's
// other kind may be, too; else the kinds would often take them from each other.
func (c *Pool) lenders(r request) []*streamHeap {
	list := c.idle.lenders[:0]
	for _, h := range c.heaps.All() {
		switch {
		case h == nil:
		case h == r.h && (c.memory == nil || !c.budget.Pressed(r.rounded)):
		case h != r.h && !h.stream.calls.IsOpen():
		default:
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b *streamHeap) int { return cmp.Compare(a.lender.regrets, b.lender.regrets) })
	c.idle.lenders = list
	return list
}

// take moves at least need bytes of idle memory to the request's heap, as far as there are
// so many, and returns how many it moved. polls bounds how often the device is asked.
func (c *Pool) take(r request, from *streamHeap, need int64, polls *int) (taken int64, err error) {
	defer lockBoth(r.h, from)()
	if need <= 0 || r.h.usableLocked() != nil || from.stream.calls.IsClosing() {
		return 0, nil
	}
	from.Flush()
	switch {
	case c.memory == nil:
		taken = c.takeSegment(r, from, polls)
	case !from.stream.calls.IsOpen() && from.FreeBytes(r.kind) > 0 && !from.InUse():
		if c.lendsLocked(r, from, polls) {
			var n int
			n, taken, err = from.MoveRanges(r.kind, &r.h.Heap)
			c.noteMoves(n, taken)
		}
	default:
		taken, err = c.takeChunks(r, from, need, polls)
	}
	r.h.checkLocked()
	from.checkLocked()
	return taken, err
}

// takeSegment moves the segment that fits a request best. An open stream gives none that is
// larger than what the device would be asked for: it would soon have to ask for it itself.
func (c *Pool) takeSegment(r request, from *streamHeap, polls *int) int64 {
	most := r.segment()
	if !from.stream.calls.IsOpen() {
		most = r.h.LargestSegment(r.kind, r.rounded)
	}
	seg := from.BestIdle(r.kind, r.rounded, most)
	if seg == nil || !c.lendsLocked(r, from, polls) {
		return 0
	}
	from.MoveSegment(seg, &r.h.Heap)
	c.noteMoves(1, seg.Size)
	return seg.Size
}

// takeChunks moves whole free chunks of either kind, or of the same heap's other kind.
func (c *Pool) takeChunks(r request, from *streamHeap, need int64, polls *int) (int64, error) {
	chunks := from.WholeChunks()
	if from == r.h {
		chunks = chunks.Of(large + small - r.kind)
	}
	if chunks.Empty() || !c.lendsLocked(r, from, polls) {
		return 0, nil
	}
	out, err := from.Detach(chunks, need)
	bytes, e := r.h.Attach(&from.Heap, r.kind, out)
	c.noteMoves(len(out), bytes)
	return bytes, errors.Join(err, e, from.DropGaps(false))
}

func (c *Pool) noteMoves(n int, bytes int64) {
	c.moves.Add(int64(n))
	c.movedBytes.Add(bytes)
}

// lendsLocked reports whether idle memory of a heap may be taken for a request.
func (c *Pool) lendsLocked(r request, from *streamHeap, polls *int) bool {
	switch l := &from.lender; {
	case from.stream.calls.IsClosed():
	case c.budget.Pressed(r.rounded):
	case c.budget.Held() < idleFloor && from.Held() < takeFloor:
		return false
	case l.regrets > regretLimit:
		l.regrets-- // this time the taker grows instead
		return false
	}
	return from.idleLocked(polls)
}

// leave makes what the pool holds for a stream idle memory, as the stream is closed and its
// work is done. Where blocks are in use, all of it goes to the default stream's heap.
func (c *Pool) leave(s *Stream) (err error) {
	var h *streamHeap
	defer func() { // once the heap is not found any more, nobody enters regrets for it
		if h != nil {
			c.reclaim.Lock()
			c.idle.regrets.Forget(&h.Heap)
			c.reclaim.UnlockUntold()
		}
	}()
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	c.heapsMu.Lock()
	defer c.heapsMu.Unlock()
	if h = c.findHeap(s); h == nil {
		return nil
	}
	c.byStream.Set(int(s.slot), nil)
	c.inheritLent(s)
	unlock := lockBoth(h, c.def)
	h.UnhomeAll()
	h.endQuarantineLocked()
	h.Magazine.Drop()
	if h.InUse() {
		h.moveLocked(c.def)
	}
	h.checkLocked()
	unlock()
	c.idle.left = append(c.idle.left, h)
	return c.dropEmptyHeapsLocked()
}

// moveLocked moves everything that a heap holds to another one of the pool.
func (h *streamHeap) moveLocked(to *streamHeap) {
	h.Each(func(_ *block.Segment, _ block.ID, b *block.Block) { h.pending.MoveBlock(b, &to.pending) })
	h.pending.MoveWaits(&to.pending)
	h.MoveAll(&to.Heap)
	maps.Copy(to.lent, h.lent)
	clear(h.lent) // the heap stays while the device is given a segment of it
	to.checkLocked()
}

// dropEmpty closes heaps of closed streams that hold no memory any more.
func (c *Pool) dropEmpty() error {
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	return c.dropEmptyLocked()
}

// dropEmptyLocked is dropEmpty where idle.mu is held.
func (c *Pool) dropEmptyLocked() error {
	c.heapsMu.Lock()
	defer c.heapsMu.Unlock()
	return c.dropEmptyHeapsLocked()
}

// dropEmptyHeapsLocked is dropEmpty where idle.mu and heapsMu are held.
func (c *Pool) dropEmptyHeapsLocked() (err error) {
	c.idle.left = slices.DeleteFunc(c.idle.left, func(h *streamHeap) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.Held() > 0 {
			return false
		}
		err = errors.Join(err, h.DropGaps(true))
		if !h.IsEmpty() {
			return false
		}
		c.dropHeapLocked(h)
		return true
	})
	return err
}

// releaseUpTo gives cached segments back, largest first, until at least need
// bytes came back, and returns how many did.
func (c *Pool) releaseUpTo(ctx context.Context, need int64) (released int64, err error) {
	if !c.reclaim.LockUntil(ctx) {
		return 0, nil // another goroutine releases
	}
	defer c.reclaim.Unlock()
	if c.asleep.Load() || c.closed.Load() {
		return 0, nil
	}
	return c.releaseSegments(ctx, need)
}

// releaseSegments gives wholly free segments of any heap back to the device,
// the largest first, until at least need bytes came back, and returns how many
// did. It waits for work until ctx is done. reclaim is held, as by its callers.
func (c *Pool) releaseSegments(ctx context.Context, need int64) (released int64, err error) {
	defer nvtx.Start("give memory back", need).End()
	if c.memory == nil {
		return c.releaseInOrder(ctx, need, true, heap.Order(c.cfg.TrimOldest))
	}
	if _, err := c.settleAll(epoch.Peek); onlyLost(err) != nil {
		return 0, err
	}
	return c.releaseVirtual(ctx, need, true)
}

// releaseUnkept is releaseSegments in an order of the caller's, without what was
// reserved on purpose, and without waits where they are bounded. There is no
// virtual memory.
func (c *Pool) releaseUnkept(need int64, order func(a, b heap.Idle) int) (released int64, err error) {
	released, err = c.releaseInOrder(c.dev.calls.Patience.AtOnce(), need, false, order)
	return released, notLate(err)
}

// releaseInOrder gives segments back, with those that were reserved on purpose or
// without them. Where all of them have to go, they go heap by heap: to sort many
// by their addresses would take longer than all else.
func (c *Pool) releaseInOrder(ctx context.Context, need int64, kept bool, order func(a, b heap.Idle) int) (released int64, err error) {
	if _, err := c.settleAll(epoch.Peek); onlyLost(err) != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.dropEmpty()) }()
	found, bytes := c.findIdle(kept)
	if len(found) > 0 && need > 0 && ctx.Done() != nil { // MemFree waits for the device
		if err := c.dev.syncAll(ctx); onlyLostOrLate(err) != nil {
			clear(c.idle.found)
			return 0, err
		}
	}
	if bytes > need {
		slices.SortFunc(found, order)
	}
	defer func() { clear(c.idle.found) }()
	for len(found) > 0 && released < need {
		batch := heap.Together(found, need-released)
		n, err := c.releaseTogether(batch)
		if released += n; err != nil {
			return released, err
		}
		found = found[len(batch):]
	}
	return released, nil
}

// findIdle lists the wholly free segments and returns their bytes. kept adds those that
// were reserved on purpose. The list is the pool's, and is used again.
func (c *Pool) findIdle(kept bool) (found []heap.Idle, bytes int64) {
	found = c.idle.found[:0]
	c.each(func(h *streamHeap) {
		h.MergeFast()
		found = h.AppendIdle(found)
	})
	c.idle.found = found
	if !kept {
		found = slices.DeleteFunc(found, func(f heap.Idle) bool { return f.Seg.Kept })
	}
	for i := range found {
		bytes += found[i].Seg.Size
	}
	return found, bytes
}

// releaseTogether gives those back of the segments, which are of one heap,
// that are still there and wholly free. It returns their bytes.
func (c *Pool) releaseTogether(found []heap.Idle) (released int64, err error) {
	h := c.heapAt(found[0].Owner)
	if h == nil {
		return 0, nil // it was closed meanwhile
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	here := h.StillIdle(found)
	if len(here) == 0 {
		return 0, nil
	}
	n, err := h.freeSegmentsLocked(here)
	return c.regret(h, here[:n]), err
}

// regret notes segments that were given back, for the heap may miss them, unless its
// stream is closed. It returns their bytes.
func (c *Pool) regret(h *streamHeap, gone []heap.Idle) (bytes int64) {
	if c.findHeap(h.stream) == h {
		c.idle.regrets.Enter(&h.Heap, gone)
	}
	for i := range gone {
		bytes += gone[i].Seg.Size
	}
	return bytes
}

// releaseVirtual is releaseSegments for virtual memory, chunk by chunk. Without
// wait it leaves streams alone that have work under way, and with it those whose
// work is not done when ctx is, which the error names.
func (c *Pool) releaseVirtual(ctx context.Context, need int64, wait bool) (released int64, err error) {
	if err := c.memory.Retry(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.dropEmpty()) }()
	var late error
	for _, next := range c.inTrimOrder() {
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

// inTrimOrder lists what releaseVirtual gives back, heap by heap or by age.
func (c *Pool) inTrimOrder() (list []chunksUpTo) {
	for _, h := range append(c.openHeaps(), c.leftHeaps()...) {
		ages := []uint64{math.MaxUint64}
		if c.cfg.TrimOldest {
			h.mu.Lock()
			ages = append(h.WholeChunks().Ages(), math.MaxUint64) // ranges without memory come last
			h.mu.Unlock()
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
	if wait && h.holdsChunks() { // most of the wait without the lock
		if err := h.awaitIdle(ctx); err != nil {
			return 0, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	chunks := h.WholeChunks().UpTo(upTo)
	switch polls := provePolls; {
	case chunks.Empty() && h.GapRanges() == 0 || need <= 0 || h.stream.clock.Captured():
		return 0, nil
	case wait:
		if err := h.awaitIdleLocked(ctx); err != nil {
			return 0, err
		}
	case !h.idleLocked(&polls):
		return 0, nil
	}
	out, err := h.Detach(chunks, need)
	err = errors.Join(err, h.Release(out), h.DropGaps(false))
	h.checkLocked()
	return out.Bytes(), err
}

// holdsChunks reports whether the heap has something that releaseChunks may give
// back.
func (h *streamHeap) holdsChunks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.stream.clock.Captured() && (!h.WholeChunks().Empty() || h.GapRanges() > 0)
}

// flushAll returns what is free in the magazines and fast bins of all heaps to
// their free sets and reports whether there was anything.
func (c *Pool) flushAll() (found bool) {
	c.each(func(h *streamHeap) {
		found = h.Flush() || found
		h.checkLocked()
	})
	return found
}

// inUse reports whether a block of any heap is out or pending.
func (c *Pool) inUse() bool {
	heaps, unlock := c.lockAll()
	defer unlock()
	return slices.ContainsFunc(heaps, func(h *streamHeap) bool { return h.InUse() })
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

// emptyCache is EmptyCache that leaves it to the caller to tell
// Config.OnRelease.
func (c *Pool) emptyCache() error {
	defer nvtx.Start("empty cache", 0).End()
	c.reclaim.Lock()
	defer c.reclaim.UnlockUntold()
	if c.asleep.Load() {
		return c.asleepError("empty cache")
	}
	c.drainLater()
	c.flushAll()
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	_, late := c.dev.waitPending(ctx)
	if late != nil && !isLate(late) {
		return late
	}
	c.each(func(h *streamHeap) { h.Unkeep() })
	if _, err := c.dev.emptyQuarantines(ctx); err != nil && !isLate(err) {
		return err
	}
	released, err := c.releaseSegments(ctx, math.MaxInt64)
	c.note(snapshot.Trim, 0, 0, released)
	return errors.Join(late, err)
}

// startDecay starts what gives idle memory back after a while, if it is wanted.
func (c *Pool) startDecay() {
	if c.cfg.Decay == 0 {
		return
	}
	c.decay.Idle = func() int64 {
		_, idle := c.usage()
		return idle - c.keptBytes()
	}
	c.decay.Release = func(unused int64) int64 {
		released, err := c.releaseDecayed(unused)
		c.decayedBytes.Add(released)
		if err != nil {
			c.log.Warn("giving idle memory back failed", "error", err)
		}
		return released
	}
	c.decay.Start(c.cfg.Decay)
}

// noteReleased tells the program that memory went back to the device.
func (c *Pool) noteReleased(released int64) {
	c.log.Debug("memory went back to the device", "bytes", released)
	if c.cfg.OnRelease != nil {
		c.cfg.OnRelease(released)
	}
}

// keptBytes returns how much was reserved on purpose.
func (c *Pool) keptBytes() (n int64) {
	c.each(func(h *streamHeap) { n += h.Kept() })
	return n
}

// releaseDecayed gives idle memory back as Trim does, but waits for nothing:
// memory of streams at work stays, and segments do while any stream is, as
// freeing them waits for the device.
func (c *Pool) releaseDecayed(need int64) (released int64, err error) {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	return c.releaseAtOnce(need)
}

// releaseAtOnce is releaseDecayed with reclaim held.
func (c *Pool) releaseAtOnce(need int64) (released int64, err error) {
	if c.closed.Load() || c.asleep.Load() || c.dev.lost.Load() != nil {
		return 0, nil
	}
	if err := c.settleEverything(); err != nil {
		return 0, err
	}
	c.flushAll()
	if c.memory != nil {
		return c.releaseVirtual(context.Background(), need, false)
	}
	for _, s := range c.dev.openStreams() {
		if polls := provePolls; !s.calls.Idle(&polls) {
			return 0, nil
		}
	}
	return c.releaseUnkept(need, heap.Order(c.cfg.TrimOldest))
}
