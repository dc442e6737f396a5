package model

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// compare holds the statistics of all pools against the model. No call is
// under way.
func (m *Model) compare() {
	var reserved int64
	for _, p := range m.openPools() {
		if err := p.Check(); err != nil {
			m.fail("books: %v", err)
		}
		st := p.Stats()
		reserved += st.All.ReservedBytes.Current
		pic := p.Snapshot()
		m.compareStats(p, st, pic)
		m.comparePicture(p, pic)
		m.compareLabels(p)
	}
	if used := m.d.Held(); used != reserved && !m.guards {
		m.fail("books: the device has given %d bytes, the allocator and its pools say that they hold %d", used, reserved)
	}
	if limit := m.pools[0].Stats().Limit; limit > 0 && reserved > limit {
		m.fail("books: %d bytes are reserved, with a limit of %d", reserved, limit)
	}
}

// openPools returns the pools that are not closed, also those that a retired
// one may have left.
func (m *Model) openPools() (list []*Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if p.state == open {
			list = append(list, p)
		}
	}
	return list
}

func (m *Model) compareStats(p *Pool, st cupool.Stats, pic cupool.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := func(what string, got, want int64) {
		if got != want {
			m.failLocked("books: %s says %d %s, there are %d", p.name, got, what, want)
		}
	}
	between := func(what string, got, least, most int64) {
		if got < least || got > most {
			m.failLocked("books: %s says %d %s, there are %d to %d", p.name, got, what, least, most)
		}
	}
	later := int64(p.later)
	plans := m.plansLocked(p)
	between("live blocks", st.All.Allocation.Current, p.live+plans.Arenas, p.live+plans.Arenas+later)
	if later == 0 {
		is("bytes asked for in live blocks", st.All.RequestedBytes.Current, p.bytes+plans.ArenaBytes)
	}
	if !p.loose {
		is("allocations", st.All.Allocation.Allocated, p.allocs)
		is("bytes ever asked for", st.All.RequestedBytes.Allocated, p.asked)
	}
	is("bytes live, pending and cached but not asleep", st.LiveBytes+st.PendingBytes+st.CachedBytes-st.AsleepBytes, st.All.ReservedBytes.Current)
	is("hits, mapped and grown", st.Hits+st.Mapped+st.Grown, st.All.Allocation.Allocated)
	is("live and pending blocks as active", st.All.Active.Current, st.All.Allocation.Current+st.BlocksPending)
	is("small and large reserved bytes", st.Small.ReservedBytes.Current+st.Large.ReservedBytes.Current, st.All.ReservedBytes.Current)
	if st.LiveBytes < p.bytes {
		m.failLocked("books: %s says %d live bytes, fewer than the %d that were asked for", p.name, st.LiveBytes, p.bytes)
	}
	// A block waits until all its uses are done, or ordered before the later work of the
	// stream that gets it. It may wait longer, until somebody asks.
	var least int64
	for _, t := range p.waiting {
		ordered := func(s *Stream) bool { return t.b.holds == 0 && m.isOrdered(t, s) }
		if !t.b.later && !slices.ContainsFunc(m.mayGet(t, pic), ordered) {
			least++
		}
	}
	most := int64(len(p.waiting))
	if m.keeps || p.loose {
		most = st.BlocksPending
	}
	between("pending blocks", st.BlocksPending, least, most)
	if p.limit > 0 && st.All.ReservedBytes.Current > p.limit {
		m.failLocked("books: %s has reserved %d bytes, with a limit of %d", p.name, st.All.ReservedBytes.Current, p.limit)
	}
}

// mayGet returns the streams that may get freed memory: its own, which is the default
// one once that is closed, and the one that lent it, whose segment it lies in. Where
// work ends by itself, on other devices than the simulated one, the memory may have
// gone to any stream since.
func (m *Model) mayGet(t *tenant, pic cupool.Snapshot) []*Stream {
	if m.d.sim == nil {
		return m.streams
	}
	list := []*Stream{t.owner}
	if t.owner.state == closed {
		list[0] = m.streams[0]
	}
	at := t.b.Ptr()
	for _, seg := range pic.Segments {
		if at < seg.Address || at >= seg.Address+cupool.Ptr(seg.Size) {
			continue
		}
		for _, s := range m.streams {
			if s.state != closed && s.Handle() == seg.Stream {
				list = append(list, s)
			}
		}
	}
	return list
}

// isOrdered reports whether all work that may use freed memory is done, or before
// the later work of a stream.
func (m *Model) isOrdered(t *tenant, s *Stream) bool {
	return !slices.ContainsFunc(t.uses, func(u use) bool { return !m.d.before(u, s.s) })
}

