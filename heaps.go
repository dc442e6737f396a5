package cupool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/history"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/snapshot"
)

// packagePath is the path of this package, whose frames at the top of a recorded
// stack are not printed.
const packagePath = "github.com/cupool/cupool"

// The two kinds of requests, and the sum of both in statistics.
const (
	small = ledger.Small
	large = ledger.Large
	all   = ledger.All
)

// streamHeap is what a pool holds for one stream.
type streamHeap struct {
	mu lock.Mutex // guards the heap and what follows
	heap.Heap
	pending  epoch.Pending
	distance history.Distance     // to the next sample of what is not in a magazine
	lent     map[block.ID]*Stream // live blocks that another stream was lent
	trust    epoch.Trust          // in waits by Config.GrowWait
	marks    bool                 // markFrees is called: Policy.TrackFrees
	unmarked int64                // bytes that were freed since it recorded an event
	dropped  bool                 // from the table; another heap may have its index

	c      *pool
	stream *Stream                      // in whose order memory is reused
	putOne func(block.ID, *block.Block) // put, made once

	quarantine *sanitize.Queue // nil: freed blocks are free at once
}

// locked calls f with the heap's lock held.
func (h *streamHeap) locked(f func(h *streamHeap)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// unlocked calls f while the heap's lock, which is held, is given away.
func (h *streamHeap) unlocked(f func()) {
	h.mu.Unlock()
	defer h.mu.Lock()
	f()
}

// owns reports whether the heap, which is locked, has a block: since the heap was found the
// block may have moved, and another heap have got the index.
func (h *streamHeap) owns(b *block.Block) bool { return b.Owner() == h.Index() && !h.dropped }

// lockBoth takes the locks of two heaps of a pool, which may be the same, in
// their order.
func lockBoth(a, b *streamHeap) (unlock func()) {
	if a == b {
		a.mu.Lock()
		return a.mu.Unlock
	}
	if a.Index() > b.Index() {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
	a.Ledger.Quiet()
	b.Ledger.Quiet()
	return func() {
		defer a.mu.Unlock()
		defer b.mu.Unlock()
		a.c.space.Book.Settle(&a.Ledger, &b.Ledger)
	}
}

// usableLocked reports why nothing can be allocated from the heap any more.
func (h *streamHeap) usableLocked() error {
	c := h.c
	switch {
	case c.closed.Load():
		return c.closedError()
	case c.asleep.Load():
		return c.asleepError("allocation")
	case c.retired.Load():
		return fmt.Errorf("cupool: %s on %s was retired: %w", c.name, c.driver.Name(), ErrClosed)
	case !h.stream.calls.IsOpen():
		return h.stream.closedError()
	}
	return c.dev.lostError()
}

// unusable is the fast form of usableLocked, which makes no error.
func (h *streamHeap) unusable() bool {
	c := h.c
	return c.closed.Load() || c.dev.lost.Load() != nil || !h.stream.calls.IsOpen() || c.asleep.Load() || c.retired.Load()
}

// streamOfLocked returns the stream that a live block is for.
func (h *streamHeap) streamOfLocked(id block.ID) *Stream {
	if s := h.lent[id]; s != nil {
		return s
	}
	return h.stream
}

// handleLocked returns the handle of a block that went out. It fails when the
// block cannot be filled as Config.Sanitize or ZeroOnAlloc say.
// ctx may hold a label; a nil one holds none.
func (h *streamHeap) handleLocked(ctx context.Context, id block.ID, b *block.Block) (Block, error) {
	if h.unnoted(ctx) {
		h.checkLocked()
		return h.handle(id, b), nil
	}
	return h.handOutLocked(ctx, id, b, h.c.dev.history.Sample(&h.distance, b.Requested()), false)
}

// unnoted reports whether nothing is to be noted or filled when a block goes out.
func (h *streamHeap) unnoted(ctx context.Context) bool {
	return ctx == nil && h.quarantine == nil && !h.c.dev.history.On()
}

// handOutLocked is handleLocked of a block that is a sample with a weight, or 0, and
// that had a place in the magazines.
func (h *streamHeap) handOutLocked(ctx context.Context, id block.ID, b *block.Block, weight float64, homed bool) (Block, error) {
	h.noteAllocLocked(ctx, id, b, weight, homed)
	if s := h.c.sanitizer; s != nil {
		if err := s.HandOut(id, b, h.stream.handle, h.stream.clock.Captured()); err != nil {
			s.Bare(id, b)
			h.put(id, b) // the stream may fill it yet, as far as the device took that
			h.sweepLocked()
			return Block{}, err
		}
	}
	h.checkLocked()
	return h.handle(id, b), nil
}

func (h *streamHeap) handle(id block.ID, b *block.Block) Block {
	return newBlock(Ptr(b.Addr()), b.Requested(), b.Word().Gen(), id, h.c.id)
}

// put takes back a block that no other stream uses any more. The block is Live,
// Cached or Pending.
func (h *streamHeap) put(id block.ID, b *block.Block) {
	if h.quarantine == nil {
		h.putFree(id, b)
		return
	}
	if b.Word().State() != block.Pending {
		h.Pend(b)
	}
	h.quarantine.Push(id, b)
}

// putFree makes a block free for reuse on the heap's stream.
func (h *streamHeap) putFree(id block.ID, b *block.Block) {
	if h.watched(b) && h.forgetLocked(id, b) && h.Rehome(id, b) {
		return
	}
	if h.quarantine != nil {
		b.SetGivenBack(h.stream.clock.Now()) // the sanitizer filled and read it meanwhile
	}
	h.Put(id, b)
	if h.c.guards != nil {
		h.dropSegmentsLocked()
	}
}

// backLocked takes back a live block that is not in a magazine: at once, or when
// the streams recorded on it are done with it.
func (h *streamHeap) backLocked(id block.ID, b *block.Block) {
	if h.watched(b) {
		h.noteFreeLocked(id, b)
	}
	if len(h.lent) > 0 && h.lent[id] != nil || h.stream.calls.IsClosing() {
		delete(h.lent, id)
		h.leavesLocked(b)
	}
	size := b.Size
	if b.Uses() == 0 {
		h.put(id, b)
	} else {
		h.Pend(b)
		if !h.pending.Add(id, b) {
			h.put(id, b)
		}
	}
	if h.marks {
		h.markFrees(size)
	}
	if h.quarantine != nil {
		h.sweepLocked()
	}
	h.checkLocked()
}

// isPlain reports whether backLocked would do nothing with a live block but Put, where no
// sanitizer looks at it. One that was lent has its borrower recorded.
func (h *streamHeap) isPlain(b *block.Block) bool {
	return b.Uses()|b.Origin() == 0 && !h.marks && !h.c.dev.history.All() && !h.stream.calls.IsClosing()
}

// leavesLocked has a block that goes from one stream to another as it is freed wait for all
// streams before, in the device's order: one that was lent is the lender's again, and one of
// a stream that is being closed the default stream's.
func (h *streamHeap) leavesLocked(b *block.Block) {
	if h.c.dev.order.Streams != nil {
		for _, s := range h.c.dev.streams.All() { // also those that are closing
			h.pending.Record(b, s.clock)
		}
	}
}

// idleLocked reports whether what is free in the heap may be used in another order than its
// stream's. polls bounds how often the device is asked, and is what is left of that.
func (h *streamHeap) idleLocked(polls *int) bool {
	return h.c.dev.order.Over(&h.stream.calls, h.FreedAt(), polls)
}

// idleChunksLocked returns those of the heap's free chunks that may be used in another order
// than its stream's: all or none or, with older, those that are free for long enough.
func (h *streamHeap) idleChunksLocked(chunks heap.Runs, older bool, polls *int) heap.Runs {
	switch {
	case older:
		return chunks.FreedBefore(h.c.dev.order.OverUntil(&h.stream.calls, h.FreedAt(), polls))
	case h.idleLocked(polls):
		return chunks
	}
	return heap.Runs{}
}

// markPart is the part of the pool that is freed on a stream before an event is recorded, for
// Config.GrowWait. With more events there is less work between two, and waits for one behind
// which are some leave the device idle; with fewer, more memory waits for each.
const markPart = 8

// markFrees notes that size bytes were freed, and records an event when they are many. Nobody
// takes of what is isolated, whose streams may be captured.
func (h *streamHeap) markFrees(size int64) {
	if h.unmarked += size; h.unmarked >= h.c.budget.Held()/markPart && !h.c.isolated.Load() {
		h.unmarked = 0
		h.stream.clock.RecordAhead()
	}
}

// awaitIdle waits until idleLocked, without the heap's lock, and fails as calls.Order.Await
// does. What is freed meanwhile is not waited for.
func (h *streamHeap) awaitIdle(ctx context.Context) error {
	h.mu.Lock()
	freedAt := h.FreedAt()
	h.mu.Unlock()
	return h.c.dev.order.Await(ctx, &h.stream.calls, freedAt)
}

// awaitLocked holds the heap's lock for so long at first, and at most.
const (
	firstHold   = time.Millisecond
	longestHold = 4 * time.Second
)

// awaitLocked waits until the heap's streams have passed a time of the device, which until
// returns anew after each wait. The work may be a function of Go that waits for the heap's
// lock. So the lock is given away, and the heap may have changed then. More may have been freed
// meanwhile: that is waited for with the lock held, for twice as long each time up to longestHold.
func (h *streamHeap) awaitLocked(ctx context.Context, until func() uint64) (err error) {
	order := &h.c.dev.order
	for hold := epoch.Patience(firstHold); ; hold = min(2*hold, epoch.Patience(longestHold)) {
		at := until()
		h.unlocked(func() { err = order.Await(ctx, &h.stream.calls, at) })
		if err != nil {
			return err
		}
		bound, cancel := hold.Bound(ctx)
		err = order.Await(bound, &h.stream.calls, until())
		cancel()
		if !isLate(err) || ctx.Err() != nil {
			return err
		}
	}
}

// checkLocked verifies the heap's rules in builds with -tags invariants.
func (h *streamHeap) checkLocked() {
	if lock.Invariants {
		if err := h.Check(h.pending.Bytes() + h.quarantine.Bytes()); err != nil {
			panic(err)
		}
	}
}

// freeAndUnlock takes back a block that may be in a magazine, if it is live, and gives the
// heap's lock back.
func (h *streamHeap) freeAndUnlock(b Block, x *block.Block) error {
	defer h.mu.Unlock()
	if !h.Unhome(b.id(), x) {
		return h.c.blockError("free", b, h.stream, ErrDoubleFree)
	}
	h.backLocked(b.id(), x)
	return nil
}

// endLocked ends the life of all blocks of a heap, whose memory nothing uses any more,
// and unmaps what is mapped. It lists the blocks that were live. Where it cannot wait for the zeros
// of ZeroOnFree, all stays mapped, and it can be called again.
func (h *streamHeap) endLocked() (leaks []Leak, err error) {
	h.UnhomeAll()
	by := h.stream
	if by.clock.Captured() { // a graph would write the zeros with each launch
		by = h.c.dev.def
	}
	type held struct {
		id block.ID
		b  *block.Block
	}
	var out []held
	h.Each(func(_ *block.Segment, id block.ID, b *block.Block) {
		if st := b.Word().State(); st != block.Free && st != block.Part && st != block.Gap {
			out = append(out, held{id, b})
		}
	})
	for _, x := range out {
		if x.b.Word().State() == block.Live {
			l := Leak{Ptr: Ptr(x.b.Addr()), Size: x.b.Requested(), Stream: h.streamOfLocked(x.id).handle}
			l.Stack, l.Label = h.c.stacks.At(x.b.Origin()).Describe(packagePath)
			leaks = append(leaks, l)
		}
		if x.b.Uses() != 0 {
			h.pending.Forget(x.b)
		}
		h.zeroLocked(x.b, by)
		if h.watched(x.b) {
			h.forgetLocked(x.id, x.b) // without a home: the memory goes
		}
		h.Put(x.id, x.b)
	}
	clear(h.lent)
	h.pending.Drop() // nothing is left that waits
	h.MergeFast()
	if h.quarantine != nil {
		h.quarantine.Drop()
		// Until the memory is zero, also what left the quarantine before. There is no bound: what was
		// under way is waited for by now, and after a *WaitError a pool would be as before.
		if err := by.calls.WaitIdle(context.Background()); err != nil {
			return leaks, err
		}
	}
	slept, err := h.CloseRanges()
	h.c.asleepBytes.Add(-slept)
	return leaks, err
}

// releaseSegments gives all segments of a heap back that are wholly free, and goes on where
// the device refuses one.
func (h *streamHeap) releaseSegments() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, f := range h.AppendIdle(nil) {
		_, err := h.freeSegmentsLocked([]heap.Idle{f})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// freeSegmentsLocked gives those of the segments in the list that are still wholly free
// back to the device, up to the first that it refuses, and returns which went. They
// leave the heap under the lock, which is then given away until the device has
// answered, so that no allocation waits for that. The books count them until
// then. A program's own function that frees memory does not wait for work, so
// the stream is waited for first.
func (h *streamHeap) freeSegmentsLocked(list []heap.Idle) (gone []heap.Idle, err error) {
	c, freedAt, freed := h.c, h.FreedAt(), 0
	out := h.DetachSegments(list)
	if len(out) == 0 {
		return nil, nil
	}
	h.unlocked(func() {
		if c.ownMemory {
			err = c.dev.order.Await(context.Background(), &h.stream.calls, freedAt)
		}
		if err == nil {
			freed, err = h.giveBack(out)
		}
	})
	c.budget.Return(h.Forget(out, freed))
	h.checkLocked()
	return out[:freed], c.dev.failed(err)
}

// giveBack gives segments that were detached back to the device, up to the first that it
// refuses, and returns how many went.
func (h *streamHeap) giveBack(out []heap.Idle) (freed int, err error) {
	c := h.c
	for freed < len(out) {
		p, size := Ptr(out[freed].Seg.Base), out[freed].Seg.Size
		c.note(snapshot.SegmentFree, h.stream.handle, p, size)
		if err = c.driver.MemFree(p); err != nil {
			c.note(snapshot.SegmentAlloc, h.stream.handle, p, size) // it is still there
			err = c.dev.failed(fmt.Errorf("cupool: freeing the segment at %v (%d bytes) on %s: %w", p, size, c.driver.Name(), err))
			break
		}
		freed++
	}
	c.driverFrees.Add(int64(freed))
	return freed, err
}
