package cupool

import (
	"fmt"
	"io"
	"sync/atomic"
	"text/tabwriter"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/origins"
)

// Stat is one quantity over time, a count or bytes. Current is Allocated
// minus Freed, unless ResetAccumulated came between.
type Stat struct {
	Current   int64
	Peak      int64 // since the start or the last ResetPeak
	Allocated int64 // sum of what was added, since the start or ResetAccumulated
	Freed     int64 // sum of what was taken away, likewise
}

// Add counts n more, for those who keep books of their own.
func (s *Stat) Add(n int64) {
	s.Allocated += n
	s.Current += n
	s.Peak = max(s.Peak, s.Current)
}

// Take counts n less.
func (s *Stat) Take(n int64) {
	s.Freed += n
	s.Current -= n
}

// PoolStats are the statistics of one pool, by PyTorch's names and meaning.
type PoolStats struct {
	Allocation    Stat // blocks that the program holds
	Segment       Stat // ranges held from the device
	Active        Stat // blocks that the program holds or other streams still use
	InactiveSplit Stat // free blocks that share a segment with others

	RequestedBytes     Stat // live bytes as requested
	AllocatedBytes     Stat // live bytes as rounded
	ActiveBytes        Stat // live and pending bytes
	ReservedBytes      Stat // bytes held from the device
	InactiveSplitBytes Stat // free bytes in segments that are in use
}

// Stats is a snapshot of an allocator's books: ReservedBytes = LiveBytes +
// PendingBytes + CachedBytes - AsleepBytes. Counts and sums are exact. A peak may be
// higher than what was ever live by as much as the magazines held at that
// moment, at most Config.MagazineBytes a stream, because blocks that go
// through a magazine are not counted one by one. But for that, peaks are exact as
// long as one goroutine at a time uses the allocator; while several goroutines use
// several streams at once, a peak is of moments at which one of them looked at what
// the others had. Events count where the streams were made: a private
// pool uses those of its allocator (NewPool).
type Stats struct {
	All   PoolStats
	Small PoolStats // requests up to Config.SmallLimit
	Large PoolStats

	LiveBytes    int64 // in blocks that the program holds
	PendingBytes int64 // freed, but still used by other streams
	CachedBytes  int64 // free, ready for reuse
	AsleepBytes  int64 // of these, given back to the device until Wake
	LargestFree  int64 // the largest cached block
	FreeBlocks   int64 // cached blocks: of wholly free segments, between others, and in magazines
	Limit        int64 // what may be reserved; 0: no limit

	Hits         int64 // allocations served from cached memory
	Misses       int64 // allocations that had to ask the device
	MagazineHits int64 // those hits that took no lock
	Retries      int64 // allocations that succeeded only after memory was reclaimed
	OOMs         int64 // allocations that failed for lack of memory

	Stitches       int64 // address ranges mapped to join free memory
	StitchReuses   int64 // times that such a range served again
	Moves          int64 // segments, or handles of virtual memory, that went from an idle stream to another
	MovedBytes     int64 // in them
	DecayedBytes   int64 // given back because they were idle for long (Config.Decay)
	DriverAllocs   int64 // segments, or handles of virtual memory, asked of the device
	DriverFrees    int64 // segments given back
	EventsRecorded int64
	EventQueries   int64
	EventFailures  int64 // records or queries that failed; the blocks wait on
	BlocksPending  int64
	MetadataBytes  int64 // Go memory that the books take
	Streams        int64 // streams in use
}

// HitRatio returns the part of the allocations that needed no call to the
// device, 1 when there was none.
func (s Stats) HitRatio() float64 {
	if n := s.Hits + s.Misses; n > 0 {
		return float64(s.Hits) / float64(n)
	}
	return 1
}

// Fragmentation returns 1 - LargestFree/CachedBytes: the part of the cached
// memory that is not in the largest cached block. 0 is none.
func (s Stats) Fragmentation() float64 {
	if s.CachedBytes == 0 {
		return 0
	}
	return 1 - float64(s.LargestFree)/float64(s.CachedBytes)
}

// WriteStats prints the statistics, and those of labels, as a table for people.
func (c *Pool) WriteStats(w io.Writer) error {
	err := c.Stats().Write(w, c.driver.Name())
	for _, l := range c.Labels() {
		if err == nil {
			err = l.write(w)
		}
	}
	return err
}

