package cupool

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/gcpressure"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/sizeclass"
)

// request is an allocation that no magazine could serve.
type request struct {
	ctx       context.Context // the caller's; it may hold a label
	wait      context.Context // that, within Config.WaitTimeout in the phase reclaiming
	size      int64           // bytes as asked for
	rounded   int64           // bytes of the block
	kind      ledger.Kind
	h         *streamHeap
	misses    magazine.Misses // before this one
	grew      bool            // memory came from the device for it
	mapped    bool            // memory that the pool had was mapped for it
	reserving bool            // Reserve's: a borrowed block would be no reserve
}

// did notes what the request's heap had the driver do for it since its work was as before. The
// heap is locked.
func (r *request) did(before heap.Work) {
	now := r.h.Work()
	r.grew = r.grew || now.Grown != before.Grown
	r.mapped = r.mapped || now.Mapped != before.Mapped
}

// A miss is a request that its heap could not serve, on its way up the ladder.
type miss struct {
	request
	c       *Pool
	cancel  context.CancelFunc // of wait; nil before the phase reclaiming
	ahead   context.Context    // bounds the waits by Config.GrowWait; nil before the first
	stop    context.CancelFunc // of ahead
	gaveUp  bool               // one of those waits was given up
	refused error              // the device's last refusal; nil: none yet
	late    error              // the first wait that was given up; those after it had no time left
	returns uint64             // times that memory had gone back to the device at the last search
	asked   bool               // Go's collector ran for the request
}

// outcome is what a rung achieved.
type outcome int

const (
	nothing outcome = iota // the next rung, unless others gave memory back
	freed                  // something came free: search the heap again
	served                 // the rung returned a block
)

// phase says what the rungs of it may do.
type phase int

const (
	ownHeap    phase = iota // use the request's own heap, without waits
	otherHeaps              // move, lend or give back what heaps leave idle, without waits
	growing                 // ask the device
	reclaiming              // wait for work and give memory back; a success is a retry
)

// rung is one step on the way from a miss to an *OOMError.
type rung struct {
	phase phase
	name  string
	try   func(*miss) (Block, outcome, error)
	grows bool // where the search after it finds nothing, ask the device
	times int  // tries at most, each but the first only after something came free; 0: 1
}

// ladder is what a miss tries, in order; the first rung that leads to a block ends it. After a
// rung that may free memory of other heaps come one that borrows and one that releases: what
// came free serves as it is before it is taken apart.
var ladder = []rung{
	{phase: ownHeap, name: "take a spared segment", try: (*miss).takeSpared},
	{phase: ownHeap, name: "collect what streams are done with", try: (*miss).collectDone},
	{phase: otherHeaps, name: "borrow an idle block", try: (*miss).borrowIdle},
	{phase: ownHeap, name: "flush magazines", try: (*miss).flushOwn},
	{phase: otherHeaps, name: "borrow where chunks do not suffice", try: (*miss).borrowWhole},
	{phase: otherHeaps, name: "take idle memory of other streams", try: (*miss).takeIdle},
	{phase: otherHeaps, name: "release idle segments", try: (*miss).releaseIdle},
	{phase: otherHeaps, name: "release the longest idle", try: (*miss).releaseOldest},
	{phase: otherHeaps, name: "collect garbage under pressure", try: (*miss).relieve},
	{phase: otherHeaps, name: "wait for older work", try: (*miss).awaitOlder, times: 3},
	{phase: otherHeaps, name: "take what other streams are past", try: (*miss).takeOlder, times: 3},
	{phase: growing, name: "grow", try: (*miss).beforeGrowing, grows: true},
	{phase: growing, name: "borrow from streams and pools", try: (*miss).borrow},
	{phase: reclaiming, name: "wait for one pending block", try: (*miss).waitForOne, grows: true},
	{phase: reclaiming, name: "borrow where chunks do not suffice", try: (*miss).borrowWholeWaiting},
	{phase: reclaiming, name: "release cached memory", try: (*miss).releaseEnough, grows: true},
	{phase: reclaiming, name: "wait for all pending blocks", try: (*miss).waitForAll, grows: true},
	{phase: reclaiming, name: "borrow what came free", try: (*miss).borrow},
	{phase: reclaiming, name: "release what came free", try: (*miss).releaseEnough, grows: true},
	{phase: reclaiming, name: "collect garbage", try: (*miss).collectGarbage, grows: true, times: 3},
	{phase: reclaiming, name: "borrow what came free", try: (*miss).borrow},
	{phase: reclaiming, name: "release what came free", try: (*miss).releaseEnough, grows: true},
	{phase: reclaiming, name: "borrow any block", try: (*miss).borrowAny},
	{phase: reclaiming, name: "borrow any block after its stream's work", try: (*miss).borrowAnyWaiting},
	{phase: reclaiming, name: "ask the program", try: (*miss).askProgram, grows: true},
	{phase: reclaiming, name: "borrow what came free", try: (*miss).borrow},
	{phase: reclaiming, name: "release what came free", try: (*miss).releaseEnough, grows: true},
	{phase: reclaiming, name: "wait for others that give memory back", try: (*miss).awaitRelease, grows: true},
	{phase: reclaiming, name: "wait for what was freed since", try: (*miss).waitAgain, grows: true, times: 8},
}

