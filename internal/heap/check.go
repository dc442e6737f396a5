package heap

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// The rules of a heap, beside those of blocks (B1 to B5, see internal/block):
//
//	C1  over all heaps of a pool, reserved and asleep = live + pending + cached,
//	    and what the ledgers say of each
//	C2  every segment is in its heap's table and in the index of addresses
//	C3  a Homed block is Live or Cached; a Pending block waits for somebody
//	C4  the sum of homed blocks is within Policy.MagazineBytes and as counted
//	C5  chunks tile an address range, Gaps are where they have no memory, and
//	    every Part backs exactly one stitched block, which is as large as its
//	    Parts; what a heap has stitched is of chunks of its own ranges that have
//	    memory or that others took, lies within the addresses that it reserved,
//	    and a stitched block lies where its Parts are mapped

// Census is what is found in the segments of a heap, to be compared with its
// ledger.
type Census struct {
	Segments, Reserved int64
	Asleep             int64 // bytes without memory until they are woken
	Leaving            int64 // bytes that are free and being given back
	Lent               int64 // bytes to stitched blocks of the other kind
	Out, OutBytes      int64 // live and in magazines
	Requested          int64 // of them
	Pending, PendBytes int64
	PendRequested      int64
	Free, FreeBytes    int64
	Fast, FastBytes    int64 // in fast bins
	Splits, SplitBytes int64
	Largest            int64 // bytes of a block that is free or in a fast bin
	Homes
}

// Idle returns the cached bytes that are not in magazines.
func (n *Census) Idle() int64 { return n.FreeBytes + n.FastBytes + n.Leaving }

// Count adds what the heap's segments hold, small and large apart.
func (h *Heap) Count(sum *[2]Census) {
	for _, seg := range h.segs {
		if seg == nil {
			continue
		}
		n := &sum[ledger.KindOf(seg.Large)]
		if !seg.Virtual && !seg.Stitched {
			n.Segments++
			n.Reserved += seg.Size
		}
		seg.Each(&h.space.Blocks, func(_ block.ID, b *block.Block) {
			n.add(b)
			if !seg.Large && b.Word().State() == block.Part {
				sum[ledger.Small].Lent += b.Size
				sum[ledger.Large].Lent -= b.Size
			}
		})
	}
	for i := range h.leaving {
		f := &h.leaving[i]
		n := &sum[f.Kind()]
		n.Segments++
		n.Reserved += f.Seg.Size
		n.Leaving += f.Seg.Size
	}
	for k := range h.ranges {
		for _, r := range h.ranges[k] {
			for _, ch := range r.chunks {
				switch {
				case ch.handle == asleep:
					sum[k].Asleep += ch.size
				case ch.backed():
					sum[k].Segments++
					sum[k].Reserved += ch.size
				}
			}
		}
	}
}

func (n *Census) add(b *block.Block) {
	w := b.Word()
	switch w.State() {
	case block.Free:
		n.Free++
		n.FreeBytes += b.Size
		n.Largest = max(n.Largest, b.Size)
		if b.Prev|b.Next != 0 {
			n.Splits++
			n.SplitBytes += b.Size
		}
	case block.Pending:
		n.Pending++
		n.PendBytes += b.Size
		n.PendRequested += b.Requested()
	case block.Live, block.Cached:
		if w == block.MakeWord(w.Gen(), block.Cached) { // in the fast bins
			n.Fast++
			n.FastBytes += b.Size
			n.Largest = max(n.Largest, b.Size)
			return
		}
		n.Out++
		n.OutBytes += b.Size
		n.Requested += b.Requested()
		if w.Has(block.Homed) {
			n.Homes.add(b, w)
		}
	}
}

