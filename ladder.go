package cupool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/gcpressure"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/snapshot"
)

// rung is one step of the way from a miss to an *OOMError. It says whether
// anything came free, so that searching again makes sense.
type rung struct {
	name  string
	grows bool // ask the device again after the search
	climb func(*Pool, request) (bool, error)
}

// ladder is what a miss tries, in order. After every rung that freed
// something the heap is searched again, and the first that serves ends it.
var ladder = []rung{
	{"completed events", false, (*Pool).collectDone},
	{"flush magazines", false, (*Pool).flushOwn},
	{"idle memory of other streams", false, (*Pool).takeIdle},
	{"release idle segments", false, (*Pool).releaseIdle},
	{"release the longest idle", false, (*Pool).releaseOldest},
	{"collect garbage under pressure", false, (*Pool).relieve},
	{"grow", true, (*Pool).beforeGrowing},
	{"wait for one pending block", true, (*Pool).waitForOne},
	{"release cached segments", true, (*Pool).releaseEnough},
	{"wait for all pending blocks", true, (*Pool).waitForAll},
	{"release what came free", true, (*Pool).releaseEnough},
	{"collect garbage", true, (*Pool).collectGarbage},
	{"collect garbage again", true, (*Pool).collectAgain},
	{"collect garbage again", true, (*Pool).collectAgain},
	{"release what came free", true, (*Pool).releaseEnough},
	{"callback", true, (*Pool).askCallback},
	{"release what came free", true, (*Pool).releaseEnough},
	{"wait for others that give memory back", true, (*Pool).awaitRelease},
}

// Indexes in ladder.
const (
	firstBorrowing  = 1  // before magazines are emptied, which a borrowed block makes needless
	firstLending    = 2  // after what is the heap's own
	firstReclaiming = 7  // from here on waits are bounded, and a success is a retry
	firstReleasing  = 8  // before virtual memory is taken apart
	lastLending     = 15 // before the program is asked
)

// allocMiss climbs the ladder for a request that the heap could not serve.
// Once the device has refused, it is also asked again after a rung that freed nothing,
// if others have given memory back since. Memory on its way to the device counts as
// reserved until it is there, so the last rung waits for those who give it back.
func (c *Pool) allocMiss(r request) (Block, error) {
	var refused error
	var returns uint64 // budget.Returns at the last search
	var late error     // of a wait that was given up
	defer nvtx.Start("alloc miss", r.size).End()
	if b, ok, err := c.takeSpared(r); ok || err != nil {
		return b, err
	}
	r.wait = r.ctx
	for i, step := range ladder {
		switch i {
		case firstBorrowing:
			if b, ok := c.borrowIdle(r); ok {
				return b, nil
			}
		case firstLending:
			if b, ok := c.borrowWhole(r, false); ok {
				return b, nil
			}
		case firstReclaiming:
			var cancel context.CancelFunc
			r.wait, cancel = c.dev.waiting(r.ctx)
			defer cancel()
		case firstReleasing:
			if b, ok := c.borrowWhole(r, true); ok {
				c.retries.Add(1)
				return b, nil
			}
		case lastLending:
			for _, wait := range []bool{false, true} {
				if b, ok := c.borrowAny(r, wait); ok {
					c.retries.Add(1)
					return b, nil
				}
			}
		}
		shown := nvtx.Start(step.name, r.rounded)
		freed, err := step.climb(c, r)
		shown.End()
		if isLate(err) && !errors.Is(err, ErrDeviceLost) {
			late, err = c.noteLate(err), nil
		}
		if err == nil {
			err = r.cancelled()
		}
		if err != nil {
			return Block{}, err
		}
		now := c.dev.budget.Returns.Load()
		if !freed && (refused == nil || now == returns) {
			continue
		}
		returns = now
		b, ok, err := c.tryAgain(r, step.grows)
		switch {
		case ok:
			if i >= firstReclaiming {
				c.retries.Add(1)
				c.log.Info("allocated after memory was reclaimed", "stream", uintptr(r.h.stream.handle), "bytes", r.size, "after", step.name)
			}
			return b, nil
		case err == nil:
		case errors.Is(err, ErrOutOfMemory):
			refused = err
			if b, ok := c.borrow(r); ok {
				return b, nil
			}
		case isLate(err):
			late = c.noteLate(err)
		default:
			return Block{}, err
		}
	}
	c.ooms.Add(1)
	c.log.Warn("out of memory", "stream", uintptr(r.h.stream.handle), "bytes", r.size, "reserved", c.budget.Held(), "error", refused)
	return Block{}, c.oomError(r, refused, late)
}

