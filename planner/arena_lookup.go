package planner

import (
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/blockerr"
)

// holds reports whether an address lies in the arena. It needs no lock.
func (a *arena) holds(p cupool.Ptr) bool {
	lo := a.lo.Load()
	return lo != 0 && lo <= uint64(p) && uint64(p) < a.hi.Load()
}

// find returns the live slot of a handle that the arena made. It fails as the
// Pool fails for its own handles. For a block that was freed the error is gone.
func (a *arena) find(op string, h cupool.Block, gone error) (uint32, *slot, error) {
	id, gen, _ := a.mint.Open(h)
	if id >= uint32(len(a.slots)) && (id < firstStray || id-firstStray >= uint32(len(a.strays))) {
		return 0, nil, blockerr.Of(op, h, nil, cupool.ErrForeignPointer)
	}
	sl := a.slot(id)
	if sl.gen != gen || sl.state != slotLive {
		return 0, nil, blockerr.Of(op, h, sl.s, blockerr.Gone(gone, sl.gen != gen))
	}
	return id, sl, nil
}

// lookup returns what the arena has at one of its addresses.
func (a *arena) lookup(p cupool.Ptr) blockerr.At {
	at := blockerr.At{Ptr: p, Stream: a.s, Ours: true}
	off := int64(p - a.memory.Ptr())
	id, began := a.beginsAt(off)
	if id < 0 {
		id = a.around(off)
	}
	if at.Began = began; id >= 0 {
		at.Live = a.handle(uint32(id), a.slot(uint32(id)))
	}
	return at
}

// beginsAt returns the slot of the live planned block that begins at an offset,
// or -1, and whether blocks do begin there.
func (a *arena) beginsAt(off int64) (id int64, begins bool) {
	for i := range a.strays {
		begins = begins || a.strays[i].off == off
	}
	k, ok := slices.BinarySearch(a.starts, off)
	if !ok || a.at[k] == 0 {
		return -1, begins || ok
	}
	if sl := &a.slots[a.at[k]-1]; sl.state == slotLive && sl.off == off {
		return int64(a.at[k] - 1), true
	}
	return -1, true
}

// around returns the slot of the live block that holds an offset, or -1.
func (a *arena) around(off int64) int64 {
	holds := func(sl slot) bool { return sl.state == slotLive && sl.off <= off && off < sl.end }
	if i := slices.IndexFunc(a.slots, holds); i >= 0 {
		return int64(i)
	}
	if i := slices.IndexFunc(a.strays, holds); i >= 0 {
		return firstStray + int64(i)
	}
	return -1
}
