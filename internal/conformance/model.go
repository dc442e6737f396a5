package conformance

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/bytesize"
)

// model is the allocator without magazines, limits and speed: it says where
// every block has to be and what the statistics have to say. Only the
// addresses of segments it learns from the device.
type model struct {
	cfg   *cupool.Config
	segs  []*modelSegment // by base
	wait  []modelWaiter   // pending blocks, oldest first
	stats [3]cupool.PoolStats

	// As releaseIdle in ladder.go has them.
	highWater int64
	regrets   map[modelRegret]int
	lives     map[int]*modelLives // by stream

	// As takeIdle in stranded.go has them.
	proves  bool // events are done at once
	open    []int
	estates []int
	lenders map[int]*modelLender

	hits, misses, frees int64
	segments            int64 // ever asked for
	moves, movedBytes   int64
}

func newModel(cfg *cupool.Config, proves bool) *model {
	return &model{cfg: cfg, proves: proves, open: []int{0, 1, 2}, regrets: map[modelRegret]int{}, lives: map[int]*modelLives{}, lenders: map[int]*modelLender{}}
}

func (m *model) lender(stream int) *modelLender {
	if m.lenders[stream] == nil {
		m.lenders[stream] = &modelLender{}
	}
	return m.lenders[stream]
}

type modelSegment struct {
	base   uint64
	size   int64
	large  int // 0 small, 1 large
	stream int
	index  int           // among the stream's segments: the lowest that was free
	blocks []*modelBlock // tile the segment
}

type modelRegret struct {
	stream, large int
	size          int64
}

type modelLender struct {
	lent    bool
	regrets int
}

type modelBlock struct {
	off, size, requested int64
	state                block.State
}

type modelWaiter struct {
	seg *modelSegment
	b   *modelBlock
}

func raise(s *cupool.Stat, n int64) {
	s.Current += n
	s.Allocated += n
	s.Peak = max(s.Peak, s.Current)
}

func lower(s *cupool.Stat, n int64) {
	s.Current -= n
	s.Freed += n
}

// both applies a change to a pool's statistics and to their sum.
func (m *model) both(large int, f func(*cupool.PoolStats)) {
	f(&m.stats[large])
	f(&m.stats[2])
}

// roundUp returns the bytes of a block for a request.
func (m *model) roundUp(size int64) int64 { return roundUp(size, m.cfg.MinBlock) }

// fit returns the best fit for a request, or nil where the device has to be
// asked, and then the size of the segment.
func (m *model) fit(size int64, stream int) (seg *modelSegment, b *modelBlock, grow int64) {
	rounded := m.roundUp(size)
	large := m.kind(size)
	for _, s := range m.segs {
		if s.stream != stream || s.large != large || s.size > m.largest(rounded, stream) {
			continue
		}
		for _, f := range s.blocks {
			if f.state == block.Free && f.size >= rounded && (b == nil || f.size < b.size || f.size == b.size && s.index < seg.index) {
				seg, b = s, f
			}
		}
	}
	switch {
	case b != nil:
		return seg, b, 0
	case large == 0:
		return nil, nil, m.cfg.SmallSegment
	case rounded < m.cfg.LargeLimit:
		return nil, nil, m.cfg.LargeSegment
	default:
		return nil, nil, (rounded + m.cfg.SegmentRounding - 1) / m.cfg.SegmentRounding * m.cfg.SegmentRounding
	}
}

// grows reports whether a request needs more of the device, which may give
// idle segments back first and then waits for all work.
func (m *model) grows(size int64, stream int) bool {
	_, b, _ := m.fit(size, stream)
	return b == nil
}

// takeIdle moves a segment to the request's stream that a closed stream left
// or, when the reserve would become larger than it ever was, that another
// stream leaves idle.
func (m *model) takeIdle(size int64, stream int) {
	_, b, grow := m.fit(size, stream)
	if b != nil {
		return
	}
	if l := m.lender(stream); l.lent {
		l.lent = false
		l.regrets++
	}
	for _, from := range m.estates {
		if m.moveBest(size, m.largest(m.roundUp(size), stream), from, stream) {
			m.bury()
			return
		}
	}
	if !m.proves || m.stats[2].ReservedBytes.Current+grow <= m.highWater {
		return
	}
	from := slices.DeleteFunc(slices.Clone(m.open), func(s int) bool { return s == stream })
	slices.SortStableFunc(from, func(a, b int) int { return cmp.Compare(m.lender(a).regrets, m.lender(b).regrets) })
	for _, s := range from {
		if m.moveBest(size, grow, s, stream) {
			m.lender(s).lent = true
			return
		}
	}
}

