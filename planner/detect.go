package planner

// detector finds out where the requests on a stream repeat.
//
// It remembers where each short sequence of requests came last. When a sequence
// comes again, the distance may be the length of an iteration. It is the length
// when as many further requests repeat the requests before them, and the same
// number of bytes is live. The bytes matter because the layers of a network repeat
// within an iteration, too, but their memory adds up. The iteration is taken to
// begin where the fewest bytes are live. The lane's lock guards the detector.
type detector struct {
	confirm int64 // iterations in a row that have to be the same
	limit   int64 // requests of an iteration, at most
	least   int64 // requests of an iteration, at least
	since   int64 // requests since the search began or least was lowered

	hash    uint64           // of the last hashed requests
	hashed  int64            // at most window
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

func newDetector(cfg Config) *detector {
	f := &detector{confirm: max(2, int64(cfg.Confirm)), limit: int64(cfg.MaxRequests), least: leastPeriod}
	f.reset()
	return f
}

// reset begins the search anew.
func (f *detector) reset() {
	f.hash, f.hashed, f.seen, f.period, f.matched, f.since, f.served = 0, 0, map[uint64]int64{}, 0, 0, 0, 0
}

// deviated begins the search anew after a plan of so many requests has failed. A
// plan for a loop inside an iteration fails when the loop ends. After such a plan
// the next one has to be longer than all requests that the plan served.
func (f *detector) deviated(requests int64) {
	least := int64(leastPeriod)
	if f.served < wholeIterations {
		least = (f.served+f.confirm)*requests + 1
	}
	if least > f.limit {
		least = leastPeriod
	}
	f.least = least
	f.reset()
}

// note takes the newest request of a recording in. It reports in changed that the
// requests have ceased to repeat. wanted says that there is no plan yet; then
// iteration is an iteration to be planned, or nil.
func (f *detector) note(r *recording, wanted bool) (changed bool, iteration *recording) {
	n := int64(len(r.requests))
	now := r.first + n - 1
	f.hash = f.hash*hashBase + uint64(r.requests[n-1].size)
	if f.hashed < window {
		f.hashed++
	} else {
		f.hash -= hashOut * uint64(r.requests[n-1-window].size)
	}
	if f.period > 0 && r.requests[n-1].size == r.requests[n-1-f.period].size {
		f.matched++
	} else if f.period > 0 {
		f.period, f.matched, changed = 0, 0, true
	}
	if f.period == 0 && f.hashed == window {
		if last, ok := f.seen[f.hash]; ok && last >= r.first {
			f.consider(r, now-last)
		}
	}
	f.seen[f.hash] = now
	if f.period > 0 && (wanted || changed) && f.matched >= (f.confirm-1)*f.period && f.matched%f.period == 0 { // once a period
		iteration = f.decide(r, now)
	}
	f.tidy(r)
	return changed, iteration
}

// consider checks whether the last requests repeat the requests of a period
// before. It takes several times a period that is too short.
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

// decide returns the last whole iteration if it can be planned, or nil.
func (f *detector) decide(r *recording, now int64) *recording {
	last := r.at(now)
	if before := r.at(now - f.period); last.before != before.before {
		return nil
	}
	begin := now
	for i := now; i > now-f.period; i-- {
		if r.at(i).before < r.at(begin).before {
			begin = i
		}
	}
	if begin-f.period < r.first {
		return nil
	}
	w := r.window(begin-f.period, f.period)
	if !w.plannable() {
		return nil
	}
	f.anchor = begin
	return w
}

// begins reports whether an iteration of so many requests begins with a request.
func (f *detector) begins(request, requests int64) bool {
	return f.period != 0 && (request-f.anchor)%requests == 0
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
