package cupool

import (
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// kind is which of a stream's two pools a block belongs to.
type kind int

const (
	small kind = iota
	large
	all // the sum of both, in the books only
)

func kindOf(isLarge bool) kind {
	if isLarge {
		return large
	}
	return small
}

// tally is the running form of a Stat.
type tally struct {
	cur, peak int64
	total     int64 // of what was added
	base      int64 // cur when total was last reset
}

func (t *tally) add(n int64) {
	t.cur += n
	t.total += n
	t.peak = max(t.peak, t.cur)
}

func (t *tally) stat() Stat {
	return Stat{Current: t.cur, Peak: t.peak, Allocated: t.total, Freed: t.total + t.base - t.cur}
}

// active is the Stat of what is out or pending.
func active(out *tally, pending, base, peak int64) Stat {
	s := out.stat()
	s.Current += pending
	s.Freed -= pending - base
	s.Peak = peak
	return s
}

// poolBooks are the tallies of one pool. "Out" blocks are those that left
// the free sets: live ones and those cached in magazines; Stats tells the
// two apart when it is read, so that the lock-free path counts nothing.
type poolBooks struct {
	out, outBytes, requested  tally
	segments, reserved        tally
	inactiveSplit, splitBytes tally
	pending, pendingBytes     int64
	activePeak                int64 // of out and pending
	activeBytesPeak           int64
	pendingBase               int64 // pending when totals were last reset
	pendingBytesBase          int64
	magazineHits              int64
}

// books are the allocator's statistics. While only the default stream
// exists its lock guards them; from the second stream on they have a lock of
// their own, taken last.
type books struct {
	shared bool // written under the lock of every existing stream
	mu     sync.Mutex
	pools  [3]poolBooks

	misses  atomic.Int64
	retries atomic.Int64
	ooms    atomic.Int64

	driverAllocs   atomic.Int64
	driverFrees    atomic.Int64
	eventsRecorded atomic.Int64
	eventQueries   atomic.Int64
	eventFailures  atomic.Int64
	stitches       atomic.Int64
	stitchReuses   atomic.Int64
	moves          atomic.Int64
	movedBytes     atomic.Int64
}

func (b *books) begin() {
	if b.shared {
		b.mu.Lock()
	}
}

func (b *books) end() {
	if b.shared {
		b.mu.Unlock()
	}
}

// allocated notes that a block left the free set for the program.
func (b *books) allocated(k kind, size, requested int64) {
	b.pools[k].allocated(size, requested)
	b.pools[all].allocated(size, requested)
}

func (p *poolBooks) allocated(size, requested int64) {
	p.out.add(1)
	p.outBytes.add(size)
	p.requested.add(requested)
	p.activePeak = max(p.activePeak, p.out.cur+p.pending)
	p.activeBytesPeak = max(p.activeBytesPeak, p.outBytes.cur+p.pendingBytes)
}

// freed notes that the program gave a block back for good.
func (b *books) freed(k kind, size, requested int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.out.cur--
		p.outBytes.cur -= size
		p.requested.cur -= requested
	}
}

// pend notes a block that begins (n 1) or ends (n -1) to wait for streams.
func (b *books) pend(k kind, n, size int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.pending += n
		p.pendingBytes += n * size
	}
}

// hits notes that a block went through a magazine n times.
func (b *books) hits(k kind, n, size, requested int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.out.total += n
		p.outBytes.total += n * size
		p.requested.total += n * requested
		p.magazineHits += n
	}
}

// splitAdded notes a free block that shares its segment with others.
func (b *books) splitAdded(k kind, bytes int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.inactiveSplit.add(1)
		p.splitBytes.add(bytes)
	}
}

// splitTaken notes n such blocks that left the free set.
func (b *books) splitTaken(k kind, n, bytes int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.inactiveSplit.cur -= n
		p.splitBytes.cur -= bytes
	}
}

// segmentAdded notes a segment that came from the device.
func (b *books) segmentAdded(k kind, size int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.segments.add(1)
		p.reserved.add(size)
	}
}

// segmentTaken notes a segment that went back.
func (b *books) segmentTaken(k kind, size int64) {
	for _, p := range [...]*poolBooks{&b.pools[k], &b.pools[all]} {
		p.segments.cur--
		p.reserved.cur -= size
	}
}

func (p *poolBooks) stats() PoolStats {
	return PoolStats{
		Allocation:         p.out.stat(),
		Segment:            p.segments.stat(),
		Active:             active(&p.out, p.pending, p.pendingBase, p.activePeak),
		InactiveSplit:      p.inactiveSplit.stat(),
		RequestedBytes:     p.requested.stat(),
		AllocatedBytes:     p.outBytes.stat(),
		ActiveBytes:        active(&p.outBytes, p.pendingBytes, p.pendingBytesBase, p.activeBytesPeak),
		ReservedBytes:      p.reserved.stat(),
		InactiveSplitBytes: p.splitBytes.stat(),
	}
}

func (p *poolBooks) each(fn func(*tally)) {
	for _, t := range [...]*tally{&p.out, &p.outBytes, &p.requested,
		&p.segments, &p.reserved, &p.inactiveSplit, &p.splitBytes} {
		fn(t)
	}
}

