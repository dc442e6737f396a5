package cupool

import (
	"math"

	"github.com/cupool/cupool/internal/block"
)

// Which blocks the magazines (internal/magazine) and the fast bins hold, and
// the way back to the pools.

// takeBack ends the life of a block that a stale slot led to and that is of
// another size than was asked for, as if it had not gone out.
func (c *Caching) takeBack(h Block) {
	s, b, err := c.lockOwner("free", h, ErrDoubleFree)
	if err != nil {
		return
	}
	defer s.mu.Unlock()
	s.noteHits(b, -1)
	_ = s.freeLocked(h, b)
}

// giveHomeLocked gives a live block a place in the magazines, where the bound
// allows it.
func (s *Stream) giveHomeLocked(proc int, id block.ID, b *block.Block) {
	if s.homedBytes+b.Size > s.c.cfg.MagazineBytes || s.c.lost.Load() != nil {
		return
	}
	gen := b.Word().Gen()
	b.SetHome(gen)
	b.SetWord(block.MakeWord(gen, block.Live|block.Homed))
	s.homedBytes += b.Size
	if evicted := s.magazine.Home(proc, id, b.Requested()); evicted != 0 {
		s.evictLocked(evicted)
	}
}

// evictLocked takes a block that lost its slot out of the magazines: a live
// one stays live, a cached one goes back to the pool.
func (s *Stream) evictLocked(id block.ID) {
	b := s.c.blocks.At(id)
	if b.Owner() != s.index {
		return // the slot was stale
	}
	if w, ok := s.unhomeLocked(b); ok && w.State() == block.Cached {
		s.releaseLocked(id, b)
	}
}

// unhomeLocked ends the time in which a block may change without the lock
// and books what it did meanwhile. It returns the word it left, or false for
// a block that is not homed.
func (s *Stream) unhomeLocked(b *block.Block) (block.Word, bool) {
	w := b.Word()
	for w.Has(block.Homed) && !b.Swap(w, w&^block.Homed) {
		w = b.Word()
	}
	if !w.Has(block.Homed) {
		return w, false
	}
	s.homedBytes -= b.Size
	if n := w.Gen() - b.HomeGen(); n > 0 {
		s.noteHits(b, int64(n))
	}
	return w &^ block.Homed, true
}

// flushLocked returns everything that lies in the stream's magazines to its
// pools and reports whether there was anything.
func (s *Stream) flushLocked() bool {
	found := false
	s.magazine.Each(func(id block.ID) bool {
		b := s.c.blocks.At(id)
		if w := b.Word(); !w.Has(block.Homed) || b.Owner() != s.index {
			return true
		} else if w.State() != block.Cached {
			return false
		}
		if w, ok := s.unhomeLocked(b); ok && w.State() == block.Cached {
			s.releaseLocked(id, b)
			found = true
		}
		return true
	})
	found = s.mergeFastLocked() || found
	s.checkLocked()
	return found
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
