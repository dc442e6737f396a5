package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// Giving memory back to the device.

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

// collectAboveOn returns the reserve, in bytes, that the
// GarbageCollectionThreshold comes to on a device, or 0 for none.
func (cfg *Config) collectAboveOn(d Driver, limit int64) (int64, error) {
	if cfg.GarbageCollectionThreshold == 0 {
		return 0, nil
	}
	if limit == math.MaxInt64 {
		var err error
		if _, limit, err = d.MemInfo(); err != nil {
			return 0, err
		}
	}
	return max(int64(cfg.GarbageCollectionThreshold*float64(limit)), 1), nil
}

// releaseOldest gives wholly free segments back, those that have been idle
// for longest first, as far as growing would exceed the threshold of
// Config.GarbageCollectionThreshold (PyTorch's garbage_collect_cached_blocks;
// its age counts searches, the order here is of the frees).
func (c *Caching) releaseOldest(r request) (bool, error) {
	if c.collectAbove == 0 || c.vm != nil || !c.reclaim.TryLock() {
		return false, nil // who has the lock may wait for this allocation
	}
	defer c.reclaim.Unlock()
	need := c.reserved.Load() + r.segment() - c.collectAbove
	if need <= 0 {
		return false, nil
	}
	_, err := c.releaseSegmentsBy(need, func(a, b idle) int { return cmp.Compare(a.since, b.since) })
	return false, err
}

// releaseEnough gives cached segments back, largest first, the allocator's own
// before those of others in its family, until the request's segment fits.
func (c *Caching) releaseEnough(r request) (bool, error) {
	n, err := c.releaseUpTo(r.segment())
	if err == nil && n < r.segment() {
		var more int64
		more, err = c.releaseOthers(r.segment() - n)
		n += more
	}
	return n > 0, err
}

// releaseUpTo gives cached segments back, largest first, until at least need
// bytes came back, and returns how many did.
func (c *Caching) releaseUpTo(need int64) (released int64, err error) {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.sleep.asleep.Load() || c.closed.Load() {
		return 0, nil
	}
	return c.releaseSegments(need)
}

// idle is a wholly free segment, found under its stream's lock.
type idle struct {
	s     *Stream
	seg   *block.Segment
	base  uint64
	size  int64
	since uint64 // the tick of Segment.IdleSince
}

// releaseSegments gives wholly free segments of any stream back to the
// device, the largest first, until at least need bytes came back, and
// returns how many did.
func (c *Caching) releaseSegments(need int64) (released int64, err error) {
	return c.releaseSegmentsBy(need, func(a, b idle) int {
		if a.size != b.size {
			return cmp.Compare(b.size, a.size)
		}
		return cmp.Compare(a.base, b.base)
	})
}

// releaseSegmentsBy is releaseSegments in another order.
func (c *Caching) releaseSegmentsBy(need int64, order func(a, b idle) int) (released int64, err error) {
	if _, err := c.settleAll(peek); c.onlyLost(err) != nil {
		return 0, err
	}
	if c.vm != nil {
		return c.releaseVirtual(need, true)
	}
	defer func() { err = errors.Join(err, c.bury()) }()
	found := c.idle[:0]
	for _, s := range c.holders() {
		s.mu.Lock()
		s.mergeFastLocked()
		for _, seg := range s.segs {
			if seg != nil && !seg.Virtual && !seg.Stitched && seg.IsWhollyFree(&c.blocks) {
				found = append(found, idle{s, seg, seg.Base, seg.Size, seg.IdleSince})
			}
		}
		s.mu.Unlock()
	}
	c.idle = found
	defer func() { clear(c.idle) }()
	slices.SortFunc(found, order)
	for len(found) > 0 && released < need {
		batch := alike(found, need-released)
		n, err := c.releaseAlike(batch)
		if released += n; err != nil {
			return released, err
		}
		found = found[len(batch):]
	}
	return released, nil
}

// releaseBatch bounds the segments that go back under one lock, which makes
// each cheaper: an allocation that comes meanwhile waits for so many calls
// of MemFree.
const releaseBatch = 16

// alike returns the first idle segments, as far as they are of one regret,
// none more than need bytes take and no more than releaseBatch.
func alike(found []idle, need int64) []idle {
	n := 1
	for n < min(len(found), releaseBatch) && int64(n)*found[0].size < need && found[n].regret() == found[0].regret() {
		n++
	}
	return found[:n]
}

func (f *idle) regret() regret { return regret{f.s, kindOf(f.seg.Large), f.size} }

// releaseAlike gives those back of the segments, which are alike, that are
// still there and wholly free. It returns their bytes.
func (c *Caching) releaseAlike(found []idle) (int64, error) {
	s := found[0].s
	s.mu.Lock()
	defer s.mu.Unlock()
	segs := make([]*block.Segment, 0, releaseBatch)
	for _, f := range found {
		if i := int(f.seg.Index); i < len(s.segs) && s.segs[i] == f.seg && f.seg.IsWhollyFree(&c.blocks) {
			segs = append(segs, f.seg)
		}
	}
	n, err := s.freeSegmentsLocked(segs)
	if n > 0 && s.heir.Load() == nil {
		c.regrets[found[0].regret()] += n
	}
	return int64(n) * found[0].size, err
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

// freeSegmentsLocked gives wholly free segments back to the device, up to
// the first that it refuses, and returns how many went. They leave the index
// first: as soon as the device has the memory, another stream may get it.
func (s *Stream) freeSegmentsLocked(segs []*block.Segment) (freed int, err error) {
	c, bytes := s.c, int64(0)
	c.segments.remove(segs...)
	for _, seg := range segs {
		if err = c.driver.MemFree(Ptr(seg.Base)); err != nil {
			err = c.driverError(fmt.Errorf("cupool: freeing the segment at %v (%d bytes) on %s: %w", Ptr(seg.Base), seg.Size, c.driver.Name(), err))
			break
		}
		s.forgetSegmentLocked(seg)
		bytes += seg.Size
		freed++
	}
	c.returned(bytes)
	for _, seg := range segs[freed:] {
		c.segments.add(seg, seg.Size, s)
	}
	c.books.driverFrees.Add(int64(freed))
	s.checkLocked()
	return freed, err
}

// forgetSegmentLocked takes a wholly free segment that the device has again
// out of the pool and the books.
func (s *Stream) forgetSegmentLocked(seg *block.Segment) {
	k := kindOf(seg.Large)
	s.pools[k].Remove(seg.First, s.c.blocks.At(seg.First))
	s.slots.Put(seg.First)
	s.dropSegmentLocked(seg.Index)
	s.noteSegmentGone(k, seg.Size)
}

// returned counts bytes that went back to the device.
func (c *Caching) returned(bytes int64) {
	c.unreserve(bytes)
	c.reclaim.released.Add(bytes)
}

// reclaimLock is the lock under which memory is taken away from pools. Who
// unlocks it tells Config.OnRelease what went back to the device meanwhile.
type reclaimLock struct {
	sync.Mutex
	tell     func(released int64)
	released atomic.Int64 // memory also goes back without the lock, when moving it fails
}

// Unlock shadows that of the Mutex.
func (l *reclaimLock) Unlock() {
	n := l.released.Swap(0)
	l.Mutex.Unlock()
	if n > 0 && l.tell != nil {
		l.tell(n)
	}
}
