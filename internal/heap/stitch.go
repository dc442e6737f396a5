package heap

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/nvtx"
)

// Stitching.
//
// When no free block is large enough, but free chunks together are, they are
// mapped a second time, side by side, at fresh addresses, and that is the block
// (GMLake, Guo et al., ASPLOS 2024). Nothing is unmapped and nothing waits: the
// chunks are free in the order of the heap's stream, and the block is for that
// stream. A stitched block may begin and end inside of a chunk, so that what is free
// beside a block serves, too. In the address range the pieces are taken as Parts
// until the block is freed; then they are free there again and merge. The mapping
// stays and is used again when its memory is free again. Small blocks are cut from
// address ranges alone, those of large blocks among them (sparePart), but what they leave
// free serves stitched blocks too.

// stitch is a range of addresses that chunks are mapped to a second time.
type stitch struct {
	at     device.Ptr // where its addresses begin
	limit  int64      // bytes of addresses
	base   device.Ptr // of its first chunk
	size   int64      // bytes mapped
	skip   int64      // bytes before the block
	chunks []*chunk   // in the order of the range
	seg    *block.Segment
	parts  []part // while the range holds a block
	asleep bool   // not mapped until it is woken

	freedAt uint64 // as Heap.FreedAt, of the last block on it
}

// part is a block of an address range that backs a piece of a stitched one.
type part struct {
	r  *addressRange
	id block.ID
}

// maxStitches bounds the ranges that a heap keeps mapped for later use. Those that hold
// blocks do not count.
const maxStitches = 512

// Allow says what may serve a large request, beside its own free chunks.
type Allow struct {
	SmallChunks  bool // what is free of the small ranges
	MoreStitches bool // more stitched ranges than a heap keeps
}

// ErrStitches says that as many stitched ranges are idle as a heap keeps. The caller calls
// DropStitchesBefore and tries again with Allow.MoreStitches: those that work may use stay.
var ErrStitches = errors.New("cupool: too many stitched ranges")

// idleRuns appends to runs the free blocks of a kind's ranges that a chunk begins or ends
// in, and sums up the bytes of whole chunks. What is smaller than the smallest chunk is not
// worth a mapping.
func (h *Heap) idleRuns(runs []run, k ledger.Kind) (_ []run, total int64) {
	h.free[k].EachFrom(h.space.Memory.Granularity, func(id block.ID, b *block.Block) bool {
		x := h.runOf(id, b, k)
		if x.size+x.front+x.back > 0 {
			runs = append(runs, x)
		}
		total += x.size
		return true
	})
	return runs, total
}

// sortRuns puts those of the large ranges first, and of these the ones with the most bytes
// of whole chunks.
func sortRuns(runs []run) {
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(b.r.kind(), a.r.kind()), cmp.Compare(b.size, a.size), cmp.Compare(a.r.seg.Base, b.r.seg.Base), cmp.Compare(a.from, b.from))
	})
}

// runOf describes a free block of a kind's ranges.
func (h *Heap) runOf(id block.ID, b *block.Block, k ledger.Kind) run {
	r := h.rangeOf(b, k)
	off := int64(b.Addr() - r.seg.Base)
	x := run{r: r, id: id, from: off, to: off + b.Size, lo: r.chunkAt(off), since: b.IdleSince()}
	x.hi = max(x.lo, r.chunkOf(x.to))
	if x.hi > x.lo {
		x.size = r.chunks[x.hi-1].end() - r.chunks[x.lo].off
	}
	if x.lo > 0 && r.chunks[x.lo-1].end() <= x.to {
		x.front = r.chunks[x.lo-1].end() - off
	}
	if x.hi < len(r.chunks) {
		x.back = max(x.to-r.chunks[x.hi].off, 0)
	}
	return x
}

// stitchable lists what is free for a large block of need bytes, of the large ranges and,
// where this is too little and it is allowed, of the small ones. The list is good until the
// next call.
func (h *Heap) stitchable(need int64, allow Allow) (runs []run, total int64) {
	runs, total = h.idleRuns(h.runs[:0], ledger.Large)
	front, back := longestParts(runs)
	if total += front.front + back.back; total < need && allow.SmallChunks {
		h.MergeFast()
		more := int64(0)
		runs, more = h.idleRuns(runs, ledger.Small)
		total += more
	}
	h.runs = runs
	return runs, total
}

func (h *Heap) rangeOf(b *block.Block, k ledger.Kind) *addressRange {
	for _, r := range h.ranges[k] {
		if r.seg.Index == b.Seg {
			return r
		}
	}
	return nil
}

// Missing returns the bytes of memory that a request of rounded bytes lacks,
// with what could be stitched: 0 when a free block serves it.
func (h *Heap) Missing(k ledger.Kind, rounded int64, allow Allow) int64 {
	switch {
	case h.FitSize(k, rounded) > 0:
		return 0
	case k == ledger.Small:
		return max(rounded-h.tail(ledger.Small), 0)
	default:
		_, total := h.stitchable(rounded, allow)
		return max(rounded-total, 0)
	}
}