// Compare verifies C1 for both kinds and their sum, given the totals of the pool's
// ledgers, what was found in its heaps, and the bytes that count against its limit.
func (s *Space) Compare(t ledger.Totals, got *[2]Census, counted int64) error {
	var reserved int64
	for k, n := range got {
		reserved += n.Reserved
		if n.Reserved+n.Asleep-n.Lent != n.OutBytes+n.PendBytes+n.Idle() {
			return fmt.Errorf("C1: kind %d: reserved %d, asleep %d, lent %d, live %d + pending %d + cached %d", k, n.Reserved, n.Asleep, n.Lent, n.OutBytes-n.CachedBytes, n.PendBytes, n.Idle()+n.CachedBytes)
		}
		for _, f := range []struct {
			name string
			q    ledger.Quantity
			got  int64
		}{
			{"segments", ledger.Segments, n.Segments}, {"reserved", ledger.ReservedBytes, n.Reserved},
			{"out blocks", ledger.OutBlocks, n.Out}, {"out bytes", ledger.OutBytes, n.OutBytes}, {"requested", ledger.RequestedBytes, n.Requested},
			{"pending blocks", ledger.PendingBlocks, n.Pending}, {"pending bytes", ledger.PendingBytes, n.PendBytes},
			{"pending requested", ledger.PendingRequested, n.PendRequested},
			{"inactive splits", ledger.Splits, n.Splits}, {"inactive split bytes", ledger.SplitBytes, n.SplitBytes},
		} {
			if booked := t[k][f.q].Now(); booked != f.got {
				return fmt.Errorf("C1: kind %d: the ledgers say %d %s, the segments hold %d", k, booked, f.name, f.got)
			}
		}
	}
	if counted != reserved {
		return fmt.Errorf("C1: %d bytes are counted against the limit, %d are reserved", counted, reserved)
	}
	if k, q, ok := s.Book.Check(); !ok {
		return fmt.Errorf("C1: kind %d: quantity %d is above its peak", k, q)
	}
	return nil
}

// Check verifies the rules of one heap. pending is the bytes of blocks that wait for other
// streams or are in quarantine.
func (h *Heap) Check(pending int64) error {
	var homed, waiting int64
	for i, seg := range h.segs {
		if seg == nil {
			continue
		}
		if e, ok := h.space.Index.Find(seg.Base); !ok || e.Seg != seg || e.Owner != h.index || seg.Index != uint32(i) {
			return fmt.Errorf("C2: segment %d at 0x%x of heap %d is not indexed", i, seg.Base, h.index)
		}
		if err := seg.Check(&h.space.Blocks, h.space.Policy.unit()); err != nil {
			return fmt.Errorf("%w in segment 0x%x %s", err, seg.Base, seg.Layout(&h.space.Blocks))
		}
		var broken error
		seg.Each(&h.space.Blocks, func(id block.ID, b *block.Block) {
			w := b.Word()
			switch {
			case w.Has(block.Homed):
				homed += b.Size
			case w.State() == block.Pending:
				waiting += b.Size
			}
			if w.Has(block.Homed) && w.State() != block.Live && w.State() != block.Cached || w.State() == block.Pending && b.Uses() == 0 && !h.space.Policy.Quarantine {
				broken = fmt.Errorf("C3: block %d (%s)", id, b)
			}
		})
		if broken != nil {
			return broken
		}
	}
	if waiting != pending {
		return fmt.Errorf("C3: heap %d has %d pending bytes, %d wait", h.index, waiting, pending)
	}
	if homed != h.homedBytes || homed > max(h.space.Policy.MagazineBytes, 0) {
		return fmt.Errorf("C4: heap %d has %d bytes homed, its books say %d, the bound is %d", h.index, homed, h.homedBytes, h.space.Policy.MagazineBytes)
	}
	if err := h.checkRanges(); err != nil {
		return err
	}
	return h.checkFreeSets()
}

