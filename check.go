package cupool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/relaxed"
)

// The rules of the allocator's books, beside those of blocks (B1 to B5, see
// internal/block):
//
//	C1  reserved and asleep = live + pending + cached, and what the books
//	    say of each
//	C2  every segment is in its owner's table and in the index of addresses
//	C3  a Homed block is Live or Cached; a Pending block waits for someone
//	C4  the sum of homed blocks is within MagazineBytes and as booked
//	C5  chunks tile a home, Gaps are where they have no memory, and every
//	    Part backs exactly one stitched block, which is as large as its Parts;
//	    what a stream has stitched is of its own homes
//	C6  the members of a family hold what counts against its limit

// Check verifies every rule of the books and returns the first that is
// broken, by its number. It stops all streams' allocations meanwhile.
func (c *Caching) Check() error {
	unlock := c.lockAll()
	defer unlock()
	var got [2]census
	for _, s := range *c.streams.Load() {
		if err := s.verifyLocked(); err != nil {
			return err
		}
		s.countLocked(&got)
	}
	return errors.Join(c.compareBooks(got), c.family.check())
}

// lockAll takes the locks of all streams, in order, and keeps new ones out.
func (c *Caching) lockAll() (unlock func()) {
	c.streamsMu.Lock()
	list := *c.streams.Load()
	for _, s := range list {
		s.mu.Lock()
	}
	return func() {
		for _, s := range list {
			s.mu.Unlock()
		}
		c.streamsMu.Unlock()
	}
}

// census is what is found in the segments, to be held against the books.
type census struct {
	segments, reserved  int64
	asleep              int64 // without memory until Wake
	leaving             int64 // free, and being given back
	lent                int64 // to stitched blocks of the other pool
	out, outBytes       int64 // live and in magazines
	cachedBytes         int64 // in magazines
	cached, cachedReq   int64
	pending, pendBytes  int64
	freeBytes           int64
	fast, fastBytes     int64 // in fast bins
	split, splitBytes   int64
	hits, hitBytes      int64 // through magazines, not booked yet
	hitReq, requested   int64
	homedBytes, largest int64
}

// cachedFree returns the cached bytes that are not in magazines.
func (n *census) cachedFree() int64 { return n.freeBytes + n.fastBytes + n.leaving }

// countLocked adds what the stream's segments hold, small and large apart.
func (s *Stream) countLocked(sum *[2]census) {
	for _, seg := range s.segs {
		if seg == nil {
			continue
		}
		n := &sum[kindOf(seg.Large)]
		if !seg.Virtual && !seg.Stitched {
			n.segments++
			n.reserved += seg.Size
		}
		seg.Each(&s.c.blocks, func(_ block.ID, b *block.Block) {
			n.add(b)
			if !seg.Large && b.Word().State() == block.Part {
				sum[small].lent += b.Size
				sum[large].lent -= b.Size
			}
		})
	}
	for _, f := range s.leaving {
		n := &sum[f.kind()]
		n.segments++
		n.reserved += f.seg.Size
		n.leaving += f.seg.Size
	}
	for k := range s.homes {
		for _, h := range s.homes[k] {
			for _, ch := range h.chunks {
				switch ch.handle {
				case 0:
				case asleep:
					sum[k].asleep += ch.size
				default:
					sum[k].segments++
					sum[k].reserved += ch.size
				}
			}
		}
	}
}

func (n *census) add(b *block.Block) {
	w := b.Word()
	switch w.State() {
	case block.Free:
		n.freeBytes += b.Size
		n.largest = max(n.largest, b.Size)
		if b.Prev|b.Next != 0 {
			n.split++
			n.splitBytes += b.Size
		}
	case block.Pending:
		n.pending++
		n.pendBytes += b.Size
	case block.Live, block.Cached:
		if w == block.MakeWord(w.Gen(), block.Cached) { // in the fast bins
			n.fast++
			n.fastBytes += b.Size
			n.largest = max(n.largest, b.Size)
			return
		}
		n.out++
		n.outBytes += b.Size
		n.requested += b.Requested()
		if w.State() == block.Cached {
			n.cached++
			n.cachedBytes += b.Size
			n.cachedReq += b.Requested()
			n.largest = max(n.largest, b.Size)
		}
		if w.Has(block.Homed) {
			hits := int64(w.Gen() - b.HomeGen())
			n.hits += hits
			n.hitBytes += hits * b.Size
			n.hitReq += hits * b.Requested()
			n.homedBytes += b.Size
		}
	}
}

// compareBooks verifies C1 for both pools and their sum.
func (c *Caching) compareBooks(got [2]census) error {
	var t totals
	c.sumUp(&t)
	var reserved int64
	for k, n := range got {
		reserved += n.reserved
		if n.reserved+n.asleep-n.lent != n.outBytes+n.pendBytes+n.cachedFree() {
			return fmt.Errorf("C1: pool %d: reserved %d, asleep %d, lent %d, live %d + pending %d + cached %d", k, n.reserved, n.asleep, n.lent, n.outBytes-n.cachedBytes, n.pendBytes, n.cachedFree()+n.cachedBytes)
		}
		for _, f := range []struct {
			name string
			q    quantity
			got  int64
		}{
			{"segments", segments, n.segments}, {"reserved", reservedBytes, n.reserved},
			{"out blocks", outBlocks, n.out}, {"out bytes", outBytes, n.outBytes}, {"requested", requestedBytes, n.requested},
			{"pending blocks", pendingBlocks, n.pending}, {"pending bytes", pendingBytes, n.pendBytes},
			{"inactive splits", splits, n.split}, {"inactive split bytes", splitBytes, n.splitBytes},
		} {
			if book := t[k][f.q].cur(); book != f.got {
				return fmt.Errorf("C1: pool %d: the books say %d %s, the segments hold %d", k, book, f.name, f.got)
			}
		}
	}
	if r := c.reserved.Load(); r != reserved {
		return fmt.Errorf("C1: %d bytes are counted against the limit, %d are reserved", r, reserved)
	}
	return c.books.checkPeaks(&t, len(*c.streams.Load()))
}

