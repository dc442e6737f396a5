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
// however it grows, and pools keep theirs from each other: a small program is
// not worth a call to the device.
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
	b     *block.Block // that covers the segment
	since uint64       // the tick of Segment.IdleSince
	index uint32       // in the stream's table
}

func (f *idle) kind() kind { return kindOf(f.seg.Large) }

// releaseSegments gives wholly free segments of any stream back to the
// device, the largest first, until at least need bytes came back, and
// returns how many did.
func (c *Caching) releaseSegments(need int64) (released int64, err error) {
	return c.releaseSegmentsBy(need, func(a, b idle) int {
		if a.seg.Size != b.seg.Size {
			return cmp.Compare(b.seg.Size, a.seg.Size)
		}
		return cmp.Compare(a.seg.Base, b.seg.Base)
	})
}

// releaseSegmentsBy is releaseSegments in another order. Where all of them
// have to go, they go stream by stream: to sort many by their addresses would
// take longer than all else.
func (c *Caching) releaseSegmentsBy(need int64, order func(a, b idle) int) (released int64, err error) {
	if _, err := c.settleAll(peek); c.onlyLost(err) != nil {
		return 0, err
	}
	if c.vm != nil {
		return c.releaseVirtual(need, true)
	}
	defer func() { err = errors.Join(err, c.bury()) }()
	found, bytes := c.findIdle()
	if bytes > need {
		slices.SortFunc(found, order)
	}
	defer func() { clear(c.idle) }()
	for len(found) > 0 && released < need {
		batch := together(found, need-released)
		n, err := c.releaseTogether(batch)
		if released += n; err != nil {
			return released, err
		}
		found = found[len(batch):]
	}
	return released, nil
}

// findIdle lists the wholly free segments, in a list that the allocator keeps,
// and returns their bytes.
func (c *Caching) findIdle() (found []idle, bytes int64) {
	found = c.idle[:0]
	for _, s := range c.holders() {
		s.mu.Lock()
		s.mergeFastLocked()
		found = s.appendIdleLocked(found)
		s.mu.Unlock()
	}
	c.idle = found
	for i := range found {
		bytes += found[i].seg.Size
	}
	return found, bytes
}

// appendIdleLocked adds the stream's wholly free segments to a list. Each is
// written in its place: a copy of one that was built elsewhere would wait for
// the stores before it, which miss the caches.
func (s *Stream) appendIdleLocked(found []idle) []idle {
	blocks := &s.c.blocks
	found = slices.Grow(found, len(s.segs))
	for i, seg := range s.segs {
		if seg == nil || seg.Virtual || seg.Stitched {
			continue
		}
		if b := blocks.At(seg.First); b.IsWhole() {
			n := len(found)
			found = found[:n+1]
			f := &found[n]
			f.s, f.seg, f.b = s, seg, b
			f.since, f.index = seg.IdleSince, uint32(i)
		}
	}
	return found
}

// releaseBatch bounds the segments that leave a stream's pools at once, for
// which an allocation may have to wait: some tens of microseconds.
const releaseBatch = 1024

// together returns the first idle segments, as far as they are of one stream,
// none more than need bytes take and no more than releaseBatch.
func together(found []idle, need int64) []idle {
	found = found[:min(len(found), releaseBatch)]
	bytes := int64(0)
	for i := range found {
		if bytes >= need || found[i].s != found[0].s {
			return found[:i]
		}
		bytes += found[i].seg.Size
	}
	return found
}

// releaseTogether gives those back of the segments, which are of one stream,
// that are still there and wholly free. It returns their bytes.
func (c *Caching) releaseTogether(found []idle) (released int64, err error) {
	s := found[0].s
	s.mu.Lock()
	defer s.mu.Unlock()
	here := s.stillIdleLocked(found)
	n, err := s.freeSegmentsLocked(here)
	return c.regret(here[:n]), err
}

