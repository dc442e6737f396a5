package cupool

// begin starts an iteration: by the plan when there is one, else recorded.
func (l *lane) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pressed = false
	if l.plan == nil || l.arena.IsEmpty() || l.retire {
		l.record(newRecording(nil))
		return
	}
	l.serveFromStartLocked()
}

// serveFromStartLocked has the plan serve from its first request on.
func (l *lane) serveFromStartLocked() {
	l.serving, l.cursor, l.due, l.pressed = true, 0, 0, false
	l.record(nil)
	l.overdue = l.overdue[:0]
	if l.live == 0 && len(l.held) == 0 {
		return
	}
	for i := range l.slots {
		if l.slots[i].state != slotIdle {
			l.overdue = append(l.overdue, uint32(i))
		}
	}
	for i := range l.strays {
		if l.strays[i].state != slotIdle {
			l.overdue = append(l.overdue, firstStray+uint32(i))
		}
	}
}

// dropAfter is how many iterations in a row may deviate from a plan that has
// served before it is given up.
const dropAfter = 3

// end ends an iteration and decides what becomes of the plan.
func (l *lane) end() {
	l.mu.Lock()
	if l.s.heir.Load() != nil { // closed: there will be no other
		l.record(nil)
		l.next, l.last, l.solvedOf = nil, nil, nil
		old := l.dropLocked()
		l.mu.Unlock()
		_ = l.p.giveBack(old)
		return
	}
	if l.serving && int(l.cursor) < len(l.plan.requests) {
		l.deviateLocked(0, "the iteration ended before")
	}
	if l.serving {
		l.serving, l.proven, l.missed, l.last = false, true, 0, nil
		l.stats.planned++
		l.mu.Unlock()
		return
	}
	r := l.rec
	l.record(nil)
	var old arena
	if r != nil {
		l.learnLocked(r)
	}
	if l.plan != nil && !l.plan.of.sameRequests(r) {
		if l.missed++; !l.proven || l.missed >= dropAfter {
			old = l.dropLocked()
		}
	}
	l.mu.Unlock()
	_ = l.p.giveBack(old)
}

// learnLocked has a plan made from a recording, when it is due.
func (l *lane) learnLocked(r *recording) {
	if r.full || len(r.requests) == 0 {
		l.last, l.seen = nil, 0
		return
	}
	needed := l.p.cfg.Confirm
	if l.plan != nil && l.proven {
		needed = max(needed, 2) // an exception, once, does not replace it
	}
	switch {
	case l.plan != nil && l.plan.of.sameRequests(r): // lived longer: repair
		r, l.seen = r.merge(l.plan.of), needed
	case l.last.sameRequests(r):
		r, l.seen = r.merge(l.last), l.seen+1
	default:
		l.seen = 1
	}
	l.last = r
	if l.seen < needed || !r.plannable() {
		return
	}
	if l.plan != nil && l.plan.of.covers(r) || l.next != nil && l.next.of.covers(r) || l.solvedOf.covers(r) {
		return
	}
	l.solveLocked(r)
}

// dropLocked gives the plan up, and the arena as soon as nothing lives in it.
func (l *lane) dropLocked() (old arena) {
	l.plan, l.proven, l.missed, l.serving = nil, false, 0, false
	l.retire = true
	if l.live == 0 {
		old = l.takeArenaLocked()
	}
	return old
}

// shutDown empties the lane and lists its live blocks.
func (l *lane) shutDown() (leaks []Leak, old arena) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range [...][]slot{l.slots, l.strays} {
		for i := range list {
			if sl := &list[i]; sl.state == slotLive {
				leaks = append(leaks, Leak{Ptr: l.arena.ptr + Ptr(sl.off), Size: sl.requested, Stream: l.s.handle})
				sl.state = slotIdle
			}
		}
	}
	l.live, l.liveBytes, l.requested = 0, 0, 0
	old = l.takeArenaLocked()
	l.serving, l.closed, l.plan, l.next, l.last = false, true, nil, nil, nil
	l.record(nil)
	return leaks, old
}

// retireIdle shuts the lane of a closed stream down if nothing lives in it
// and no plan is being made for it, adds its statistics to the past ones, and
// reports whether it did.
func (l *lane) retireIdle(past *laneStats) (old arena, ok bool) {
	l.mu.Lock()
	idle := l.s.heir.Load() != nil && l.live == 0 && l.solving == nil
	l.mu.Unlock()
	if !idle { // a closed stream's lane that is idle stays so
		return arena{}, false
	}
	_, old = l.shutDown()
	past.add(&l.stats)
	return old, true
}