// allocMiss climbs the ladder for a request that its heap could not serve.
func (c *Pool) allocMiss(r request) (Block, error) {
	defer nvtx.Start("alloc miss", r.size).End()
	r.wait = r.ctx
	m := &miss{request: r, c: c}
	defer m.end()
	for i := range ladder {
		for range max(ladder[i].times, 1) {
			b, got, err := m.climb(&ladder[i])
			if got == served || err != nil {
				return b, err
			}
			if got == nothing {
				break
			}
		}
	}
	return Block{}, m.outOfMemory()
}

// climb tries one rung, and searches the heap again when something came free or, once the
// device has refused, when others gave memory back meanwhile.
func (m *miss) climb(step *rung) (b Block, got outcome, err error) {
	if step.phase == reclaiming && m.cancel == nil {
		m.wait, m.cancel = m.c.dev.waiting(m.ctx)
	}
	shown := nvtx.Start(step.name, m.rounded)
	b, got, err = step.try(m)
	shown.End()
	if got != served {
		if err = m.endure(err); err != nil {
			return Block{}, got, err
		}
		if got == freed || m.returned() {
			out, found, err := m.search(step.grows)
			if found != served {
				return Block{}, got, m.endure(err)
			}
			b, got = out, served
		}
	}
	if got == served && step.phase == reclaiming {
		m.c.retries.Add(1)
		m.c.log.Info("allocated after memory was reclaimed", "stream", uintptr(m.h.stream.handle), "bytes", m.size, "after", step.name)
	}
	return b, got, nil
}

// endure keeps a refusal or a wait that was given up, after which the request looks
// elsewhere. It returns any other error, and that of a request which was cancelled.
func (m *miss) endure(err error) error {
	switch {
	case err == nil:
	case isLate(err) && !errors.Is(err, ErrDeviceLost):
		m.c.log.Warn("work was late; an allocation looks elsewhere", "error", err)
		if m.late == nil {
			m.late = err
		}
	case errors.Is(err, ErrOutOfMemory):
		m.refused = err
	default:
		return err
	}
	if m.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("cupool: allocation of %d bytes on %s: %w", m.size, m.c.driver.Name(), context.Cause(m.ctx))
}

// end ends what bounds the request's waits.
func (m *miss) end() {
	if m.cancel != nil {
		m.cancel()
	}
	if m.stop != nil {
		m.stop()
	}
}

// returned reports whether the device has refused, and has got memory back since the
// last search.
func (m *miss) returned() bool {
	return m.refused != nil && m.c.dev.budget.Returns.Load() != m.returns
}

