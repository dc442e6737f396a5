package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// rung is one step of the way from a miss to an *OOMError. It says whether
// anything came free, so that searching again makes sense.
type rung struct {
	name  string
	grows bool // ask the device again after the search
	climb func(*Caching, request) (bool, error)
}

// ladder is what a miss tries, in order. After every rung that freed
// something the pools are searched again, and the first that serves ends it.
var ladder = []rung{
	{"flush magazines", false, (*Caching).flushOwn},
	{"completed events", false, (*Caching).collectDone},
	{"idle memory of other streams", false, (*Caching).takeIdle},
	{"release idle segments", false, (*Caching).releaseIdle},
	{"grow", true, func(*Caching, request) (bool, error) { return true, nil }},
	{"wait for one pending block", true, (*Caching).waitForOne},
	{"release cached segments", true, (*Caching).releaseEnough},
	{"wait for all pending blocks", true, (*Caching).waitForAll},
	{"release what came free", true, (*Caching).releaseEnough},
	{"collect garbage", true, (*Caching).collectGarbage},
	{"release what came free", true, (*Caching).releaseEnough},
	{"callback", true, (*Caching).askCallback},
	{"release what came free", true, (*Caching).releaseEnough},
}

const firstReclaiming = 5 // index in ladder: from here on a success is a retry

// request is an allocation that the pools could not serve.
type request struct {
	size    int64 // bytes as asked for
	rounded int64 // bytes of the block
	kind    kind
	proc    int // the processor whose magazines are concerned
	s       *Stream
}

// segment returns the bytes to ask the device for, when it comes to that.
func (r *request) segment() int64 { return r.s.c.cfg.segmentSize(r.rounded) }

// allocMiss climbs the ladder for a request that the pools could not serve.
func (c *Caching) allocMiss(r request) (Block, error) {
	var refused error
	for i, step := range ladder {
		freed, err := step.climb(c, r)
		if err != nil {
			return Block{}, err
		}
		if !freed {
			continue
		}
		h, ok, err := c.tryAgain(r, step.grows)
		switch {
		case ok:
			if i >= firstReclaiming {
				c.books.retries.Add(1)
			}
			return h, nil
		case err == nil:
		case errors.Is(err, ErrOutOfMemory):
			refused = err
		default:
			return Block{}, err
		}
	}
	c.books.ooms.Add(1)
	return Block{}, c.oomError(r, refused)
}

// tryAgain searches the stream's pools and, with grow, asks the device.
func (c *Caching) tryAgain(r request, grow bool) (Block, bool, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return Block{}, false, err
	}
	h, ok := s.takeLocked(r.size, r.rounded, r.proc)
	if ok || !grow {
		return h, ok, nil
	}
	id, b, err := s.growLocked(r)
	if err != nil {
		return Block{}, false, err
	}
	return s.handOutLocked(r.size, r.rounded, r.proc, id, b), true, nil
}

// growLocked gets a segment for the request. When the device refuses the
// size that the configuration wants, it tries what the request needs.
func (s *Stream) growLocked(r request) (block.ID, *block.Block, error) {
	if s.c.vm != nil {
		return s.growVirtualLocked(r)
	}
	id, b, err := s.newSegmentLocked(r.segment(), r.kind)
	need := sizeclass.RoundTo(r.rounded, s.c.cfg.SegmentRounding)
	if errors.Is(err, ErrOutOfMemory) && need < r.segment() {
		id, b, err = s.newSegmentLocked(need, r.kind)
	}
	if err == nil {
		s.c.books.misses.Add(1)
	}
	return id, b, err
}

