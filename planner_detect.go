package cupool

// detector finds out where the requests on a stream repeat.
//
// It remembers where each short sequence of requests came last. When one
// comes again, the distance may be the length of an iteration; it is, when
// as many requests again are the same as those before, and what is live is
// the same, too: a network's layers repeat within an iteration, but what
// they allocate adds up. An iteration is then taken to begin where the
// fewest bytes are live. Guarded by its lane's lock.
type detector struct {
	confirm int64 // iterations in a row that have to be the same
	limit   int64 // requests of an iteration
	least   int64 // requests of an iteration, at least
	since   int64 // requests since the search began or least was lowered

	hash    uint64           // of the last requests, up to window
	seen    map[uint64]int64 // hash → the request that it ended with
	period  int64            // 0: none in sight
	matched int64            // requests in a row that were as one period before
	anchor  int64            // a request with which the planned iteration began
	served  int64            // iterations by the present plan
}

const (
	window      = 16 // requests that are hashed
	leastPeriod = 16 // requests that are worth a plan
	hashBase    = 0x9E3779B97F4A7C15
	// A plan that served fewer iterations than this was for a loop inside
	// of an iteration, which deviated when the loop was left.
	wholeIterations = 64
)

// hashOut is hashBase to the power of window.
var hashOut = func() uint64 {
	h := uint64(1)
	for range window {
		h *= hashBase
	}
	return h
}()

func newDetector(cfg PlannerConfig) *detector {
	f := &detector{confirm: max(2, int64(cfg.Confirm)), limit: int64(cfg.MaxRequests), least: leastPeriod}
	f.reset()
	return f
}

// reset begins the search anew.
func (f *detector) reset() {
	f.hash, f.seen, f.period, f.matched, f.since, f.served = 0, map[uint64]int64{}, 0, 0, 0, 0
}

// deviated begins the search anew after a plan has failed. Of a loop inside
// an iteration the next plan has to be longer than all that it served.
func (f *detector) deviated(l *lane) {
	least := int64(leastPeriod)
	if f.served < wholeIterations {
		least = (f.served+f.confirm)*int64(len(l.plan.requests)) + 1
	}
	if least > f.limit {
		least = leastPeriod
	}
	f.least = least
	f.reset()
}

// note takes the newest request of the recording in.
func (f *detector) note(l *lane) {
	r := l.rec
	n := int64(len(r.requests))
	now := r.first + n - 1
	f.hash = f.hash*hashBase + uint64(r.requests[n-1].size)
	if n > window {
		f.hash -= hashOut * uint64(r.requests[n-1-window].size)
	}
	if f.period > 0 && r.requests[n-1].size == r.requests[n-1-f.period].size {
		f.matched++
	} else if f.period > 0 { // the sequence has changed
		f.period, f.matched = 0, 0
		l.next, l.solvedOf = nil, nil
	}
	if f.period == 0 && n >= window {
		if last, ok := f.seen[f.hash]; ok && last >= r.first {
			f.consider(r, now-last)
		}
	}
	f.seen[f.hash] = now
	if f.period > 0 && l.next == nil && l.solvedOf == nil && f.matched >= (f.confirm-1)*f.period && f.matched%f.period == 0 { // once a period
		f.decide(l, now)
	}
	f.tidy(r)
}

// consider looks whether the last requests repeat those of a period before.
// What is too short is taken several times.
func (f *detector) consider(r *recording, period int64) {
	n := int64(len(r.requests))
	period *= max(1, (f.least+period-1)/period)
	if period > f.limit {
		return
	}
	same := int64(0)
	for i := n - 1; i >= period && same < (f.confirm-1)*period && r.requests[i].size == r.requests[i-period].size; i-- {
		same++
	}
	if same >= window {
		f.period, f.matched = period, same
	}
}

// decide has the last whole iteration planned, when it is one.
func (f *detector) decide(l *lane, now int64) {
	r := l.rec
	last := r.at(now)
	if before := r.at(now - f.period); last.before != before.before {
		return
	}
	begin := now
	for i := now; i > now-f.period; i-- {
		if r.at(i).before < r.at(begin).before {
			begin = i
		}
	}
	if begin-f.period < r.first {
		return
	}
	w := r.window(begin-f.period, f.period)
	if !w.plannable() {
		return
	}
	f.anchor = begin
	l.solveLocked(w)
}

// tidy forgets requests that are further back than any iteration needs, and
// gives a search that finds nothing another chance.
func (f *detector) tidy(r *recording) {
	f.since++
	if f.period == 0 && f.least > leastPeriod && f.since > 8*f.least {
		f.least, f.since = max(leastPeriod, f.least/2), 0
	}
	if keep := (f.confirm + 1) * f.limit; int64(len(r.requests)) > 2*keep {
		r.forget(int64(len(r.requests)) - keep)
		for h, at := range f.seen {
			if at < r.first {
				delete(f.seen, h)
			}
		}
	}
}

// betweenLocked has a plan that is ready take over when the next request is
// the first of an iteration. The lock is given up and taken again meanwhile.
func (l *lane) betweenLocked() {
	if l.retire && l.live == 0 {
		old := l.takeArenaLocked()
		l.mu.Unlock()
		_ = l.p.giveBack(old)
		l.mu.Lock()
	}
	at := l.boundaryLocked()
	if at == 0 || !l.p.iteration.TryLock() {
		return
	}
	defer l.p.iteration.Unlock()
	rec := l.rec
	l.mu.Unlock()
	if err := l.p.install([]*lane{l}); err != nil {
		l.p.c.cfg.Logger.Warn("making room for a plan failed", "error", err)
	}
	l.mu.Lock()
	if l.plan == nil || l.closed {
		return
	}
	if l.rec == rec && rec.first+int64(len(rec.requests)) == at { // no other request came between
		l.serveFromStartLocked()
		return
	}
	l.plan, l.retire = nil, true
	l.find.reset()
}

// boundaryLocked returns the number of the next request when a plan is ready
// that begins with it, else 0.
func (l *lane) boundaryLocked() int64 {
	if l.next == nil || l.rec == nil || l.closed || l.find.period == 0 {
		return 0
	}
	now := l.rec.first + int64(len(l.rec.requests))
	if (now-l.find.anchor)%int64(len(l.next.requests)) != 0 {
		return 0
	}
	return now
}

// wrapLocked begins the next iteration of a plan whose last request was
// served.
func (l *lane) wrapLocked() {
	l.sweepLocked(l.cursor)
	l.cursor, l.due = 0, 0
	l.find.served++
	l.stats.planned++
}