// TakeVirtual makes a block for a request out of virtual memory: stitched from
// what is free, after growing by what is missing only. The block is in no set. It fails
// with ErrStitches, or with what the device or the budget says.
func (h *Heap) TakeVirtual(k ledger.Kind, rounded int64, allow Allow) (block.ID, *block.Block, error) {
	for {
		if id := h.fit(k, rounded); id != 0 {
			b := h.space.Blocks.At(id)
			if err := h.Slots(1); err != nil {
				return 0, nil, err
			}
			h.free[k].Remove(id, b)
			return id, b, nil
		}
		missing := rounded - h.tail(k)
		if k == ledger.Large {
			runs, total := h.stitchable(rounded, allow)
			missing = rounded - total
			if missing <= 0 {
				return h.stitch(rounded, runs, allow)
			}
		}
		if err := h.growBy(k, missing, rounded); err != nil {
			return 0, nil, err
		}
	}
}

// stitch returns a block on chunks of the runs, which together are large enough:
// on a range that is mapped already or on a new one.
func (h *Heap) stitch(need int64, runs []run, allow Allow) (block.ID, *block.Block, error) {
	chunks, err := 0, error(nil)
	st := h.reuse(need, runs)
	if st == nil {
		sortRuns(runs)
		st, chunks, err = h.lengthen(need, runs)
	}
	if st == nil && err == nil {
		if st, err = h.mapStitch(need, runs, allow); err == nil {
			chunks = len(st.chunks)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	if chunks > 0 {
		h.work.Mapped++
		h.noteStitch(chunks)
		h.space.Stitches.Add(1)
	}
	return h.begin(st, need, runs)
}

// begin makes the need bytes of a range from its skip on a block, which is in no set. Their
// memory is free in the runs.
func (h *Heap) begin(st *stitch, need int64, runs []run) (block.ID, *block.Block, error) {
	if err := h.Slots(2*len(st.chunks) + 1); err != nil {
		return 0, nil, err
	}
	h.takeParts(st, need, runs)
	st.seg = &block.Segment{Base: uint64(st.base) + uint64(st.skip), Size: need, Large: true, Stitched: true}
	h.addSegment(st.seg)
	h.space.Index.add(st.seg, st.size-st.skip)
	h.tell(Stitched, device.Ptr(st.seg.Base), need)
	id, b := st.seg.Begin(&h.slots)
	return id, b, nil
}

// cut is the memory of a chunk that backs a piece of a stitched block.
type cut struct {
	r         *addressRange
	off, size int64
}

// in returns the number of the run that has the memory, or -1.
func (c cut) in(runs []run) int {
	return slices.IndexFunc(runs, func(r run) bool { return r.r == c.r && r.from <= c.off && c.off+c.size <= r.to })
}

// cuts calls f for the memory under the first need bytes of the range, until it
// returns false.
func (st *stitch) cuts(need int64, f func(cut) bool) {
	skip := st.skip
	for _, p := range st.chunks {
		if skip >= p.size {
			skip -= p.size
			continue
		}
		c := cut{p.r, p.off + skip, min(need, p.size-skip)}
		if need -= c.size; !f(c) || need <= 0 {
			return
		}
		skip = 0
	}
}

// mapStitch maps chunks of the runs side by side until they hold need bytes. What a
// failing call left is undone.
func (h *Heap) mapStitch(need int64, runs []run, allow Allow) (_ *stitch, err error) {
	if !allow.MoreStitches && h.idleStitches() >= maxStitches {
		return nil, ErrStitches
	}
	defer nvtx.Start("stitch", need).End()
	m, st := h.space.Memory, choose(need, runs)
	if err = st.reserve(m); err != nil {
		return nil, err
	}
	if err = m.Map(st.base, st.pieces()); err != nil {
		return nil, errors.Join(err, m.Unreserve(st.at, st.limit))
	}
	h.stitches = append(h.stitches, st)
	return st, nil
}

// idleStitches returns how many stitched ranges hold no block.
func (h *Heap) idleStitches() (n int) {
	for _, st := range h.stitches {
		if st.seg == nil {
			n++
		}
	}
	return n
}

// idleAt returns the idle stitched range that has an address, or nil.
func (h *Heap) idleAt(addr uint64) *stitch {
	for _, st := range h.stitches {
		if st.seg == nil && !st.asleep && addr-uint64(st.base) < uint64(st.size) {
			return st
		}
	}
	return nil
}

// HasIdleAt reports whether an idle stitched range has an address.
func (h *Heap) HasIdleAt(addr uint64) bool { return h.idleAt(addr) != nil }

// takeStitchedAt is TakeAt in the idle stitched range that has the address.
func (h *Heap) takeStitchedAt(addr uint64, size, requested int64) (block.ID, *block.Block) {
	p, st := &h.space.Policy, h.idleAt(addr)
	if st == nil || p.KindOf(size) != ledger.Large {
		return 0, nil
	}
	skip := int64(addr - uint64(st.base))
	if skip%p.MinBlock != 0 || size > st.size-skip {
		return 0, nil
	}
	st.skip = skip
	runs := h.runsUnder(st, size)
	if runs == nil {
		return 0, nil
	}
	id, b, err := h.begin(st, size, runs)
	if err != nil {
		return 0, nil
	}
	h.space.note(ledger.Large, id, b)
	return h.out(requested, ledger.Large, id, b, 0)
}

// runsUnder lists the free blocks that have the memory under the first need bytes of a
// range, or none where not all of it is free, and there once.
func (h *Heap) runsUnder(st *stitch, need int64) (runs []run) {
	var seen []cut
	st.cuts(need, func(c cut) bool {
		if c.r == nil || slices.ContainsFunc(seen, func(o cut) bool { return o.r == c.r && o.off < c.off+c.size && c.off < o.off+o.size }) {
			runs = nil
			return false
		}
		id, b := c.r.seg.Find(&h.space.Blocks, c.r.seg.Base+uint64(c.off))
		x := run{r: c.r, id: id}
		if id != 0 && b.Word().State() == block.Free {
			x.from = int64(b.Addr() - c.r.seg.Base)
			x.to = x.from + b.Size
		}
		if c.in([]run{x}) < 0 {
			runs = nil
			return false
		}
		seen, runs = append(seen, c), append(runs, x)
		return true
	})
	return runs
}

// takeParts takes the memory under the first need bytes of a range out of the
// free blocks of the address ranges.
func (h *Heap) takeParts(st *stitch, need int64, runs []run) {
	var cuts []cut
	st.cuts(need, func(c cut) bool {
		cuts = append(cuts, c)
		return true
	})
	// From left to right, so that what is left behind a piece is the block in which the
	// next one of the same run lies.
	slices.SortFunc(cuts, func(a, b cut) int {
		return cmp.Or(cmp.Compare(a.r.seg.Base, b.r.seg.Base), cmp.Compare(a.off, b.off))
	})
	last, rest := -1, block.ID(0)
	for _, c := range cuts {
		i := c.in(runs)
		in := runs[i].id
		if i == last {
			in = rest
		}
		id, b, behind := h.carve(c.r.seg, in, c.off, c.size)
		last, rest = i, behind
		b.SetWord(block.MakeWord(b.Word().Gen(), block.Part))
		st.parts = append(st.parts, part{c.r, id})
	}
}

// unstitch makes the memory of a stitched block free where its chunks are mapped
// first. It was given back at a time of the device.
func (h *Heap) unstitch(seg *block.Segment, id block.ID, b *block.Block, at uint64) {
	i := slices.IndexFunc(h.stitches, func(st *stitch) bool { return st.seg == seg })
	st := h.stitches[i]
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
	h.slots.Put(id, b)
	h.space.Index.remove(seg)
	h.dropSegment(seg.Index)
	st.seg, st.freedAt = nil, at
	for _, p := range st.parts {
		h.insertFreed(p.r.seg, p.id, h.space.Blocks.At(p.id), at)
	}
	st.parts = st.parts[:0]
}

// unmapSecond ends the second mappings of a range's chunks from lo up to hi,
// which are free: idle stitched ranges are unmapped, those that hold a block
// become shorter beside it. The stream's work must be done.
func (h *Heap) unmapSecond(r *addressRange, lo, hi int) error {
	uses := func(p *chunk) bool { return p.r == r && r.chunks[lo].off <= p.off && p.off < r.chunks[hi-1].end() }
	for _, st := range h.stitches {
		if st.seg != nil && slices.ContainsFunc(st.chunks, uses) {
			if err := h.shorten(st, uses); err != nil {
				return err
			}
		}
	}
	return h.dropStitches(func(st *stitch) bool { return slices.ContainsFunc(st.chunks, uses) })
}

// DropIdleStitches unmaps all stitched ranges that hold no block. The stream's
// work must be done.
func (h *Heap) DropIdleStitches() error {
	return h.dropStitches(func(*stitch) bool { return true })
}

// DropStitchesBefore unmaps those that were freed before a time of the device, which the
// stream has passed.
func (h *Heap) DropStitchesBefore(time uint64) error {
	return h.dropStitches(func(st *stitch) bool { return st.freedAt < time })
}

// dropStitches unmaps the idle stitched ranges that match. One that cannot be
// unmapped stays; addresses that cannot be given back are left over.
func (h *Heap) dropStitches(match func(*stitch) bool) (err error) {
	m := h.space.Memory
	h.stitches = slices.DeleteFunc(h.stitches, func(st *stitch) bool {
		if st.seg != nil || err != nil || !match(st) {
			return false
		}
		if !st.asleep {
			if err = st.cutBack(m, 0); err != nil {
				return false
			}
		}
		err = m.Unreserve(st.at, st.limit)
		return true
	})
	return err
}