// search looks in the request's heap again and, with grow, asks the device. Memory on its
// way to the device counts as reserved until it is there.
func (m *miss) search(grow bool) (Block, outcome, error) {
	m.returns = m.c.dev.budget.Returns.Load()
	h := m.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usableLocked(); err != nil {
		return Block{}, nothing, err
	}
	id, b := h.Take(m.size, m.rounded, m.misses)
	if id == 0 && grow {
		before := h.Work()
		var err error
		id, b, err = h.growLocked(&m.request)
		if m.did(before); err != nil {
			return Block{}, nothing, err
		}
		id, b = h.HandOut(m.size, m.rounded, id, b, m.misses)
	}
	switch {
	case id == 0:
	case m.grew:
		m.c.grown.Add(1)
	case m.mapped:
		m.c.mapped.Add(1)
	}
	return h.serveLocked(m.ctx, id, b)
}

// serveLocked makes a block that goes out, if it is one, the outcome of a rung.
func (h *streamHeap) serveLocked(ctx context.Context, id block.ID, b *block.Block) (Block, outcome, error) {
	if id == 0 {
		return Block{}, nothing, nil
	}
	out, err := h.handleLocked(ctx, id, b)
	if err != nil {
		return Block{}, nothing, err
	}
	return out, served, nil
}

// came is the outcome of a rung that serves by what it frees.
func came(free bool, err error) (Block, outcome, error) {
	if free {
		return Block{}, freed, err
	}
	return Block{}, nothing, err
}

// found is the outcome of a rung that serves or does nothing.
func found(b Block, ok bool) (Block, outcome, error) {
	if ok {
		return b, served, nil
	}
	return Block{}, nothing, nil
}

// The rungs, in the order of the table.

