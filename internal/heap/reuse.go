package heap

import (
	"cmp"
	"slices"

	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/vmem"
)

// What stitched ranges are used for again.
//
// A range stays mapped when its block is freed. The next block lies wherever enough of
// its memory in a row is free: in a window. Where no window is large enough, one at an
// end of its range becomes longer by chunks that are mapped beside it, if these are less
// than a longerFraction of those that a new range would have. A range has addresses on
// both sides for that, in multiples of what is mapped at first.
const (
	longerFraction  = 2
	addressesBefore = 1
	addressesBehind = 2
)

// window is a row of bytes of an idle range whose memory is free.
type window struct {
	st       *stitch
	from, to int64 // offsets from the range's base
	whole    int64 // offset of the first chunk that is free as a whole
	chunks   int   // with the one that ends it
}

func (w *window) size() int64 { return w.to - w.from }

// mark notes at the chunks of the runs what is free of them.
func (h *Heap) mark(runs []run) {
	h.listing = h.space.marks.Add(1)
	note := func(c *chunk, head, tail int64) {
		if c.listed != h.listing {
			c.listed, c.head, c.tail = h.listing, 0, 0
		}
		c.head, c.tail = max(c.head, head), max(c.tail, tail)
	}
	for _, r := range runs {
		if r.front > 0 {
			note(r.r.chunks[r.lo-1], 0, r.front)
		}
		for _, c := range r.r.chunks[r.lo:r.hi] {
			note(c, c.size, c.size)
		}
		if r.back > 0 {
			note(r.r.chunks[r.hi], r.back, 0)
		}
	}
}

// freeOf returns the bytes of a chunk that are free at its beginning and at its end, as
// of the last mark.
func (h *Heap) freeOf(c *chunk) (head, tail int64) {
	if c.listed != h.listing {
		return 0, 0
	}
	return c.head, c.tail
}

// eachWindow calls f for the windows of a range, up to where none can have least bytes
// any more. A chunk that is mapped to the range twice is in a window once.
func (h *Heap) eachWindow(st *stitch, least int64, f func(window)) {
	w, open, off := window{st: st}, false, int64(0)
	for _, c := range st.chunks {
		head, tail := h.freeOf(c)
		if open {
			if c.window == h.window {
				head = 0
			}
			w.to, w.chunks, c.window = off+head, w.chunks+1, h.window
			if open = head == c.size; !open {
				f(w)
			}
		}
		if !open && st.size-off < least {
			return
		}
		if !open && tail > 0 {
			open = true
			h.window = h.space.marks.Add(1)
			w = window{st: st, from: off + c.size - tail, to: off + c.size, whole: off, chunks: 1}
			if c.window = h.window; tail < c.size {
				w.whole = w.to
			}
		}
		off += c.size
	}
	if open {
		f(w)
	}
}

// reuse returns an idle range with need bytes of free memory in a row, from its skip on,
// perhaps after mapping more to it; or nil.
func (h *Heap) reuse(need int64, runs []run) (*stitch, error) {
	if len(h.stitches) == 0 {
		return nil, nil
	}
	h.mark(runs)
	if w := h.bestWindow(need); w.st != nil {
		h.space.StitchReuses.Add(1)
		w.st.skip = h.place(&w, need)
		return w.st, nil
	}
	if w := h.endWindow(); w.st != nil {
		return h.lengthen(&w, need, runs)
	}
	return nil, nil
}

// bestWindow returns the smallest window of at least need bytes, if there is one.
func (h *Heap) bestWindow(need int64) (best window) {
	for _, st := range h.stitches {
		if st.seg != nil || st.asleep || st.size < need {
			continue
		}
		h.eachWindow(st, need, func(w window) {
			if w.size() >= need && (best.st == nil || w.size() < best.size()) {
				best = w
			}
		})
	}
	return best
}

// place returns where in a window a block of need bytes begins: at a whole chunk where it
// can and, unless the heap is fragmented and has to save time, where it leaves no more of
// its last chunk unused than from the beginning of the window.
func (h *Heap) place(w *window, need int64) int64 {
	if w.to-w.whole < need || !h.fragmented && w.unused(w.whole+need) > w.unused(w.from+need) {
		return w.from
	}
	return w.whole
}

// unused returns the bytes from an offset to the end of its chunk, in the window.
func (w *window) unused(at int64) int64 {
	end := int64(0)
	for _, c := range w.st.chunks {
		if end += c.size; end >= at {
			break
		}
	}
	return min(end, w.to) - at
}

// endWindow returns the window with the most chunks of those at an end of their range, if
// there is one.
func (h *Heap) endWindow() (best window) {
	for _, st := range h.stitches {
		if st.seg != nil || st.asleep || len(st.chunks) <= best.chunks {
			continue
		}
		h.eachWindow(st, 0, func(w window) {
			if w.chunks > best.chunks && (w.from == 0 || w.to == st.size) {
				best = w
			}
		})
	}
	return best
}