// checkPeaks verifies that nothing is above its peak, where fold can see to
// that.
func (b *books) checkPeaks(t *totals, streams int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if relaxed.Reorders && streams > 1 {
		b.raise(t)
	}
	for k := range t {
		for q, n := range t.now(kind(k)) {
			if q := quantity(q); n > b.peaks[k][q] && (q < pendingBlocks || q >= activeBlocks && b.crossed.Load()) {
				return fmt.Errorf("C1: pool %d: quantity %d is %d, its peak %d", k, q, n, b.peaks[k][q])
			}
		}
	}
	return nil
}

// verifyLocked verifies the rules that one stream's lock guards.
func (s *Stream) verifyLocked() error {
	var homed, waiting int64
	for i, seg := range s.segs {
		if seg == nil {
			continue
		}
		if e, ok := s.c.segments.find(Ptr(seg.Base)); !ok || e.seg != seg || e.owner != s || seg.Index != uint32(i) {
			return fmt.Errorf("C2: segment %d at 0x%x of stream %d is not indexed", i, seg.Base, s.index)
		}
		if err := seg.Check(&s.c.blocks); err != nil {
			return fmt.Errorf("%w in segment 0x%x %s", err, seg.Base, seg.Layout(&s.c.blocks))
		}
		free := int64(0)
		var broken error
		seg.Each(&s.c.blocks, func(id block.ID, b *block.Block) {
			w := b.Word()
			switch {
			case w.State() == block.Free:
				free += b.Size
			case w.Has(block.Homed):
				homed += b.Size
			case w.State() == block.Pending:
				waiting += b.Size
			}
			if w.Has(block.Homed) && w.State() != block.Live && w.State() != block.Cached || w.State() == block.Pending && b.Uses() == 0 {
				broken = fmt.Errorf("C3: block %d (%s)", id, b)
			}
		})
		if broken != nil {
			return broken
		}
	}
	if waiting != s.waiting {
		return fmt.Errorf("C3: stream %d has %d pending bytes, its books say %d wait", s.index, waiting, s.waiting)
	}
	if homed != s.homedBytes || homed > max(s.c.cfg.MagazineBytes, 0) {
		return fmt.Errorf("C4: stream %d has %d bytes homed, its books say %d, the bound is %d", s.index, homed, s.homedBytes, s.c.cfg.MagazineBytes)
	}
	if err := s.verifyHomesLocked(); err != nil {
		return err
	}
	return s.verifyFreeSetsLocked()
}

// verifyHomesLocked verifies C5.
func (s *Stream) verifyHomesLocked() error {
	parts := map[block.ID]bool{}
	for _, st := range s.stitches {
		if p := slices.IndexFunc(st.chunks, func(p chunkRef) bool { return !slices.Contains(s.homes[kindOf(p.h.seg.Large)], p.h) }); p >= 0 {
			return fmt.Errorf("C5: a stitched range at %v has a chunk of a home that stream %d has not", st.base, s.index)
		}
		if st.seg == nil {
			continue
		}
		var sum int64
		for _, p := range st.parts {
			id, b := p.id, s.c.blocks.At(p.id)
			if parts[id] || b.Word().State() != block.Part {
				return fmt.Errorf("C5: block %d (%s) backs two stitched blocks or none", id, b)
			}
			parts[id] = true
			sum += b.Size
		}
		if sum != st.seg.Size {
			return fmt.Errorf("C5: a stitched block of %d bytes has parts of %d", st.seg.Size, sum)
		}
	}
	for k := range s.homes {
		for _, h := range s.homes[k] {
			if err := h.verify(&s.c.blocks, parts); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *home) verify(t *block.Table, parts map[block.ID]bool) (err error) {
	var at, gaps int64
	for _, ch := range h.chunks {
		if ch.off != at {
			return fmt.Errorf("C5: a chunk of home 0x%x begins at %d, want %d", h.seg.Base, ch.off, at)
		}
		if at += ch.size; ch.handle == 0 {
			gaps += ch.size
		}
	}
	if at != h.seg.Size || gaps != h.gaps {
		return fmt.Errorf("C5: the chunks of home 0x%x take %d bytes, %d of them gaps; its books say %d and %d", h.seg.Base, at, gaps, h.seg.Size, h.gaps)
	}
	h.seg.Each(t, func(id block.ID, b *block.Block) {
		switch b.Word().State() {
		case block.Part:
			if !parts[id] {
				err = fmt.Errorf("C5: block %d (%s) backs no stitched block", id, b)
			}
		case block.Gap:
			gaps -= b.Size
		}
	})
	if err == nil && gaps != 0 {
		err = fmt.Errorf("C5: home 0x%x has %d bytes of gaps that no block stands for", h.seg.Base, gaps)
	}
	return err
}

// verifyFreeSetsLocked verifies B3 in both directions: every block of a set
// is Free, and the sets hold all the free bytes that the segments have.
func (s *Stream) verifyFreeSetsLocked() error {
	var n [2]census
	s.countLocked(&n)
	for k := range s.pools {
		if err := s.pools[k].Check(); err != nil {
			return err
		}
		if s.pools[k].Bytes() != n[k].freeBytes {
			return fmt.Errorf("B3: the free set of pool %d holds %d bytes, the segments have %d", k, s.pools[k].Bytes(), n[k].freeBytes)
		}
	}
	return nil
}
