package metrics

import (
	"slices"

	"github.com/cupool/cupool"
)

// reading is a metric and where its value is.
type reading struct {
	Metric
	value    func(*cupool.Stats) int64 // of a pool, or
	ofKind   func(*cupool.PoolStats) int64
	ofLabel  func(*cupool.LabelStats) int64
	memory   func(free, total int64) int64 // of the device
	root     bool                          // counted for the device, not for private pools
	optional bool                          // 0 stands for none
}

// ofPool are the metrics that a pool has once.
var ofPool = []*reading{
	level("pending_bytes", "Bytes in blocks that were freed, but that other streams still use.", func(s *cupool.Stats) int64 { return s.PendingBytes }),
	level("pending_blocks", "Blocks that were freed, but that other streams still use.", func(s *cupool.Stats) int64 { return s.BlocksPending }),
	level("cached_bytes", "Bytes that are free and ready for reuse.", func(s *cupool.Stats) int64 { return s.CachedBytes }),
	level("asleep_bytes", "Bytes, live or not, that were given back to the device until the allocator wakes.", func(s *cupool.Stats) int64 { return s.AsleepBytes }),
	bound("largest_free_bytes", "Bytes of the largest cached block.", func(s *cupool.Stats) int64 { return s.LargestFree }),
	level("free_blocks", "Blocks that are free and ready for reuse, wholly free segments included.", func(s *cupool.Stats) int64 { return s.FreeBlocks }),
	limit("limit_bytes", "Bytes that may be reserved. Absent without a limit.", func(s *cupool.Stats) int64 { return s.Limit }),
	level("metadata_bytes", "Bytes of Go memory that the books take.", func(s *cupool.Stats) int64 { return s.MetadataBytes }),

	counter("hits_total", "Allocations served without a call to the driver for memory.", func(s *cupool.Stats) int64 { return s.Hits }),
	counter("mapped_total", "Allocations for which memory that the pool had was mapped.", func(s *cupool.Stats) int64 { return s.Mapped }),
	counter("grown_total", "Allocations for which memory came from the device.", func(s *cupool.Stats) int64 { return s.Grown }),
	counter("magazine_hits_total", "Allocations, of the hits, that took no lock.", func(s *cupool.Stats) int64 { return s.MagazineHits }),
	counter("retries_total", "Allocations that succeeded only after memory was reclaimed.", func(s *cupool.Stats) int64 { return s.Retries }),
	counter("out_of_memory_total", "Allocations that failed for lack of memory.", func(s *cupool.Stats) int64 { return s.OOMs }),
	counter("stitches_total", "Address ranges mapped to join free memory.", func(s *cupool.Stats) int64 { return s.Stitches }),
	counter("stitch_reuses_total", "Times that a range which joins free memory served again.", func(s *cupool.Stats) int64 { return s.StitchReuses }),
	counter("moves_total", "Segments, or handles of virtual memory, that went from an idle stream to another.", func(s *cupool.Stats) int64 { return s.Moves }),
	counter("moved_bytes_total", "Bytes that went from an idle stream to another.", func(s *cupool.Stats) int64 { return s.MovedBytes }),
	counter("decayed_bytes_total", "Bytes given back to the device because they were idle for long.", func(s *cupool.Stats) int64 { return s.DecayedBytes }),
	counter("driver_allocations_total", "Segments, or handles of virtual memory, asked of the device.", func(s *cupool.Stats) int64 { return s.DriverAllocs }),
	counter("driver_frees_total", "Segments, or handles of virtual memory, given back to the device.", func(s *cupool.Stats) int64 { return s.DriverFrees }),

	ofDevice(level("streams", "Streams of the device in use.", func(s *cupool.Stats) int64 { return s.Streams })),
	ofDevice(counter("events_recorded_total", "Events recorded.", func(s *cupool.Stats) int64 { return s.EventsRecorded })),
	ofDevice(counter("event_queries_total", "Times that the device was asked whether an event is done.", func(s *cupool.Stats) int64 { return s.EventQueries })),
	ofDevice(counter("event_failures_total", "Records or queries of events that failed.", func(s *cupool.Stats) int64 { return s.EventFailures })),
}

// ofMemory are the metrics of the memory of the device, whoever holds it.
var ofMemory = []*reading{
	{Metric: Metric{Name: "device_free_bytes", Help: "Bytes of the device that nobody holds, as its driver says.", Kind: Bound}, memory: func(free, _ int64) int64 { return free }},
	{Metric: Metric{Name: "device_size_bytes", Help: "Bytes that the device has.", Kind: Bound}, memory: func(_, total int64) int64 { return total }},
}

