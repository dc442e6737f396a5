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
	added, taken   int64 // sums; what is there is the difference
	added0, taken0 int64 // of them, before totals were last reset
	peak           int64 // no less than was ever there; see books.fold
}

func (t *tally) cur() int64 { return t.added - t.taken }

// raise keeps the peak and returns how far below it the tally is.
func (t *tally) raise() int64 {
	t.peak = max(t.peak, t.cur())
	return t.peak - t.cur()
}

func (t *tally) stat() Stat {
	return Stat{Current: t.cur(), Peak: t.peak, Allocated: t.added - t.added0, Freed: t.taken - t.taken0}
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

	room, splitRoom room // below the peaks
}

// room is how much may be added before fold must be called.
type room struct{ blocks, bytes int64 }

// take makes the room smaller by one block and returns a negative number
// when there was none left.
func (r *room) take(bytes int64) int64 {
	r.blocks--
	r.bytes -= bytes
	return r.blocks | r.bytes
}

// books are the allocator's statistics. While only the default stream
// exists its lock guards them; from the second stream on they have a lock of
// their own, taken last.
//
// Peaks are exact and yet cost an allocation a few subtractions: fold finds
// how many blocks and bytes may still go out before any peak is reached, and
// until they have, none needs to be looked at.
type books struct {
	shared bool // written under the lock of every existing stream
	mu     sync.Mutex
	pools  [3]poolBooks // that of all is summed up by fold

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
	decayedBytes   atomic.Int64
}

// begin and end are a call only where streams share the books.
func (b *books) begin() {
	if b.shared {
		b.lock()
	}
}

func (b *books) end() {
	if b.shared {
		b.unlock()
	}
}

//go:noinline
func (b *books) lock() { b.mu.Lock() }

//go:noinline
func (b *books) unlock() { b.mu.Unlock() }

// fold sums both pools up, raises the peaks to what is there, and finds how
// far below its peaks each pool is.
func (b *books) fold() {
	b.pools[all].sum(&b.pools[small], &b.pools[large])
	for k := range b.pools {
		p := &b.pools[k]
		p.segments.raise()
		p.reserved.raise()
		active, bytes := p.out.cur()+p.pending, p.outBytes.cur()+p.pendingBytes
		p.activePeak, p.activeBytesPeak = max(p.activePeak, active), max(p.activeBytesPeak, bytes)
		p.room.blocks = min(p.out.raise(), p.activePeak-active)
		p.room.bytes = min(p.outBytes.raise(), p.requested.raise(), p.activeBytesPeak-bytes)
		p.splitRoom = room{p.inactiveSplit.raise(), p.splitBytes.raise()}
	}
}

// sum sets the tallies, but for peaks, to the sum of two pools'.
func (p *poolBooks) sum(x, y *poolBooks) {
	xs, ys := x.tallies(), y.tallies()
	for i, t := range p.tallies() {
		t.added, t.taken = xs[i].added+ys[i].added, xs[i].taken+ys[i].taken
		t.added0, t.taken0 = xs[i].added0+ys[i].added0, xs[i].taken0+ys[i].taken0
	}
	p.pending, p.pendingBytes = x.pending+y.pending, x.pendingBytes+y.pendingBytes
	p.pendingBase, p.pendingBytesBase = x.pendingBase+y.pendingBase, x.pendingBytesBase+y.pendingBytesBase
	p.magazineHits = x.magazineHits + y.magazineHits
}

// allocated notes that a block left the free set for the program.
func (b *books) allocated(k kind, size, requested int64) {
	p := &b.pools[k]
	p.out.added++
	p.outBytes.added += size
	p.requested.added += requested
	if p.room.take(size)|b.pools[all].room.take(size) < 0 {
		b.fold()
	}
}

// freed notes that the program gave a block back for good.
func (b *books) freed(k kind, size, requested int64) {
	p := &b.pools[k]
	p.out.taken++
	p.outBytes.taken += size
	p.requested.taken += requested
}

// pend notes a block that begins (n 1) or ends (n -1) to wait for streams.
func (b *books) pend(k kind, n, size int64) {
	b.pools[k].pending += n
	b.pools[k].pendingBytes += n * size
}

// hits notes that a block went through a magazine n times.
func (b *books) hits(k kind, n, size, requested int64) {
	p := &b.pools[k]
	p.out.pass(n)
	p.outBytes.pass(n * size)
	p.requested.pass(n * requested)
	p.magazineHits += n
}