// takeSpared serves the request from a segment that its heap spares, where the heap
// should not grow: beyond the soft limit, and while the stream is captured.
func (m *miss) takeSpared() (Block, outcome, error) {
	h := m.h
	if m.kind == small || m.c.memory != nil || !m.c.budget.Pressed(m.rounded) && !h.stream.clock.Captured() {
		return Block{}, nothing, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil || h.Slots(1) != nil {
		return Block{}, nothing, nil // a later rung finds the same error
	}
	id, b := h.TakeSpared(m.rounded)
	if id != 0 {
		id, b = h.HandOut(m.size, m.rounded, id, b, m.misses)
	}
	return h.serveLocked(m.ctx, id, b)
}

// collectDone frees blocks of the request's heap that waited for events which are done,
// and blocks that cleanups queued.
func (m *miss) collectDone() (Block, outcome, error) {
	queued := m.c.dev.drainLater()
	n, err := m.h.settlePatiently()
	return came(queued+n > 0, onlyLost(err)) // other failures leave blocks waiting
}

func (m *miss) borrowIdle() (Block, outcome, error) { return found(m.c.idle.borrow(&m.request)) }

// flushOwn empties the magazines of the request's heap, unless goroutines empty each
// other's.
func (m *miss) flushOwn() (Block, outcome, error) {
	h := m.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.HomedBytes() == 0 || h.Crowded(m.size) {
		return Block{}, nothing, nil
	}
	defer h.checkLocked()
	return came(h.Flush(), nil)
}

// borrowWhole borrows in virtual memory where the whole free chunks of all streams cannot
// cover the request: the next rungs would take them apart for nothing.
func (m *miss) borrowWhole() (Block, outcome, error) {
	if m.c.idle.chunksSuffice(&m.request) {
		return Block{}, nothing, nil
	}
	return m.borrowAny()
}

// takeIdle gets memory for the request that other heaps leave idle.
func (m *miss) takeIdle() (Block, outcome, error) { return came(m.c.idle.take(&m.request, false)) }

// releaseIdle gives wholly free segments back, the largest first, as far as growing would
// reserve more than the allocator ever has. Keeping them makes PyTorch's default reserve
// half as much again as its programs ask for; giving back no more keeps a steady state
// free of calls to the device.
func (m *miss) releaseIdle() (Block, outcome, error) {
	c := m.c
	if c.memory != nil || c.isolated.Load() || !c.reclaim.TryLock() { // growing there takes idle memory from all over the heap
		return Block{}, nothing, nil // the lock's holder may wait for work, which may wait for this allocation
	}
	defer c.reclaim.Unlock()
	need := c.budget.Held() + m.segment() - c.budget.Sufficient(idleFloor)
	if !c.budget.Pressed(m.rounded) && c.reclaim.regrets.Spend(heap.Regret{Heap: &m.h.Heap, Kind: m.kind, Size: m.segment()}, m.regrets()) || need <= 0 {
		return Block{}, nothing, nil
	}
	_, err := c.reclaim.unkeptLocked(m.atOnce(), need, heap.LargestFirst)
	return Block{}, nothing, err
}

// atOnce returns what ends waits after one look, where waits of the request are bounded.
func (m *miss) atOnce() context.Context {
	if m.ctx.Done() != nil {
		return epoch.Patience(1).AtOnce()
	}
	return m.c.dev.calls.Patience.AtOnce()
}

// A heap may miss small segments that were given back too early this often, and large ones
// regretsPerDoubling more often whenever what it served has doubled: the pool goes on for
// longer, and comes to rest all the same. Replays reserve 1 % more with a limit alone.
const (
	regretLimit        = 4
	regretsPerDoubling = 8
)

// regrets returns how often the segments that the request needs may be given back too early.
func (m *miss) regrets() int {
	if m.kind == small {
		return regretLimit
	}
	h := m.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return regretLimit + regretsPerDoubling*bits.Len64(uint64(h.Served()>>30))
}

// releaseOldest gives wholly free segments back, those that have been idle for longest
// first, as far as growing would exceed Config.GarbageCollectionThreshold (PyTorch's
// garbage_collect_cached_blocks; its age counts searches, the order here is of the frees).
func (m *miss) releaseOldest() (Block, outcome, error) {
	c := m.c
	above := c.collectAbove.Load()
	if above == 0 || c.memory != nil || c.isolated.Load() || !c.reclaim.TryLock() {
		return Block{}, nothing, nil // the lock's holder may wait for this allocation
	}
	defer c.reclaim.Unlock()
	need := c.budget.Held() + m.segment() - above
	if need <= 0 {
		return Block{}, nothing, nil
	}
	_, err := c.reclaim.unkeptLocked(m.atOnce(), need, heap.OldestFirst)
	return Block{}, nothing, err
}

// relieve runs Go's collector when the device fills up and tensors have lifetimes, before
// the device is asked for more.
func (m *miss) relieve() (Block, outcome, error) {
	c := m.c
	n, err := c.dev.pressure.Relieve(m.rounded, gcpressure.Memory{
		Held:       c.dev.budget.Held,
		Obtainable: c.dev.obtainable,
		InUse: func() int64 {
			used, _ := c.heaps.usage()
			return used
		},
		Drain: c.dev.drainLater,
	})
	return came(n > 0, err)
}

// mayWait reports whether the request may wait by Config.GrowWait: not for what never fits, and
// not once it gave up.
func (m *miss) mayWait() bool {
	return m.c.cfg.GrowWait > 0 && !m.gaveUp && m.c.idle.couldFit(&m.request)
}

// awaitAhead waits n times by Config.GrowWait, which bounds all such waits of the request
// together, and reports whether it has waited for all.
func (m *miss) awaitAhead(n int, wait func(ctx context.Context, i int) error) (bool, error) {
	if n > 0 && m.ahead == nil {
		m.ahead, m.stop = epoch.Patience(m.c.cfg.GrowWait).Bound(m.ctx)
	}
	for i := range n {
		if err := m.c.dev.failed(wait(m.ahead, i)); err != nil {
			m.gaveUp = true
			if m.ctx.Err() == nil {
				m.h.doubt()
			}
			return false, onlyLost(err)
		}
	}
	return n > 0, nil
}

// awaitOlder waits, for as long as Config.GrowWait says, for pending blocks of the request's
// heap behind which streams have more work, as far as growing would reserve more than the
// pool ever did.
func (m *miss) awaitOlder() (Block, outcome, error) {
	if !m.mayWait() {
		return Block{}, nothing, nil
	}
	points := m.h.pendingAhead(&m.request)
	waited, err := m.awaitAhead(len(points), func(ctx context.Context, i int) error {
		return points[i].Clock.Wait(ctx, points[i].Epoch)
	})
	if !waited {
		return Block{}, nothing, err
	}
	_, err = m.h.settle(epoch.Peek) // others may have, too
	return came(true, onlyLost(err))
}

// takeOlder gets memory of other streams for the request that they freed long enough ago, while
// they are at work. It waits for that as awaitOlder does. What is isolated stays.
func (m *miss) takeOlder() (Block, outcome, error) {
	c := m.c
	if !c.space.Policy.TrackFrees || c.isolated.Load() || m.h.stream.clock.Captured() || m.excess(0) <= 0 {
		return Block{}, nothing, nil
	}
	m.h.stream.clock.RecordAhead() // as markFrees does, for the next ones of a row of allocations
	if got, err := c.idle.take(&m.request, true); got || err != nil {
		return came(got, err)
	}
	if !m.mayWait() {
		return Block{}, nothing, nil
	}
	points := c.idle.ahead(&m.request)
	waited, err := m.awaitAhead(len(points), func(ctx context.Context, i int) error {
		return c.dev.order.Await(ctx, &points[i].h.stream.calls, points[i].time)
	})
	if !waited {
		return Block{}, nothing, err
	}
	return came(c.idle.take(&m.request, true))
}

// beforeGrowing tells the program that the device will be asked.
func (m *miss) beforeGrowing() (Block, outcome, error) {
	if f := m.c.cfg.BeforeGrow; f != nil {
		f(m.rounded)
	}
	return Block{}, freed, nil
}

// borrow serves the request from free blocks of other streams or, one of the root, of
// pools with UseOnOOM, in the order in which they were made. It does so only once the
// device has refused.
func (m *miss) borrow() (Block, outcome, error) {
	if m.refused == nil {
		return Block{}, nothing, nil
	}
	if b, ok := m.c.idle.borrow(&m.request); ok || m.c != m.c.dev.root {
		return found(b, ok)
	}
	for _, p := range m.c.dev.private() {
		if p.lends.Load() && !m.reserving {
			if b, ok := p.heaps.lend(&m.request); ok {
				return b, served, nil
			}
		}
	}
	return Block{}, nothing, nil
}

// waitForOne waits for the pending block that serves the request with the least: the
// smallest that suffices, the oldest among equals.
func (m *miss) waitForOne() (Block, outcome, error) {
	points := m.h.pendingFor(&m.request)
	for _, o := range points {
		if err := m.c.dev.failed(o.Clock.Wait(m.wait, o.Epoch)); err != nil {
			return Block{}, nothing, onlyLostOrLate(err)
		}
	}
	n, err := m.h.settle(epoch.Peek)
	return came(n > 0 || len(points) > 0, onlyLost(err)) // another goroutine may have settled it
}

// borrowWholeWaiting is borrowWhole that waits for the work of the other streams.
func (m *miss) borrowWholeWaiting() (Block, outcome, error) {
	if m.c.idle.chunksSuffice(&m.request) {
		return Block{}, nothing, nil
	}
	return m.borrowAnyWaiting()
}

// releaseEnough gives cached memory back, largest first, the pool's own before that of
// others of the device, until the request's segment fits.
func (m *miss) releaseEnough() (Block, outcome, error) {
	need := m.segment() + m.c.budget.Beyond()
	n, err := m.c.reclaim.upTo(m.wait, need)
	if (err == nil || isLate(err)) && n < need {
		more, e := m.releaseOthers(need - n)
		n, err = n+more, errors.Join(err, e)
	}
	return came(n > 0, err)
}

// releaseOthers has the other pools give cached memory back until need bytes went, and
// returns how many did. It does nothing where the pool's own limit is below the least
// that would serve.
func (m *miss) releaseOthers(need int64) (released int64, err error) {
	c := m.c
	if c != c.dev.root && m.leastGrowth() > c.budget.Limit-c.budget.Held() {
		return 0, nil
	}
	return c.dev.releaseBeside(m.wait, c, need)
}

// releaseBeside has all pools but one that are not Isolated give cached memory back until
// need bytes went, and returns how many did.
func (d *deviceState) releaseBeside(ctx context.Context, c *Pool, need int64) (released int64, err error) {
	for _, p := range d.open() {
		if p == c || p.isolated.Load() || released >= need {
			continue
		}
		p.heaps.flush()
		n, e := p.reclaim.upTo(ctx, need-released)
		released, err = released+n, errors.Join(err, e)
	}
	return released, onlyLostOrLate(errors.Join(err, d.life.finish(ctx)))
}

// waitForAll flushes every magazine of the pool, frees what FreeLater queued in any pool,
// and waits for every pending block.
func (m *miss) waitForAll() (Block, outcome, error) {
	c := m.c
	queued, flushed := c.dev.drainLater(), c.heaps.flush()
	waited, err := c.dev.waitPending(m.wait)
	n, e := c.dev.emptyQuarantines(m.wait)
	return came(flushed || waited || queued+n > 0, onlyLostOrLate(errors.Join(err, e)))
}

// collectGarbage runs Go's collector, whose cleanups may give blocks back. It does so once
// more only where many tensors have lifetimes: other goroutines may have been faster to
// take what came free.
func (m *miss) collectGarbage() (Block, outcome, error) {
	p := &m.c.dev.pressure
	if m.asked && !p.On.Load() {
		return Block{}, nothing, nil
	}
	m.asked = true
	if !p.Collect(m.c.dev.drainLater) && !p.On.Load() {
		return Block{}, nothing, nil
	}
	_, _, err := m.waitForAll()
	return Block{}, freed, err // also what Collect, or another goroutine, has freed
}

// borrowAny borrows any free block of another stream whose work is done.
func (m *miss) borrowAny() (Block, outcome, error) {
	return found(m.c.idle.borrowAny(&m.request, false))
}

// borrowAnyWaiting is borrowAny that waits for that work.
func (m *miss) borrowAnyWaiting() (Block, outcome, error) {
	return found(m.c.idle.borrowAny(&m.request, true))
}

// askProgram lets the program free something.
func (m *miss) askProgram() (Block, outcome, error) {
	if f := m.c.cfg.OnOutOfMemory; f == nil || !f(m.size) {
		return Block{}, nothing, nil
	}
	_, _, err := m.waitForAll()
	return Block{}, freed, err
}

// awaitRelease waits for others that give memory back. climb sees whether the device has
// it then.
func (m *miss) awaitRelease() (Block, outcome, error) {
	if m.c.reclaim.LockUntil(m.wait) {
		m.c.reclaim.Unlock()
	}
	return Block{}, nothing, nil
}

// waitAgain waits for blocks that were freed since the last wait: other goroutines may have
// taken what that one was for, and freed it again. Where they go on like that, each try is a new
// chance, and without them there is nothing to wait for.
func (m *miss) waitAgain() (Block, outcome, error) {
	if !m.c.idle.couldFit(&m.request) {
		return Block{}, nothing, nil // what never fits would wait for each of them in vain
	}
	_, got, err := m.waitForAll()
	if got == nothing || err != nil {
		return Block{}, got, err
	}
	_, _, err = m.releaseEnough()
	return Block{}, freed, err
}

// segment returns the bytes to ask the device for, when it comes to that.
func (r *request) segment() int64 { return r.h.c.cfg.segmentSize(r.rounded) }

// leastGrowth returns the fewest bytes that the device is asked for to serve the request.
func (r *request) leastGrowth() int64 {
	c := r.h.c
	if c.memory != nil {
		return sizeclass.RoundTo(r.rounded, c.memory.Granularity)
	}
	return min(r.segment(), sizeclass.RoundTo(r.rounded, c.cfg.SegmentRounding))
}

// allow says what may serve the request beside free chunks of large blocks: those of
// small blocks, once the pool holds idleFloor; and any number of stitched ranges, where they
// stay, and while the stream is captured and cannot be waited for.
func (r *request) allow() heap.Allow {
	c := r.h.c
	return heap.Allow{
		SmallChunks: c.budget.Held() >= idleFloor, MoreStitches: c.isolated.Load() || r.h.stream.clock.Captured(),
	}
}

// maxLines is how many Lines an OOMError has.
const maxLines = 3
