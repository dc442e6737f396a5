package cupool

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/invariant"
	"github.com/cupool/cupool/internal/sizeclass"
)

// lane is a stream's part of a Planner: its plan, the arena that it fills,
// and where the iteration has got to. The rules that always hold:
//
//	P1  no two blocks of the arena that are live or Held share memory, and
//	    all of them lie inside
//	P2  live is the number of live slots, and held has all that are Held
//	P3  while serving, whatever is live or Held is planned and has not come
//	    to its recorded death, or is listed in overdue
//
// What makes P1 hold is P3: in the plan blocks overlap in memory only when
// they do not in time, so a request can meet nothing but what lives on
// beyond its time, and that is looked through before every hit.
type lane struct {
	p  *Planner
	s  *Stream
	id uint32 // in place of the pool's number in handles

	recording atomic.Bool   // rec != nil
	lo, hi    atomic.Uint64 // bounds of the arena

	mu      sync.Mutex // taken before any lock of the Caching
	serving bool
	cursor  int32 // of the next request, in plan
	due     int32 // of the next death, in plan
	plan    *layout
	slots   []slot   // by request
	at      []uint32 // by layout.starts: the slot that last began there, +1
	overdue []uint32 // slots that may live beyond their time

	arena     Block
	live      int // slots
	liveBytes int64
	requested int64  // live bytes, as requested
	strays    []slot // what went into the arena unplanned
	strayFree []uint32
	held      map[uint32]*hold

	rec      *recording // of the iteration in progress
	last     *recording // the last one that was complete
	seen     int        // how often last came in a row
	proven   bool       // the plan has served a whole iteration
	missed   int        // iterations in a row that deviated
	retire   bool       // give the arena back as soon as nothing lives in it
	pressed  bool       // the Caching has had no memory in this iteration
	next     *layout    // to be installed
	refused  int        // times that there was no memory for next
	skip     int        // iterations before trying again
	solving  chan struct{}
	solvedOf *recording // what solving is about
	find     *detector  // nil: iterations are told
	stats    laneStats
	closed   bool
}