// Stats returns a snapshot of the books. It stops all streams' slow paths
// meanwhile and takes time in proportion to the number of blocks.
func (c *Caching) Stats() Stats {
	unlock := c.lockAll()
	defer unlock()
	var got [2]census
	var meta int64
	for _, s := range *c.streams.Load() {
		s.countLocked(&got)
		meta += s.magazine.Bytes()
	}
	c.books.begin()
	defer c.books.end()
	b := &c.books
	st := Stats{
		Small: b.pools[small].stats(), Large: b.pools[large].stats(), All: b.pools[all].stats(),
		Limit: c.limitBytes(), Misses: b.misses.Load(), Retries: b.retries.Load(), OOMs: b.ooms.Load(),
		DriverAllocs: b.driverAllocs.Load(), DriverFrees: b.driverFrees.Load(),
		EventsRecorded: b.eventsRecorded.Load(), EventQueries: b.eventQueries.Load(), EventFailures: b.eventFailures.Load(),
		Stitches: b.stitches.Load(), StitchReuses: b.stitchReuses.Load(),
		Moves: b.moves.Load(), MovedBytes: b.movedBytes.Load(),
		BlocksPending: b.pools[all].pending, PendingBytes: b.pools[all].pendingBytes,
		MagazineHits:  b.pools[all].magazineHits,
		MetadataBytes: meta + c.blocks.Bytes() + c.byAddr[small].Bytes() + c.byAddr[large].Bytes() + c.segments.bytes(),
		Streams:       int64(len(c.openStreams())),
	}
	for k, p := range [...]*PoolStats{&st.Small, &st.Large} {
		p.addMagazines(&got[k])
		st.All.addMagazines(&got[k])
		st.MagazineHits += got[k].hits
		st.CachedBytes += got[k].freeBytes + got[k].cachedBytes
		st.LargestFree = max(st.LargestFree, got[k].largest)
	}
	st.LiveBytes = st.All.AllocatedBytes.Current
	st.Hits = st.All.Allocation.Allocated - st.Misses
	return st
}

// addMagazines completes books that do not know what happened in magazines.
func (p *PoolStats) addMagazines(n *census) {
	p.Allocation.adjust(n.hits, n.cached)
	p.AllocatedBytes.adjust(n.hitBytes, n.cachedBytes)
	p.RequestedBytes.adjust(n.hitReq, n.cachedReq)
	p.Active.adjust(n.hits, n.cached)
	p.ActiveBytes.adjust(n.hitBytes, n.cachedBytes)
}

func (s *Stat) adjust(more, idle int64) {
	s.Allocated += more
	s.Current -= idle
	s.Freed += more + idle
}

// ResetPeak sets every peak to the current value.
func (c *Caching) ResetPeak() {
	unlock := c.lockAll()
	defer unlock()
	c.books.begin()
	defer c.books.end()
	for k := range c.books.pools {
		p := &c.books.pools[k]
		p.each(func(t *tally) { t.peak = t.cur })
		p.activePeak, p.activeBytesPeak = p.out.cur+p.pending, p.outBytes.cur+p.pendingBytes
	}
}

// ResetAccumulated sets to zero what was allocated and freed so far, hits,
// misses and the other counters of calls. Current values and peaks stay.
func (c *Caching) ResetAccumulated() {
	unlock := c.lockAll()
	defer unlock()
	var got [2]census
	for _, s := range *c.streams.Load() {
		s.bookHitsLocked()
		s.countLocked(&got)
	}
	b := &c.books
	b.begin()
	defer b.end()
	for k := range b.pools {
		b.pools[k].each(func(t *tally) { t.total, t.base = 0, t.cur })
		b.pools[k].magazineHits = 0
		b.pools[k].pendingBase, b.pools[k].pendingBytesBase = b.pools[k].pending, b.pools[k].pendingBytes
	}
	for k := range got { // what is cached in magazines was freed before
		b.pools[k].rebase(&got[k])
		b.pools[all].rebase(&got[k])
	}
	for _, n := range [...]*atomic.Int64{&b.misses, &b.retries, &b.ooms, &b.driverAllocs, &b.driverFrees, &b.eventsRecorded, &b.eventQueries, &b.eventFailures, &b.stitches, &b.stitchReuses, &b.moves, &b.movedBytes} {
		n.Store(0)
	}
}

// rebase takes what lies in magazines off the tallies' bases.
func (p *poolBooks) rebase(n *census) {
	p.out.base -= n.cached
	p.outBytes.base -= n.cachedBytes
	p.requested.base -= n.cachedReq
}

// bookHitsLocked books what went through the stream's magazines so far.
func (s *Stream) bookHitsLocked() {
	for _, seg := range s.segs {
		if seg == nil {
			continue
		}
		seg.Each(&s.c.blocks, func(_ block.ID, b *block.Block) {
			w := b.Word()
			if !w.Has(block.Homed) {
				return
			}
			s.c.books.begin()
			s.c.books.hits(kindOf(seg.Large), int64(w.Gen()-b.HomeGen()), b.Size, b.Requested())
			s.c.books.end()
			b.SetHome(w.Gen())
		})
	}
}
