package debug

import (
	"math"
	"sync"
	"time"
	"weak"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// How memory over time is kept.
const (
	maxSamples     = 1200
	sampleInterval = 250 * time.Millisecond
)

// series is memory over time, in columns. Sample number First is the first one; the
// numbers go on from there.
type series struct {
	First     int64   `json:"first"`
	Time      []int64 `json:"time"` // milliseconds since 1970; of a snapshot without times, the numbers of events
	Requested []int64 `json:"requested"`
	Live      []int64 `json:"live"`
	Pending   []int64 `json:"pending"`
	Reserved  []int64 `json:"reserved"`
	Peak      []int64 `json:"peak"` // of reserved bytes
}

// columns returns the columns, to do the same to each.
func (s *series) columns() [6]*[]int64 {
	return [...]*[]int64{&s.Time, &s.Requested, &s.Live, &s.Pending, &s.Reserved, &s.Peak}
}

func (s *series) add(values [6]int64) {
	for i, column := range s.columns() {
		*column = append(*column, values[i])
	}
}

// after returns the samples after number n; negative: all.
func (s *series) after(n int64) *series {
	skip := max(min(n-s.First, int64(len(s.Time))-1), -1) + 1
	rest := &series{First: s.First + skip}
	for i, column := range s.columns() {
		*rest.columns()[i] = append([]int64{}, (*column)[skip:]...)
	}
	return rest
}

// A ring keeps the last samples of an allocator, and makes its snapshots.
type ring struct {
	own, whole turns // of the pool alone, and with its private pools

	mu   sync.Mutex
	kept series
	last time.Time
}

// sample takes a sample, unless the last one is quite new, and returns all.
func (r *ring) sample(now time.Time, stats func() cupool.Stats) *series {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last) >= sampleInterval {
		st := stats()
		r.last = now
		r.kept.add([...]int64{
			now.UnixMilli(), st.All.RequestedBytes.Current, st.LiveBytes, st.PendingBytes,
			st.All.ReservedBytes.Current, st.All.ReservedBytes.Peak,
		})
		if len(r.kept.Time) > maxSamples {
			r.kept = *r.kept.after(r.kept.First)
		}
	}
	return r.kept.after(-1)
}

// rings are those of allocators that were looked at, as long as these exist.
type rings struct {
	mu  sync.Mutex
	all map[weak.Pointer[cupool.Pool]]*ring
}

func (r *rings) of(c *cupool.Pool) *ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := weak.Make(c)
	if r.all[key] == nil {
		if r.all == nil {
			r.all = map[weak.Pointer[cupool.Pool]]*ring{}
		}
		for old := range r.all {
			if c := old.Value(); c == nil || isClosed(c) {
				delete(r.all, old)
			}
		}
		r.all[key] = &ring{}
	}
	return r.all[key]
}

// courseOf works memory over time out from the events of a snapshot: back from what
// it holds.
func courseOf(p snapshot.Snapshot) *series {
	st := statsOf(p)
	live, reserved := st.LiveBytes, st.All.ReservedBytes.Current
	requested, pending := st.All.RequestedBytes.Current, st.PendingBytes
	back := &series{}
	every := max(1, len(p.Events)/maxSamples)
	for i := len(p.Events) - 1; i >= 0; i-- {
		e := &p.Events[i]
		if (len(p.Events)-1-i)%every == 0 {
			at := e.Time.UnixMilli()
			if e.Time.IsZero() {
				at = int64(e.Number)
			}
			back.add([...]int64{at, requested, live, pending, reserved, 0})
		}
		n := int64(math.MaxInt64)
		if f := float64(e.Size) * max(e.Weight, 1); f < math.MaxInt64 { // a stranger's file may claim more
			n = int64(f)
		}
		switch e.Kind {
		case snapshot.Alloc:
			requested, live = max(requested-n, 0), max(live-n, 0)
		case snapshot.FreeRequested:
			requested, live, pending = plus(requested, n), plus(live, n), max(pending-n, 0)
		case snapshot.FreeCompleted:
			pending = plus(pending, n)
		case snapshot.SegmentAlloc, snapshot.SegmentMap:
			reserved = max(reserved-e.Size, 0)
		case snapshot.SegmentFree, snapshot.SegmentUnmap:
			reserved = plus(reserved, e.Size)
		}
	}
	forth, peak := &series{}, int64(0)
	for i := len(back.Time) - 1; i >= 0; i-- {
		var values [6]int64
		for j, column := range back.columns() {
			values[j] = (*column)[i]
		}
		peak = max(peak, values[4])
		values[5] = peak
		forth.add(values)
	}
	return forth
}

// plus adds numbers that are not negative, up to the most that an int64 holds.
func plus(a, b int64) int64 { return min(a, math.MaxInt64-b) + b }
