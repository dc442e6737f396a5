package cupool

import (
	"math"
	"time"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/magazine"
)

// Which blocks the magazines (internal/magazine) and the fast bins hold, and
// the way back to the pools.

// giveHomeLocked gives a live block a place in the magazines, where the bound
// allows it.
func (s *Stream) giveHomeLocked(id block.ID, b *block.Block) {
	if s.homedBytes+b.Size > s.c.cfg.MagazineBytes {
		return
	}
	evicted, ok := s.magazine.Home(id, b)
	if !ok {
		return
	}
	s.homedBytes += b.Size
	if evicted.ID != 0 {
		s.leftLocked(evicted)
	}
}

// unhomeLocked takes a block out of the magazines, if it is there, and reports
// whether it is live.
func (s *Stream) unhomeLocked(id block.ID, b *block.Block) bool {
	if b.Word().Has(block.Homed) {
		if l, ok := s.magazine.Leave(id); ok {
			s.leftLocked(l)
		}
	}
	return b.Word().State() == block.Live
}

// leftLocked books what a block did in the magazines that it left. From now on
// it changes with the lock only: a live one stays live, a cached one goes back
// to its pool.
func (s *Stream) leftLocked(l magazine.Leaver) {
	b := s.c.blocks.At(l.ID)
	s.homedBytes -= b.Size
	if l.Hits > 0 {
		s.noteHits(b, l.Hits)
	}
	if l.Word.State() == block.Cached {
		s.releaseLocked(l.ID, b)
	}
}

// flushLocked returns everything that lies in the stream's magazines and fast
// bins to its pools and reports whether there was anything.
func (s *Stream) flushLocked() bool { return s.emptyLocked(false) }

// unhomeAllLocked is flushLocked that takes live blocks out of the magazines,
// too. One that is freed meanwhile goes to its pool, before or after it lost its
// home.
func (s *Stream) unhomeAllLocked() { s.emptyLocked(true) }

func (s *Stream) emptyLocked(live bool) bool {
	found := false
	if s.homedBytes > 0 {
		s.magazine.Flush(live, func(l magazine.Leaver) {
			s.leftLocked(l)
			found = true
		})
	}
	found = s.mergeFastLocked() || found
	s.checkLocked()
	return found
}

// Goroutines on several processors may be more than the blocks of a size are,
// where they were never all out at once. Whoever finds none would empty the
// magazines of the others, which then find none. A goroutine that only goes
// from one processor to another does that a hundred times a second at most, as
// Go's scheduler takes its processor away no sooner than after 10 ms.
const (
	crowdFlushes = 16
	crowdTime    = 10 * time.Millisecond
)

// crowd is how often a stream's magazines were to be emptied for a block of
// a size that they hold.
type crowd struct {
	since   time.Time
	flushes int
}

// crowdedLocked reports whether the stream should grow by a block of size bytes
// rather than take one of those in its magazines: more than crowdFlushes times
// in crowdTime one was wanted. What it grows by finds homes until every
// processor has what it needs, or the magazines are full.
func (s *Stream) crowdedLocked(size int64) bool {
	if !s.magazine.Has(size) {
		return false
	}
	if now := time.Now(); now.Sub(s.crowd.since) > crowdTime {
		s.crowd = crowd{since: now}
	}
	s.crowd.flushes++
	return s.crowd.flushes > crowdFlushes
}

// mergeForLocked merges blocks of the fast bins, the largest first, until one
// of at least size bytes comes about, and reports whether it did.
func (s *Stream) mergeForLocked(size int64) bool {
	for id, b := s.fast.PopLargest(); id != 0; id, b = s.fast.PopLargest() {
		if s.insertFreeLocked(s.segs[b.Seg], id, b) >= size {
			return true
		}
	}
	return false
}

// mergeFastLocked returns what lies in the fast bins to the small pool,
// merged with its free neighbours, and reports whether there was anything.
func (s *Stream) mergeFastLocked() bool {
	found := s.fast.Len() > 0
	s.mergeForLocked(math.MaxInt64)
	return found
}
