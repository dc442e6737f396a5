package cupool

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Stranded memory.
//
// A stream reuses its own memory without asking anybody, because its order
// makes that safe. The price is that what idle and closed streams cache is
// lost to the others, tens of GiB in PyTorch's case. Here a miss takes it
// over before the device is asked for more.
//
// What a closed stream leaves, its estate, is nobody's, and its work was
// waited for: whoever misses first gets it, and no call to the device is
// needed. Of an open stream, memory is taken that is wholly free, once an
// event has proven that the stream's work is over. Ordering the taker behind
// work that is not over (StreamWaitEvent) would do as well, but streams that
// the program made independent could then wait for each other in a circle.
//
// Streams that take turns would take the same memory from each other for
// ever. So open streams are asked only where more would be reserved than ever
// was, and one that often misses what was taken from it is left alone.

// stranded keeps track of such memory. Its lock is taken before those of
// streams and is not held while waiting for anything, so that a miss does not
// wait for those who reclaim memory and wait for work.
type stranded struct {
	mu      sync.Mutex
	estates []*Stream // closed streams that still hold memory
}

// lender is what is remembered of a stream whose idle memory others took.
type lender struct {
	lent    bool // since it last missed
	regrets int  // times that it missed after that
}

// Streams that hold less than takeFloor bytes keep them as long as the reserve
// is below idleFloor: the working sets of a small program are not worth the
// time.
const takeFloor = 32 << 20

// provePolls bounds how often one miss asks the device about events that are
// not done at once. A GPU takes a few microseconds to pass an event of a
// stream with nothing to do, 64 queries take 10, and growing by one chunk 30.
const provePolls = 64

// takeIdle gets memory for a request that other streams leave idle.
func (c *Caching) takeIdle(r request) (found bool, err error) {
	switch {
	case c.vm == nil && len(*c.streams.Load()) == 1:
		return false, nil
	case r.rounded > c.limit, c.vm != nil && r.rounded > c.capacity:
		return false, nil // what never fits must not take from those that do
	}
	left := &c.stranded
	left.mu.Lock()
	defer left.mu.Unlock()
	if l := &r.s.lender; l.lent {
		l.lent = false
		l.regrets++
	}
	for _, e := range left.estates {
		n, err := c.take(r, e, r.s.lacks(r), nil)
		if found = found || n > 0; err != nil {
			return found, err
		}
	}
	_ = c.buryLocked()
	need := c.excess(r)
	if need <= 0 {
		return found, nil
	}
	if _, err := c.settleAll(peek); c.onlyLost(err) != nil {
		return found, err
	}
	polls := provePolls
	for _, d := range c.lenders(r) {
		n, err := c.take(r, d, need, &polls)
		if n > 0 {
			found, d.lender.lent = true, true
		}
		if need = c.excess(r); err != nil || need <= 0 {
			return found, err
		}
	}
	return found, nil
}

// excess returns the bytes of what a request lacks that would make the
// reserve larger than is sufficient.
func (c *Caching) excess(r request) int64 {
	lacks := r.s.lacks(r)
	return min(lacks, c.reserved.Load()+lacks-c.sufficient(0))
}

// sufficient returns the reserve, in bytes, beyond which idle memory is used
// or given back before the device is asked for more: the most that there
// ever was, at least floor, and at most the soft limit.
func (c *Caching) sufficient(floor int64) int64 {
	n := max(c.highWater.Load(), floor)
	if soft := c.softLimit(); soft > 0 {
		n = min(n, soft)
	}
	return n
}

// pressed reports whether a request would grow beyond the soft limit, where
// idle memory is reclaimed whether or not that is regretted.
func (c *Caching) pressed(r request) bool {
	soft := c.softLimit()
	return soft > 0 && c.reserved.Load()+r.rounded > soft
}

// softLimit returns where reclaiming starts, in bytes reserved, or 0.
func (c *Caching) softLimit() int64 {
	soft := c.cfg.SoftLimit
	if above := c.collectAbove; above > 0 && c.vm != nil && (soft == 0 || above < soft) {
		return above
	}
	return soft
}

// lenders lists the open streams that idle memory may be taken from, those
// that regretted it least first. Beyond the soft limit chunks of the taker's
// other pool do too; else the pools would often take them from each other.
func (c *Caching) lenders(r request) []*Stream {
	all := slices.DeleteFunc(c.openStreams(), func(s *Stream) bool { return s == r.s && (c.vm == nil || !c.pressed(r)) })
	slices.SortStableFunc(all, func(a, b *Stream) int { return cmp.Compare(a.lender.regrets, b.lender.regrets) })
	return all
}

// lacks returns the bytes that the device would be asked for to serve a
// request, 0 when the stream has enough.
func (s *Stream) lacks(r request) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fitLocked(r.kind, r.rounded) != 0:
		return 0
	case s.c.vm == nil:
		return s.c.cfg.segmentSize(r.rounded)
	case r.kind == small:
		return sizeclass.RoundTo(r.rounded-s.tailLocked(small), s.c.granularity)
	}
	_, idle := s.stitchableLocked(r.rounded)
	return sizeclass.RoundTo(max(r.rounded-idle, 0), s.c.granularity)
}