// comparePicture holds a snapshot against what is live.
func (m *Model) comparePicture(p *Pool, pic cupool.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := map[cupool.Ptr]snapshot.Block{}
	var end cupool.Ptr
	for _, seg := range pic.Segments {
		next := seg.Address
		if next < end {
			m.failLocked("books: segments of the snapshot overlap at %v", next)
		}
		for _, b := range seg.Blocks {
			if b.Address != next {
				m.failLocked("books: the snapshot has a block at %v, want %v", b.Address, next)
			}
			next += cupool.Ptr(b.Size)
			if b.State == "live" {
				at[b.Address] = b
			}
		}
		if end = seg.Address + cupool.Ptr(seg.Size); next != end {
			m.failLocked("books: the blocks of the snapshot's segment at %v end at %v, want %v", seg.Address, next, end)
		}
	}
	live := m.plansLocked(p).Arenas
	for _, b := range m.live {
		if b.pool != p || b.of != nil {
			continue
		}
		live++
		if got, ok := at[b.Ptr()]; !ok || got.Requested != b.Size() || got.Label != b.label {
			m.failLocked("books: the snapshot has %+v for the live block %v with label %q", got, b, b.label)
		}
	}
	if p.later == 0 && live != int64(len(at)) {
		m.failLocked("books: the snapshot has %d live blocks, there are %d", len(at), live)
	}
}

// compareLabels holds the statistics of labels against what is live.
func (m *Model) compareLabels(p *Pool) {
	labels := map[string]cupool.LabelStats{}
	for _, l := range p.Stats().Labels {
		labels[l.Label] = l
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes := map[string]int64{}
	for _, b := range m.live {
		if b.pool == p && b.label != "" {
			bytes[b.label] += b.Size()
		}
	}
	for name, n := range bytes {
		if got := labels[name].Bytes.Current; got < n {
			m.failLocked("books: %s says %d bytes for %s, there are %d", p.name, got, name, n)
		}
	}
	for name, l := range labels {
		if got := l.Bytes.Current; len(p.waiting) == 0 && p.later == 0 && !m.keeps && got != bytes[name] {
			m.failLocked("books: %s says %d bytes for %s, there are %d", p.name, got, name, bytes[name])
		}
	}
}

// couldFit returns why a request must be served, whatever the allocator did
// before: because what is live, with the memory that it keeps others from
// using, and the request fit together. Where it cannot know it returns nil.
func (m *Model) couldFit(p *Pool, cfg cupool.Config, size int64) error {
	if !m.exact || m.d.sim == nil || len(m.held) > 0 || slices.ContainsFunc(m.pools, func(p *Pool) bool { return p.loose }) || cfg.GrowthFactor > 1 || cfg.MaxSplit > 0 || cfg.Strategy >= cupool.Segregated || cfg.Divisions != (cupool.Divisions{}) {
		return nil
	}
	var all, own int64
	for _, o := range m.openPools() {
		n := m.mustHold(o)
		if o == p {
			n += growth(p, &cfg, size)
			own = n
		}
		all += n
	}
	_, limit, _ := m.d.MemInfo()
	if most := m.pools[0].Stats().Limit; most > 0 {
		limit = min(limit, most)
	}
	if all <= limit && (p.limit == 0 || own <= p.limit) {
		return fmt.Errorf("%d bytes hold all that is live and the request; %d may be reserved", all, limit)
	}
	return nil
}

// granularity is that of virtual memory, in bytes.
const granularity = 2 * mib

// mustHold returns the most bytes that an allocator has to hold for what is
// live in it: the segments that live blocks are in, or the pieces of virtual
// memory that they may lie in.
func (m *Model) mustHold(p *Pool) (n int64) {
	if p.isolated || p.asleep {
		return p.Stats().All.ReservedBytes.Current // it gives nothing back
	}
	if p.segments {
		for _, seg := range p.Snapshot().Segments {
			if seg.Allocated > 0 {
				n += seg.Size
			}
		}
		return n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.live {
		if b.pool == p {
			n += roundUp(b.Size(), granularity) + granularity // it may lie across a border
		}
	}
	return n
}

// growth returns the most bytes that a request takes from the device.
func growth(p *Pool, cfg *cupool.Config, size int64) int64 {
	rounded := roundUp(size, cfg.MinBlock)
	switch {
	case !p.segments:
		return roundUp(rounded, granularity) + granularity
	case rounded <= cfg.SmallLimit:
		return cfg.SmallSegment
	case rounded < cfg.LargeLimit:
		return cfg.LargeSegment
	}
	return roundUp(rounded, cfg.SegmentRounding)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
