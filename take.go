package cupool

import (
	"math"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/sizeclass"
)

// takeLocked serves a request from the stream's free blocks: a small one
// from the fast bins if it can, and those merge before it fails.
func (s *Stream) takeLocked(size, rounded int64, misses magazine.Misses) (Block, bool) {
	c := s.c
	s.searches++
	if rounded <= c.fastLimit {
		if id, b := s.fast.Pop(rounded); id != 0 {
			return s.outLocked(size, small, id, b, misses), true
		}
	}
	k := c.kindOfSize(rounded)
	id := s.fitLocked(k, rounded)
	if id == 0 && k == small && s.mergeForLocked(rounded) {
		id = s.fitLocked(k, rounded)
	}
	if id == 0 || s.slots.Ensure(1) != nil { // growing finds the same error
		return Block{}, false
	}
	b := c.blocks.At(id)
	s.pools[k].Remove(id, b)
	return s.handOutLocked(size, rounded, id, b, misses), true
}

// fitLocked chooses a free block of at least size bytes, or returns 0.
func (s *Stream) fitLocked(k kind, size int64) block.ID {
	below := s.c.cfg.fitsBelow(k, size)
	if s.c.cfg.Strategy == FirstFit {
		return s.pools[k].FirstFit(size, below)
	}
	id := s.pools[k].BestFit(size)
	if below != math.MaxInt64 && id != 0 && s.c.blocks.At(id).Size >= below {
		return 0
	}
	return id
}

// handOutLocked makes a Free block that is in no set the program's, and
// splits off what is not needed.
func (s *Stream) handOutLocked(size, rounded int64, id block.ID, b *block.Block, misses magazine.Misses) Block {
	c, k := s.c, s.c.kindOfSize(rounded)
	if b.Prev|b.Next != 0 {
		s.noteUnsplit(k, 1, b.Size)
	}
	if b.Size-rounded >= c.minSplit(k) && !c.cfg.isOversize(k, rounded) {
		restID, rest := s.segs[b.Seg].Split(id, b, rounded, &s.slots)
		s.pools[k].Insert(restID, rest)
		s.noteSplit(k, rest.Size)
	}
	c.byAddr[k].Set(b.Addr(), uint32(id))
	return s.outLocked(size, k, id, b, misses)
}

// outLocked makes a block the program's as it is, and homes it when its size
// recurs.
func (s *Stream) outLocked(size int64, k kind, id block.ID, b *block.Block, misses magazine.Misses) Block {
	c, gen := s.c, b.Word().Gen()+1
	b.SetRequested(size)
	b.SetWord(block.MakeWord(gen, block.Live))
	if c.cfg.RecordStacks {
		b.Stack = c.stacks.add(callers(6))
	}
	s.noteOut(k, b.Size, size)
	if s.crossed > 0 {
		s.crossed--
	} else if misses != 0 && b.Size <= c.homeLimit && s.magazine.Recurs(misses, size, k == large) {
		s.giveHomeLocked(id, b) // may merge an evicted block with a rest
	}
	s.checkLocked()
	return newBlock(Ptr(b.Addr()), size, gen, id, c.id)
}

// minSplit returns the smallest rest worth a block of its own, in bytes.
func (c *Caching) minSplit(k kind) int64 {
	switch {
	case c.noSplit:
		return math.MaxInt64
	case k == small || c.vm != nil:
		return sizeclass.Quantum
	}
	return c.cfg.MinSplit
}