// newSegmentLocked asks the device for a segment and enters it in the books
// as one Free block that is in no set. The books change only after the
// device has said yes.
func (s *Stream) newSegmentLocked(size int64, k kind) (block.ID, *block.Block, error) {
	c := s.c
	if err := s.slots.Ensure(2); err != nil {
		return 0, nil, fmt.Errorf("cupool: %w", err)
	}
	if err := c.reserve(size); err != nil {
		return 0, nil, err
	}
	p, err := c.driver.MemAlloc(size)
	if err == nil && uint64(p)%sizeclass.Quantum != 0 {
		err = errors.Join(fmt.Errorf("device returned the unaligned address %v", p), c.driver.MemFree(p))
	}
	if err != nil {
		c.reserved.Add(-size)
		return 0, nil, c.driverError(fmt.Errorf("cupool: allocating a segment of %d bytes on %s for stream 0x%x: %w", size, c.driver.Name(), uintptr(s.handle), err))
	}
	c.noteReserved()
	c.books.driverAllocs.Add(1)
	seg := &block.Segment{Base: uint64(p), Size: size, Large: k == large}
	s.addSegmentLocked(seg)
	c.segments.add(seg, size, s)
	id, b := seg.Begin(&s.slots)
	s.noteSegment(k, size)
	return id, b, nil
}

// reserve counts bytes against the limit. A request that is refused never
// counts, not even for a moment, so that no other is refused for its sake.
func (c *Caching) reserve(size int64) error {
	for {
		now := c.reserved.Load()
		if size > c.limit-now {
			return fmt.Errorf("%w: %d more bytes would exceed the limit of %d with %d reserved", ErrOutOfMemory, size, c.limit, now)
		}
		if c.reserved.CompareAndSwap(now, now+size) {
			return nil
		}
	}
}

// noteReserved keeps the highest value that reserved has had.
func (c *Caching) noteReserved() {
	for now := c.reserved.Load(); ; {
		high := c.highWater.Load()
		if now <= high || c.highWater.CompareAndSwap(high, now) {
			return
		}
	}
}

// freeSegmentLocked gives a wholly free segment back to the device. It
// leaves the index first: as soon as the device has the memory, another
// stream may get it.
func (s *Stream) freeSegmentLocked(seg *block.Segment) error {
	c, k := s.c, kindOf(seg.Large)
	c.segments.remove(seg)
	c.byAddr[k].Clear(seg.Base, seg.Size)
	if err := c.driver.MemFree(Ptr(seg.Base)); err != nil {
		c.segments.add(seg, seg.Size, s)
		return c.driverError(fmt.Errorf("cupool: freeing the segment at %v (%d bytes) on %s: %w", Ptr(seg.Base), seg.Size, c.driver.Name(), err))
	}
	c.books.driverFrees.Add(1)
	c.reserved.Add(-seg.Size)
	s.pools[k].Remove(seg.First, c.blocks.At(seg.First))
	s.slots.Put(seg.First)
	s.dropSegmentLocked(seg.Index)
	s.noteSegmentGone(k, seg.Size)
	s.checkLocked()
	return nil
}

// flushOwn empties the magazines of the request's stream.
func (c *Caching) flushOwn(r request) (bool, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.homedBytes > 0 && r.s.flushLocked(), nil
}

// collectDone frees blocks of the request's stream that waited for events
// that are done, and what cleanups queued.
func (c *Caching) collectDone(r request) (bool, error) {
	freed := c.drainLater()
	how := ask
	if r.s.patient() {
		how = peek
	}
	n, err := r.s.settle(how)
	return freed+n > 0, c.onlyLost(err) // other failures leave blocks waiting
}

// settleEverything frees what waited for events that are done, of all
// streams, and what cleanups queued.
func (c *Caching) settleEverything() error {
	c.drainLater()
	_, err := c.settleAll(ask)
	return c.onlyLost(err)
}

// regret is a segment that was given back too early.
type regret struct {
	s    *Stream
	k    kind
	size int64
}

// regretLimit is how often a pool may have to ask again for a segment of a
// size that releaseIdle gave back before such segments are left alone: a
// program that repeats itself comes to rest. Replays of real programs
// reserve 3 to 5 % more with a limit below 4, and no less with a higher one.
const regretLimit = 4

// idleFloor is the reserve, in bytes, up to which idle segments are kept
// however it grows: a small program is not worth a call to the device.
const idleFloor = 256 << 20