// noteLate logs a wait that was given up, and returns its error.
func (c *Pool) noteLate(err error) error {
	c.log.Warn("work was late; an allocation looks elsewhere", "error", err)
	return err
}

// tryAgain searches the heap and, with grow, asks the device.
func (c *Pool) tryAgain(r request, grow bool) (Block, bool, error) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usableLocked(); err != nil {
		return Block{}, false, err
	}
	id, b := h.Take(r.size, r.rounded, r.misses)
	if id == 0 && grow {
		var err error
		if id, b, err = h.growLocked(r); err != nil {
			return Block{}, false, err
		}
		id, b = h.HandOut(r.size, r.rounded, id, b, r.misses)
	}
	if id == 0 {
		return Block{}, false, nil
	}
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil, err
}

// takeSpared serves a request from a segment that its heap spares, where the heap
// should not grow: beyond the soft limit, and while the stream is captured.
func (c *Pool) takeSpared(r request) (Block, bool, error) {
	h := r.h
	if r.kind == small || c.memory != nil || !c.budget.Pressed(r.rounded) && !h.stream.clock.Captured() {
		return Block{}, false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil || h.Slots(1) != nil {
		return Block{}, false, nil // the ladder finds the same error
	}
	id, b := h.TakeSpared(r.rounded)
	if id == 0 {
		return Block{}, false, nil
	}
	id, b = h.HandOut(r.size, r.rounded, id, b, r.misses)
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil, err
}

// growLocked gets memory for the request from the device, as a block that is in
// no set.
func (h *streamHeap) growLocked(r request) (block.ID, *block.Block, error) {
	defer nvtx.Start("grow the pool", r.rounded).End()
	if h.c.memory == nil {
		id, b, err := h.newSegmentForLocked(r)
		switch {
		case err == nil:
			h.c.misses.Add(1)
		case r.kind == large && errors.Is(err, ErrOutOfMemory):
			if spared, x := h.TakeSpared(r.rounded); spared != 0 {
				return spared, x, nil
			}
		}
		return id, b, err
	}
	id, b, asked, err := h.TakeVirtual(r.kind, r.rounded, r.allow())
	if errors.Is(err, heap.ErrStitches) {
		ctx, cancel := h.c.dev.waiting(r.ctx)
		defer cancel()
		if err = h.stream.calls.WaitIdle(ctx); err == nil {
			err = h.DropIdleStitches()
		}
		if err == nil {
			id, b, asked, err = h.TakeVirtual(r.kind, r.rounded, r.allow())
		}
	}
	if err == nil && asked {
		h.c.misses.Add(1)
	}
	return id, b, err
}

// newSegmentForLocked gets a segment for the request: of the size that the
// GrowthFactor wants, of the size that the configuration has for it, or of
// what it needs, whichever the device does not refuse.
func (h *streamHeap) newSegmentForLocked(r request) (id block.ID, b *block.Block, err error) {
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
	if err == nil && uint64(p)%uint64(min(c.cfg.MinBlock, sizeclass.Quantum)) != 0 {
		err = errors.Join(fmt.Errorf("device returned the unaligned address %v", p), c.driver.MemFree(p))
	}
	if err != nil {
		c.budget.Cancel(size)
		return 0, nil, c.dev.failed(fmt.Errorf("cupool: allocating a segment of %d bytes on %s for stream 0x%x: %w", size, c.driver.Name(), uintptr(h.stream.handle), err))
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

// flushOwn empties the magazines of the request's heap, unless goroutines
// empty each other's.
func (c *Pool) flushOwn(r request) (bool, error) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if r.h.HomedBytes() == 0 || r.h.Crowded(r.size) {
		return false, nil
	}
	defer r.h.checkLocked()
	return r.h.Flush(), nil
}

// collectDone frees blocks of the request's heap that waited for events
// that are done, and blocks that cleanups queued.
func (c *Pool) collectDone(r request) (bool, error) {
	freed := c.drainLater()
	n, err := r.h.settlePatiently()
	return freed+n > 0, onlyLost(err) // other failures leave blocks waiting
}

// beforeGrowing tells the program that the device will be asked.
func (c *Pool) beforeGrowing(r request) (bool, error) {
	if c.cfg.BeforeGrow != nil {
		c.cfg.BeforeGrow(r.rounded)
	}
	return true, nil
}

// waitForOne waits for the pending block that serves the request with the
// least: the smallest that suffices, the oldest among equals.
func (c *Pool) waitForOne(r request) (bool, error) {
	for _, o := range r.h.pendingFor(r) {
		if err := c.dev.failed(o.Clock.Wait(r.wait, o.Epoch)); err != nil {
			return false, onlyLostOrLate(err)
		}
	}
	n, err := r.h.settle(epoch.Peek)
	return n > 0, onlyLost(err)
}

// releaseEnough gives cached memory back, largest first, the pool's own before
// that of others of the device, until the request's segment fits.
func (c *Pool) releaseEnough(r request) (bool, error) {
	n, err := c.releaseUpTo(r.wait, r.segment())
	if (err == nil || isLate(err)) && n < r.segment() {
		more, e := c.releaseOthers(r, r.segment()-n)
		n, err = n+more, errors.Join(err, e)
	}
	return n > 0, err
}

// releaseOthers has the other pools give cached memory back until need bytes
// went, and returns how many did. It does nothing where the pool's own limit is below
// the least that would serve.
func (c *Pool) releaseOthers(r request, need int64) (released int64, err error) {
	if c != c.dev.root && c.leastGrowth(r) > c.budget.Limit-c.budget.Held() {
		return 0, nil
	}
	for _, m := range c.dev.open() {
		if m == c || m.isolated || released >= need {
			continue
		}
		m.flushAll()
		n, e := m.releaseUpTo(r.wait, need-released)
		released, err = released+n, errors.Join(err, e)
	}
	return released, onlyLostOrLate(errors.Join(err, c.dev.closeRetired()))
}

// askCallback lets the program free something.
func (c *Pool) askCallback(r request) (bool, error) {
	if c.cfg.OnOutOfMemory == nil || !c.cfg.OnOutOfMemory(r.size) {
		return false, nil
	}
	_, err := c.waitForAll(r)
	return true, err
}

// awaitRelease waits for others that give memory back, after which the device has it.
func (c *Pool) awaitRelease(r request) (bool, error) {
	if c.reclaim.LockUntil(r.wait) {
		c.reclaim.Unlock()
	}
	return false, nil
}

// borrow serves a request from free blocks of other streams or, one of the root,
// of pools with UseOnOOM, in the order in which they were made.
func (c *Pool) borrow(r request) (Block, bool) {
	if b, ok := c.borrowIdle(r); ok || c != c.dev.root {
		return b, ok
	}
	for _, p := range c.dev.private() {
		if p.lends {
			if b, ok := p.lend(r); ok {
				return b, true
			}
		}
	}
	return Block{}, false
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

// oomError puts the numbers of a failure together.
func (c *Pool) oomError(r request, cause, late error) error {
	st := c.Stats()
	room, others := c.budget.Room()
	e := &OOMError{
		Device: c.driver.Name(), Stream: r.h.stream.handle, OtherPools: others,
		Requested: r.size, Rounded: r.rounded, Segment: r.segment(),
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		LargestFree: st.LargestFree, Reserved: st.All.ReservedBytes.Current,
		DeviceFree: -1, DeviceTotal: -1, Limit: c.budget.Printed(),
		Fragmentation: st.Fragmentation(), Cause: cause, late: late, Table: c.dev.holders(), Time: time.Now(),
	}
	if free, total, err := c.driver.MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	c.note(snapshot.OutOfMemory, r.h.stream.handle, Ptr(max(e.DeviceFree, 0)), r.size)
	x := oomhint.Refusal{
		Rounded: e.Rounded, Segment: e.Segment, Live: e.Live, Pending: e.Pending, Cached: e.Cached, Reserved: e.Reserved, OtherPools: others,
		DeviceFree: e.DeviceFree, DeviceTotal: e.DeviceTotal, Limit: e.Limit, Room: room, Least: c.leastGrowth(r),
		Settings: c.circumstances(room), Pool: c.name, Holders: e.Table, LimitName: "limit", Raise: "Limit or Fraction",
	}
	e.Reason, e.Settings, e.Hint = x.Explain()
	c.dev.pictures.Take(func() { s := c.ownSnapshot(); e.Snapshot = &s })
	c.dev.lastOOM.Store(e)
	return e
}

// circumstances returns what matters for how an out of memory could be avoided,
// where the limits leave so many bytes.
func (c *Pool) circumstances(room int64) oomhint.Settings {
	vm, _ := c.dev.driver.(VirtualMemory)
	s := oomhint.Settings{
		Virtual: c.memory != nil, CanBeVirtual: c.memory == nil && !c.ownMemory && !c.space.Policy.NoSplit && vm != nil && vm.VMMGranularity() > 0,
		Own: c != c.dev.root && c.cfg.Limit > 0 && c.budget.Limit-c.budget.Held() == room, LimitField: "PoolConfig.Limit",
		Recorded: c.dev.history.On(), Callback: c.cfg.OnOutOfMemory != nil,
		Fraction: c.dev.root.cfg.Fraction, MaxSplit: c.cfg.MaxSplit, LargeSegment: c.cfg.LargeSegment, WaitTimeout: c.cfg.WaitTimeout,
	}
	for _, p := range c.dev.open() {
		if p.isolated {
			s.Isolated = append(s.Isolated, p.name)
		}
		if p.lends {
			s.Lending = append(s.Lending, p.name)
		}
	}
	return s
}

// holders lists who holds the memory of all pools.
func (d *deviceState) holders() []snapshot.Holder {
	var all snapshot.Holders
	for _, c := range d.open() {
		if !c.asleep.Load() {
			_, unlock := c.lockAll()
			c.holdersLocked(&all)
			unlock()
		}
	}
	return all.List()
}

// leastGrowth returns the fewest bytes that the device is asked for to serve a
// request.
func (c *Pool) leastGrowth(r request) int64 {
	if c.memory != nil {
		return sizeclass.RoundTo(r.rounded, c.memory.Granularity)
	}
	return min(r.segment(), sizeclass.RoundTo(r.rounded, c.cfg.SegmentRounding))
}

// relieve runs Go's collector when the device fills up and tensors have
// lifetimes, before the device is asked for more.
func (c *Pool) relieve(r request) (bool, error) {
	freed, err := c.dev.pressure.Relieve(r.rounded, gcpressure.Memory{
		Held:       c.dev.budget.Held,
		Obtainable: c.obtainable,
		InUse: func() int64 {
			used, _ := c.usage()
			return used
		},
		Drain: c.dev.drainLater,
	})
	return freed > 0, err
}

// obtainable returns how many bytes the allocator can have: its limit, or what
// it holds and the device has left.
func (c *Pool) obtainable(reserved int64) (int64, error) {
	free, _, err := c.dev.driver.MemInfo()
	if err != nil {
		return 0, c.dev.failed(err)
	}
	return min(c.dev.budget.Limit, reserved+free), nil
}

// collectGarbage runs Go's collector, whose cleanups may give blocks back.
func (c *Pool) collectGarbage(r request) (bool, error) {
	if p := &c.dev.pressure; p.Collect(c.dev.drainLater) == 0 && !p.On.Load() {
		return false, nil
	}
	return c.waitForAll(r)
}

// collectAgain collects once more where many tensors have lifetimes: other
// goroutines may have been faster to take what came free.
func (c *Pool) collectAgain(r request) (bool, error) {
	if !c.dev.pressure.On.Load() {
		return false, nil
	}
	return c.collectGarbage(r)
}