// moveBest moves the idle segment of at most so many bytes that serves a
// request best.
func (m *model) moveBest(size, most int64, from, to int) bool {
	var best *modelSegment
	for _, seg := range m.segs {
		if seg.stream == from && seg.large == m.kind(size) && seg.isIdle() && seg.size >= m.roundUp(size) && seg.size <= most &&
			(best == nil || seg.size < best.size || seg.size == best.size && seg.index < best.index) {
			best = seg
		}
	}
	if best == nil {
		return false
	}
	if l := m.lender(from); slices.Contains(m.open, from) {
		switch {
		case m.stats[2].ReservedBytes.Current < 256*mib && m.held(from) < 32*mib:
			return false
		case l.regrets > 4:
			l.regrets--
			return false
		}
	}
	best.index, best.stream = m.freeIndex(to), to
	m.moves++
	m.movedBytes += best.size
	return true
}

func (m *model) held(stream int) (n int64) {
	for _, seg := range m.segs {
		if seg.stream == stream {
			n += seg.size
		}
	}
	return n
}

// bury forgets estates that hold nothing any more.
func (m *model) bury() {
	m.estates = slices.DeleteFunc(m.estates, func(e int) bool {
		return !slices.ContainsFunc(m.segs, func(s *modelSegment) bool { return s.stream == e })
	})
}

// close ends a stream: what it holds goes to the default stream when some of
// it is in use, and else to the next stream that needs it.
func (m *model) close(stream int) {
	m.open = slices.DeleteFunc(m.open, func(s int) bool { return s == stream })
	if slices.ContainsFunc(m.segs, func(s *modelSegment) bool { return s.stream == stream && !s.isIdle() }) {
		m.moveTo(stream, 0)
		m.livesOf(0).join(m.livesOf(stream))
	}
	delete(m.lives, stream)
	m.estates = append(m.estates, stream)
	m.bury()
}

// releaseIdle gives idle segments back for a request that would make the
// reserve larger than it ever was, unless that was regretted before.
func (m *model) releaseIdle(size int64, stream int) {
	_, b, grow := m.fit(size, stream)
	if b != nil {
		return
	}
	key := modelRegret{stream, m.kind(size), grow}
	limit := 4
	reserved, most := m.stats[2].ReservedBytes.Current, m.stats[2].ActiveBytes.Peak
	if m.kind(size) == 1 && reserved+grow > most+most/8 {
		limit += 8 * bits.Len64(uint64(m.livesOf(stream).served>>30))
	}
	if m.regrets[key] > limit {
		m.regrets[key]--
		return
	}
	if need := reserved + grow - max(m.highWater, 256*mib); need > 0 {
		m.trim(reserved - need)
	}
}

func (m *model) kind(size int64) int {
	if m.roundUp(size) > m.cfg.SmallLimit {
		return 1
	}
	return 0
}

// alloc predicts an allocation, and fails when the allocator did otherwise.
func (m *model) alloc(got cupool.Block, stream int) error {
	size := got.Size()
	seg, b, grow := m.fit(size, stream)
	if b == nil {
		seg = &modelSegment{base: uint64(got.Ptr()), size: grow, stream: stream, large: m.kind(size)}
		seg.index = m.freeIndex(stream)
		b = &modelBlock{size: grow}
		seg.blocks = []*modelBlock{b}
		i, found := slices.BinarySearchFunc(m.segs, seg.base, func(s *modelSegment, a uint64) int { return cmp.Compare(s.base, a) })
		if found {
			return fmt.Errorf("%v is where a segment begins, the model wants a new one", got)
		}
		m.segs = slices.Insert(m.segs, i, seg)
		m.misses++
		m.segments++
		m.both(seg.large, func(s *cupool.PoolStats) { raise(&s.Segment, 1); raise(&s.ReservedBytes, grow) })
		m.highWater = max(m.highWater, m.stats[2].ReservedBytes.Current)
		if seg.large == 1 {
			m.noteSegment(grow, stream)
		}
	} else {
		m.hits++
	}
	if want := seg.base + uint64(b.off); want != uint64(got.Ptr()) {
		return fmt.Errorf("%v is not where the model puts it, 0x%x", got, want)
	}
	m.take(seg, b, size)
	if seg.large == 1 {
		m.livesOf(stream).count(b.size, 1)
	}
	return nil
}