// stillIdleLocked keeps those of the segments in the list that are still there
// and wholly free.
func (s *Stream) stillIdleLocked(found []idle) []idle {
	n := 0
	for i := range found {
		f := &found[i]
		if int(f.index) >= len(s.segs) || s.segs[f.index] != f.seg || !f.b.IsWhole() {
			continue
		}
		if n < i {
			found[n] = *f
		}
		n++
	}
	return found[:n]
}

// regret remembers segments that were given back, those of a closed stream
// aside: it will not miss them. It returns the bytes of all.
func (c *Caching) regret(gone []idle) (bytes int64) {
	for len(gone) > 0 {
		first, n := &gone[0], 1
		for n < len(gone) && gone[n].seg.Size == first.seg.Size && gone[n].kind() == first.kind() {
			n++
		}
		if first.s.heir.Load() == nil {
			c.regrets[regret{first.s, first.kind(), first.seg.Size}] += n
		}
		bytes += int64(n) * first.seg.Size
		gone = gone[n:]
	}
	return bytes
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

// freeSegmentsLocked gives wholly free segments back to the device, up to the
// first that it refuses, and returns how many went. They leave the pools under
// the lock, which is then given away until the device has answered, so that no
// allocation waits for that. The books count them until then.
func (s *Stream) freeSegmentsLocked(out []idle) (freed int, err error) {
	s.detachSegmentsLocked(out)
	s.mu.Unlock()
	for freed < len(out) && err == nil {
		if err = s.c.driver.MemFree(Ptr(out[freed].seg.Base)); err == nil {
			freed++
		}
	}
	s.mu.Lock()
	s.forgetLocked(out[:freed])
	for _, f := range out[freed:] {
		s.reattachLocked(f.seg)
	}
	s.leaving = nil
	s.checkLocked()
	if err != nil {
		f := out[freed]
		err = s.c.driverError(fmt.Errorf("cupool: freeing the segment at %v (%d bytes) on %s: %w", Ptr(f.seg.Base), f.seg.Size, s.c.driver.Name(), err))
	}
	return freed, err
}

// detachSegmentsLocked takes wholly free segments out of the pools and out of
// the index of addresses: as soon as the device has the memory, another stream
// may get it. Where most of the pools goes, that is one pass over all of them.
func (s *Stream) detachSegmentsLocked(out []idle) {
	sweep := len(out) > (s.pools[small].Len()+s.pools[large].Len())/sweepPart
	var n [2]int
	for i := range out {
		f := &out[i]
		k := f.kind()
		n[k]++
		if !sweep {
			s.pools[k].Remove(f.seg.First, f.b)
		}
		f.b.SetWord(block.MakeWord(f.b.Word().Gen(), block.Gap))
		s.dropSegmentLocked(f.index)
	}
	if sweep {
		s.pools[small].Sweep(n[small])
		s.pools[large].Sweep(n[large])
	}
	s.c.segments.removeIdle(out)
	s.leaving = out
}

// sweepPart is the part of the pools' blocks from which on to look at all of
// them is faster than to look for each.
const sweepPart = 8

// forgetLocked takes segments that the device has again out of the books.
func (s *Stream) forgetLocked(gone []idle) {
	var n, bytes [2]int64
	for i := range gone {
		f := &gone[i]
		k := f.kind()
		n[k]++
		bytes[k] += f.seg.Size
		f.b.SetWord(block.MakeWord(f.b.Word().Gen(), block.Free))
		s.slots.Put(f.seg.First, f.b)
	}
	for k := range n {
		s.noteSegmentsGone(kind(k), n[k], bytes[k])
	}
	s.c.returned(bytes[small] + bytes[large])
	s.c.books.driverFrees.Add(int64(len(gone)))
}

// reattachLocked takes a segment back that the device would not have.
func (s *Stream) reattachLocked(seg *block.Segment) {
	s.addSegmentLocked(seg)
	b := s.c.blocks.At(seg.First)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
	b.Seg = seg.Index
	s.pools[kindOf(seg.Large)].Insert(seg.First, b)
	s.c.segments.add(seg, seg.Size, s)
}

// returned counts bytes that went back to the device.
func (c *Caching) returned(bytes int64) {
	c.unreserve(bytes)
	c.family.returns.Add(1)
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
