package cupool

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/lock"
)

// Stat is one quantity over time, a count or bytes. Current is Allocated minus Freed.
type Stat struct {
	Current   int64
	Peak      int64 // since the start or the last ResetPeak
	Allocated int64 // sum of what was added since the start
	Freed     int64 // sum of what was taken away
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

	RequestedBytes       Stat // live bytes as requested
	AllocatedBytes       Stat // live bytes as rounded
	ActiveRequestedBytes Stat // live and pending bytes as requested
	ActiveBytes          Stat // live and pending bytes as rounded
	ReservedBytes        Stat // bytes held from the device
	InactiveSplitBytes   Stat // free bytes in segments that are in use
}

// Stats is a snapshot of an allocator's books: ReservedBytes = LiveBytes +
// PendingBytes + CachedBytes - AsleepBytes. Counts and sums are exact. Blocks that go
// through a magazine are not counted one by one, so a peak may be too high by what the
// magazines held, at most Config.MagazineBytes a stream. While several goroutines use
// several streams, a peak may miss moments between two looks at all of them. Events
// count where the streams were made: a private pool uses those of its allocator
// (NewPool).
type Stats struct {
	Device string // Driver.Name
	Pool   string // Pool.Name

	All   PoolStats
	Small PoolStats // requests up to Config.SmallLimit
	Large PoolStats

	LiveBytes    int64 // in blocks that the program holds
	PendingBytes int64 // freed, but still used by other streams
	CachedBytes  int64 // free, ready for reuse
	AsleepBytes  int64 // of these three, given back to the device until Wake
	LargestFree  int64 // the largest cached block
	FreeBlocks   int64 // cached blocks: of wholly free segments, between others, and in magazines
	Limit        int64 // what may be reserved; 0: no limit

	// Every allocation is one of three.
	Hits   int64 // served from memory that was there, without a call to the driver for it
	Mapped int64 // virtual memory that the pool had was mapped for them, and no more came from the device
	Grown  int64 // memory came from the device for them

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

	// Labels are the statistics of all labels (WithLabel), by name, but for those that
	// ForgetLabels dropped. They are exact. A block that another pool lent is counted
	// there.
	Labels []LabelStats
}

// HitRatio returns the part of the allocations that were Hits, 1 when there was none.
func (s Stats) HitRatio() float64 {
	if n := s.Hits + s.Mapped + s.Grown; n > 0 {
		return float64(s.Hits) / float64(n)
	}
	return 1
}

// Fragmentation returns (CachedBytes - LargestFree) / (LiveBytes + PendingBytes +
// CachedBytes): the part of the pool's memory that is free and not in the largest free block.
// Little cached memory is little fragmentation, in however many pieces it is. 0 is none.
func (s Stats) Fragmentation() float64 {
	return float64(s.CachedBytes-s.LargestFree) / float64(max(s.LiveBytes+s.PendingBytes+s.CachedBytes, 1))
}

