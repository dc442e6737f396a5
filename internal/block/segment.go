package block

import (
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/lock"
)

// A Segment is one contiguous range that came from the device, tiled by
// blocks. Guarded by the lock of the stream that owns it.
type Segment struct {
	Base  uint64 // first address
	Size  int64  // bytes
	First ID     // the block at Base
	Last  ID     // the block at the end
	Large bool   // which of the owner's two pools its blocks belong to
	Index uint32 // in the owner's table, as Block.Seg
	Owner uint32 // index of the owning stream

	// Kept segments were reserved on purpose. They do not go back to the device
	// to make room for others, and serve requests of both kinds.
	Kept bool

	IdleSince uint64 // a tick, when it became one Free block; kept where it matters

	// Virtual segments are address ranges that memory is mapped to piece by
	// piece; they grow at their end. Stitched segments hold one block, on
	// memory that Parts of a virtual segment stand for.
	Virtual, Stitched bool

	Gone bool // removed from the allocator's index, whose lock guards it

	tours []*Tour // that are under way
}

// Shape returns a copy of the segment for those who look at it later.
func (s *Segment) Shape() Segment {
	return Segment{Base: s.Base, Size: s.Size, Large: s.Large, Virtual: s.Virtual, Stitched: s.Stitched}
}

// Begin makes the one block that covers a new segment, Free and in no set.
func (s *Segment) Begin(slots *SlotCache) (ID, *Block) {
	id, b := slots.Take()
	s.First, s.Last = id, id
	s.fill(b, s.Base, s.Size)
	b.Prev, b.Next = 0, 0
	return id, b
}

// Extend makes a segment larger by one Free block at its end, in no set.
func (s *Segment) Extend(size int64, slots *SlotCache) (ID, *Block) {
	if s.Last == 0 {
		s.Size = size
		return s.Begin(slots)
	}
	id, b := slots.Take()
	s.fill(b, s.Base+uint64(s.Size), size)
	b.Prev, b.Next = s.Last, 0
	slots.Table.At(s.Last).Next = id
	s.Last = id
	s.Size += size
	return id, b
}

func (s *Segment) fill(b *Block, addr uint64, size int64) {
	b.addr = addr
	b.Size = size
	b.Seg = s.Index
	b.SetOrigin(0)
	b.SetOwner(s.Owner)
}

// Split cuts a block that is in no set after size bytes and returns the
// rest, Free and in no set. The slot must have been promised by Ensure.
func (s *Segment) Split(id ID, b *Block, size int64, slots *SlotCache) (ID, *Block) {
	restID, rest := slots.Take()
	s.fill(rest, b.Addr()+uint64(size), b.Size-size)
	rest.SetIdleSince(b.IdleSince())
	b.Size = size
	s.split(id, restID, rest)
	rest.Prev, rest.Next = id, b.Next
	if b.Next != 0 {
		slots.Table.At(b.Next).Prev = restID
	} else {
		s.Last = restID
	}
	b.Next = restID
	return restID, rest
}

// Coalesce makes a block Free, merges it with its free neighbours, which
// leave the set, and returns the merged block, in no set, with the number
// and bytes of the neighbours it took in.
func (s *Segment) Coalesce(id ID, b *Block, free *FreeSet, slots *SlotCache) (_ ID, _ *Block, n, bytes int64) {
	t := slots.Table
	b.SetWord(MakeWord(b.Word().Gen(), Free))
	if b.Next != 0 {
		if next := t.At(b.Next); next.Word().State() == Free {
			n, bytes = 1, next.Size
			free.Remove(b.Next, next)
			s.absorb(id, b, b.Next, next, slots)
		}
	}
	if b.Prev != 0 {
		if prev := t.At(b.Prev); prev.Word().State() == Free {
			n, bytes = n+1, bytes+prev.Size
			prevID := b.Prev
			free.Remove(prevID, prev)
			s.absorb(prevID, prev, id, b, slots)
			return prevID, prev, n, bytes
		}
	}
	return id, b, n, bytes
}

// absorb joins next to its left neighbour b and gives its slot back.
func (s *Segment) absorb(id ID, b *Block, nextID ID, next *Block, slots *SlotCache) {
	b.Size += next.Size
	s.joined(id, nextID)
	b.Next = next.Next
	if next.Next != 0 {
		slots.Table.At(next.Next).Prev = id
	} else {
		s.Last = id
	}
	slots.Put(nextID, next)
}

// IsWhollyFree reports whether one free block covers the segment.
func (s *Segment) IsWhollyFree(t *Table) bool { return t.At(s.First).IsWhole() }

// IsWhole reports whether the block is free and covers its segment.
func (b *Block) IsWhole() bool { return b.Prev|b.Next == 0 && b.Word().State() == Free }

// Find returns the block that holds the address, which must be inside.
func (s *Segment) Find(t *Table, addr uint64) (ID, *Block) {
	for id := s.First; id != 0; {
		b := t.At(id)
		if addr-b.Addr() < uint64(b.Size) {
			return id, b
		}
		id = b.Next
	}
	return 0, nil
}

// Each calls fn for every block in address order.
func (s *Segment) Each(t *Table, fn func(ID, *Block)) {
	for id := s.First; id != 0; {
		if lock.Invariants {
			step(Looking)
		}
		b := t.At(id)
		next := b.Next
		fn(id, b)
		id = next
	}
}

// Layout prints the blocks in address order: "[Live 2M][Free 18M]".
func (s *Segment) Layout(t *Table) string {
	var sb strings.Builder
	s.Each(t, func(_ ID, b *Block) { fmt.Fprintf(&sb, "[%s]", b) })
	return sb.String()
}

// Check verifies rules B1, B2, B4 and B5, the fourth for a unit in bytes.
func (s *Segment) Check(t *Table, unit int64) error {
	at, prev, prevFree := s.Base, ID(0), false
	for id := s.First; id != 0; {
		b := t.At(id)
		free := b.Word().State() == Free
		switch {
		case b.Addr() != at || b.Prev != prev:
			return fmt.Errorf("B1: block %d (%s) at 0x%x after block %d, want 0x%x after %d", id, b, b.Addr(), b.Prev, at, prev)
		case free && prevFree:
			return fmt.Errorf("B2: blocks %d and %d are neighbours and both free", prev, id)
		case b.Size <= 0 || b.Size%unit != 0 || at%uint64(unit) != 0:
			return fmt.Errorf("B4: block %d has address 0x%x, size %d", id, at, b.Size)
		case b.Seg != s.Index || b.Owner() != s.Owner:
			return fmt.Errorf("B5: block %d (%s) says segment %d of stream %d, is in %d of %d", id, b, b.Seg, b.Owner(), s.Index, s.Owner)
		}
		at, prev, prevFree = at+uint64(b.Size), id, free
		id = b.Next
	}
	if at != s.Base+uint64(s.Size) || prev != s.Last {
		return fmt.Errorf("B1: blocks end at 0x%x, the segment at 0x%x", at, s.Base+uint64(s.Size))
	}
	return nil
}
