package cupool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
)

// Blocks that were freed while other streams use them (package epoch), and frees
// that wait for a goroutine that may take locks.

// A miss records an event for blocks that wait without one, unless little memory waits.
// Then the heap grows instead, and later events serve many blocks each. Little is
// anything in a pool that holds less than patientBytes, and one part in patientPart of
// a larger one.
const (
	patientBytes = 64 << 20
	patientPart  = 512
)

// collectLocked frees the blocks whose waits are known to be over and returns
// their number.
func (h *streamHeap) collectLocked() int {
	n := h.pending.Collect(h.putOne)
	if h.quarantine != nil {
		n += h.drainLocked(h.c.quarantineBytes())
	}
	h.checkLocked()
	return n
}

// collect is collectLocked for all pools.
func (d *deviceState) collect() (freed int) {
	for _, c := range d.open() {
		freed += c.heaps.collect()
	}
	return freed
}

// learned frees what the proofs show to be over for the later work of a stream.
func (d *deviceState) learned(s *Stream, proofs []epoch.Point) {
	if len(proofs) == 0 {
		return
	}
	d.eachHeap(s, func(h *streamHeap) {
		for _, p := range proofs {
			h.pending.Pop(p.Clock, p.Epoch, h.stream.clock.Now(), h.putOne)
		}
		h.checkLocked()
	})
}

// ended frees what waits for a stream that is closed and whose work is done.
func (d *deviceState) ended(s *Stream) {
	s.clock.End()
	for _, c := range d.open() {
		c.heaps.each(func(h *streamHeap) {
			h.pending.End(s.clock, h.putOne)
			h.checkLocked()
		})
	}
}

// settle asks how far the streams are that the heap's blocks wait for, frees
// those whose wait is over, and returns their number.
func (h *streamHeap) settle(how epoch.Insist) (freed int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settleLocked(how)
}

func (h *streamHeap) settleLocked(how epoch.Insist) (freed int, err error) {
	err = h.c.dev.failed(h.pending.Advance(how))
	if h.quarantine != nil {
		err = errors.Join(err, h.c.dev.failed(h.stream.clock.Advance(how)))
	}
	return h.collectLocked(), err
}

// settlePatiently is settle that asks for an event unless so little of the heap's memory
// waits that a miss should rather grow.
func (h *streamHeap) settlePatiently() (freed int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reserved := h.c.budget.Held(); reserved < patientBytes || h.pending.Bytes() < reserved/patientPart {
		return h.settleLocked(epoch.Peek)
	}
	return h.settleLocked(epoch.Ask)
}

// pendingFor chooses the smallest pending block that serves a request, the
// oldest among equals, and returns what it waits for.
func (h *streamHeap) pendingFor(r *request) []epoch.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	best, size := block.ID(0), h.c.space.Policy.FitsBelow(r.kind, r.rounded)
	h.pending.Each(func(_ *epoch.Clock, _ uint64, id block.ID) {
		if b := h.c.space.Blocks.At(id); h.Kind(b) == r.kind && b.Size >= r.rounded && b.Size < size {
			best, size = id, b.Size
		}
	})
	return h.pending.Of(best)
}

// workBehind is how many events a stream has in flight behind one that is waited for while
// the device could be asked. Each is of a large block that was freed, or of many, so some
// kernels are between two: the device has work until the program goes on.
const workBehind = 3

// pendingAhead returns what to wait for, by Config.GrowWait, before a request has the pool
// reserve more than it ever did: the oldest pending blocks that make up for it.
func (h *streamHeap) pendingAhead(r *request) []epoch.Point {
	if h.c.cfg.GrowWait == 0 {
		return nil
	}
	h.mu.Lock()
	pending := h.pending.Bytes()
	h.mu.Unlock()
	if pending == 0 {
		return nil
	}
	need := r.excess(idleFloor)
	h.mu.Lock()
	defer h.mu.Unlock()
	points := h.pending.Oldest(need, workBehind)
	if len(points) > 0 && !h.trust.Try() {
		return nil
	}
	return points
}

// trusts reports whether a wait by Config.GrowWait is worth trying.
func (h *streamHeap) trusts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trust.Try()
}