// String returns the statistics, and those of labels, as a table for people.
func (s Stats) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool on %s", s.Device)
	if s.Pool != "" {
		fmt.Fprintf(&sb, ", pool %s", s.Pool)
	}
	sb.WriteString("\n")
	tw := tabwriter.NewWriter(&sb, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tcurrent\tpeak\tallocated\tfreed\t")
	s.All.write(tw, "")
	s.Small.write(tw, "small: ")
	s.Large.write(tw, "large: ")
	_ = tw.Flush() // a Builder takes everything
	limit := "none"
	if s.Limit > 0 {
		limit = bytesize.Format(s.Limit)
	}
	asleep := ""
	if s.AsleepBytes > 0 {
		asleep = " - asleep " + bytesize.Format(s.AsleepBytes)
	}
	fmt.Fprintf(&sb, `reserved %s = live %s + pending %s + cached %s%s; limit %s
free blocks %d; largest free %s, fragmentation %.1f %%
hits %d (%.2f %%), of them without a lock %d; mapped %d, grown %d, retries %d, out of memory %d
driver: %d allocations, %d frees; stitches: %d, reused %d; moves between streams: %d; events: %d recorded, %d queries, %d failures
blocks pending %d, streams %d, books %s
`,
		bytesize.Format(s.All.ReservedBytes.Current), bytesize.Format(s.LiveBytes), bytesize.Format(s.PendingBytes), bytesize.Format(s.CachedBytes), asleep, limit,
		s.FreeBlocks, bytesize.Format(s.LargestFree), 100*s.Fragmentation(),
		s.Hits, 100*s.HitRatio(), s.MagazineHits, s.Mapped, s.Grown, s.Retries, s.OOMs,
		s.DriverAllocs, s.DriverFrees, s.Stitches, s.StitchReuses, s.Moves, s.EventsRecorded, s.EventQueries, s.EventFailures,
		s.BlocksPending, s.Streams, bytesize.Format(s.MetadataBytes))
	for _, l := range s.Labels {
		fmt.Fprintf(&sb, "for %s: %d blocks, %s; at most %d, %s\n", l.Label, l.Blocks.Current, bytesize.Format(l.Bytes.Current), l.Blocks.Peak, bytesize.Format(l.Bytes.Peak))
	}
	return sb.String()
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

// labels are the statistics of a pool's labels, by name. The zero value has none. Its
// methods are safe from several goroutines.
type labels struct {
	mu lock.Mutex
	of map[string]*LabelStats
}

// ofLocked returns a label's statistics, which it makes when they are new.
func (l *labels) ofLocked(name string) *LabelStats {
	s := l.of[name]
	if s == nil {
		if l.of == nil {
			l.of = map[string]*LabelStats{}
		}
		s = &LabelStats{Label: name}
		l.of[name] = s
	}
	return s
}

// add counts blocks that stand under a label, and their bytes as requested.
func (l *labels) add(name string, blocks, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.ofLocked(name)
	s.Blocks.Add(blocks)
	s.Bytes.Add(bytes)
}

// take counts one block less.
func (l *labels) take(name string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.ofLocked(name)
	s.Blocks.Take(1)
	s.Bytes.Take(bytes)
}

// all returns the statistics of all labels, by name.
func (l *labels) all() []LabelStats {
	list := l.copy()
	slices.SortFunc(list, func(a, b LabelStats) int { return cmp.Compare(a.Label, b.Label) })
	return list
}

func (l *labels) copy() (list []LabelStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.of {
		list = append(list, *s)
	}
	return list
}

func (l *labels) resetPeaks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.of {
		s.Blocks.Peak, s.Bytes.Peak = s.Blocks.Current, s.Bytes.Current
	}
}

// forget drops the statistics of labels under which no block stands, and returns how many.
func (l *labels) forget() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.of {
		if s.Blocks.Current == 0 {
			delete(l.of, name)
			n++
		}
	}
	return n
}

// counts are the statistics that the ledgers do not hold.
type counts struct {
	mapped, grown                   atomic.Int64 // added to with the lock of the heap that serves held
	retries, ooms                   atomic.Int64
	driverAllocs, driverFrees       atomic.Int64 // of segments; vmem.Mapper counts handles
	moves, movedBytes, decayedBytes atomic.Int64
}

func ledgers(heaps []*streamHeap) (list []*ledger.Ledger) {
	for _, h := range heaps {
		list = append(list, &h.Ledger)
	}
	return list
}

// Stats returns a snapshot of the books. It stops all streams' slow paths
// meanwhile, and takes time in proportion to the number of streams and of what lies in
// their magazines, however many blocks there are.
func (c *Pool) Stats() Stats {
	if c.isNone() {
		return Stats{}
	}
	st := c.totals()
	st.Labels = c.labels.all()
	return st
}

