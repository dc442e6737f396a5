package cupool

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/realtime"
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
	{"release the longest idle", false, (*Caching).releaseOldest},
	{"collect garbage under pressure", false, (*Caching).relieve},
	{"grow", true, (*Caching).beforeGrowing},
	{"wait for one pending block", true, (*Caching).waitForOne},
	{"release cached segments", true, (*Caching).releaseEnough},
	{"wait for all pending blocks", true, (*Caching).waitForAll},
	{"release what came free", true, (*Caching).releaseEnough},
	{"collect garbage", true, (*Caching).collectGarbage},
	{"collect garbage again", true, (*Caching).collectAgain},
	{"collect garbage again", true, (*Caching).collectAgain},
	{"release what came free", true, (*Caching).releaseEnough},
	{"callback", true, (*Caching).askCallback},
	{"release what came free", true, (*Caching).releaseEnough},
	{"wait for who gives memory back", true, (*Caching).awaitRelease},
}

const firstReclaiming = 7 // index in ladder: from here on a success is a retry

// request is an allocation that the pools could not serve.
type request struct {
	size    int64 // bytes as asked for
	rounded int64 // bytes of the block
	kind    kind
	s       *Stream
	misses  magazine.Misses // before this one
}

// segment returns the bytes to ask the device for, when it comes to that.
func (r *request) segment() int64 { return r.s.c.cfg.segmentSize(r.rounded) }

// allocMiss climbs the ladder for a request that the pools could not serve.
// Once that was refused it looks at what others have given back meanwhile, too:
// what is on its way to the device counts as reserved until it is there, so
// that who gives it back is waited for at the end.
func (c *Caching) allocMiss(r request) (Block, error) {
	var refused error
	var returns uint64 // when it was
	for i, step := range ladder {
		freed, err := step.climb(c, r)
		if err != nil {
			return Block{}, err
		}
		now := c.family.returns.Load()
		if !freed && (refused == nil || now == returns) {
			continue
		}
		returns = now
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
			if h, ok := c.borrow(r); ok {
				return h, nil
			}
		default:
			return Block{}, err
		}
	}
	c.books.ooms.Add(1)
	return Block{}, c.oomError(r, refused)
}

// awaitRelease waits for who gives memory back, if anybody does, so that the
// ladder finds it gone.
func (c *Caching) awaitRelease(request) (bool, error) {
	c.reclaim.Lock()
	//lint:ignore SA2001 to have waited is all
	c.reclaim.Unlock()
	return false, nil
}

// tryAgain searches the stream's pools and, with grow, asks the device.
func (c *Caching) tryAgain(r request, grow bool) (Block, bool, error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return Block{}, false, err
	}
	h, ok := s.takeLocked(r.size, r.rounded, r.misses)
	if ok || !grow {
		return h, ok, nil
	}
	id, b, err := s.growLocked(r)
	if err != nil {
		return Block{}, false, err
	}
	return s.handOutLocked(r.size, r.rounded, id, b, r.misses), true, nil
}

// growLocked gets memory for the request from the device.
func (s *Stream) growLocked(r request) (block.ID, *block.Block, error) {
	if s.c.vm != nil {
		return s.growVirtualLocked(r)
	}
	id, b, err := s.newSegmentForLocked(r)
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
		c.unreserve(size)
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

// noteReserved keeps the highest value that reserved has had.
func (c *Caching) noteReserved() {
	for now := c.reserved.Load(); ; {
		high := c.highWater.Load()
		if now <= high || c.highWater.CompareAndSwap(high, now) {
			return
		}
	}
}

// flushOwn empties the magazines of the request's stream, unless goroutines
// empty each other's.
func (c *Caching) flushOwn(r request) (bool, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.homedBytes == 0 || r.s.crowdedLocked(r.size) {
		return false, nil
	}
	return r.s.flushLocked(), nil
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

// beforeGrowing tells the program that the device will be asked.
func (c *Caching) beforeGrowing(r request) (bool, error) {
	if c.cfg.BeforeGrow != nil {
		c.cfg.BeforeGrow(r.rounded)
	}
	return true, nil
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
	best, size := block.ID(0), s.c.cfg.fitsBelow(r.kind, r.rounded)
	s.eachWaiterLocked(func(_ *Stream, w waiter) {
		if b := s.c.blocks.At(w.id); s.c.kindOfSize(b.Size) == r.kind && b.Size >= r.rounded && b.Size < size {
			best, size = w.id, b.Size
		}
	})
	s.eachWaiterLocked(func(u *Stream, w waiter) {
		if w.id == best {
			orders = append(orders, order{u, w.epoch})
		}
	})
	return orders
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
	for _, u := range c.family.root.openStreams() {
		if epoch := u.clock.newest.Load(); epoch > u.clock.done.Load() {
			err = errors.Join(err, c.waitEpoch(u, epoch))
		}
	}
	return c.collectAll(), err
}

// cleanupWait is about the most time that cleanups get to run in.
const cleanupWait = 100 * time.Millisecond

// collectGarbage runs Go's collector, whose cleanups may give blocks back, or
// waits for whoever does so already, who may find what is lacking here. It is
// spared where it has been of no use lately (pressure.go).
func (c *Caching) collectGarbage(r request) (bool, error) {
	p := &c.family.root.pressure
	before, freed := p.runs.Load(), 0
	p.mu.Lock()
	if start := time.Now(); p.runs.Load() == before && p.hopeful(start) {
		freed = c.runCollector()
		end := time.Now()
		p.noteRefused(end, end.Sub(start), freed)
	}
	p.mu.Unlock()
	if freed == 0 && !p.on.Load() {
		return false, nil
	}
	return c.waitForAll(r)
}

// collectAgain collects once more where many tensors have lifetimes: other
// goroutines may have been faster to take what came free.
func (c *Caching) collectAgain(r request) (bool, error) {
	if !c.family.root.pressure.on.Load() {
		return false, nil
	}
	return c.collectGarbage(r)
}

// runCollector runs Go's collector, twice as a tensor's owner is found only
// after the tensor, and returns how many blocks cleanups gave back.
func (c *Caching) runCollector() int {
	for range 2 {
		runtime.GC()
		awaitCleanups()
	}
	freed := c.drainLater()
	c.family.root.pressure.runs.Add(1)
	return freed
}

// awaitCleanups waits, for some time, until the cleanups have run that the
// collector has found. They run on goroutines of their own.
func awaitCleanups() {
	counts := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(counts[:1])
	const looks = 1000
	for range looks {
		if metrics.Read(counts[1:]); counts[1].Value.Uint64() >= counts[0].Value.Uint64() {
			return
		}
		realtime.Sleep(cleanupWait / looks)
	}
}

// askCallback lets the program free something.
func (c *Caching) askCallback(r request) (bool, error) {
	if c.cfg.OnOutOfMemory == nil || !c.cfg.OnOutOfMemory(r.size) {
		return false, nil
	}
	_, err := c.waitForAll(r)
	return true, err
}
