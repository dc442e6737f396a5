package cupool

import (
	"fmt"
	"io"
	"text/tabwriter"
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
// through a magazine are not counted one by one. While goroutines allocate on
// several streams at once, a peak is of moments at which one of them looked
// at what the others had. Events count where the streams were made: a private
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
func (c *Caching) WriteStats(w io.Writer) error {
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
		limit = formatBytes(s.Limit)
	}
	_, err := fmt.Fprintf(w, `reserved %s = live %s + pending %s + cached %s; limit %s
largest free %s, fragmentation %.1f %%
hits %d (%.2f %%), of them without a lock %d; misses %d, retries %d, out of memory %d
driver: %d allocations, %d frees; stitches: %d, reused %d; moves between streams: %d; events: %d recorded, %d queries, %d failures
blocks pending %d, streams %d, books %s
`,
		formatBytes(s.All.ReservedBytes.Current), formatBytes(s.LiveBytes), formatBytes(s.PendingBytes), formatBytes(s.CachedBytes), limit,
		formatBytes(s.LargestFree), 100*s.Fragmentation(),
		s.Hits, 100*s.HitRatio(), s.MagazineHits, s.Misses, s.Retries, s.OOMs,
		s.DriverAllocs, s.DriverFrees, s.Stitches, s.StitchReuses, s.Moves, s.EventsRecorded, s.EventQueries, s.EventFailures,
		s.BlocksPending, s.Streams, formatBytes(s.MetadataBytes))
	return err
}

func (p *PoolStats) write(w io.Writer, prefix string) {
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
		{"requested", p.RequestedBytes, formatBytes},
		{"allocated", p.AllocatedBytes, formatBytes},
		{"active", p.ActiveBytes, formatBytes},
		{"reserved", p.ReservedBytes, formatBytes},
		{"inactive split", p.InactiveSplitBytes, formatBytes},
	} {
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t\n", prefix, r.name, r.format(r.s.Current), r.format(r.s.Peak), r.format(r.s.Allocated), r.format(r.s.Freed))
	}
}
