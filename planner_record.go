package cupool

import (
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// recording is what an iteration asked for on one stream. It is guarded by
// its lane's lock until the iteration is over, and does not change then.
//
// Time is counted in requests: a block dies at the number of requests made
// before it was freed. So what is recorded does not depend on how frees of
// other streams fall between.
type recording struct {
	requests []recorded
	first    int64            // number of requests[0], where iterations are detected
	births   map[uint64]birth // of live blocks that were passed through, by Block.ref
	planned  int32            // requests at the start that a plan served
	live     int64            // bytes that were requested and not freed
	full     bool             // there were too many; the rest is missing
}

// recorded is one request.
type recorded struct {
	size   int64 // bytes, rounded
	death  int64 // 0: it lives on
	before int64 // bytes live before it
	shared bool  // another stream used it
	failed bool  // it got no memory
}

// birth says which request a block came from.
type birth struct {
	gen     uint64
	request int64
}

// newRecording returns a recording that begins with requests that a plan has
// served.
func newRecording(planned []recorded) *recording {
	return &recording{requests: planned, planned: int32(len(planned)), births: map[uint64]birth{}}
}

// add notes a request and returns its number, or -1 when there are too many.
func (r *recording) add(size int64, limit int) int64 {
	if len(r.requests) >= limit {
		r.full = true
		return -1
	}
	r.requests = append(r.requests, recorded{size: size, before: r.live})
	r.live += size
	return r.first + int64(len(r.requests)) - 1
}

// at returns a request by its number, or nil when it is not there any more.
func (r *recording) at(number int64) *recorded {
	if i := number - r.first; i >= 0 && i < int64(len(r.requests)) {
		return &r.requests[i]
	}
	return nil
}

// dies notes that the block of a request was freed, or never was.
func (r *recording) dies(number int64) *recorded {
	q := r.at(number)
	if q != nil {
		q.death = r.first + int64(len(r.requests))
		r.live -= q.size
	}
	return q
}

// freed notes that a block was freed, if it came from one of the requests.
func (r *recording) freed(h Block) {
	if b, ok := r.births[h.ref]; ok && b.gen == h.gen {
		delete(r.births, h.ref)
		r.dies(b.request)
	}
}

// request returns the request of a live block, or nil.
func (r *recording) request(h Block) *recorded {
	if b, ok := r.births[h.ref]; ok && b.gen == h.gen {
		return r.at(b.request)
	}
	return nil
}

// sameRequests reports whether both asked for the same sizes in turn.
func (r *recording) sameRequests(o *recording) bool {
	return r != nil && o != nil && !r.full && !o.full &&
		slices.EqualFunc(r.requests, o.requests, func(a, b recorded) bool { return a.size == b.size })
}

// end returns when a block's memory comes free, which is never when it
// lives on or must not be planned.
func (q *recorded) end() int64 {
	if q.death == 0 || q.shared || q.failed {
		return math.MaxInt64
	}
	return q.death
}

// covers reports whether r made the same requests as o, and none of o's
// blocks lived longer than in r.
func (r *recording) covers(o *recording) bool {
	if !r.sameRequests(o) {
		return false
	}
	for i := range r.requests {
		if r.requests[i].end() < o.requests[i].end() {
			return false
		}
	}
	return true
}

// merge returns a recording that covers two of the same requests.
func (r *recording) merge(o *recording) *recording {
	m := &recording{requests: slices.Clone(r.requests)}
	for i := range m.requests {
		if q := &m.requests[i]; q.end() < o.requests[i].end() {
			*q = o.requests[i]
		}
	}
	return m
}

// plannable reports whether there is anything to be planned.
func (r *recording) plannable() bool {
	return slices.ContainsFunc(r.requests, func(q recorded) bool { return q.end() < math.MaxInt64 })
}

// window returns n requests from a number on as a recording of their own.
// Blocks that lived beyond them live on.
func (r *recording) window(from, n int64) *recording {
	w := &recording{requests: slices.Clone(r.requests[from-r.first:][:n])}
	for i := range w.requests {
		q := &w.requests[i]
		if q.death -= from; q.death < 0 || q.death > n {
			q.death = 0
		}
	}
	return w
}

// forget drops the first n requests.
func (r *recording) forget(n int64) {
	r.requests = slices.Clone(r.requests[n:])
	r.first += n
	for ref, b := range r.births {
		if b.request < r.first {
			delete(r.births, ref)
		}
	}
}

// record makes r the recording in progress, or none.
func (l *lane) record(r *recording) {
	l.rec = r
	l.recording.Store(r != nil)
}

// noteAlloc notes which block a recorded request was served with.
func (l *lane) noteAlloc(t ticket, h Block, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec != t.rec || t.request < 0 {
		return
	}
	if err == nil {
		l.rec.births[h.ref] = birth{h.gen, t.request}
	} else if q := l.rec.dies(t.request); q != nil {
		q.failed = true
	}
}

// noteFree notes that a block of the Caching was freed.
func (l *lane) noteFree(h Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec != nil {
		l.rec.freed(h)
	}
}

// noteUse notes that another stream uses a block of the Caching.
func (l *lane) noteUse(h Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec != nil {
		if q := l.rec.request(h); q != nil {
			q.shared = true
		}
	}
}

// ofPlan returns the request of a block that the plan served before the
// recording went on without it, or -1.
func (r *recording) ofPlan(id block.ID) int64 {
	if int64(id) < int64(r.planned) {
		return int64(id)
	}
	return -1
}

// noteArenaFree notes that a block of the arena was freed.
func (r *recording) noteArenaFree(h Block) {
	if i := r.ofPlan(h.id()); i >= 0 {
		r.dies(i)
	} else {
		r.freed(h)
	}
}

// noteArenaUse notes that another stream uses a block of the arena.
func (r *recording) noteArenaUse(h Block) {
	q := r.request(h)
	if i := r.ofPlan(h.id()); i >= 0 {
		q = r.at(i)
	}
	if q != nil {
		q.shared = true
	}
}

// resumeLocked returns a recording of the iteration in progress up to where
// the plan has served it. Of blocks that the plan passed through it is not
// known whether they live; like before they count as living on.
func (l *lane) resumeLocked() *recording {
	if l.find != nil {
		return newRecording(nil)
	}
	now := int64(l.cursor)
	r := newRecording(slices.Clone(l.plan.of.requests[:now]))
	for i := range r.requests {
		q := &r.requests[i]
		if l.plan.requests[i].off == passedThrough {
			continue
		}
		if l.slots[i].state == slotIdle {
			q.death = min(q.death, now)
		} else {
			q.death = 0
		}
	}
	return r
}