// pass counts what came and went.
func (t *tally) pass(n int64) {
	t.added += n
	t.taken += n
}

// splitAdded notes a free block that shares its segment with others.
func (b *books) splitAdded(k kind, bytes int64) {
	p := &b.pools[k]
	p.inactiveSplit.added++
	p.splitBytes.added += bytes
	if p.splitRoom.take(bytes)|b.pools[all].splitRoom.take(bytes) < 0 {
		b.fold()
	}
}

// splitTaken notes n such blocks that left the free set. With a negative n
// they are back as if they had not left.
func (b *books) splitTaken(k kind, n, bytes int64) {
	b.pools[k].inactiveSplit.taken += n
	b.pools[k].splitBytes.taken += bytes
	if n < 0 {
		b.fold()
	}
}

// segmentAdded notes a segment that came from the device.
func (b *books) segmentAdded(k kind, size int64) {
	b.pools[k].segments.added++
	b.pools[k].reserved.added += size
	b.fold()
}

// segmentTaken notes a segment that went back.
func (b *books) segmentTaken(k kind, size int64) {
	b.pools[k].segments.taken++
	b.pools[k].reserved.taken += size
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

func (p *poolBooks) tallies() [7]*tally {
	return [...]*tally{&p.out, &p.outBytes, &p.requested, &p.segments, &p.reserved, &p.inactiveSplit, &p.splitBytes}
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
	b.fold()
	st := Stats{
		Small: b.pools[small].stats(), Large: b.pools[large].stats(), All: b.pools[all].stats(),
		Limit: c.limitBytes(), Misses: b.misses.Load(), Retries: b.retries.Load(), OOMs: b.ooms.Load(),
		DriverAllocs: b.driverAllocs.Load(), DriverFrees: b.driverFrees.Load(),
		EventsRecorded: b.eventsRecorded.Load(), EventQueries: b.eventQueries.Load(), EventFailures: b.eventFailures.Load(),
		Stitches: b.stitches.Load(), StitchReuses: b.stitchReuses.Load(),
		Moves: b.moves.Load(), MovedBytes: b.movedBytes.Load(), DecayedBytes: b.decayedBytes.Load(), AsleepBytes: c.sleep.bytes.Load(),
		BlocksPending: b.pools[all].pending, PendingBytes: b.pools[all].pendingBytes,
		MagazineHits:  b.pools[all].magazineHits,
		MetadataBytes: meta + c.blocks.Bytes() + c.byAddr[small].Bytes() + c.byAddr[large].Bytes() + c.segments.bytes(),
		Streams:       int64(len(c.openStreams())),
	}
	for k, p := range [...]*PoolStats{&st.Small, &st.Large} {
		p.addMagazines(&got[k])
		st.All.addMagazines(&got[k])
		st.MagazineHits += got[k].hits
		st.CachedBytes += got[k].freeBytes + got[k].fastBytes + got[k].cachedBytes
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
	c.books.fold()
	for k := range c.books.pools {
		p := &c.books.pools[k]
		for _, t := range p.tallies() {
			t.peak = t.cur()
		}
		p.activePeak, p.activeBytesPeak = p.out.cur()+p.pending, p.outBytes.cur()+p.pendingBytes
	}
	c.books.fold()
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
	for k := range got {
		p := &b.pools[k]
		for _, t := range p.tallies() {
			t.added0, t.taken0 = t.added, t.taken
		}
		p.magazineHits = 0
		p.pendingBase, p.pendingBytesBase = p.pending, p.pendingBytes
		p.rebase(&got[k]) // what is cached in magazines was freed before
	}
	for _, n := range [...]*atomic.Int64{&b.misses, &b.retries, &b.ooms, &b.driverAllocs, &b.driverFrees, &b.eventsRecorded, &b.eventQueries, &b.eventFailures, &b.stitches, &b.stitchReuses, &b.moves, &b.movedBytes, &b.decayedBytes} {
		n.Store(0)
	}
}

// rebase counts what lies in magazines among what was freed.
func (p *poolBooks) rebase(n *census) {
	p.out.taken0 += n.cached
	p.outBytes.taken0 += n.cachedBytes
	p.requested.taken0 += n.cachedReq
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
