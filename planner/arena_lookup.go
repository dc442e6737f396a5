package planner

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
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
		return 0, nil, blockError(op, h, nil, cupool.ErrForeignPointer)
	}
	sl := a.slot(id)
	if sl.gen != gen || sl.state != slotLive {
		if sl.gen != gen && gone == cupool.ErrDoubleFree {
			gone = cupool.ErrStaleBlock
		}
		return 0, nil, blockError(op, h, sl.s, gone)
	}
	return id, sl, nil
}

// lookup finds the live block at an address of the arena or, unless exact,
// around it.
func (a *arena) lookup(op string, p cupool.Ptr, size int64, exact bool) (cupool.Block, error) {
	fail := func(reason error, detail string) (cupool.Block, error) {
		return cupool.Block{}, &cupool.BlockError{Op: op, Ptr: p, Size: size, Stream: a.s.Handle(), Err: reason, Detail: detail}
	}
	off := int64(p - a.memory.Ptr())
	id, begins := a.beginsAt(off)
	if id < 0 {
		id = a.around(off)
	}
	switch {
	case id < 0 && !exact:
		return fail(cupool.ErrUseAfterFree, "no block is live there")
	case id < 0 && begins:
		return fail(cupool.ErrDoubleFree, "no block is live there")
	case id < 0:
		return fail(cupool.ErrForeignPointer, "it is inside memory of a plan that is not live")
	}
	sl := a.slot(uint32(id))
	if exact && sl.off != off {
		return fail(cupool.ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", off-sl.off, a.memory.Ptr()+cupool.Ptr(sl.off), sl.requested))
	}
	return a.handle(uint32(id), sl), nil
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

// details explain the errors of calls on blocks.
var details = map[error]string{
	cupool.ErrForeignPointer: "the block was allocated by another allocator",
	cupool.ErrStaleBlock:     "its memory has been handed out again since; that block was left alone",
	cupool.ErrDoubleFree:     "the block was freed before",
	cupool.ErrUseAfterFree:   "the block was freed before",
	cupool.ErrForeignStream:  "the stream was made by another allocator",
	cupool.ErrClosed:         "the allocator is closed",
}

// blockError describes a wrong call on a block. s is the stream that the call
// names, or nil.
func blockError(op string, h cupool.Block, s *cupool.Stream, reason error) error {
	e := &cupool.BlockError{Op: op, Ptr: h.Ptr(), Size: h.Size(), Err: reason, Detail: details[reason]}
	if s != nil {
		e.Stream = s.Handle()
	}
	return e
}
