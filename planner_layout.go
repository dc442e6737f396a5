package cupool

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/cupool/cupool/internal/plan"
	"github.com/cupool/cupool/internal/sizeclass"
)

// layout says where each request of an iteration goes. It does not change.
type layout struct {
	of       *recording
	requests []place
	deaths   []death // of planned requests, in order
	starts   []int64 // offsets at which planned blocks begin, ascending
	height   int64   // bytes of the arena
	bound    int64   // the most bytes of planned blocks that live at once
	took     time.Duration
	rounds   int
}

// place is where a request goes.
type place struct {
	size  int64 // bytes, rounded
	off   int64 // in the arena, or passedThrough
	start int32 // index of off in layout.starts
}

// passedThrough is the offset of requests that are not planned.
const passedThrough = -1

// death is when the block of a request was freed: before request at.
type death struct{ at, request int32 }

// goodEnough is the part of the bound by which a plan may be higher without
// being improved.
const goodEnough = 4096

// newLayout plans a recording. The result is proven before it is used: what
// a mistake would do is to let two blocks share memory.
func newLayout(ctx context.Context, r *recording, unit int64) (*layout, error) {
	start := time.Now()
	var blocks []plan.Interval
	var ids []int32
	for i := range r.requests {
		if q := &r.requests[i]; q.end() < math.MaxInt64 {
			blocks = append(blocks, plan.Interval{Size: q.size, Birth: int32(i), Death: int32(q.death)})
			ids = append(ids, int32(i))
		}
	}
	bound := plan.Bound(blocks)
	res, err := plan.Solve(ctx, blocks, plan.Options{Target: max(sizeclass.RoundTo(bound, unit), bound+bound/goodEnough)})
	if err == nil {
		err = plan.Check(blocks, res.Offsets)
	}
	if err != nil {
		return nil, err
	}
	pl := &layout{of: r, requests: make([]place, len(r.requests)), height: res.Height, bound: bound, rounds: res.Rounds}
	for i := range pl.requests {
		pl.requests[i] = place{size: r.requests[i].size, off: passedThrough}
	}
	pl.starts = slices.Clone(res.Offsets)
	slices.Sort(pl.starts)
	pl.starts = slices.Compact(pl.starts)
	for k, i := range ids {
		off := res.Offsets[k]
		pl.requests[i].off = off
		pl.requests[i].start = int32(sort.Search(len(pl.starts), func(n int) bool { return pl.starts[n] >= off }))
		pl.deaths = append(pl.deaths, death{blocks[k].Death, i})
	}
	slices.SortFunc(pl.deaths, func(a, b death) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.request, b.request)) })
	pl.took = time.Since(start)
	return pl, nil
}

// unit returns the bytes in which the Caching gets memory for an arena.
func (c *Caching) unit() int64 {
	if c.vm != nil {
		return c.granularity
	}
	return c.cfg.SegmentRounding
}

// solveLocked has a plan made in the background. It is there when solving is
// closed, unless the lane has come to want another one.
func (l *lane) solveLocked(r *recording) {
	p, done := l.p, make(chan struct{})
	before := l.solving
	l.next, l.solvedOf, l.solving = nil, r, done
	go func() {
		defer close(done)
		if before != nil {
			<-before // one at a time
		}
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Budget)
		defer cancel()
		pl, err := newLayout(ctx, r, p.c.unit())
		if err != nil {
			p.c.cfg.Logger.Error("planning an iteration failed", "error", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.solving == done {
			l.solving = nil
		}
		if err == nil && l.solvedOf == r && !l.closed {
			l.next, l.refused, l.skip = pl, 0, 0
			l.stats.solved(pl)
		}
		if l.solvedOf == r {
			l.solvedOf = nil
		}
	}()
}