// releaseIdle gives wholly free segments back, the largest first, as far as
// growing would reserve more than the allocator ever has. Keeping them is
// what makes PyTorch's default reserve half as much again as its programs
// ask for; giving back no more than this keeps a steady state free of calls
// to the device, and does not wait where memory has been enough before.
func (c *Caching) releaseIdle(r request) (bool, error) {
	if c.vm != nil {
		return false, nil // growing there takes idle memory from all over the pool
	}
	if !c.reclaim.TryLock() {
		return false, nil // who has it may wait for work, which may wait for this allocation
	}
	defer c.reclaim.Unlock()
	need := c.reserved.Load() + r.segment() - c.sufficient(idleFloor)
	key := regret{r.s, r.kind, r.segment()}
	if c.regrets[key] > regretLimit && !c.pressed(r) {
		c.regrets[key]--
		return false, nil
	}
	if need <= 0 {
		return false, nil
	}
	_, err := c.releaseSegments(need)
	return false, err
}

// waitForOne waits for the pending block that serves the request with the
// least: the smallest that suffices, the oldest among equals.
func (c *Caching) waitForOne(r request) (bool, error) {
	for _, o := range r.s.pendingFor(r) {
		if err := c.waitEpoch(o.s, o.epoch); err != nil {
			return false, c.onlyLost(err)
		}
	}
	n, err := r.s.settle(peek)
	return n > 0, c.onlyLost(err)
}

// onlyLost keeps the error of a lost device, which ends everything, and
// drops others, which leave memory waiting.
func (c *Caching) onlyLost(err error) error {
	if errors.Is(err, ErrDeviceLost) {
		return err
	}
	return nil
}

// order is an epoch of a stream to wait for.
type order struct {
	s     *Stream
	epoch uint64
}

// pendingFor chooses a pending block for a request and returns what it waits
// for.
func (s *Stream) pendingFor(r request) (orders []order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	best, size := block.ID(0), int64(math.MaxInt64)
	for i := range s.uses {
		set := &s.uses[i]
		if set.waiting == 0 {
			continue
		}
		if b := s.c.blocks.At(set.id); s.c.kindOfSize(b.Size) == r.kind && b.Size >= r.rounded && b.Size < size {
			best, size = set.id, b.Size
		}
	}
	for i := range s.waits {
		l := &s.waits[i]
		for _, w := range l.fifo[l.head:] {
			if w.id == best {
				orders = append(orders, order{l.user, w.epoch})
			}
		}
	}
	return orders
}

// releaseEnough gives cached segments back, largest first, until the
// request's segment fits.
func (c *Caching) releaseEnough(r request) (bool, error) {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.sleep.asleep.Load() {
		return false, nil
	}
	n, err := c.releaseSegments(r.segment())
	return n > 0, err
}

// waitForAll flushes every magazine and waits for every pending block.
func (c *Caching) waitForAll(request) (bool, error) {
	flushed := c.flushAll()
	freed, err := c.waitPending()
	return flushed || freed > 0, c.onlyLost(err)
}

func (c *Caching) flushAll() (found bool) {
	for _, s := range c.openStreams() {
		s.mu.Lock()
		found = s.flushLocked() || found
		s.mu.Unlock()
	}
	return found
}

// waitPending waits until no block that was pending when it was called is
// so any more, and returns how many came free.
func (c *Caching) waitPending() (freed int, err error) {
	for _, u := range c.openStreams() {
		if epoch := u.clock.newest.Load(); epoch > u.clock.done.Load() {
			err = errors.Join(err, c.waitEpoch(u, epoch))
		}
	}
	return c.collectAll(), err
}

// cleanupWait bounds the time that cleanups get to run in.
const cleanupWait = 100 * time.Millisecond

// collectGarbage runs Go's collector, whose cleanups may give blocks back.
// They run on goroutines of their own: one more, which is found with them,
// tells when they had their turn. Not all of them do in the first round.
func (c *Caching) collectGarbage(r request) (bool, error) {
	for range 2 {
		done := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, done)
		runtime.GC()
		select {
		case <-done:
		case <-time.After(cleanupWait):
		}
	}
	if c.drainLater() == 0 {
		return false, nil
	}
	return c.waitForAll(r)
}