// freeIndex returns the lowest number that none of a stream's segments has.
func (m *model) freeIndex(stream int) int {
	used := map[int]bool{}
	for _, seg := range m.segs {
		used[seg.index] = used[seg.index] || seg.stream == stream
	}
	for i := 0; ; i++ {
		if !used[i] {
			return i
		}
	}
}

// take makes a free block live and splits off the rest.
func (m *model) take(seg *modelSegment, b *modelBlock, size int64) {
	rounded := m.roundUp(size)
	if len(seg.blocks) > 1 {
		m.both(seg.large, func(s *cupool.PoolStats) { lower(&s.InactiveSplit, 1); lower(&s.InactiveSplitBytes, b.size) })
	}
	least := m.cfg.MinBlock
	if seg.large == 1 {
		least = m.cfg.MinSplit
	}
	if rest := b.size - rounded; rest >= least {
		r := &modelBlock{off: b.off + rounded, size: rest}
		seg.blocks = slices.Insert(seg.blocks, slices.Index(seg.blocks, b)+1, r)
		b.size = rounded
		m.both(seg.large, func(s *cupool.PoolStats) { raise(&s.InactiveSplit, 1); raise(&s.InactiveSplitBytes, rest) })
	}
	b.state, b.requested = block.Live, size
	m.both(seg.large, func(s *cupool.PoolStats) {
		raise(&s.Allocation, 1)
		raise(&s.AllocatedBytes, b.size)
		raise(&s.RequestedBytes, size)
		raise(&s.Active, 1)
		raise(&s.ActiveBytes, b.size)
	})
}

// free takes a live block back; with pending it waits for retire.
func (m *model) free(p cupool.Ptr, pending bool) {
	for _, seg := range m.segs {
		for _, b := range seg.blocks {
			if seg.base+uint64(b.off) != uint64(p) || b.state != block.Live {
				continue
			}
			m.both(seg.large, func(s *cupool.PoolStats) {
				lower(&s.Allocation, 1)
				lower(&s.AllocatedBytes, b.size)
				lower(&s.RequestedBytes, b.requested)
			})
			if pending {
				b.state = block.Pending
				m.wait = append(m.wait, modelWaiter{seg, b})
			} else {
				m.release(seg, b)
			}
			return
		}
	}
}

// retire frees what is pending, stream by stream.
func (m *model) retire() {
	slices.SortStableFunc(m.wait, func(a, b modelWaiter) int { return cmp.Compare(a.seg.stream, b.seg.stream) })
	for _, w := range m.wait {
		m.release(w.seg, w.b)
	}
	m.wait = nil
}

func (m *model) release(seg *modelSegment, b *modelBlock) {
	m.both(seg.large, func(s *cupool.PoolStats) { lower(&s.Active, 1); lower(&s.ActiveBytes, b.size) })
	if seg.large == 1 {
		m.livesOf(seg.stream).count(b.size, -1)
	}
	b.state = block.Free
	i := slices.Index(seg.blocks, b)
	join := func(at int, n *modelBlock) {
		m.both(seg.large, func(s *cupool.PoolStats) { lower(&s.InactiveSplit, 1); lower(&s.InactiveSplitBytes, n.size) })
		b.off, b.size = min(b.off, n.off), b.size+n.size
		seg.blocks = slices.Delete(seg.blocks, at, at+1)
	}
	if i+1 < len(seg.blocks) && seg.blocks[i+1].state == block.Free {
		join(i+1, seg.blocks[i+1])
	}
	if i > 0 && seg.blocks[i-1].state == block.Free {
		join(i-1, seg.blocks[i-1])
	}
	if len(seg.blocks) > 1 {
		m.both(seg.large, func(s *cupool.PoolStats) { raise(&s.InactiveSplit, 1); raise(&s.InactiveSplitBytes, b.size) })
	}
}

