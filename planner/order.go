package planner

import (
	"slices"
	"sort"

	"github.com/cupool/cupool"
)

// The order of the streams of a joint plan.
//
// A block's memory may have been another stream's before. The block's stream then waits
// on the device for what the other stream was given before the memory was freed. Which
// waits that takes is known with the plan (waitsOf). They hold as long as blocks are
// served and freed as recorded. So each stream waits for all others at its first request
// of an iteration, and again after a block was freed that was not live by the plan.
//
// A wait is for what was submitted before it, so streams never wait in a circle.

// wait says that the stream of a request waits for another one before the request is
// served.
type wait struct {
	request int32
	on      *cupool.Stream
}

// tenant is the last block that a plan placed into a range of an arena.
type tenant struct {
	lo, hi int64
	s      *cupool.Stream
	death  int32
}

// waitsOf returns the waits of a plan, in the order of its requests. A stream waits for
// the last blocks that had the memory, because these waited for the ones before them.
// It does not wait where it has waited for the other stream since the block's death.
//
// Where tens of thousands of blocks live at once, that takes most of the time in which a
// plan is made. One stream waits for none.
func waitsOf(requests []recorded, places []place) (waits []wait) {
	if !slices.ContainsFunc(requests, func(q recorded) bool { return q.s != requests[0].s }) {
		return nil
	}
	var tenants []tenant // ascending
	type pair struct{ s, on *cupool.Stream }
	first, waited := map[*cupool.Stream]int32{}, map[pair]int32{}
	for i := range places {
		p, q := &places[i], &requests[i]
		if p.off == passedThrough {
			continue
		}
		if _, ok := first[q.s]; !ok {
			first[q.s] = int32(i)
		}
		lo, hi := p.off, p.off+p.size
		from := sort.Search(len(tenants), func(k int) bool { return tenants[k].hi > lo })
		to := from
		for ; to < len(tenants) && tenants[to].lo < hi; to++ {
			t := tenants[to]
			if on := (pair{q.s, t.s}); t.s != q.s && max(first[q.s], waited[on]) < t.death {
				waits = append(waits, wait{int32(i), t.s})
				waited[on] = int32(i)
			}
		}
		tenants = replace(tenants, from, to, tenant{lo, hi, q.s, int32(q.death)})
	}
	return waits
}

// replace puts a tenant in the place of tenants[from:to], of which the first may
// begin before it and the last may end behind it.
func replace(tenants []tenant, from, to int, t tenant) []tenant {
	var in [3]tenant
	with := in[:0]
	if from < to && tenants[from].lo < t.lo {
		before := tenants[from]
		before.hi = t.lo
		with = append(with, before)
	}
	with = append(with, t)
	if from < to && tenants[to-1].hi > t.hi {
		behind := tenants[to-1]
		behind.lo = t.hi
		with = append(with, behind)
	}
	return slices.Replace(tenants, from, to, with...)
}

// order is how far the streams of an iteration are in order. The lane's lock guards it.
type order struct {
	next   int                     // of layout.waits
	waited map[*cupool.Stream]bool // for all others
}

// begin starts an iteration.
func (o *order) begin() {
	o.next = 0
	o.disturb()
}

// disturb has every stream wait for all others at its next request.
func (o *order) disturb() { clear(o.waited) }

// join has the lane serve a stream, too.
func (l *lane) join(s *cupool.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.streams, s) {
		open := slices.DeleteFunc(slices.Clone(l.streams), (*cupool.Stream).Closed)
		l.streams = append(open, s)
	}
}

// orderLocked has the stream of a request wait for those that had the request's memory.
// It reports false where a stream cannot wait.
func (l *lane) orderLocked(request int32, s *cupool.Stream) bool {
	waits := l.plan.waits
	if !l.order.waited[s] {
		if !l.waitForAllLocked(s) {
			return false
		}
		if l.order.waited == nil {
			l.order.waited = map[*cupool.Stream]bool{}
		}
		l.order.waited[s] = true
		for l.order.next < len(waits) && waits[l.order.next].request <= request {
			l.order.next++
		}
	}
	for ; l.order.next < len(waits) && waits[l.order.next].request <= request; l.order.next++ {
		if !waitFor(s, waits[l.order.next].on) {
			return false
		}
	}
	return true
}

// waitForAllLocked has a stream wait for all others of the lane.
func (l *lane) waitForAllLocked(s *cupool.Stream) bool {
	for _, o := range l.streams {
		if o != s && !waitFor(s, o) {
			return false
		}
	}
	return true
}

// waitFor has a stream wait for what another was given so far.
func waitFor(s, o *cupool.Stream) bool {
	return o.Closed() || !s.Captured() && !o.Captured() && s.WaitStream(o) == nil
}