// askCallback lets the program free something.
func (c *Caching) askCallback(r request) (bool, error) {
	if c.cfg.OnOutOfMemory == nil || !c.cfg.OnOutOfMemory(r.size) {
		return false, nil
	}
	_, err := c.waitForAll(r)
	return true, err
}

// idle is a wholly free segment, found under its stream's lock.
type idle struct {
	s    *Stream
	seg  *block.Segment
	base uint64
	size int64
}

// releaseSegments gives wholly free segments of any stream back to the
// device, the largest first, until at least need bytes came back, and
// returns how many did.
func (c *Caching) releaseSegments(need int64) (released int64, err error) {
	if _, err := c.settleAll(peek); c.onlyLost(err) != nil {
		return 0, err
	}
	if c.vm != nil {
		return c.releaseVirtual(need, true)
	}
	defer func() { err = errors.Join(err, c.bury()) }()
	var found []idle
	for _, s := range c.holders() {
		s.mu.Lock()
		s.mergeFastLocked()
		for _, seg := range s.segs {
			if seg != nil && !seg.Virtual && !seg.Stitched && seg.IsWhollyFree(&c.blocks) {
				found = append(found, idle{s, seg, seg.Base, seg.Size})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(found, func(a, b idle) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.base, b.base))
	})
	for _, f := range found {
		if released >= need {
			break
		}
		ok, err := f.release()
		if err != nil {
			return released, err
		}
		if ok {
			released += f.size
			c.regrets[regret{f.s, kindOf(f.seg.Large), f.size}]++
		}
	}
	return released, nil
}

// releaseVirtual is releaseSegments for virtual memory, chunk by chunk. Without
// wait it leaves streams alone that have work under way.
func (c *Caching) releaseVirtual(need int64, wait bool) (released int64, err error) {
	if err := c.giveBackLeftovers(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.bury()) }()
	for _, s := range c.holders() {
		n, err := s.releaseChunks(need-released, wait)
		if released += n; err != nil || released >= need {
			return released, err
		}
	}
	return released, nil
}

// release gives the segment back if it is still there and wholly free.
func (f *idle) release() (bool, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if i := int(f.seg.Index); i >= len(f.s.segs) || f.s.segs[i] != f.seg || !f.seg.IsWhollyFree(&f.s.c.blocks) {
		return false, nil
	}
	if err := f.s.freeSegmentLocked(f.seg); err != nil {
		return false, err
	}
	return true, nil
}

// oomError puts the numbers of a failure together.
func (c *Caching) oomError(r request, cause error) error {
	st := c.Stats()
	e := &OOMError{
		Device: c.driver.Name(), Stream: r.s.handle,
		Requested: r.size, Rounded: r.rounded, Segment: r.segment(),
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		LargestFree: st.LargestFree, Reserved: st.All.ReservedBytes.Current,
		DeviceFree: -1, DeviceTotal: -1, Limit: c.limitBytes(),
		Fragmentation: st.Fragmentation(), Cause: cause,
	}
	if free, total, err := c.driver.MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	e.Hint = e.hint()
	return e
}

// hint says what would have made the request fit.
func (e *OOMError) hint() string {
	room := e.DeviceFree
	if e.Limit > 0 && (room < 0 || e.Limit-e.Reserved < room) {
		room = e.Limit - e.Reserved
	}
	switch {
	case e.DeviceTotal >= 0 && e.Rounded > e.DeviceTotal:
		return "the request is larger than the device"
	case e.Limit > 0 && e.Rounded > e.Limit:
		return "the request is larger than the limit"
	case e.Limit > 0 && e.DeviceFree >= e.Rounded && room < e.Rounded:
		return "the device has the memory: raise Limit or Fraction"
	case e.Cached >= e.Rounded:
		return fmt.Sprintf("%s is cached, but in pieces or for other streams: allocate large blocks first and keep them, or lower MinSplit", formatBytes(e.Cached))
	case room >= e.Rounded:
		return "the device reports enough free memory but refuses it: it may be fragmented or shared"
	default:
		return fmt.Sprintf("free at least %s of the %s that the program holds", formatBytes(e.Rounded-max(room, 0)), formatBytes(e.Live))
	}
}
