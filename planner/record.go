package planner

import (
	"math"
	"slices"

	"github.com/cupool/cupool"
)

// recording has the requests of an iteration on the streams of a lane. The lane's lock guards
// it until the iteration is over. After that it does not change.
//
// Time is counted in requests: a block dies at the number of requests made
// before it was freed. So a recording does not depend on the moment between two
// requests at which a block is freed.
type recording struct {
	requests []recorded
	first    int64                // number of requests[0], where iterations are detected
	born     map[cupool.Ptr]birth // live blocks that were passed through
	planned  int32                // requests at the start that a plan served
	live     int64                // bytes that were requested and not freed
	full     bool                 // there were too many requests; the rest is missing
}

// recorded is one request.
type recorded struct {
	s      *cupool.Stream
	size   int64 // bytes, rounded
	death  int64 // 0: the block lives on
	before int64 // bytes that were live before it
	shared bool  // another stream used the block
	failed bool  // there was no memory for it
}

// birth is the request that a block came from.
type birth struct {
	block   cupool.Block
	request int64
}

// newRecording returns a recording that begins with requests that a plan has
// served.
func newRecording(planned []recorded) *recording {
	return &recording{requests: planned, planned: int32(len(planned)), born: map[cupool.Ptr]birth{}}
}

// add notes a request and returns its number, or -1 when there are too many.
func (r *recording) add(size int64, s *cupool.Stream, limit int) int64 {
	if len(r.requests) >= limit {
		r.full = true
		return -1
	}
	r.requests = append(r.requests, recorded{s: s, size: size, before: r.live})
	r.live += size
	return r.first + int64(len(r.requests)) - 1
}

// served notes the block that a request got.
func (r *recording) served(number int64, h cupool.Block) { r.born[h.Ptr()] = birth{h, number} }

// failed notes that a request got no block.
func (r *recording) failed(number int64) {
	if q := r.dies(number); q != nil {
		q.failed = true
	}
}

// at returns a request by its number, or nil when it was forgotten.
func (r *recording) at(number int64) *recorded {
	if i := number - r.first; i >= 0 && i < int64(len(r.requests)) {
		return &r.requests[i]
	}
	return nil
}

// next returns the number of the next request.
func (r *recording) next() int64 { return r.first + int64(len(r.requests)) }

// dies notes that the block of a request is not live any more.
func (r *recording) dies(number int64) *recorded {
	q := r.at(number)
	if q != nil {
		q.death = r.next()
		r.live -= q.size
	}
	return q
}

// freed notes that a block was freed.
func (r *recording) freed(h cupool.Block) {
	if b, ok := r.born[h.Ptr()]; ok && b.block == h {
		delete(r.born, h.Ptr())
		r.dies(b.request)
	}
}

// used notes that another stream uses a block.
func (r *recording) used(h cupool.Block) {
	if b, ok := r.born[h.Ptr()]; ok && b.block == h {
		r.share(b.request)
	}
}

func (r *recording) share(number int64) {
	if q := r.at(number); q != nil {
		q.shared = true
	}
}

// slotFreed notes that a block of the arena was freed. id is its slot: of a
// request that the plan served before the recording went on without it, or of
// one that was passed through and got a stray.
func (r *recording) slotFreed(id uint32, h cupool.Block) {
	if int64(id) < int64(r.planned) {
		r.dies(int64(id))
	} else {
		r.freed(h)
	}
}

// slotUsed notes that another stream uses a block of the arena.
func (r *recording) slotUsed(id uint32, h cupool.Block) {
	if int64(id) < int64(r.planned) {
		r.share(int64(id))
	} else {
		r.used(h)
	}
}

// sameRequests reports whether both asked for the same sizes on the same streams in turn.
func (r *recording) sameRequests(o *recording) bool {
	return r != nil && o != nil && !r.full && !o.full &&
		slices.EqualFunc(r.requests, o.requests, func(a, b recorded) bool { return a.size == b.size && a.s == b.s })
}

// end returns the request before which the memory of a block is free. That is
// never for a block that lives on or must not be planned.
func (q *recorded) end() int64 {
	if q.death == 0 || q.shared || q.failed {
		return math.MaxInt64
	}
	return q.death
}

// covers reports whether r made the same requests as o, and none of o's blocks
// lived longer than in r.
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

// plannable reports whether any request can be planned.
func (r *recording) plannable() bool {
	return slices.ContainsFunc(r.requests, func(q recorded) bool { return q.end() < math.MaxInt64 })
}

// window returns n requests from a number on as a recording of their own. Blocks
// that were freed after these requests live on.
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
	for p, b := range r.born {
		if b.request < r.first {
			delete(r.born, p)
		}
	}
}
