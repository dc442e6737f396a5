package cupool

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cupool/cupool/internal/sizeclass"
)

// isFull reports whether an allocation failed for lack of memory.
func isFull(err error) bool { return err != nil && errors.Is(err, ErrOutOfMemory) }

// arena is memory on its way back to the Caching, with the streams that may
// still use parts of it.
type arena struct {
	block Block
	users []*Stream
}

// giveBack frees an arena. No lane's lock is held.
func (p *Planner) giveBack(a arena) error {
	if a.block.IsEmpty() || p.c.closed.Load() {
		return nil
	}
	for _, u := range a.users {
		if err := p.c.RecordStream(a.block, u); err != nil {
			return err
		}
	}
	return p.c.Free(a.block)
}

// takeArenaLocked takes the arena away from the lane. Nothing is live in it.
func (l *lane) takeArenaLocked() arena {
	a := arena{block: l.arena}
	for id, k := range l.held {
		a.users = append(append(a.users, k.streams...), k.leave()...)
		if sl := l.slot(id); sl.state == slotHeld {
			l.idleLocked(id, sl)
		}
	}
	slices.SortFunc(a.users, func(x, y *Stream) int { return cmp.Compare(x.index, y.index) })
	a.users = slices.Compact(a.users)
	l.held, l.retire = nil, false
	l.setArena(Block{})
	return a
}

func (l *lane) setArena(h Block) {
	l.arena = h
	l.lo.Store(uint64(h.ptr))
	l.hi.Store(uint64(h.ptr) + uint64(h.size))
}

// install gets memory for the plans that are ready and makes them the
// lanes'. What the Caching holds idle goes back to the device, so that no
// more is reserved than was while recording, or than the plans take: with
// segments before, with virtual memory after the arenas were made of it.
func (p *Planner) install(lanes []*lane) error {
	var ready []*lane
	var errs []error
	for _, l := range lanes {
		old, ok := l.makeRoom()
		if ok {
			ready = append(ready, l)
		}
		errs = append(errs, p.giveBack(old))
	}
	if len(ready) == 0 {
		return errors.Join(errs...)
	}
	trim := func(virtual bool) {
		if (p.c.vm != nil) == virtual {
			_, err := p.c.Trim(0)
			errs = append(errs, err)
		}
	}
	trim(false)
	for _, l := range ready {
		errs = append(errs, l.install())
	}
	trim(true)
	return errors.Join(errs...)
}

// slack is the part of an arena that a smaller plan may leave unused.
const slack = 64

// makeRoom prepares the lane for its next plan: it goes into the arena that
// is there, or this is taken away and a new one wanted.
func (l *lane) makeRoom() (old arena, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.next == nil || l.closed:
		return arena{}, false
	case l.skip > 0:
		l.skip--
		return arena{}, false
	case !l.arena.IsEmpty() && l.next.height <= l.arena.size && (l.live > 0 || l.arena.size-l.next.height <= l.arena.size/slack):
		l.adoptLocked(l.next)
		return arena{}, false
	case l.live > 0:
		return arena{}, false // another time: two arenas would be too much
	}
	l.plan, l.serving = nil, false
	return l.takeArenaLocked(), true
}

// install allocates the arena for the next plan. It returns no error when
// there is no memory.
func (l *lane) install() error {
	l.mu.Lock()
	pl := l.next
	l.mu.Unlock()
	if pl == nil {
		return nil
	}
	h, err := l.p.c.Alloc(pl.height, l.s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.skip = 1 << min(l.refused, 10)
		l.refused++
		if isFull(err) {
			return nil
		}
		return err
	}
	l.setArena(h)
	l.adoptLocked(pl)
	return nil
}

// adoptLocked makes a plan the one to serve by. It fits the arena.
func (l *lane) adoptLocked(pl *layout) {
	l.plan, l.next, l.proven, l.missed, l.retire, l.refused = pl, nil, false, 0, false, 0
	if n := len(pl.requests) - len(l.slots); n > 0 {
		l.slots = append(l.slots, make([]slot, n)...)
	}
	l.at = make([]uint32, len(pl.starts))
	l.stats.plans++
}