// totals are Stats without those of labels.
func (c *Pool) totals() Stats {
	heaps, unlock := c.heaps.lockAll()
	defer unlock()
	var homes [2]heap.Homes
	var meta, spare, largest int64
	for _, h := range heaps {
		h.AddHomes(&homes)
		n, most := h.Spare()
		spare, largest = spare+n, max(largest, most)
		meta += h.Magazine.Bytes()
	}
	t, book := c.heaps.sum(heaps), &c.space.Book
	st := Stats{
		Device: c.driver.Name(), Pool: c.name,
		All:   statsOf(book, &t, all, &homes[small], &homes[large]),
		Small: statsOf(book, &t, small, &homes[small]),
		Large: statsOf(book, &t, large, &homes[large]),
		Limit: c.budget.Printed(), Mapped: c.mapped.Load(), Grown: c.grown.Load(), Retries: c.retries.Load(), OOMs: c.ooms.Load(),
		DriverAllocs: c.driverAllocs.Load(), DriverFrees: c.driverFrees.Load(),
		Stitches: c.space.Stitches.Load(), StitchReuses: c.space.StitchReuses.Load(),
		Moves: c.moves.Load(), MovedBytes: c.movedBytes.Load(), DecayedBytes: c.decayedBytes.Load(), AsleepBytes: c.asleepBytes.Load(),
		BlocksPending: t[all][ledger.PendingBlocks].Now(), PendingBytes: t[all][ledger.PendingBytes].Now(),
		MagazineHits:  t[all][ledger.MagazineHits].Added,
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
	st.FreeBlocks, st.LargestFree = spare, largest
	for k := range homes {
		st.MagazineHits += homes[k].Hits
		st.FreeBlocks += homes[k].Cached
		st.LargestFree = max(st.LargestFree, homes[k].LargestCached)
	}
	st.LiveBytes = st.All.AllocatedBytes.Current
	st.CachedBytes = st.All.ReservedBytes.Current + st.AsleepBytes - st.LiveBytes - st.PendingBytes // C1
	st.Hits = st.All.Allocation.Allocated - st.Mapped - st.Grown
	return st
}

// statsOf returns the statistics of a kind, or of both, from the totals of a book and
// from what lies in magazines, of which the book does not know.
func statsOf(b *ledger.Book, t *ledger.Totals, k ledger.Kind, magazines ...*heap.Homes) PoolStats {
	stat := func(q ledger.Quantity) Stat {
		x := t[k][q]
		return Stat{Current: x.Now(), Peak: b.Peak(k, q), Allocated: x.Added, Freed: x.Taken}
	}
	active := func(out, pending, most ledger.Quantity) Stat {
		s, p := stat(out), t[k][pending].Now()
		s.Current += p
		s.Freed -= p
		s.Peak = b.Peak(k, most)
		return s
	}
	p := PoolStats{
		Allocation:           stat(ledger.OutBlocks),
		Segment:              stat(ledger.Segments),
		Active:               active(ledger.OutBlocks, ledger.PendingBlocks, ledger.ActiveBlocks),
		InactiveSplit:        stat(ledger.Splits),
		RequestedBytes:       stat(ledger.RequestedBytes),
		AllocatedBytes:       stat(ledger.OutBytes),
		ActiveRequestedBytes: active(ledger.RequestedBytes, ledger.PendingRequested, ledger.ActiveRequested),
		ActiveBytes:          active(ledger.OutBytes, ledger.PendingBytes, ledger.ActiveBytes),
		ReservedBytes:        stat(ledger.ReservedBytes),
		InactiveSplitBytes:   stat(ledger.SplitBytes),
	}
	for _, n := range magazines {
		p.Allocation.adjust(n.Hits, n.Cached)
		p.AllocatedBytes.adjust(n.HitBytes, n.CachedBytes)
		p.RequestedBytes.adjust(n.HitReq, n.CachedReq)
		p.Active.adjust(n.Hits, n.Cached)
		p.ActiveRequestedBytes.adjust(n.HitReq, n.CachedReq)
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

// ResetPeak sets every peak to the current value, those of labels too.
func (c *Pool) ResetPeak() {
	if c.isNone() {
		return
	}
	c.labels.resetPeaks()
	heaps, unlock := c.heaps.lockAll()
	defer unlock()
	c.heaps.sum(heaps)
	c.space.Book.ResetPeaks(ledgers(heaps))
}

// ForgetLabels drops the statistics of the labels under which no block of the pool stands,
// and returns how many these were. A program that makes labels without end calls it, for Stats
// and metrics have each label else that there ever was. A label that is used again begins
// anew. Safe from several goroutines.
func (c *Pool) ForgetLabels() int {
	if c.isNone() {
		return 0
	}
	return c.labels.forget()
}
