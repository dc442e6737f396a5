package cupool

import (
	"context"
	"errors"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Where the allocator calls package sanitize, for Config.Sanitize and zeroing.

// sanitizers returns what the Config switches on.
func (cfg *Config) sanitizers() sanitize.Settings {
	s := cfg.Sanitize
	return sanitize.Settings{
		Poison: s.Poison, Guard: s.Guard, Wait: s.Wait, Canaries: s.Canaries, Quarantine: s.Quarantine,
		ZeroOnAlloc: cfg.ZeroOnAlloc, ZeroOnFree: cfg.ZeroOnFree,
	}
}

// startSanitizers sets up what the pool's Config switches on, and changes its
// Config to what guards need.
func (p *pool) startSanitizers() (err error) {
	set := p.cfg.sanitizers()
	if set.Guard = set.Guard && !p.ownMemory; set.Guard {
		if p.guards, err = sanitize.NewGuards(p.dev.driver, p.driver.Name()); err != nil {
			return err
		}
		p.driver = newUpstream(p.driver, p.guards.Alloc, p.guards.Free)
		cfg := &p.cfg
		cfg.Driver, cfg.Backing, cfg.SegmentRounding, cfg.GrowthFactor, cfg.MaxSplit, cfg.InitialSize = p.driver, BackingSegments, min(cfg.MinBlock, sizeclass.Quantum), 1, 0, 0
	}
	if !set.Any() {
		return nil
	}
	p.sanitizer = &sanitize.Pool{
		Settings: set, Device: p.dev.driver, Guards: p.guards, Name: p.name, Package: packagePath, Stacks: &p.stacks,
		Failed: func(err error) error {
			if err != nil { // most callers go on without what the call was for
				p.log.Warn("a sanitizer's call of the device failed", "error", err)
			}
			return p.dev.failed(err)
		},
		Tell: func(e *CorruptionError) {
			p.cfg.Logger.Error("corrupted memory", "error", e)
			if p.cfg.OnCorruption != nil {
				p.cfg.OnCorruption(e)
			}
		},
	}
	return nil
}

// sweepLocked looks at the freed blocks whose work is done, and makes those free
// that were in quarantine for long enough.
func (h *streamHeap) sweepLocked() {
	for _, how := range []epoch.Insist{epoch.Ask, epoch.Peek} {
		_ = h.c.dev.failed(h.stream.clock.Advance(how))
	}
	h.drainLocked(h.c.quarantineBytes())
	h.checkLocked()
}

// drainLocked has all but so many bytes leave the quarantine whose work is known to be done, and
// returns how many blocks did. What the device fails with stays, and is tried again.
func (h *streamHeap) drainLocked(limit int64) int {
	n, _ := h.quarantine.Drain(limit, false, h.putFree)
	return n
}

// endQuarantineLocked waits for the heap's stream, empties its quarantine, and
// waits for what that fills with zeros: the memory may go to other streams, or
// to the device, at once. Where it fails, blocks may stay in the quarantine.
func (h *streamHeap) endQuarantineLocked() error {
	if h.quarantine == nil {
		return nil
	}
	if err := h.stream.calls.WaitAWhile(); err != nil {
		return err
	}
	_, err := h.quarantine.Drain(0, true, h.putFree)
	return errors.Join(err, h.stream.calls.WaitAWhile())
}

// damage returns what was found of a block that was freed, with Sanitizers.Wait
// when the work on it is done. Where that cannot be waited for nothing was found yet.
func (t *heapTable) damage(b Block) error {
	for range 2 { // for the streams recorded on it, and then for its own
		if t.sanitizer.Wait && t.awaitFreed(b.id()) != nil {
			break
		}
	}
	return t.sanitizer.Found(b.id(), b.gen)
}

// awaitFreed waits for what a freed block waits for.
func (t *heapTable) awaitFreed(id block.ID) error {
	if err := t.dev.outside("free"); err != nil {
		return err
	}
	h, _ := t.lockBlock(id)
	if h == nil {
		return nil
	}
	waits := h.pending.Of(id)
	if n := h.quarantine.Epoch(id); n != 0 {
		waits = append(waits, epoch.Point{Clock: h.stream.clock, Epoch: n})
	}
	h.mu.Unlock()
	for _, o := range waits {
		if err := t.dev.failed(o.Clock.Wait(context.Background(), o.Epoch)); err != nil {
			return err
		}
	}
	_, err := h.settle(epoch.Peek)
	return onlyLost(err)
}

// emptyQuarantines waits for the freed blocks of all pools and makes them free.
func (d *deviceState) emptyQuarantines(ctx context.Context) (freed int, err error) {
	if s := d.root.sanitizer; s != nil && s.Delays() {
		_, err = d.waitPending(ctx)
	}
	for _, c := range d.open() {
		freed += c.heaps.drainQuarantines()
	}
	return freed, errors.Join(err, d.lostError())
}

// lookLocked checks the heap's memory where no work is under way.
func (h *streamHeap) lookLocked() {
	h.quarantine.Look()
	if polls := provePolls; h.c.sanitizer.Asleep.Load() || !h.stream.calls.Idle(&polls) {
		return
	}
	h.eachLive(func(id block.ID, b *block.Block) { h.c.sanitizer.CheckEnd(id, b, h.stream.handle) })
}

func (h *streamHeap) eachLive(f func(block.ID, *block.Block)) {
	h.Each(func(_ *block.Segment, id block.ID, b *block.Block) {
		if b.Word().State() == block.Live {
			f(id, b)
		}
	})
}

// zeroLocked fills a block with zeros, by work of a stream, that is given back while it is live.
func (h *streamHeap) zeroLocked(b *block.Block, by *Stream) {
	if s := h.c.sanitizer; s != nil && s.ZeroOnFree && !s.Asleep.Load() {
		_ = s.Zero(b, by.handle)
	}
}

// endSanitizers checks the pool's memory for the last time. All work is done.
func (t *heapTable) endSanitizers() error {
	if t.sanitizer == nil {
		return nil
	}
	t.each(func(h *streamHeap) {
		h.lookLocked()
		_ = h.endQuarantineLocked() // endLocked ends what stays
	})
	return errors.Join(t.sanitizer.Findings(), t.sanitizer.Close())
}

// sleepSanitizers makes the memory ready to be unmapped, and reports whether live blocks were
// zeroed, or would have been. All heaps are locked.
func (t *heapTable) sleepSanitizers(heaps []*streamHeap) (zeroed bool, err error) {
	if t.sanitizer == nil {
		return true, nil
	}
	for _, h := range heaps {
		h.lookLocked()
		if err := h.endQuarantineLocked(); err != nil { // Wake brings back no poison
			return false, err
		}
	}
	for _, h := range heaps {
		h.eachLive(func(_ block.ID, b *block.Block) { h.zeroLocked(b, h.stream) })
	}
	t.sanitizer.Asleep.Store(true)
	for _, h := range heaps {
		err = errors.Join(err, h.stream.calls.WaitAWhile())
	}
	return true, err
}

// wakeSanitizers fills live blocks again, whose memory is new, marks the ends of
// those that were freed and are yet to be checked, and waits for that.
func (t *heapTable) wakeSanitizers() error {
	if t.sanitizer == nil {
		return nil
	}
	heaps, err := t.fillAwake()
	for _, h := range heaps {
		err = errors.Join(err, h.stream.calls.WaitAWhile())
	}
	return err
}

// fillAwake is wakeSanitizers without the waits, and returns the heaps. What is freed after
// that has memory.
func (t *heapTable) fillAwake() (heaps []*streamHeap, err error) {
	heaps, unlock := t.lockAll()
	defer unlock()
	for _, h := range heaps {
		h.eachLive(func(id block.ID, b *block.Block) {
			err = errors.Join(err, t.sanitizer.HandOut(id, b, h.stream.handle, h.stream.clock.Captured()))
		})
		h.Each(func(_ *block.Segment, _ block.ID, b *block.Block) {
			if b.Word().State() == block.Pending {
				err = errors.Join(err, t.sanitizer.MarkEnd(b, h.stream.handle))
			}
		})
	}
	if err == nil {
		t.sanitizer.Asleep.Store(false)
	}
	return heaps, err
}

// dozeSanitizers undoes wakeSanitizers: the memory goes again, without a look at it. All
// heaps are locked.
func (t *heapTable) dozeSanitizers(heaps []*streamHeap) {
	if t.sanitizer == nil {
		return
	}
	t.sanitizer.Asleep.Store(true)
	for _, h := range heaps {
		h.quarantine.Blank()
	}
}

// dropSegmentsLocked gives the heap's free segments, which have guards, back. What the
// device refuses is free, and tried again with the next of them, and by Trim.
func (h *streamHeap) dropSegmentsLocked() {
	out := h.AppendIdle(nil)
	h.DetachSegments(out)
	n, err := h.giveBack(out)
	h.c.budget.Return(h.Forget(out, n))
	if err != nil {
		h.c.log.Warn("giving a guarded block back failed", "error", err)
	}
}
