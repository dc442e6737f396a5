// Package poolstats makes the statistics of a pool from what its heaps counted, and
// prints them. Its types have the fields of the types of package cupool that they
// are converted from and to.
package poolstats

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
)

// Stat is one quantity, as cupool.Stat.
type Stat struct{ Current, Peak, Allocated, Freed int64 }

// AnyStat is Stat under any name.
type AnyStat interface {
	~struct{ Current, Peak, Allocated, Freed int64 }
}

// adjust completes a quantity of which more came and went, and idle is not there
// any more.
func adjust[S AnyStat](at *S, more, idle int64) {
	s := Stat(*at)
	s.Allocated += more
	s.Current -= idle
	s.Freed += more + idle
	*at = S(s)
}

// Pool is the statistics of one pool, as cupool.PoolStats.
type Pool[S AnyStat] struct {
	Allocation    S
	Segment       S
	Active        S
	InactiveSplit S

	RequestedBytes     S
	AllocatedBytes     S
	ActiveBytes        S
	ReservedBytes      S
	InactiveSplitBytes S
}

// Of returns the statistics of a kind, or of both, from the totals of a book, from
// the totals that counting began at, and from what lies in magazines, of which the
// book does not know.
func Of[S AnyStat](b *ledger.Book, t, base *ledger.Totals, k ledger.Kind, magazines ...*heap.Census) Pool[S] {
	stat := func(q ledger.Quantity) S {
		x, was := t[k][q], base[k][q]
		return S(Stat{Current: x.Now(), Peak: b.Peak(k, q), Allocated: x.Added - was.Added, Freed: x.Taken - was.Taken})
	}
	active := func(out, pending, most ledger.Quantity) S {
		s, p := Stat(stat(out)), t[k][pending].Now()
		s.Current += p
		s.Freed -= p - base[k][pending].Now()
		s.Peak = b.Peak(k, most)
		return S(s)
	}
	p := Pool[S]{
		Allocation:         stat(ledger.OutBlocks),
		Segment:            stat(ledger.Segments),
		Active:             active(ledger.OutBlocks, ledger.PendingBlocks, ledger.ActiveBlocks),
		InactiveSplit:      stat(ledger.Splits),
		RequestedBytes:     stat(ledger.RequestedBytes),
		AllocatedBytes:     stat(ledger.OutBytes),
		ActiveBytes:        active(ledger.OutBytes, ledger.PendingBytes, ledger.ActiveBytes),
		ReservedBytes:      stat(ledger.ReservedBytes),
		InactiveSplitBytes: stat(ledger.SplitBytes),
	}
	for _, n := range magazines {
		adjust(&p.Allocation, n.Hits, n.Cached)
		adjust(&p.AllocatedBytes, n.HitBytes, n.CachedBytes)
		adjust(&p.RequestedBytes, n.HitReq, n.CachedReq)
		adjust(&p.Active, n.Hits, n.Cached)
		adjust(&p.ActiveBytes, n.HitBytes, n.CachedBytes)
	}
	return p
}

// Figures is a snapshot of the books, as cupool.Stats with pools of type P.
type Figures[P any] struct {
	All   P
	Small P
	Large P

	LiveBytes    int64
	PendingBytes int64
	CachedBytes  int64
	AsleepBytes  int64
	LargestFree  int64
	FreeBlocks   int64
	Limit        int64

	Hits         int64
	Misses       int64
	MagazineHits int64
	Retries      int64
	OOMs         int64

	Stitches       int64
	StitchReuses   int64
	Moves          int64
	MovedBytes     int64
	DecayedBytes   int64
	DriverAllocs   int64
	DriverFrees    int64
	EventsRecorded int64
	EventQueries   int64
	EventFailures  int64
	BlocksPending  int64
	MetadataBytes  int64
	Streams        int64
}

// Ratios are what Write prints of the figures that is computed from them.
type Ratios struct{ Hits, Fragmentation float64 }

// Write prints statistics as a table for people, under a title.
func Write[S AnyStat, P any](w io.Writer, title string, s Figures[P], r Ratios, pool func(P) Pool[S]) error {
	if _, err := fmt.Fprintf(w, "cupool on %s\n", title); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tcurrent\tpeak\tallocated\tfreed\t")
	all := pool(s.All)
	all.write(tw, "")
	pool(s.Small).write(tw, "small: ")
	pool(s.Large).write(tw, "large: ")
	if err := tw.Flush(); err != nil {
		return err
	}
	limit := "none"
	if s.Limit > 0 {
		limit = bytesize.Format(s.Limit)
	}
	_, err := fmt.Fprintf(w, `reserved %s = live %s + pending %s + cached %s; limit %s
free blocks %d; largest free %s, fragmentation %.1f %%
hits %d (%.2f %%), of them without a lock %d; misses %d, retries %d, out of memory %d
driver: %d allocations, %d frees; stitches: %d, reused %d; moves between streams: %d; events: %d recorded, %d queries, %d failures
blocks pending %d, streams %d, books %s
`,
		bytesize.Format(Stat(all.ReservedBytes).Current), bytesize.Format(s.LiveBytes), bytesize.Format(s.PendingBytes), bytesize.Format(s.CachedBytes), limit,
		s.FreeBlocks, bytesize.Format(s.LargestFree), 100*r.Fragmentation,
		s.Hits, 100*r.Hits, s.MagazineHits, s.Misses, s.Retries, s.OOMs,
		s.DriverAllocs, s.DriverFrees, s.Stitches, s.StitchReuses, s.Moves, s.EventsRecorded, s.EventQueries, s.EventFailures,
		s.BlocksPending, s.Streams, bytesize.Format(s.MetadataBytes))
	return err
}

func (p Pool[S]) write(w io.Writer, prefix string) {
	count := func(n int64) string { return fmt.Sprint(n) }
	for _, r := range []struct {
		name   string
		s      S
		format func(int64) string
	}{
		{"allocations", p.Allocation, count},
		{"active blocks", p.Active, count},
		{"segments", p.Segment, count},
		{"inactive splits", p.InactiveSplit, count},
		{"requested", p.RequestedBytes, bytesize.Format},
		{"allocated", p.AllocatedBytes, bytesize.Format},
		{"active", p.ActiveBytes, bytesize.Format},
		{"reserved", p.ReservedBytes, bytesize.Format},
		{"inactive split", p.InactiveSplitBytes, bytesize.Format},
	} {
		s := Stat(r.s)
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t\n", prefix, r.name, r.format(s.Current), r.format(s.Peak), r.format(s.Allocated), r.format(s.Freed))
	}
}