// take moves at least need bytes of idle memory from a stream to that of the
// request, as far as there are so many, and returns how many it moved. polls
// bounds the asking whether an open stream's work is over; nil is an estate.
func (c *Caching) take(r request, from *Stream, need int64, polls *int) (taken int64, err error) {
	defer lockBoth(r.s, from)()
	estate := polls == nil
	if need <= 0 || r.s.usableLocked() != nil || !estate && from.heir.Load() != nil {
		return 0, nil
	}
	from.flushLocked()
	switch {
	case c.vm == nil:
		taken = from.moveBestLocked(r, polls)
	case estate && from.pools[r.kind].Bytes() > 0:
		taken, err = from.moveHomesLocked(r.kind, r.s)
	default:
		taken, err = from.moveChunksLocked(r, need, polls)
	}
	r.s.checkLocked()
	from.checkLocked()
	return taken, err
}

// lockBoth takes the locks of two streams, which may be the same, in their
// order.
func lockBoth(a, b *Stream) (unlock func()) {
	if a == b {
		a.mu.Lock()
		return a.mu.Unlock
	}
	if a.index > b.index {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
	return func() { b.mu.Unlock(); a.mu.Unlock() }
}

// moveBestLocked moves the segment that fits a request best. An open stream
// gives none that is larger than what the device would be asked for: it
// would soon have to ask for such a one itself.
func (s *Stream) moveBestLocked(r request, polls *int) int64 {
	most := s.c.cfg.segmentSize(r.rounded)
	if polls == nil {
		most = s.c.cfg.fitsBelow(r.kind, r.rounded) - 1
	}
	var best *block.Segment
	for _, seg := range s.segs {
		if seg == nil || kindOf(seg.Large) != r.kind || seg.Size < r.rounded || seg.Size > most || !seg.IsWhollyFree(&s.c.blocks) {
			continue
		}
		if best == nil || seg.Size < best.Size {
			best = seg
		}
	}
	if best == nil || !s.lendsLocked(r, polls) {
		return 0
	}
	s.handOverLocked(best, r.s)
	s.noteMoves(1, best.Size)
	return best.Size
}

// moveChunksLocked moves whole free chunks of either pool, or of the other
// pool of the same stream.
func (s *Stream) moveChunksLocked(r request, need int64, polls *int) (int64, error) {
	runs := s.wholeRunsLocked()
	if s == r.s {
		runs = slices.DeleteFunc(runs, func(o run) bool { return kindOf(o.h.seg.Large) == r.kind })
	}
	if len(runs) == 0 || !s.lendsLocked(r, polls) {
		return 0, nil
	}
	chunks, err := s.detachRunsLocked(runs, need)
	bytes, e := r.s.attachLocked(r.kind, chunks)
	s.noteMoves(len(chunks), bytes)
	return bytes, errors.Join(err, e)
}

// handOverLocked moves a segment to another stream.
func (s *Stream) handOverLocked(seg *block.Segment, heir *Stream) {
	i := seg.Index
	s.moveSegmentLocked(seg, heir)
	s.dropSegmentLocked(i)
}

func (s *Stream) noteMoves(n int, bytes int64) {
	s.c.books.moves.Add(int64(n))
	s.c.books.movedBytes.Add(bytes)
}

// lendsLocked reports whether idle memory of the stream may be taken for a
// request.
func (s *Stream) lendsLocked(r request, polls *int) bool {
	switch l := &s.lender; {
	case polls == nil:
		return true // an estate's work was waited for when it was closed
	case s.c.pressed(r):
	case s.c.reserved.Load() < idleFloor && s.heldLocked() < takeFloor:
		return false
	case l.regrets > regretLimit:
		l.regrets-- // the other one gets memory of its own now
		return false
	}
	return s.isOverLocked(polls)
}

// heldLocked returns the bytes of memory that the stream holds.
func (s *Stream) heldLocked() (n int64) {
	for _, seg := range s.segs {
		if seg != nil && !seg.Virtual && !seg.Stitched {
			n += seg.Size
		}
	}
	for _, homes := range s.homes {
		for _, h := range homes {
			n += h.seg.Size - h.gaps
		}
	}
	return n
}

// isOver is isOverLocked for a caller without the lock.
func (s *Stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	polls := provePolls
	return s.isOverLocked(&polls)
}

// isOverLocked reports whether all that the stream was given is done. What is
// in its pools was freed before, so that nothing uses that any more.
func (s *Stream) isOverLocked(polls *int) bool {
	c, k := s.c, &s.base.clock
	k.mu.Lock()
	if s.isCaptured() {
		k.mu.Unlock()
		return false
	}
	e, err := s.recordEvent()
	k.mu.Unlock()
	if err == nil {
		defer c.events.put(e)
	}
	for done := false; err == nil; *polls-- {
		c.books.eventQueries.Add(1)
		if done, err = c.driver.QueryEvent(e); done || *polls <= 0 {
			return done
		}
	}
	c.books.eventFailures.Add(1)
	_ = c.driverError(err)
	return false
}