func (s *modelSegment) isIdle() bool { return len(s.blocks) == 1 && s.blocks[0].state == block.Free }

func (m *model) idleSegments() bool { return slices.ContainsFunc(m.segs, (*modelSegment).isIdle) }

// trim gives wholly free segments back, the largest first.
func (m *model) trim(keep int64) (released int64) {
	idle := slices.DeleteFunc(slices.Clone(m.segs), func(s *modelSegment) bool { return !s.isIdle() })
	slices.SortStableFunc(idle, func(a, b *modelSegment) int { return cmp.Compare(b.size, a.size) })
	for _, seg := range idle {
		if m.stats[2].ReservedBytes.Current <= keep {
			break
		}
		m.both(seg.large, func(s *cupool.PoolStats) { lower(&s.Segment, 1); lower(&s.ReservedBytes, seg.size) })
		m.segs = slices.Delete(m.segs, slices.Index(m.segs, seg), slices.Index(m.segs, seg)+1)
		m.frees++
		m.regrets[modelRegret{seg.stream, seg.large, seg.size}]++
		released += seg.size
	}
	m.bury()
	return released
}

// moveTo makes one stream's segments another one's.
func (m *model) moveTo(from, to int) {
	moved := slices.DeleteFunc(slices.Clone(m.segs), func(s *modelSegment) bool { return s.stream != from })
	slices.SortFunc(moved, func(a, b *modelSegment) int { return cmp.Compare(a.index, b.index) })
	for _, seg := range moved {
		seg.index = m.freeIndex(to)
		seg.stream = to
	}
}

func (m *model) resetPeak() {
	m.eachStat(func(s *cupool.Stat) { s.Peak = s.Current })
}

func (m *model) resetAccumulated() {
	m.eachStat(func(s *cupool.Stat) { s.Allocated, s.Freed = 0, 0 })
	m.hits, m.misses, m.segments, m.frees, m.moves, m.movedBytes = 0, 0, 0, 0, 0, 0
}

func (m *model) eachStat(f func(*cupool.Stat)) {
	for i := range m.stats {
		p := &m.stats[i]
		for _, s := range statsOf(p) {
			f(s)
		}
	}
}

func statsOf(p *cupool.PoolStats) []*cupool.Stat {
	return []*cupool.Stat{&p.Allocation, &p.Segment, &p.Active, &p.InactiveSplit, &p.RequestedBytes, &p.AllocatedBytes, &p.ActiveBytes, &p.ReservedBytes, &p.InactiveSplitBytes}
}

// layout prints what Pool.Layout has to.
func (m *model) layout() string {
	var sb strings.Builder
	for _, seg := range m.segs {
		fmt.Fprintf(&sb, "%d %s: ", seg.stream, []string{"small", "large"}[seg.large])
		for _, b := range seg.blocks {
			fmt.Fprintf(&sb, "[%s %s]", b.state, bytesize.Exact(b.size))
		}
		sb.WriteByte('\n')
	}
	return sb.String()
}

// expect returns the statistics that the allocator has to show. What the
// model does not know is taken from got.
func (m *model) expect(got cupool.Stats) cupool.Stats {
	want := cupool.Stats{
		Small: m.stats[0], Large: m.stats[1], All: m.stats[2],
		Hits: m.hits, Misses: m.misses, DriverAllocs: m.segments, DriverFrees: m.frees, Streams: int64(len(m.open)),
		Moves: m.moves, MovedBytes: m.movedBytes,
		EventsRecorded: got.EventsRecorded, EventQueries: got.EventQueries, MetadataBytes: got.MetadataBytes,
	}
	for _, seg := range m.segs {
		for _, b := range seg.blocks {
			switch b.state {
			case block.Free:
				want.CachedBytes += b.size
				want.FreeBlocks++
				want.LargestFree = max(want.LargestFree, b.size)
			case block.Pending:
				want.PendingBytes += b.size
				want.BlocksPending++
			default:
				want.LiveBytes += b.size
			}
		}
	}
	return want
}