// lengthen maps chunks of the runs beside a window until it holds need bytes. It returns
// the window's range, or nil where a new one is better.
func (h *Heap) lengthen(w *window, need int64, runs []run) (*stitch, error) {
	st, more, front := w.st, &stitch{}, w.to != w.st.size
	if !more.chooseBeside(need-w.size(), h.without(w, runs), front) {
		return nil, nil
	}
	room := st.at + device.Ptr(st.limit) - st.base - device.Ptr(st.size)
	at := st.base + device.Ptr(st.size)
	if front {
		room, at = st.base-st.at, st.base-device.Ptr(more.size)
	}
	if device.Ptr(more.size) > room || len(more.chunks)*longerFraction >= len(h.choose(need, runs).chunks) {
		return nil, nil
	}
	if err := h.space.Memory.Map(at, more.pieces()); err != nil {
		return nil, err
	}
	if st.skip = w.from; front {
		st.base, st.skip = at, more.size+w.to-need
		st.chunks = append(more.chunks, st.chunks...)
	} else {
		st.chunks = append(st.chunks, more.chunks...)
	}
	st.size += more.size
	h.noteStitch(len(more.chunks))
	h.space.Stitches.Add(1)
	return st, nil
}

// without returns the runs without the chunks of a window, those with the most bytes of
// whole chunks first.
func (h *Heap) without(w *window, runs []run) (rest []run) {
	h.window = h.space.marks.Add(1)
	off := int64(0)
	for _, c := range w.st.chunks {
		if off < w.to && off+c.size > w.from {
			c.window = h.window
		}
		off += c.size
	}
	for _, r := range runs {
		rest = append(rest, r.without(func(c *chunk) bool { return c.window == h.window })...)
	}
	slices.SortStableFunc(rest, func(a, b run) int { return cmp.Compare(b.size, a.size) })
	return rest
}

// without returns the rows of chunks that are left of a run without some. What it knows of
// its block is not theirs.
func (r run) without(taken func(*chunk) bool) (rows []run) {
	if r.front > 0 && taken(r.r.chunks[r.lo-1]) {
		r.front = 0
	}
	if r.back > 0 && taken(r.r.chunks[r.hi]) {
		r.back = 0
	}
	row := run{r: r.r, lo: r.lo, hi: r.lo, front: r.front}
	for i := r.lo; i <= r.hi; i++ {
		if i < r.hi && !taken(r.r.chunks[i]) {
			row.hi, row.size = i+1, row.size+r.r.chunks[i].size
			continue
		}
		if i == r.hi {
			row.back = r.back
		}
		if row.size+row.front+row.back > 0 {
			rows = append(rows, row)
		}
		row = run{r: r.r, lo: i + 1, hi: i + 1}
	}
	return rows
}

// chooseBeside picks whole chunks for need bytes, and for the rest the part of a chunk that
// it fills best, or a whole one: the first chunk of the range, or else its last one. It
// reports whether there were enough.
func (st *stitch) chooseBeside(need int64, runs []run, front bool) bool {
	left, next := st.addWhole(need, runs)
	if left == 0 {
		return true
	}
	switch r, _ := bestPart(left, runs, front, !front); {
	case r != nil && front:
		st.addFront(r, left)
	case r != nil:
		st.addBack(r)
	case next == nil:
		return false
	case front:
		st.addFirst(next)
	default:
		st.add(next)
	}
	return true
}

// reserve gets addresses for a range, with none beside it where they are scarce.
func (st *stitch) reserve(m *vmem.Mapper) (err error) {
	for _, times := range [...]int64{1, 0} {
		st.limit = (addressesBefore+addressesBehind)*times*st.size + st.size
		if st.at, err = m.Reserve(st.limit); err == nil {
			st.base = st.at + device.Ptr(addressesBefore*times*st.size)
			return nil
		}
	}
	return err
}

// shorten unmaps a range's chunks that match, and those behind them or before them that
// its block does not need.
func (h *Heap) shorten(st *stitch, uses func(*chunk) bool) error {
	lo, hi, off := 0, len(st.chunks), int64(0)
	before, behind := int64(0), int64(0)
	for i, c := range st.chunks {
		switch end := off + c.size; {
		case end <= st.skip && uses(c):
			lo, before = i+1, end
		case off >= st.skip+st.seg.Size && behind == 0 && uses(c):
			hi, behind = i, st.size-off
		}
		off += c.size
	}
	m := h.space.Memory
	if behind > 0 {
		if err := m.Unmap(st.base+device.Ptr(st.size-behind), behind); err != nil {
			return err
		}
		st.chunks, st.size = st.chunks[:hi], st.size-behind
	}
	if before > 0 {
		if err := m.Unmap(st.base, before); err != nil {
			return err
		}
		st.base, st.skip = st.base+device.Ptr(before), st.skip-before
		st.chunks, st.size = st.chunks[lo:], st.size-before
	}
	return nil
}