// Write prints the statistics as a table for people, under a title.
func (s Stats) Write(w io.Writer, title string) error {
	if _, err := fmt.Fprintf(w, "cupool on %s\n", title); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tcurrent\tpeak\tallocated\tfreed\t")
	s.All.write(tw, "")
	s.Small.write(tw, "small: ")
	s.Large.write(tw, "large: ")
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
		bytesize.Format(s.All.ReservedBytes.Current), bytesize.Format(s.LiveBytes), bytesize.Format(s.PendingBytes), bytesize.Format(s.CachedBytes), limit,
		s.FreeBlocks, bytesize.Format(s.LargestFree), 100*s.Fragmentation(),
		s.Hits, 100*s.HitRatio(), s.MagazineHits, s.Misses, s.Retries, s.OOMs,
		s.DriverAllocs, s.DriverFrees, s.Stitches, s.StitchReuses, s.Moves, s.EventsRecorded, s.EventQueries, s.EventFailures,
		s.BlocksPending, s.Streams, bytesize.Format(s.MetadataBytes))
	return err
}

func (p PoolStats) write(w io.Writer, prefix string) {
	count := func(n int64) string { return fmt.Sprint(n) }
	for _, r := range []struct {
		name   string
		s      Stat
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
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t\n", prefix, r.name, r.format(r.s.Current), r.format(r.s.Peak), r.format(r.s.Allocated), r.format(r.s.Freed))
	}
}

// LabelStats are the statistics of a label. A block counts until its memory
// can be used again: for one that other streams use, until they are done.
type LabelStats struct {
	Label  string
	Blocks Stat
	Bytes  Stat // as requested
}

func (l *LabelStats) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "for %s: %d blocks, %s; at most %d, %s\n", l.Label, l.Blocks.Current, bytesize.Format(l.Bytes.Current), l.Blocks.Peak, bytesize.Format(l.Bytes.Peak))
	return err
}

// Labels returns the statistics of all labels, by name. They are exact. A
// block that another pool lent is counted there.
func (c *Pool) Labels() (all []LabelStats) {
	for _, l := range c.stacks.Labels() {
		all = append(all, LabelStats{l.Name, Stat(l.Blocks), Stat(l.Bytes)})
	}
	return all
}

// counts are the statistics that the ledgers do not hold.
type counts struct {
	misses, retries, ooms           atomic.Int64
	driverAllocs, driverFrees       atomic.Int64 // of segments; vmem.Mapper counts handles
	moves, movedBytes, decayedBytes atomic.Int64
}

// eachCount calls f for every counter that ResetAccumulated resets.
func (c *Pool) eachCount(f func(*atomic.Int64)) {
	for _, n := range [...]*atomic.Int64{
		&c.misses, &c.retries, &c.ooms, &c.driverAllocs, &c.driverFrees, &c.moves, &c.movedBytes, &c.decayedBytes,
		&c.space.Stitches, &c.space.StitchReuses,
	} {
		f(n)
	}
	if c.memory != nil {
		f(&c.memory.Creates)
		f(&c.memory.Releases)
	}
	if e := &c.dev.events; c == c.dev.root { // events count where the streams were made
		f(&e.Recorded)
		f(&e.Queries)
		f(&e.Failures)
	}
}

// sum returns the totals of all ledgers; the heaps are all of the pool's and
// locked.
func (c *Pool) sum(heaps []*streamHeap) ledger.Totals { return c.space.Book.Sum(ledgers(heaps)) }

func ledgers(heaps []*streamHeap) (list []*ledger.Ledger) {
	for _, h := range heaps {
		list = append(list, &h.Ledger)
	}
	return list
}

