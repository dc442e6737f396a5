package cupool

import (
	"slices"

	"github.com/cupool/cupool/internal/magazine"
)

// Places of streams.
//
// Blocks and vector clocks name a stream by its place in Caching.streams. So
// that programs may make a stream for each request, a new one takes the place
// of one that is closed and of which nothing is left. What named the old one
// then names the new one, and that is safe: epochs go on where the old one's
// ended, all of which are over, and blocks that were recorded on the old one
// wait for the new one when they are freed.

// lateEpochs is how many epochs calls that were under way may have closed on a
// stream after its Close.
const lateEpochs = 1 << 20

// vacantLocked returns the first place of a stream that is closed and holds
// nothing, or else a new one; streamsMu of the root is held.
func (c *Caching) vacantLocked() uint32 {
	list := *c.streams.Load()
	for i, s := range list {
		if s.over.Load() && c.family.isVacant(i) {
			return uint32(i)
		}
	}
	return uint32(len(list))
}

// isVacant reports whether no member has memory of the closed stream at a place.
func (f *family) isVacant(i int) bool {
	return !slices.ContainsFunc(f.list(), func(m *Caching) bool {
		list := *m.streams.Load()
		return i < len(list) && !list[i].vacate()
	})
}

// vacate reports whether a stream is closed and holds nothing any more, and
// gives back the slots of blocks that it kept for more then.
func (s *Stream) vacate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heir.Load() == nil || len(s.homes[small])+len(s.homes[large])+len(s.leaving) > 0 {
		return false
	}
	for _, seg := range s.segs {
		if seg != nil {
			return false
		}
	}
	s.slots.Drain()
	return true
}

// placeLocked makes a stream and puts it in a place, which is vacant or the
// next one; streamsMu is held. The books of who had the place go on in the new
// one's, as only their sum means anything.
func (c *Caching) placeLocked(at uint32, h StreamHandle, adopted bool) *Stream {
	list := append(slices.Clone(*c.streams.Load()), nil)
	s := &Stream{c: c, handle: h, index: at, adopted: adopted, magazine: magazine.New(&c.blocks, at, c.procs)}
	s.findBase()
	s.slots.Table, s.fast.Table = &c.blocks, &c.blocks
	for k := range s.pools {
		s.pools[k].Table = &c.blocks
	}
	s.clock.tick.Store(1)
	c.books.mu.Lock()
	defer c.books.mu.Unlock()
	if old := list[at]; old != nil {
		s.succeed(old)
		list = list[:len(list)-1]
	}
	list[at] = s
	c.streams.Store(&list)
	c.books.shares.Add(1) // the room was shared out among others
	return s
}

// succeed makes a stream that nobody knows yet go on where another ended.
func (s *Stream) succeed(old *Stream) {
	for k := range s.ledger.pools {
		for q := range s.ledger.pools[k] {
			x, was := &s.ledger.pools[k][q], &old.ledger.pools[k][q]
			x.add(was.added.Load())
			x.take(was.taken.Load())
		}
	}
	over := old.clock.tick.Load() + lateEpochs
	s.clock.tick.Store(over + 1)
	s.clock.done.Store(over)
}