// rescue serves a request for which the Caching has no memory: from arenas
// that nothing lives in, or from what is idle in the stream's own.
func (l *lane) rescue(size int64, refused error) (Block, error) {
	freed := false
	for _, o := range *l.p.lanes.Load() {
		freed = o.relinquish() || freed
	}
	if freed {
		if h, err := l.p.c.Alloc(size, l.s); !isFull(err) {
			return h, err
		}
	}
	l.mu.Lock()
	l.pressed = true
	l.mu.Unlock()
	if h, ok := l.stray(size); ok {
		return h, nil
	}
	return Block{}, refused
}

// relinquish gives an arena back in which nothing lives, and reports whether
// there was one. The plan is installed again when its time comes.
func (l *lane) relinquish() bool {
	l.mu.Lock()
	if l.arena.IsEmpty() || l.live > 0 || l.serving && l.cursor > 0 {
		l.mu.Unlock()
		return false
	}
	if l.serving {
		l.serving = false
		l.record(newRecording(nil))
	}
	if l.find != nil {
		l.find.reset()
	} else if l.next == nil {
		l.next = l.plan
	}
	l.plan = nil
	l.skip = 1 << min(l.refused, 10)
	l.refused++
	old := l.takeArenaLocked()
	l.mu.Unlock()
	return l.p.giveBack(old) == nil
}

// stray serves an unplanned request from idle memory of the arena: the
// smallest gap that is large enough. Later requests of the plan that need
// the memory will find it in use.
func (l *lane) stray(size int64) (Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arena.IsEmpty() || !l.usable() {
		return Block{}, false
	}
	rounded := sizeclass.Round(size)
	off, ok := l.gapLocked(rounded)
	if !ok {
		return Block{}, false
	}
	if len(l.strayFree) == 0 {
		l.strayFree = append(l.strayFree, firstStray+uint32(len(l.strays)))
		l.strays = append(l.strays, slot{})
	}
	n := len(l.strayFree) - 1
	id := l.strayFree[n]
	l.strayFree = l.strayFree[:n]
	sl := l.slot(id)
	*sl = slot{gen: sl.gen + 1, off: off, end: off + rounded, requested: size, state: slotLive}
	l.live++
	l.liveBytes += rounded
	l.requested += size
	l.stats.strays++
	if l.serving {
		l.overdue = append(l.overdue, id)
	}
	return l.handle(id, sl), true
}

// gapLocked returns the best fit among the gaps of the arena.
func (l *lane) gapLocked(size int64) (best int64, ok bool) {
	for id := range l.held {
		l.releaseLocked(id)
	}
	var busy []slot
	for _, list := range [...][]slot{l.slots, l.strays} {
		for i := range list {
			if list[i].state != slotIdle {
				busy = append(busy, list[i])
			}
		}
	}
	busy = append(busy, slot{off: l.arena.size})
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

// hold is what keeps a freed block's memory from being used: streams that
// may still use it.
type hold struct {
	streams []*Stream // before an event was recorded
	events  []*Event
}

// holdLocked keeps the memory of a freed block for the streams that use it.
func (l *lane) holdLocked(id uint32, sl *slot) {
	sl.state = slotHeld
	l.releaseLocked(id)
}

// releaseLocked makes the memory of a held slot free when all streams are
// done with it, and reports whether it is free.
func (l *lane) releaseLocked(id uint32) bool {
	sl, k := l.slot(id), l.held[id]
	if sl.state != slotHeld || !k.over() {
		return sl.state == slotIdle
	}
	delete(l.held, id)
	l.idleLocked(id, sl)
	return true
}

// over reports whether all streams are done. Where no event can be recorded
// or asked about, they are not.
func (k *hold) over() bool {
	k.streams = slices.DeleteFunc(k.streams, func(s *Stream) bool {
		if s.heir.Load() != nil {
			return true // closed, and so done
		}
		e, err := s.Record()
		if err == nil {
			k.events = append(k.events, e)
		}
		return err == nil
	})
	k.events = slices.DeleteFunc(k.events, func(e *Event) bool {
		done := e.s.heir.Load() != nil
		if !done {
			done, _ = e.Done()
		}
		return done && e.Close() == nil
	})
	return len(k.streams) == 0 && len(k.events) == 0
}

// leave closes the events and returns their streams.
func (k *hold) leave() (users []*Stream) {
	for _, e := range k.events {
		users = append(users, e.s)
		_ = e.Close()
	}
	return users
}
