package debug

import (
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// frozen is a snapshot that was taken before.
type frozen struct {
	in      info
	picture snapshot.Snapshot
	course  *series
}

// newFrozenServer serves snapshots: of a file that has one, under the file's name, and
// of one that has several, each under those of its device and its pool.
func newFrozenServer(name string, pictures []snapshot.Snapshot) *server {
	var all []source
	taken := map[string]int{}
	for _, p := range pictures {
		in := info{ID: name, Name: name, Device: p.Device, Private: p.Pool != ""}
		if len(pictures) > 1 && p.Device != "" {
			in.ID, in.Name = p.Device, p.Device
		}
		if p.Pool != "" {
			in.ID, in.Name = in.ID+"/"+p.Pool, p.Pool
		}
		in.ID = unique(in.ID, taken)
		all = append(all, newFrozen(in, p))
	}
	s := newServer(nil)
	s.sources = func() []source { return all }
	return s
}

func newFrozen(in info, p snapshot.Snapshot) *frozen {
	in.Live, in.Record, in.History = false, false, len(p.Events) > 0
	return &frozen{in, p, courseOf(p)}
}

func (f *frozen) info() info { return f.in }

func (f *frozen) stats() cupool.Stats         { return statsOf(f.picture) }
func (f *frozen) settings() []cupool.Setting  { return []cupool.Setting{} }
func (f *frozen) snapshot() snapshot.Snapshot { return f.picture }
func (f *frozen) whole() snapshot.Snapshot    { return f.picture }
func (f *frozen) series(time.Time) *series    { return f.course }
func (f *frozen) failure(string) *failure     { return nil }

// labelsOf counts the blocks of each label.
func labelsOf(p snapshot.Snapshot) (all []cupool.LabelStats) {
	places := map[string]int{}
	for _, seg := range p.Segments {
		for _, b := range seg.Blocks {
			if b.Label == "" || b.State != snapshot.Live && b.State != snapshot.Pending {
				continue
			}
			i, found := places[b.Label]
			if !found {
				i = len(all)
				places[b.Label] = i
				all = append(all, cupool.LabelStats{Label: b.Label})
			}
			all[i].Blocks.Add(1)
			all[i].Bytes.Add(b.Requested)
		}
	}
	slices.SortFunc(all, func(a, b cupool.LabelStats) int { return strings.Compare(a.Label, b.Label) })
	return all
}

func (f *frozen) events(after uint64) []snapshot.Event { return eventsAfter(f.picture.Events, after) }

// eventsAfter returns the events of higher numbers; the list is in their order.
func eventsAfter(all []snapshot.Event, after uint64) []snapshot.Event {
	i, _ := slices.BinarySearchFunc(all, after, func(e snapshot.Event, n uint64) int {
		if e.Number <= n {
			return -1
		}
		return 1
	})
	return all[i:]
}

// statsOf returns what of an allocator's statistics can be told from a snapshot. Peaks
// are as high as the present values at least.
func statsOf(p snapshot.Snapshot) (st cupool.Stats) {
	streams := map[uint64]bool{}
	for _, seg := range p.Segments {
		streams[seg.Number] = true
		pool := &st.Large
		if seg.Type == "small" {
			pool = &st.Small
		}
		used := slices.ContainsFunc(seg.Blocks, func(b snapshot.Block) bool { return b.State != snapshot.Free && b.State != snapshot.Gap })
		for _, of := range [...]*cupool.PoolStats{&st.All, pool} {
			of.Segment.Add(1)
			for _, b := range seg.Blocks {
				countBlock(of, &seg, b, used)
			}
		}
		for _, b := range seg.Blocks {
			switch b.State {
			case snapshot.Free, snapshot.Cached:
				st.FreeBlocks++
				st.LargestFree = max(st.LargestFree, b.Size)
			case snapshot.Pending:
				st.BlocksPending++
			}
		}
	}
	st.LiveBytes = st.All.AllocatedBytes.Current
	st.PendingBytes = st.All.ActiveBytes.Current - st.LiveBytes
	st.CachedBytes = st.All.ReservedBytes.Current - st.All.ActiveBytes.Current
	st.Streams = int64(len(streams))
	st.Device, st.Pool, st.Labels = p.Device, p.Pool, labelsOf(p)
	return st
}

// countBlock counts a block of a segment. The memory of a stitched segment is
// that of parts elsewhere, and is reserved there. used says that not all of the segment is free.
func countBlock(of *cupool.PoolStats, seg *snapshot.Segment, b snapshot.Block, used bool) {
	if !seg.Stitched && b.State != snapshot.Gap {
		of.ReservedBytes.Add(b.Size)
	}
	switch b.State {
	case snapshot.Live:
		of.Allocation.Add(1)
		of.AllocatedBytes.Add(b.Size)
		of.RequestedBytes.Add(b.Requested)
		fallthrough
	case snapshot.Pending:
		of.Active.Add(1)
		of.ActiveRequestedBytes.Add(b.Requested)
		of.ActiveBytes.Add(b.Size)
	case snapshot.Free: // what magazines cache is no split
		if used {
			of.InactiveSplit.Add(1)
			of.InactiveSplitBytes.Add(b.Size)
		}
	}
}
