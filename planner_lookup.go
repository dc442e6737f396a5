package cupool

import (
	"fmt"
	"slices"
)

// laneAt returns the lane in whose arena an address lies, or nil.
func (p *Planner) laneAt(ptr Ptr) *lane {
	for _, l := range *p.lanes.Load() {
		if lo := l.lo.Load(); lo != 0 && lo <= uint64(ptr) && uint64(ptr) < l.hi.Load() {
			return l
		}
	}
	return nil
}

// FreePtr implements Allocator.
func (p *Planner) FreePtr(ptr Ptr, size int64) error {
	if l := p.laneAt(ptr); l != nil {
		return l.freePtr(ptr, size)
	}
	if ptr != 0 && p.isRecording() {
		if h, err := p.c.lookup("free", ptr, size, true); err == nil && (size < 0 || size == h.size) {
			return p.Free(h)
		}
	}
	return p.c.FreePtr(ptr, size)
}

func (p *Planner) isRecording() bool {
	return slices.ContainsFunc(*p.lanes.Load(), func(l *lane) bool { return l.recording.Load() })
}

// Lookup implements Allocator.
func (p *Planner) Lookup(ptr Ptr) (Block, error) {
	l := p.laneAt(ptr)
	if l == nil {
		return p.c.Lookup(ptr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lookupLocked("look-up", ptr, -1, false)
}

func (l *lane) freePtr(ptr Ptr, size int64) error {
	l.mu.Lock()
	h, err := l.lookupLocked("free", ptr, size, true)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if size >= 0 && size != h.size {
		return &BlockError{Op: "free", Ptr: ptr, Size: size, Stream: l.s.handle, Err: ErrSizeMismatch, Detail: fmt.Sprintf("%d bytes were allocated there", h.size)}
	}
	return l.free(h)
}

// lookupLocked finds the live block of the arena at an address or, unless
// exact, around it.
func (l *lane) lookupLocked(op string, ptr Ptr, size int64, exact bool) (Block, error) {
	fail := func(reason error, detail string) (Block, error) {
		return Block{}, &BlockError{Op: op, Ptr: ptr, Size: size, Stream: l.s.handle, Err: reason, Detail: detail}
	}
	if l.closed || l.p.c.closed.Load() {
		return fail(ErrClosed, "the allocator is closed")
	}
	off := int64(ptr - l.arena.ptr)
	id, begins := l.beginsAtLocked(off)
	if id < 0 {
		id = l.aroundLocked(off)
	}
	switch {
	case id < 0 && !exact:
		return fail(ErrUseAfterFree, "no block is live there")
	case id < 0 && begins:
		return fail(ErrDoubleFree, "no block is live there")
	case id < 0:
		return fail(ErrForeignPointer, "it is inside memory of a plan that is not live")
	}
	sl := l.slot(uint32(id))
	if exact && sl.off != off {
		return fail(ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", off-sl.off, l.arena.ptr+Ptr(sl.off), sl.requested))
	}
	return l.handle(uint32(id), sl), nil
}

// beginsAtLocked returns the slot of the live planned block that begins at
// an offset, or -1, and whether blocks do begin there.
func (l *lane) beginsAtLocked(off int64) (id int64, begins bool) {
	for i := range l.strays {
		begins = begins || l.strays[i].off == off
	}
	if l.plan == nil {
		return -1, begins
	}
	k, ok := slices.BinarySearch(l.plan.starts, off)
	if !ok || l.at[k] == 0 {
		return -1, begins || ok
	}
	if sl := &l.slots[l.at[k]-1]; sl.state == slotLive && sl.off == off {
		return int64(l.at[k] - 1), true
	}
	return -1, true
}

// aroundLocked returns the slot of the live block that holds an offset, or
// -1.
func (l *lane) aroundLocked(off int64) int64 {
	holds := func(sl slot) bool { return sl.state == slotLive && sl.off <= off && off < sl.end }
	if i := slices.IndexFunc(l.slots, holds); i >= 0 {
		return int64(i)
	}
	if i := slices.IndexFunc(l.strays, holds); i >= 0 {
		return firstStray + int64(i)
	}
	return -1
}
