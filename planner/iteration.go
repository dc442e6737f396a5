package planner

import "github.com/cupool/cupool"

// begin starts an iteration. The plan serves it when there is one, and otherwise
// it is recorded.
func (l *lane) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pressed = false
	if l.plan == nil || l.arena.isEmpty() || l.retire {
		l.record(newRecording(nil))
		return
	}
	l.serveFromStartLocked()
}

// serveFromStartLocked has the plan serve from its first request on.
func (l *lane) serveFromStartLocked() {
	l.serving, l.cursor, l.due, l.pressed = true, 0, 0, false
	l.order.begin()
	l.record(nil)
	l.overdue = l.overdue[:0]
	if l.arena.live > 0 || len(l.arena.held) > 0 {
		l.arena.used(func(id uint32, _ *slot) { l.overdue = append(l.overdue, id) })
	}
}

// dropAfter is the number of iterations in a row that may deviate from a plan
// before the plan is given up, if it has served a whole iteration.
const dropAfter = 3

// end ends an iteration and decides whether the plan stays. It returns the arena's
// memory when that goes back.
func (l *lane) end() (old leaving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s.Closed() { // there will be no other iteration
		l.record(nil)
		l.next, l.last, l.solvedOf = nil, nil, nil
		return l.dropLocked()
	}
	if l.serving && int(l.cursor) < len(l.plan.requests) {
		l.deviateLocked(0, l.s, "the iteration ended before")
	}
	if l.serving {
		l.serving, l.proven, l.missed, l.last = false, true, 0, nil
		l.stats.Planned++
		return leaving{}
	}
	r := l.rec
	l.record(nil)
	if r != nil {
		l.learnLocked(r)
	}
	if l.plan != nil && !l.plan.of.sameRequests(r) {
		if l.missed++; !l.proven || l.missed >= dropAfter {
			old = l.dropLocked()
		}
	}
	return old
}

// learnLocked has a plan made from a recording, when it is due.
func (l *lane) learnLocked(r *recording) {
	if r.full || len(r.requests) == 0 {
		l.last, l.seen = nil, 0
		return
	}
	needed := l.cfg.Confirm
	if l.plan != nil && l.proven {
		needed = max(needed, 2) // one exception does not replace it
	}
	switch {
	case l.plan != nil && l.plan.of.sameRequests(r): // blocks lived longer: repair the plan
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

// solveLocked has a plan made in the background. The plan is ready when solving is
// closed, unless the lane wants another plan by then.
func (l *lane) solveLocked(r *recording) {
	l.next, l.solvedOf = nil, r
	if l.solving == nil {
		done := make(chan struct{})
		l.solving = done
		go l.solve(done)
	}
}

// solve makes plans until none is wanted any more. Of the recordings that come while it makes
// one, it plans the last.
func (l *lane) solve(done chan<- struct{}) {
	defer close(done)
	for r := l.unsolved(); r != nil; r = l.unsolved() {
		l.solved(r, l.solver.plan(r))
	}
}

// unsolved returns the recording that is to be planned. Where it returns nil, no plan is being
// made any more.
func (l *lane) unsolved() *recording {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.solvedOf == nil {
		l.solving = nil
	}
	return l.solvedOf
}

// solved notes the plan of a recording, unless another one is wanted by now.
func (l *lane) solved(r *recording, pl *layout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.solvedOf != r {
		return
	}
	l.solvedOf = nil
	if pl != nil && !l.closed {
		l.next, l.refused, l.skip = pl, 0, 0
		l.stats.solved(pl)
	}
}

// pending returns a channel that is closed when no plan is being made any more,
// or nil.
func (l *lane) pending() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.solving
}

// slack is the part of an arena that a smaller plan may leave unused.
const slack = 64

// makeRoom prepares the lane for its next plan: the plan goes into the arena
// that is there, or this arena's memory goes back and new memory is wanted.
func (l *lane) makeRoom() (old leaving, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.next == nil || l.closed:
		return leaving{}, false
	case l.skip > 0:
		l.skip--
		return leaving{}, false
	case !l.arena.isEmpty() && l.next.height <= l.arena.size() && (l.arena.live > 0 || l.arena.size()-l.next.height <= l.arena.size()/slack):
		l.adoptLocked(l.next)
		return leaving{}, false
	case l.arena.live > 0:
		return leaving{}, false // another time: two arenas would be too much
	}
	l.plan, l.serving = nil, false
	return l.leaveLocked(), true
}

// wants returns the plan that memory is wanted for, or nil.
func (l *lane) wants() *layout {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// install gives the lane the memory for a plan.
func (l *lane) install(pl *layout, memory cupool.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arena.set(memory)
	l.born = l.access.Resets()
	l.adoptLocked(pl)
}

// refuse notes that there was no memory for the next plan. It is tried again
// after more and more iterations.
func (l *lane) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked()
}

func (l *lane) refuseLocked() {
	l.skip = 1 << min(l.refused, 10)
	l.refused++
}

// adoptLocked makes a plan the one to serve by. It fits the arena.
func (l *lane) adoptLocked(pl *layout) {
	l.plan, l.next, l.proven, l.missed, l.retire, l.refused = pl, nil, false, 0, false, 0
	l.arena.follow(pl)
	l.stats.Plans++
}

// relinquish gives up an arena in which nothing lives. The plan is installed
// again when its time comes.
func (l *lane) relinquish() (old leaving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arena.isEmpty() || l.arena.live > 0 || l.serving && l.cursor > 0 {
		return leaving{}
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
	l.refuseLocked()
	return l.leaveLocked()
}

// dropLocked gives the plan up, and the arena as soon as nothing lives in it.
func (l *lane) dropLocked() leaving {
	l.plan, l.proven, l.missed, l.serving = nil, false, 0, false
	l.retire = true
	return l.retireLocked()
}

// dueLocked reports whether an arena is to go back or a plan may take over,
// where iterations are detected.
func (l *lane) dueLocked() bool {
	return l.retire && l.arena.live == 0 || l.boundaryLocked() != 0
}

// boundary returns the recording in progress and the number of the next request
// when a plan is ready that begins with it, else 0.
func (l *lane) boundary() (rec *recording, request int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec, l.boundaryLocked()
}

func (l *lane) boundaryLocked() int64 {
	if l.next == nil || l.rec == nil || l.closed {
		return 0
	}
	if now := l.rec.next(); l.find.begins(now, int64(len(l.next.requests))) {
		return now
	}
	return 0
}

// startAt has a plan that was installed meanwhile serve from a request of a
// recording on. Where other requests came between, the plan is given up.
func (l *lane) startAt(rec *recording, request int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.plan == nil || l.closed:
	case l.rec == rec && rec.next() == request:
		l.serveFromStartLocked()
	default:
		l.plan, l.retire = nil, true
		l.find.reset()
	}
}

// shutDown empties the lane and lists its live blocks.
func (l *lane) shutDown() ([]cupool.Leak, leaving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shutDownLocked()
}

func (l *lane) shutDownLocked() ([]cupool.Leak, leaving) {
	leaks := l.arena.abandon()
	old := l.leaveLocked()
	l.serving, l.closed, l.plan, l.next, l.last = false, true, nil, nil, nil
	l.record(nil)
	return leaks, old
}

// retireIdle shuts the lane of a closed stream down if nothing lives in it and
// no plan is being made for it, adds its statistics to the past ones, and
// reports whether it did.
func (l *lane) retireIdle(past *Stats) (old leaving, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.s.Closed() || l.arena.live > 0 || l.solving != nil {
		return leaving{}, false
	}
	_, old = l.shutDownLocked()
	past.add(&l.stats)
	return old, true
}
