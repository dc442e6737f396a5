package cupool

import (
	"math"

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
	if l, ok := s.magazine.Leave(id); ok {
		s.leftLocked(l)
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

// flushLocked returns everything that lies in the stream's magazines to its
// pools and reports whether there was anything.
func (s *Stream) flushLocked() bool {
	found := false
	if s.homedBytes > 0 {
		s.magazine.Flush(false, func(l magazine.Leaver) {
			s.leftLocked(l)
			found = true
		})
	}
	found = s.mergeFastLocked() || found
	s.checkLocked()
	return found
}

// unhomeAllLocked takes every block out of the magazines. One that is freed
// meanwhile goes to its pool, before or after it lost its home.
func (s *Stream) unhomeAllLocked() {
	if s.homedBytes > 0 {
		s.magazine.Flush(true, s.leftLocked)
	}
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
