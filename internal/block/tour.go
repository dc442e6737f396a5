package block

import (
	"slices"

	"github.com/cupool/cupool/internal/lock"
)

// A Tour looks at the blocks of a segment in portions, by address. Between two of them the
// segment's lock may be given away: splits and merges keep the place. Several tours of a
// segment may be under way. The zero Tour is of no segment.
type Tour struct {
	seg *Segment
	at  uint64 // what is below was looked at
	id  ID     // the block that holds at
}

// Begin begins a tour of a segment. The tour ends by its last portion, or by End.
func (t *Tour) Begin(s *Segment) {
	*t = Tour{s, s.Base, s.First}
	s.tours = append(s.tours, t)
}

// Goes reports whether the tour has begun and not ended.
func (t *Tour) Goes() bool { return t.seg != nil }

// End ends a tour that has begun.
func (t *Tour) End() {
	if s := t.seg; s != nil {
		s.tours = slices.DeleteFunc(s.tours, func(o *Tour) bool { return o == t })
		*t = Tour{}
	}
}

// Next calls fn for at most n of the blocks that come next. It returns how many came, and
// ends the tour after the last block of the segment. The first block may begin below the
// place where the portion before ended, when it merged with memory there.
func (t *Tour) Next(blocks *Table, n int, fn func(ID, *Block)) (came int, done bool) {
	for ; came < n && t.id != 0; came++ {
		if lock.Invariants {
			step(Looking)
		}
		b := blocks.At(t.id)
		fn(t.id, b)
		t.id, t.at = b.Next, b.Addr()+uint64(b.Size)
	}
	if t.id != 0 {
		return came, false
	}
	t.End()
	return came, true
}

// EndTours ends the tours of a segment that goes away.
func (s *Segment) EndTours() {
	for _, t := range s.tours {
		*t = Tour{}
	}
	s.tours = nil
}

// split moves the tours that are in the part of a block which another one has from now on.
func (s *Segment) split(id, restID ID, rest *Block) {
	for _, t := range s.tours {
		if t.id == id && rest.Addr() <= t.at {
			t.id = restID
		}
	}
}

// joined moves the tours that are in a block to the one that took it in.
func (s *Segment) joined(id, nextID ID) {
	for _, t := range s.tours {
		if t.id == nextID {
			t.id = id
		}
	}
}