func level(name, help string, value func(*cupool.Stats) int64) *reading {
	return &reading{Metric: Metric{Name: name, Help: help, Kind: Level}, value: value}
}

func bound(name, help string, value func(*cupool.Stats) int64) *reading {
	return &reading{Metric: Metric{Name: name, Help: help, Kind: Bound}, value: value}
}

func limit(name, help string, value func(*cupool.Stats) int64) *reading {
	r := bound(name, help, value)
	r.optional = true
	return r
}

func counter(name, help string, value func(*cupool.Stats) int64) *reading {
	return &reading{Metric: Metric{Name: name, Help: help, Kind: Counter}, value: value}
}

func ofDevice(r *reading) *reading {
	r.root = true
	return r
}

// ofKind are the metrics that blocks up to Config.SmallLimit and others have, and their peaks,
// which a pool has once: those of its kinds are at different times.
var ofKind = slices.Concat(
	kinds("live_blocks", "Blocks that the program holds", func(p *cupool.PoolStats) *cupool.Stat { return &p.Allocation }),
	kinds("segments", "Ranges of memory held from the device", func(p *cupool.PoolStats) *cupool.Stat { return &p.Segment }),
	kinds("active_blocks", "Blocks that the program holds or other streams still use", func(p *cupool.PoolStats) *cupool.Stat { return &p.Active }),
	kinds("inactive_split_blocks", "Free blocks that share a segment with others", func(p *cupool.PoolStats) *cupool.Stat { return &p.InactiveSplit }),
	kinds("requested_bytes", "Bytes that the program asked for and holds", func(p *cupool.PoolStats) *cupool.Stat { return &p.RequestedBytes }),
	kinds("live_bytes", "Bytes in blocks that the program holds", func(p *cupool.PoolStats) *cupool.Stat { return &p.AllocatedBytes }),
	kinds("active_requested_bytes", "Bytes that were asked for in blocks that the program holds or other streams still use", func(p *cupool.PoolStats) *cupool.Stat { return &p.ActiveRequestedBytes }),
	kinds("active_bytes", "Bytes in blocks that the program holds or other streams still use", func(p *cupool.PoolStats) *cupool.Stat { return &p.ActiveBytes }),
	kinds("reserved_bytes", "Bytes held from the device", func(p *cupool.PoolStats) *cupool.Stat { return &p.ReservedBytes }),
	kinds("inactive_split_bytes", "Free bytes in segments that are in use", func(p *cupool.PoolStats) *cupool.Stat { return &p.InactiveSplitBytes }),
)

// ofLabel are the metrics of the names of Pool.WithLabel.
var ofLabel = slices.Concat(
	labels("label_blocks", "Live blocks of a label", func(l *cupool.LabelStats) *cupool.Stat { return &l.Blocks }),
	labels("label_bytes", "Bytes that were asked for and are live, of a label", func(l *cupool.LabelStats) *cupool.Stat { return &l.Bytes }),
)

// kinds returns the four metrics of a quantity of PoolStats.
func kinds(name, what string, stat func(*cupool.PoolStats) *cupool.Stat) []*reading {
	return four(name, what, "kind", func(r *reading, part func(*cupool.Stat) int64) {
		r.ofKind = func(p *cupool.PoolStats) int64 { return part(stat(p)) }
	})
}

// labels returns the four metrics of a quantity of LabelStats.
func labels(name, what string, stat func(*cupool.LabelStats) *cupool.Stat) []*reading {
	return four(name, what, "label", func(r *reading, part func(*cupool.Stat) int64) {
		r.ofLabel = func(l *cupool.LabelStats) int64 { return part(stat(l)) }
	})
}

// four returns the metrics of the fields of a cupool.Stat.
func four(name, what, key string, set func(*reading, func(*cupool.Stat) int64)) (list []*reading) {
	for _, m := range []struct {
		name, help string
		kind       Kind
		part       func(*cupool.Stat) int64
	}{
		{name, what + ", at present.", Level, func(s *cupool.Stat) int64 { return s.Current }},
		{"peak_" + name, what + ", the most at one time since the start or the last ResetPeak.", Bound, func(s *cupool.Stat) int64 { return s.Peak }},
		{"added_" + name + "_total", what + ", all that came since the start.", Counter, func(s *cupool.Stat) int64 { return s.Allocated }},
		{"removed_" + name + "_total", what + ", all that went since the start.", Counter, func(s *cupool.Stat) int64 { return s.Freed }},
	} {
		r := &reading{Metric: Metric{Name: m.name, Help: m.help, Kind: m.kind, Key: key}}
		if key == "kind" && m.kind == Bound {
			r.Key = ""
		}
		set(r, m.part)
		list = append(list, r)
	}
	return list
}
