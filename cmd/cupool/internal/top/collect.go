package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// add counts a pool.
func (s *State) add(p pool, st *cupool.Stats) {
	m := Memory{
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		Reserved: st.All.ReservedBytes.Current, Blocks: st.All.Allocation.Current,
	}
	s.Memory = Memory{s.Live + m.Live, s.Pending + m.Pending, s.Cached + m.Cached, s.Reserved + m.Reserved, s.Blocks + m.Blocks}
	s.Peak += st.All.ReservedBytes.Peak
	if !p.Private {
		s.Limit += st.Limit
		s.unlimited = s.unlimited || st.Limit == 0
	}
	s.Allocs += st.All.Allocation.Allocated
	s.Frees += st.All.Allocation.Freed
	s.Hits += st.Hits
	s.Mapped += st.Mapped
	s.Grown += st.Grown
	s.DriverAllocs += st.DriverAllocs
	s.Retries += st.Retries
	s.OOMs += st.OOMs
	s.Places = append(s.Places, Place{Name: p.ID, Memory: m})
}

// addStreams counts the streams of a pool. The memory of a stitched segment is
// that of parts elsewhere, which count as its blocks do not.
func (s *State) addStreams(p *snapshot.Snapshot) {
	streams := map[uint64]*Memory{}
	for i := range p.Segments {
		seg := &p.Segments[i]
		m := streams[seg.Number]
		if m == nil {
			m = &Memory{}
			streams[seg.Number] = m
		}
		for _, b := range seg.Blocks {
			m.count(b, seg.Stitched)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(streams)) {
		s.Places = append(s.Places, Place{Name: fmt.Sprintf("stream %d", n), Stream: true, Memory: *streams[n]})
	}
}

// count counts a block. Bytes at addresses that share memory with others count
// once: in the block that is in use.
func (m *Memory) count(b snapshot.Block, stitched bool) {
	if b.State != snapshot.Gap && !stitched {
		m.Reserved += b.Size
	}
	switch b.State {
	case snapshot.Live:
		m.Live += b.Size
		m.Blocks++
	case snapshot.Pending:
		m.Pending += b.Size
	case snapshot.Cached, snapshot.Free:
		if !stitched {
			m.Cached += b.Size
		}
	}
}

// sortEvents keeps the last events of all allocators, by time. Snapshots are left
// out: every look at the page takes one.
func (s *State) sortEvents() {
	s.Events = slices.DeleteFunc(s.Events, func(e snapshot.Event) bool { return e.Kind == snapshot.Taken })
	slices.SortStableFunc(s.Events, func(a, b snapshot.Event) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Number, b.Number))
	})
	s.Events = s.Events[max(0, len(s.Events)-mostEvents):]
}

// holders are the parts of the program that hold memory, by name.
type holders map[string]*Holder

func (h holders) add(name string, bytes, blocks int64) {
	if h[name] == nil {
		h[name] = &Holder{Name: name}
	}
	h[name].Bytes += bytes
	h[name].Blocks += blocks
}

// list returns those that hold anything.
func (h holders) list() (all []Holder) {
	for _, x := range h {
		if x.Blocks > 0 {
			all = append(all, *x)
		}
	}
	return all
}

// addLines lists the lines that hold the memory of a pool.
func (s *State) addLines(p *snapshot.Snapshot) {
	for _, l := range snapshot.LinesOf(*p) {
		name := "not recorded"
		if len(l.Stack) > 0 {
			s.Recorded, name = true, stackName(l.Stack)
		}
		if l.Label != "" {
			name = l.Label + ": " + name
		}
		if l.Pool != "" {
			name = l.Pool + ": " + name
		}
		s.Lines = append(s.Lines, Holder{name, l.Bytes, l.Blocks})
	}
}
