package planner

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

// layout is a plan: the place of each request of an iteration. It does not change.
type layout struct {
	of       *recording
	requests []place
	deaths   []death // of planned requests, in order
	waits    []wait  // of streams for each other, by request
	starts   []int64 // offsets at which planned blocks begin, ascending
	height   int64   // bytes of the arena
	bound    int64   // the most bytes of planned blocks that live at once
	took     time.Duration
	rounds   int
}

// place is the place of a request's block in the arena.
type place struct {
	size  int64 // bytes, rounded
	off   int64 // in the arena, or passedThrough
	start int32 // index of off in layout.starts
}

// passedThrough is the offset of requests that are not planned.
const passedThrough = -1

// death is when the block of a request was freed: before request at.
type death struct{ at, request int32 }

// goodEnough ends the search: a plan whose height exceeds the bound by no more than
// this part of the bound is not improved.
const goodEnough = 4096

// newLayout plans a recording. unit is the number of bytes in which the device
// gives memory. The result is verified, because with a mistake two blocks would
// share memory.
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
	pl.waits = waitsOf(r.requests, pl.requests)
	pl.took = time.Since(start)
	return pl, nil
}
