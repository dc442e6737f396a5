package planner

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sizeclass"
)

// arena is the memory of a plan: one block of the Pool, which has a slot for
// each request. Blocks that are not planned lie in slots of their own, the
// strays. The lane's lock guards it. Two rules always hold:
//
//	P1  no two blocks that are live or held share memory, and all of them lie
//	    inside the arena
//	P2  live is the number of live slots, and held has all that are held
type arena struct {
	s      *cupool.Stream // the memory's stream
	mint   cupool.Mint
	memory cupool.Block  // empty: there is none
	lo, hi atomic.Uint64 // bounds of memory, for readers without the lock

	slots     []slot   // by request
	starts    []int64  // layout.starts
	at        []uint32 // by starts: the slot that last began there, +1
	strays    []slot
	strayFree []uint32         // numbers of strays that are idle
	held      map[uint32]*hold // of live blocks that were recorded on other streams, and of held blocks

	live      int   // slots
	liveBytes int64 // in them
	requested int64 // of these, as requested
}

// slot is the place of one block.
type slot struct {
	s         *cupool.Stream
	gen       uint64 // counts the blocks that it has held
	off, end  int64  // in the arena
	requested int64  // bytes
	state     slotState
}

type slotState uint8

const (
	slotIdle slotState = iota
	slotLive
	slotHeld // freed, but another stream may still use it
)

// firstStray is the number of the first slot that is not by request.
const firstStray = 1 << 31

func (a *arena) isEmpty() bool { return a.memory.IsEmpty() }

func (a *arena) size() int64 { return a.memory.Size() }

func (a *arena) set(memory cupool.Block) {
	a.memory = memory
	a.lo.Store(uint64(memory.Ptr()))
	a.hi.Store(uint64(memory.Ptr()) + uint64(memory.Size()))
}

// follow makes room for the requests of a plan that fits the arena.
func (a *arena) follow(pl *layout) {
	if n := len(pl.requests) - len(a.slots); n > 0 {
		a.slots = append(a.slots, make([]slot, n)...)
	}
	a.starts, a.at = pl.starts, make([]uint32, len(pl.starts))
}

func (a *arena) slot(id uint32) *slot {
	if id >= firstStray {
		return &a.strays[id-firstStray]
	}
	return &a.slots[id]
}

func (a *arena) handle(id uint32, sl *slot) cupool.Block {
	return a.mint.Block(a.memory.Ptr()+cupool.Ptr(sl.off), sl.requested, sl.gen, id)
}

// used calls f for every slot that is not idle.
func (a *arena) used(f func(id uint32, sl *slot)) {
	for i := range a.slots {
		if a.slots[i].state != slotIdle {
			f(uint32(i), &a.slots[i])
		}
	}
	for i := range a.strays {
		if a.strays[i].state != slotIdle {
			f(firstStray+uint32(i), &a.strays[i])
		}
	}
}

// serve makes the block of request i live. Its place is free.
func (a *arena) serve(i int32, r *place, size int64, s *cupool.Stream) cupool.Block {
	sl := &a.slots[i]
	sl.gen++
	sl.s, sl.off, sl.end, sl.requested, sl.state = s, r.off, r.off+r.size, size, slotLive
	a.at[r.start] = uint32(i) + 1
	a.live++
	a.liveBytes += r.size
	a.requested += size
	return a.handle(uint32(i), sl)
}

// stray makes a block live in the smallest gap that is large enough, and
// returns its slot's number.
func (a *arena) stray(size int64, s *cupool.Stream) (id uint32, ok bool) {
	rounded := sizeclass.Round(size)
	off, ok := a.gap(rounded)
	if !ok {
		return 0, false
	}
	if len(a.strayFree) == 0 {
		a.strayFree = append(a.strayFree, firstStray+uint32(len(a.strays)))
		a.strays = append(a.strays, slot{})
	}
	n := len(a.strayFree) - 1
	id = a.strayFree[n]
	a.strayFree = a.strayFree[:n]
	sl := a.slot(id)
	*sl = slot{s: s, gen: sl.gen + 1, off: off, end: off + rounded, requested: size, state: slotLive}
	a.live++
	a.liveBytes += rounded
	a.requested += size
	return id, true
}