// Stats returns a snapshot of the books. It stops all streams' slow paths
// meanwhile and takes time in proportion to the number of blocks.
func (c *Pool) Stats() Stats {
	heaps, unlock := c.lockAll()
	defer unlock()
	var got [2]heap.Census
	var meta int64
	for _, h := range heaps {
		h.Count(&got)
		meta += h.Magazine.Bytes()
	}
	t, base, book := c.sum(heaps), c.space.Book.Base(), &c.space.Book
	st := Stats{
		All:   statsOf(book, &t, &base, all, &got[small], &got[large]),
		Small: statsOf(book, &t, &base, small, &got[small]),
		Large: statsOf(book, &t, &base, large, &got[large]),
		Limit: c.budget.Printed(), Misses: c.misses.Load(), Retries: c.retries.Load(), OOMs: c.ooms.Load(),
		DriverAllocs: c.driverAllocs.Load(), DriverFrees: c.driverFrees.Load(),
		Stitches: c.space.Stitches.Load(), StitchReuses: c.space.StitchReuses.Load(),
		Moves: c.moves.Load(), MovedBytes: c.movedBytes.Load(), DecayedBytes: c.decayedBytes.Load(), AsleepBytes: c.asleepBytes.Load(),
		BlocksPending: t[all][ledger.PendingBlocks].Now(), PendingBytes: t[all][ledger.PendingBytes].Now(),
		MagazineHits:  t[all][ledger.MagazineHits].Added - base[all][ledger.MagazineHits].Added,
		MetadataBytes: meta + c.space.Bytes(),
		Streams:       int64(len(c.dev.openStreams())),
	}
	if c.memory != nil {
		st.DriverAllocs += c.memory.Creates.Load()
		st.DriverFrees += c.memory.Releases.Load()
	}
	if e := &c.dev.events; c == c.dev.root {
		st.EventsRecorded, st.EventQueries, st.EventFailures = e.Recorded.Load(), e.Queries.Load(), e.Failures.Load()
	}
	for k := range got {
		st.MagazineHits += got[k].Hits
		st.CachedBytes += got[k].Idle() + got[k].CachedBytes
		st.FreeBlocks += got[k].Idles() + got[k].Cached
		st.LargestFree = max(st.LargestFree, got[k].Largest)
	}
	st.LiveBytes = st.All.AllocatedBytes.Current
	st.Hits = st.All.Allocation.Allocated - st.Misses
	return st
}

// statsOf returns the statistics of a kind, or of both, from the totals of a book, from
// the totals that counting began at, and from what lies in magazines, of which the
// book does not know.
func statsOf(b *ledger.Book, t, base *ledger.Totals, k ledger.Kind, magazines ...*heap.Census) PoolStats {
	stat := func(q ledger.Quantity) Stat {
		x, was := t[k][q], base[k][q]
		return Stat{Current: x.Now(), Peak: b.Peak(k, q), Allocated: x.Added - was.Added, Freed: x.Taken - was.Taken}
	}
	active := func(out, pending, most ledger.Quantity) Stat {
		s, p := stat(out), t[k][pending].Now()
		s.Current += p
		s.Freed -= p - base[k][pending].Now()
		s.Peak = b.Peak(k, most)
		return s
	}
	p := PoolStats{
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
		p.Allocation.adjust(n.Hits, n.Cached)
		p.AllocatedBytes.adjust(n.HitBytes, n.CachedBytes)
		p.RequestedBytes.adjust(n.HitReq, n.CachedReq)
		p.Active.adjust(n.Hits, n.Cached)
		p.ActiveBytes.adjust(n.HitBytes, n.CachedBytes)
	}
	return p
}

// adjust completes a quantity of which more came and went, and idle is not there
// any more.
func (s *Stat) adjust(more, idle int64) {
	s.Allocated += more
	s.Current -= idle
	s.Freed += more + idle
}

// usage returns the bytes of live blocks and of all cached memory, heap by heap,
// without a look at each block.
func (c *Pool) usage() (live, cached int64) {
	past := c.space.Book.Past()
	live, pending := past[all][ledger.OutBytes].Now(), past[all][ledger.PendingBytes].Now()
	c.each(func(h *streamHeap) {
		l, p, held := h.Usage()
		live, pending, cached = live+l, pending+p, cached+held
	})
	return live, cached - live - pending
}

// ResetPeak sets every peak to the current value.
func (c *Pool) ResetPeak() {
	heaps, unlock := c.lockAll()
	defer unlock()
	c.sum(heaps)
	c.space.Book.ResetPeaks(ledgers(heaps))
	c.stacks.Reset(func(s *origins.Count) { s.Peak = s.Current })
}

// ResetAccumulated sets to zero what was allocated and freed so far, hits,
// misses and the other counters of calls. Current values and peaks stay.
func (c *Pool) ResetAccumulated() {
	heaps, unlock := c.lockAll()
	defer unlock()
	var got [2]heap.Census
	for _, h := range heaps {
		h.CountHits()
		h.Count(&got)
	}
	base := c.sum(heaps)
	heap.TakeCached(&base, &got)
	c.space.Book.Reset(base)
	c.eachCount(func(n *atomic.Int64) { n.Store(0) })
	c.stacks.Reset(func(s *origins.Count) { s.Allocated, s.Freed = 0, 0 })
}