// slot is the place of one block in the arena.
type slot struct {
	gen       uint64 // counts the blocks that it has held
	off, end  int64  // in the arena
	requested int64
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

func (l *lane) slot(id uint32) *slot {
	if id >= firstStray {
		return &l.strays[id-firstStray]
	}
	return &l.slots[id]
}

func (l *lane) handle(id uint32, sl *slot) Block {
	return newBlock(l.arena.ptr+Ptr(sl.off), sl.requested, sl.gen, block.ID(id), l.id)
}

// serveLocked serves the next request of the iteration from its place. It
// returns false when the request is not planned, or not as planned.
func (l *lane) serveLocked(size int64) (Block, bool) {
	pl, i := l.plan, l.cursor
	if i == int32(len(pl.requests)) && l.find != nil {
		l.wrapLocked()
		i = 0
	}
	if !l.usable() {
		return Block{}, false
	}
	if i == int32(len(pl.requests)) {
		return l.deviateLocked(size, "the iteration had no more requests")
	}
	r := &pl.requests[i]
	if r.size != sizeclass.Round(size) {
		return l.deviateLocked(size, "another size was recorded")
	}
	l.sweepLocked(i)
	if r.off == passedThrough {
		l.cursor++
		return Block{}, false
	}
	if len(l.overdue) > 0 && l.inUseLocked(r.off, r.off+r.size) {
		return l.deviateLocked(size, "its memory is still in use")
	}
	sl := &l.slots[i]
	if sl.state != slotIdle && !l.releaseLocked(uint32(i)) { // by a plan before this one
		return l.deviateLocked(size, "its memory is still in use")
	}
	l.cursor++
	sl.gen++
	sl.off, sl.end, sl.requested, sl.state = r.off, r.off+r.size, size, slotLive
	l.at[r.start] = uint32(i) + 1
	l.live++
	l.liveBytes += r.size
	l.requested += size
	l.stats.hits++
	if invariant.Enabled {
		l.mustCheckLocked()
	}
	return l.handle(uint32(i), sl), true
}

// usable reports whether anything can be allocated on the stream.
func (l *lane) usable() bool {
	return !l.closed && l.s.heir.Load() == nil && !l.p.c.closed.Load() && l.p.c.lost.Load() == nil && !l.p.c.sleep.asleep.Load()
}

// sweepLocked lists the blocks that should have died before request i and
// have not.
func (l *lane) sweepLocked(i int32) {
	deaths := l.plan.deaths
	for ; int(l.due) < len(deaths) && deaths[l.due].at <= i; l.due++ {
		if k := deaths[l.due].request; l.slots[k].state != slotIdle {
			l.overdue = append(l.overdue, uint32(k))
		}
	}
}

// maxOverdue bounds the list that every hit looks through.
const maxOverdue = 256

// inUseLocked reports whether anything that is overdue holds memory of the
// range.
func (l *lane) inUseLocked(off, end int64) bool {
	if len(l.overdue) > maxOverdue {
		return true
	}
	for k := 0; k < len(l.overdue); {
		id := l.overdue[k]
		sl := l.slot(id)
		if sl.state != slotIdle && sl.off < end && off < sl.end && !l.releaseLocked(id) {
			return true
		}
		if sl.state != slotIdle {
			k++
			continue
		}
		n := len(l.overdue) - 1
		l.overdue[k] = l.overdue[n]
		l.overdue = l.overdue[:n]
	}
	return false
}

// deviateLocked ends the service by the plan for this iteration.
func (l *lane) deviateLocked(size int64, why string) (Block, bool) {
	l.stats.deviations++
	l.stats.last = Deviation{Stream: l.s.handle, Request: int(l.cursor), Size: size, Reason: why}
	if int(l.cursor) < len(l.plan.requests) {
		l.stats.last.Recorded = l.plan.requests[l.cursor].size
	}
	l.p.c.cfg.Logger.Debug("planned iteration deviates", "deviation", l.stats.last)
	l.serving = false
	l.record(l.resumeLocked())
	if l.find != nil {
		l.find.deviated(l)
		l.plan, l.retire = nil, true
	}
	return Block{}, false
}

// ticket is a request that is passed through.
type ticket struct {
	rec     *recording // nil: it is not recorded
	request int64      // in rec
	pressed bool
}

// missLocked notes a request that the plan does not serve.
func (l *lane) missLocked(size int64) ticket {
	l.stats.passed++
	t := ticket{rec: l.rec, pressed: l.pressed}
	switch {
	case l.rec == nil:
	case l.find != nil:
		t.request = l.rec.add(sizeclass.Round(size), math.MaxInt)
		l.find.note(l)
	default:
		t.request = l.rec.add(sizeclass.Round(size), l.p.cfg.MaxRequests)
	}
	return t
}

// pass serves a request through the Caching, or, when that has no memory,
// from what lies idle in the arenas.
func (l *lane) pass(size int64, t ticket) (h Block, err error) {
	c, ok := l.p.c, false
	if t.pressed {
		h, ok = l.stray(size)
	}
	if !ok {
		if l.p.closed.Load() {
			return Block{}, l.p.closedError("allocation")
		}
		h, err = c.Alloc(size, l.s)
	}
	if isFull(err) {
		h, err = l.rescue(size, err)
	}
	if t.rec != nil {
		l.noteAlloc(t, h, err)
	}
	return h, err
}

// free takes a planned block back.
func (l *lane) free(h Block) error {
	l.mu.Lock()
	sl, err := l.findLocked("free", h, ErrDoubleFree)
	if err != nil {
		l.mu.Unlock()
		return err
	}
	id := uint32(h.id())
	l.live--
	l.liveBytes -= sl.end - sl.off
	l.requested -= sl.requested
	if l.rec != nil {
		l.rec.noteArenaFree(h)
	}
	if len(l.held) > 0 && l.held[id] != nil {
		l.holdLocked(id, sl)
	} else {
		l.idleLocked(id, sl)
	}
	var old arena
	if l.retire && l.live == 0 {
		old = l.takeArenaLocked()
	}
	if invariant.Enabled {
		l.mustCheckLocked()
	}
	l.mu.Unlock()
	return l.p.giveBack(old)
}

// idleLocked makes a slot's memory free.
func (l *lane) idleLocked(id uint32, sl *slot) {
	sl.state = slotIdle
	if id >= firstStray {
		l.strayFree = append(l.strayFree, id)
	}
}

// findLocked returns the live slot of a handle. Its error is that of the
// Caching for a handle of its own in the same case.
func (l *lane) findLocked(op string, h Block, gone error) (*slot, error) {
	id := uint32(h.id())
	known := id < uint32(len(l.slots)) || id >= firstStray && id-firstStray < uint32(len(l.strays))
	switch {
	case l.closed || l.p.c.closed.Load():
		return nil, l.p.c.blockError(op, h, nil, ErrClosed)
	case !known:
		return nil, l.p.c.blockError(op, h, nil, ErrForeignPointer)
	}
	sl := l.slot(id)
	if sl.gen != h.gen || sl.state != slotLive {
		if sl.gen != h.gen && gone == ErrDoubleFree {
			gone = ErrStaleBlock
		}
		return nil, l.p.c.blockError(op, h, l.s, gone)
	}
	return sl, nil
}

// recordStream notes that another stream uses a block of the arena.
func (l *lane) recordStream(h Block, s *Stream) error {
	if s.c != l.p.c.family.root {
		return l.p.c.blockError("record stream", h, s, ErrForeignStream)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.findLocked("record stream", h, ErrUseAfterFree); err != nil {
		return err
	}
	if s == l.s.base {
		return nil // ordered already
	}
	id := uint32(h.id())
	if l.held == nil {
		l.held = map[uint32]*hold{}
	}
	if l.held[id] == nil {
		l.held[id] = &hold{}
	}
	if k := l.held[id]; !slices.Contains(k.streams, s) {
		k.streams = append(k.streams, s)
	}
	if l.serving {
		l.deviateLocked(h.size, fmt.Sprintf("request %d is used on stream 0x%x", id, uintptr(s.handle)))
	}
	if l.rec != nil {
		l.rec.noteArenaUse(h)
	}
	return nil
}