// gap returns the best fit among the gaps.
func (a *arena) gap(size int64) (best int64, ok bool) {
	for id := range a.held {
		a.release(id)
	}
	var busy []slot
	a.used(func(_ uint32, sl *slot) { busy = append(busy, *sl) })
	busy = append(busy, slot{off: a.size()})
	slices.SortFunc(busy, func(a, b slot) int { return cmp.Compare(a.off, b.off) })
	at, least := int64(0), int64(0)
	for _, b := range busy {
		if gap := b.off - at; gap >= size && (!ok || gap < least) {
			best, least, ok = at, gap, true
		}
		at = b.end
	}
	return best, ok
}

// free ends a block's life. Its memory is held until the streams that it was
// recorded on are done with it.
func (a *arena) free(id uint32, sl *slot) {
	a.live--
	a.liveBytes -= sl.end - sl.off
	a.requested -= sl.requested
	if len(a.held) > 0 && a.held[id] != nil {
		sl.state = slotHeld
		a.release(id)
		return
	}
	a.idle(id, sl)
}

// idle makes a slot's memory free.
func (a *arena) idle(id uint32, sl *slot) {
	sl.state = slotIdle
	if id >= firstStray {
		a.strayFree = append(a.strayFree, id)
	}
}

// use notes that another stream uses a live block.
func (a *arena) use(id uint32, s *cupool.Stream) {
	if a.held == nil {
		a.held = map[uint32]*hold{}
	}
	if a.held[id] == nil {
		a.held[id] = &hold{}
	}
	a.held[id].add(s)
}

// release makes the memory of a held slot free when all streams are done with
// it, and reports whether the slot is idle.
func (a *arena) release(id uint32) bool {
	sl, k := a.slot(id), a.held[id]
	if sl.state != slotHeld || !k.over() {
		return sl.state == slotIdle
	}
	delete(a.held, id)
	a.idle(id, sl)
	return true
}

// heldBlocks returns the number of freed blocks whose memory is held.
func (a *arena) heldBlocks() (n int) {
	for id := range a.held {
		if a.slot(id).state == slotHeld {
			n++
		}
	}
	return n
}

// leaving is memory on its way back to the Pool, with the streams that may
// still use parts of it.
type leaving struct {
	memory cupool.Block
	users  []*cupool.Stream
}

// leave takes the memory out of the arena. Nothing is live in it. Blocks were for
// these streams.
func (a *arena) leave(streams []*cupool.Stream) leaving {
	old := leaving{memory: a.memory}
	if !a.isEmpty() {
		old.users = slices.DeleteFunc(slices.Clone(streams), func(s *cupool.Stream) bool { return s == a.s || s.Closed() })
	}
	for id, k := range a.held {
		old.users = append(old.users, k.leave()...)
		if sl := a.slot(id); sl.state == slotHeld {
			a.idle(id, sl)
		}
	}
	slices.SortFunc(old.users, func(x, y *cupool.Stream) int { return cmp.Compare(x.Handle(), y.Handle()) })
	old.users = slices.Compact(old.users)
	a.held = nil
	a.set(cupool.Block{})
	return old
}

// abandon ends the lives of all blocks and lists them.
func (a *arena) abandon() (leaks []cupool.Leak) {
	a.used(func(_ uint32, sl *slot) {
		if sl.state == slotLive {
			leaks = append(leaks, cupool.Leak{Ptr: a.memory.Ptr() + cupool.Ptr(sl.off), Size: sl.requested, Stream: sl.s.Handle()})
			sl.state = slotIdle
		}
	})
	a.live, a.liveBytes, a.requested = 0, 0, 0
	return leaks
}

// check verifies P1 and P2.
func (a *arena) check() error {
	type numbered struct {
		slot
		id uint32
	}
	var all []numbered
	a.used(func(id uint32, sl *slot) { all = append(all, numbered{*sl, id}) })
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.off, b.off) })
	live, bytes, top := 0, int64(0), int64(0)
	for _, u := range all {
		if u.off < top || u.off < 0 || u.end > a.size() {
			return fmt.Errorf("P1: block %d at %d to %d of an arena of %d bytes, of which %d are taken", u.id, u.off, u.end, a.size(), top)
		}
		top = u.end
		if u.state == slotLive {
			live, bytes = live+1, bytes+u.end-u.off
		} else if a.held[u.id] == nil {
			return fmt.Errorf("P2: block %d is held for no stream", u.id)
		}
	}
	if live != a.live || bytes != a.liveBytes {
		return fmt.Errorf("P2: %d blocks, %d bytes are live; the books say %d, %d", live, bytes, a.live, a.liveBytes)
	}
	return nil
}