// doubt notes that a wait for what pendingAhead returned was given up.
func (h *streamHeap) doubt() {
	h.mu.Lock()
	h.trust.Failed()
	h.mu.Unlock()
}

// waitPending waits until no block of any pool that was pending when it was
// called is so any more, or until ctx is done. It reports whether some may have come free:
// another goroutine may be the one that collects what was waited for.
func (d *deviceState) waitPending(ctx context.Context) (waited bool, err error) {
	for _, s := range d.streams.All() {
		if !s.calls.IsClosed() && s.clock.Waited() {
			waited = true
			err = errors.Join(err, d.failed(s.clock.Wait(ctx, s.clock.Newest())))
		}
	}
	return d.collect() > 0 || waited, err
}

var errHeld = fmt.Errorf("blocks are held (Hold), as those are that other processes use; release them first: %w", ErrNotSupported)

// Hold keeps the memory of a live block from being reused until release is called,
// for users that no stream shows, such as other processes (package ipc). The block
// may be freed meanwhile: it is pending then, and what the streams do with it is
// waited for as ever. Call release when the work of such users is done, from any
// goroutine; a second call does nothing. While blocks are held Close, Reset and Sleep
// fail with ErrNotSupported and change nothing. Hold fails as RecordStream does, with
// ErrAsleep, and with ErrForeignPointer for the empty Block.
func (c *Pool) Hold(b Block) (release func(), err error) {
	if err := c.made("hold"); err != nil {
		return nil, err
	}
	if o := c.other(b); o != nil {
		return o.Hold(b)
	}
	h, x, err := c.heaps.lockOwner("hold", b, ErrUseAfterFree)
	if err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	switch {
	case c.asleep.Load():
		return nil, c.asleepError("hold")
	case !h.Unhome(b.id(), x):
		return nil, c.blockError("hold", b, h.stream, ErrUseAfterFree)
	}
	c.held.Add(1)
	h.pending.Hold(x)
	x.MarkUsed()
	return sync.OnceFunc(func() { c.heaps.unhold(b) }), nil
}

// ProcessDeferred frees the blocks whose wait for other streams is over and
// returns their number. The allocator does so by itself before it asks the
// device for memory. An error of the device leaves the blocks concerned
// waiting.
func (c *Pool) ProcessDeferred() (freed int, err error) {
	if err := c.made("process deferred frees"); err != nil {
		return 0, err
	}
	c.dev.drainLater()
	defer c.dev.shed()
	return c.heaps.settle(epoch.Force)
}

// FreeLater queues a block to be freed by one of the next calls that miss
// the cache, or by ProcessDeferred. It takes no lock and calls no driver, so
// it may be used in a runtime.AddCleanup. A block that was freed otherwise
// in the meantime is passed over. Before a request is refused Go's collector
// runs, as cleanups may give blocks back; where that found nothing 8 times in a
// row, it takes a tenth of the time at most.
func (c *Pool) FreeLater(b Block) {
	if c.isNone() {
		return
	}
	c.dev.later.push(b)
}

// drainLater frees what FreeLater queued and returns how many blocks that were, those
// included that another goroutine has freed.
func (d *deviceState) drainLater() (queued int) {
	d.later.drain(func(b Block) {
		queued++
		if c := d.byID(b.pool()); c != nil {
			_ = c.heaps.free(b) // Check, too, returns what is corrupted
		}
	})
	return queued
}

// laterStack is a lock-free stack of blocks to be freed, which cleanups of the garbage
// collector may push to. The zero one is empty. Its methods are safe from several
// goroutines.
type laterStack struct{ head atomic.Pointer[laterBlock] }

type laterBlock struct {
	block Block
	next  *laterBlock
}

// push puts a block in (Treiber 1986).
func (s *laterStack) push(b Block) {
	n := &laterBlock{block: b}
	for {
		n.next = s.head.Load()
		if s.head.CompareAndSwap(n.next, n) {
			return
		}
	}
}

// drain calls f for all blocks, and takes each out then: who finds none knows that f was
// called for all. Goroutines that drain at once may call f for the same block.
func (s *laterStack) drain(f func(Block)) {
	for n := s.head.Load(); n != nil; n = s.head.Load() {
		f(n.block)
		s.head.CompareAndSwap(n, n.next)
	}
}
