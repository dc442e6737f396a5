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

// sum is a quantity in all ledgers.
type sum struct{ added, taken int64 }

func (s sum) cur() int64 { return s.added - s.taken }

// totals are the sums of the small and large pools and of both.
type totals [3][quantities]sum

// books are the allocator's statistics: what the ledgers do not hold.
type books struct {
	mu    sync.Mutex // taken last; guards what follows
	peaks [3][peaks]int64
	bases totals // when totals were last reset

	shares  atomic.Int64 // counts the times that all rooms became void
	crossed atomic.Bool  // set when a block was pending for the first time

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

// sumUp sets t to the sum of the ledgers. The streams are locked.
func (c *Caching) sumUp(t *totals) {
	for _, s := range *c.streams.Load() {
		t.add(&s.ledger)
	}
	t.addPools()
}

func (t *totals) add(l *ledger) {
	for k := range l.pools {
		for q := range l.pools[k] {
			x := &l.pools[k][q]
			t[k][q].added += x.added.Load()
			t[k][q].taken += x.taken.Load()
		}
	}
}

func (t *totals) addPools() {
	for q := range t[all] {
		t[all][q] = sum{t[small][q].added + t[large][q].added, t[small][q].taken + t[large][q].taken}
	}
}

// now returns what the peaks are kept of.
func (t *totals) now(k kind) (n [peaks]int64) {
	for q := range quantities {
		n[q] = t[k][q].cur()
	}
	n[activeBlocks] = n[outBlocks] + n[pendingBlocks]
	n[activeBytes] = n[outBytes] + n[pendingBytes]
	return n
}

// raise makes the peaks no lower than what is there. The books are locked.
// What is out is active, so that the one's peak is no lower than the other's.
func (b *books) raise(t *totals) {
	for k := range t {
		p := &b.peaks[k]
		for q, n := range t.now(kind(k)) {
			p[q] = max(p[q], n)
		}
		p[activeBlocks] = max(p[activeBlocks], p[outBlocks])
		p[activeBytes] = max(p[activeBytes], p[outBytes])
	}
}

// fold raises the peaks to what is there, and gives the stream room below
// them: half of what others do not have already, or all of it while there is
// one stream. Where the others have more than there is by now, since one that
// had no room left added on, what they have becomes void. A stream that has
// just counted an allocation may not see that, and adds this one allocation
// above the peaks.
func (s *Stream) fold() {
	c, b := s.c, &s.c.books
	b.mu.Lock()
	defer b.mu.Unlock()
	streams := *c.streams.Load()
	for {
		var v survey
		shares := b.shares.Load()
		for _, o := range streams {
			if rooms := v.look(&o.ledger, shares); o != s {
				v.held.add(rooms)
			}
		}
		v.least.addPools()
		v.most.addPools()
		b.raise(&v.least)
		free, ok := b.below(&v.most).without(v.held)
		if ok {
			s.ledger.give(free, len(streams), shares)
			return
		}
		b.shares.Add(1)
	}
}

// below returns how far below the peaks each pool is.
func (b *books) below(t *totals) (free spaces) {
	for k := range t {
		n := t.now(kind(k))
		for q := range n {
			n[q] = b.peaks[k][q] - n[q]
		}
		free.out[k] = space{n[outBlocks], min(n[outBytes], n[requestedBytes])}
		free.active[k] = space{n[activeBlocks], n[activeBytes]}
		free.split[k] = space{n[splits], n[splitBytes]}
	}
	return free
}

// survey is what fold sees of ledgers whose streams go on meanwhile: sums that
// are no more than what was there at any moment of the look, sums that are no
// less, and the rooms. The streams count what they add before they take the
// room for it, and give room back before they count what they took away. So
// most, with held, is no less than what they may have without another fold.
type survey struct {
	least, most totals
	held        spaces
}

// look adds a ledger to the sums, in the order that makes them so, and returns
// its rooms.
func (v *survey) look(l *ledger, shares int64) (rooms spaces) {
	each := func(f func(t *tally, least, most *sum)) {
		for k := range l.pools {
			for q := range l.pools[k] {
				f(&l.pools[k][q], &v.least[k][q], &v.most[k][q])
			}
		}
	}
	each(func(t *tally, least, _ *sum) { least.added += t.added.Load() })
	each(func(t *tally, least, most *sum) {
		n := t.taken.Load()
		least.taken += n
		most.taken += n
	})
	rooms = l.held(shares)
	each(func(t *tally, _, most *sum) { most.added += t.added.Load() })
	return rooms
}

// stats returns the statistics of a pool, or of both. The books are locked.
func (b *books) stats(t *totals, k kind) PoolStats {
	stat := func(q quantity) Stat {
		x, base := t[k][q], b.bases[k][q]
		return Stat{Current: x.cur(), Peak: b.peaks[k][q], Allocated: x.added - base.added, Freed: x.taken - base.taken}
	}
	active := func(out, pending, peak quantity) Stat {
		s, p := stat(out), t[k][pending].cur()
		s.Current += p
		s.Freed -= p - b.bases[k][pending].cur()
		s.Peak = max(s.Peak, b.peaks[k][peak])
		return s
	}
	return PoolStats{
		Allocation:         stat(outBlocks),
		Segment:            stat(segments),
		Active:             active(outBlocks, pendingBlocks, activeBlocks),
		InactiveSplit:      stat(splits),
		RequestedBytes:     stat(requestedBytes),
		AllocatedBytes:     stat(outBytes),
		ActiveBytes:        active(outBytes, pendingBytes, activeBytes),
		ReservedBytes:      stat(reservedBytes),
		InactiveSplitBytes: stat(splitBytes),
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
	b := &c.books
	b.mu.Lock()
	defer b.mu.Unlock()
	var t totals
	c.sumUp(&t)
	b.raise(&t) // what is there can be above the peaks, see fold
	st := Stats{
		Small: b.stats(&t, small), Large: b.stats(&t, large), All: b.stats(&t, all),
		Limit: c.limitBytes(), Misses: b.misses.Load(), Retries: b.retries.Load(), OOMs: b.ooms.Load(),
		DriverAllocs: b.driverAllocs.Load(), DriverFrees: b.driverFrees.Load(),
		EventsRecorded: b.eventsRecorded.Load(), EventQueries: b.eventQueries.Load(), EventFailures: b.eventFailures.Load(),
		Stitches: b.stitches.Load(), StitchReuses: b.stitchReuses.Load(),
		Moves: b.moves.Load(), MovedBytes: b.movedBytes.Load(), DecayedBytes: b.decayedBytes.Load(), AsleepBytes: c.sleep.bytes.Load(),
		BlocksPending: t[all][pendingBlocks].cur(), PendingBytes: t[all][pendingBytes].cur(),
		MagazineHits:  t[all][magazineHits].added - b.bases[all][magazineHits].added,
		MetadataBytes: meta + c.blocks.Bytes() + c.byAddr[small].Bytes() + c.byAddr[large].Bytes() + c.segments.bytes(),
		Streams:       int64(len(c.family.root.openStreams())),
	}
	for k, p := range [...]*PoolStats{&st.Small, &st.Large} {
		p.addMagazines(&got[k])
		st.All.addMagazines(&got[k])
		st.MagazineHits += got[k].hits
		st.CachedBytes += got[k].cachedFree() + got[k].cachedBytes
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
	b := &c.books
	b.mu.Lock()
	defer b.mu.Unlock()
	var t totals
	c.sumUp(&t)
	for k := range t {
		b.peaks[k] = t.now(kind(k))
	}
	b.shares.Add(1) // there is no room below the new peaks
	c.stacks.resetLabels(func(s *Stat) { s.Peak = s.Current })
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bases = totals{}
	c.sumUp(&b.bases)
	for k := range got {
		b.bases.rebase(kind(k), &got[k])
		b.bases.rebase(all, &got[k])
	}
	for _, n := range [...]*atomic.Int64{&b.misses, &b.retries, &b.ooms, &b.driverAllocs, &b.driverFrees, &b.eventsRecorded, &b.eventQueries, &b.eventFailures, &b.stitches, &b.stitchReuses, &b.moves, &b.movedBytes, &b.decayedBytes} {
		n.Store(0)
	}
	c.stacks.resetLabels(func(s *Stat) { s.Allocated, s.Freed = 0, 0 })
}

// rebase counts what lies in magazines among what was freed.
func (t *totals) rebase(k kind, n *census) {
	t[k][outBlocks].taken += n.cached
	t[k][outBytes].taken += n.cachedBytes
	t[k][requestedBytes].taken += n.cachedReq
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
			s.noteHits(b, int64(w.Gen()-b.HomeGen()))
			b.SetHomeGen(w.Gen())
		})
	}
}