// checkRanges verifies C5.
func (h *Heap) checkRanges() error {
	parts := map[block.ID]bool{}
	for _, st := range h.stitches {
		if err := h.checkStitch(st); err != nil {
			return err
		}
		if st.seg == nil {
			continue
		}
		var sum int64
		for _, p := range st.parts {
			id, b := p.id, h.space.Blocks.At(p.id)
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
	for k := range h.ranges {
		for _, r := range h.ranges[k] {
			if err := r.check(&h.space.Blocks, parts); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkStitch verifies what C5 says of a stitched range and of where its block lies.
func (h *Heap) checkStitch(st *stitch) error {
	var size int64
	for _, c := range st.chunks {
		if size += c.size; c.away() {
			continue
		}
		if !slices.Contains(h.ranges[c.r.kind()], c.r) {
			return fmt.Errorf("C5: a stitched range at %v has a chunk of an address range that heap %d has not", st.base, h.index)
		}
		if i := c.r.chunkAt(c.off); i == len(c.r.chunks) || c.r.chunks[i] != c || !c.backed() && !st.asleep {
			return fmt.Errorf("C5: a stitched range at %v has a chunk at %v that is gone", st.base, c.r.at(c.off))
		}
		if now := h.space.marks.Load(); c.listed > now || c.window > now {
			return fmt.Errorf("C5: the chunk at %v has the marks %d and %d, the last one is %d", c.r.at(c.off), c.listed, c.window, now)
		}
	}
	if size != st.size || st.base < st.at || st.base+device.Ptr(size) > st.at+device.Ptr(st.limit) {
		return fmt.Errorf("C5: a stitched range at %v has %d bytes of chunks, its books say %d in the %d at %v", st.base, size, st.size, st.limit, st.at)
	}
	if st.seg == nil {
		return nil
	}
	if st.seg.Base != uint64(st.base)+uint64(st.skip) || st.skip < 0 || st.skip+st.seg.Size > st.size {
		return fmt.Errorf("C5: a stitched block of %d bytes at 0x%x is not %d bytes behind the %d of its range at %v", st.seg.Size, st.seg.Base, st.skip, st.size, st.base)
	}
	return h.checkCuts(st)
}

// checkCuts verifies that the Parts of a stitched block are the memory that is mapped
// to its addresses.
func (h *Heap) checkCuts(st *stitch) (err error) {
	st.cuts(st.seg.Size, func(c cut) bool {
		if c.r == nil {
			err = fmt.Errorf("C5: the stitched block at 0x%x lies in a chunk that another heap took", st.seg.Base)
			return false
		}
		if !slices.ContainsFunc(st.parts, func(p part) bool {
			b := h.space.Blocks.At(p.id)
			return p.r == c.r && b.Seg == c.r.seg.Index && b.Addr() == uint64(c.r.at(c.off)) && b.Size == c.size
		}) {
			err = fmt.Errorf("C5: the stitched block at 0x%x has no part for the %d bytes at %v that are mapped there", st.seg.Base, c.size, c.r.at(c.off))
		}
		return err == nil
	})
	return err
}

func (r *addressRange) check(t *block.Table, parts map[block.ID]bool) (err error) {
	var at, gaps int64
	for i, ch := range r.chunks {
		if ch.off != at {
			return fmt.Errorf("C5: a chunk of the address range at 0x%x begins at %d, want %d", r.seg.Base, ch.off, at)
		}
		for off := at; off < ch.end(); off += r.unit {
			if n := r.chunkOf(off); n != i {
				return fmt.Errorf("C5: chunk %d of the address range at 0x%x has the bytes at %d, its books say %d", i, r.seg.Base, off, n)
			}
		}
		if at += ch.size; ch.handle == 0 {
			gaps += ch.size
		}
	}
	if at != r.seg.Size || gaps != r.gaps {
		return fmt.Errorf("C5: the chunks of the address range at 0x%x take %d bytes, %d of them gaps; its books say %d and %d", r.seg.Base, at, gaps, r.seg.Size, r.gaps)
	}
	r.seg.Each(t, func(id block.ID, b *block.Block) {
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
		err = fmt.Errorf("C5: the address range at 0x%x has %d bytes of gaps that no block stands for", r.seg.Base, gaps)
	}
	return err
}

// checkFreeSets verifies B3 in both directions: every block of a set is Free,
// and the sets hold all the free bytes that the segments have. Spare agrees with
// them.
func (h *Heap) checkFreeSets() error {
	var n [2]Census
	h.Count(&n)
	for k := range h.free {
		if err := h.free[k].Check(); err != nil {
			return err
		}
		if h.free[k].Bytes() != n[k].FreeBytes {
			return fmt.Errorf("B3: free set %d holds %d bytes, the segments have %d", k, h.free[k].Bytes(), n[k].FreeBytes)
		}
	}
	blocks, largest := h.Spare()
	if found := n[ledger.Small].Free + n[ledger.Large].Free + n[ledger.Small].Fast + n[ledger.Large].Fast; blocks != found {
		return fmt.Errorf("B3: heap %d has %d spare blocks, the segments have %d", h.index, blocks, found)
	}
	if found := max(n[ledger.Small].Largest, n[ledger.Large].Largest); largest != found {
		return fmt.Errorf("B3: the largest spare block of heap %d has %d bytes, that of the segments %d", h.index, largest, found)
	}
	return nil
}
