package heap

import (
	"cmp"
	"slices"
)

// Where the memory of idle stitched ranges is free.

// window is a row of bytes of an idle range whose memory is free.
type window struct {
	st       *stitch
	from, to int64 // offsets from the range's base
	chunks   int   // with the one that ends it
}

func (w *window) size() int64 { return w.to - w.from }

// markBatch is how many marks a heap gets from its space at once.
const markBatch = 1 << 10

// newMark returns a mark of chunks, which may change heaps: no heap of the space had it
// before.
func (h *Heap) newMark() uint64 {
	if h.marks%markBatch == 0 {
		h.marks = h.space.marks.Add(markBatch) - markBatch
	}
	h.marks++
	return h.marks
}

// mark notes at the chunks of the runs what is free of them.
func (h *Heap) mark(runs []run) {
	h.listing = h.newMark()
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

// eachWindow calls f for the windows of a range. A chunk that is mapped to the range twice is
// in a window once.
func (h *Heap) eachWindow(st *stitch, f func(window)) {
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
		if !open && tail > 0 {
			open = true
			h.window = h.newMark()
			w = window{st: st, from: off + c.size - tail, to: off + c.size, chunks: 1}
			c.window = h.window
		}
		off += c.size
	}
	if open {
		f(w)
	}
}

// bestWindow returns the smallest window of at least need bytes, if there is one.
func (h *Heap) bestWindow(need int64) (best window) {
	for _, st := range h.stitches {
		if st.seg != nil || st.asleep || st.size < need {
			continue
		}
		h.eachWindow(st, func(w window) {
			if w.size() >= need && (best.st == nil || w.size() < best.size()) {
				best = w
			}
		})
	}
	return best
}

// endWindow returns the window with the most chunks of those at an end of their range, if
// there is one.
func (h *Heap) endWindow() (best window) {
	for _, st := range h.stitches {
		if st.seg != nil || st.asleep || len(st.chunks) <= best.chunks {
			continue
		}
		if n, size := h.frontWindow(st); n > best.chunks {
			best = window{st, 0, size, n}
		}
		if n, size := h.backWindow(st); n > best.chunks {
			best = window{st, st.size - size, st.size, n}
		}
	}
	return best
}

// frontWindow returns the chunks and the bytes of the window at the beginning of a range, or 0.
func (h *Heap) frontWindow(st *stitch) (n int, size int64) {
	if head, _ := h.freeOf(st.chunks[0]); head < st.chunks[0].size {
		return 0, 0
	}
	h.window = h.newMark()
	for _, c := range st.chunks {
		head, _ := h.freeOf(c)
		if c.window == h.window {
			head = 0
		}
		n, size, c.window = n+1, size+head, h.window
		if head < c.size {
			break
		}
	}
	return n, size
}

// backWindow is frontWindow for the end of a range.
func (h *Heap) backWindow(st *stitch) (n int, size int64) {
	h.window = h.newMark()
	for i := len(st.chunks) - 1; i >= 0; i-- {
		c := st.chunks[i]
		_, tail := h.freeOf(c)
		if tail == 0 || c.window == h.window {
			break
		}
		n, size, c.window = n+1, size+tail, h.window
		if tail < c.size {
			break
		}
	}
	return n, size
}

// without returns the runs without the chunks of a window, those with the most bytes of
// whole chunks first. The list is good until the next call.
func (h *Heap) without(w *window, runs []run) []run {
	h.window = h.newMark()
	off := int64(0)
	for _, c := range w.st.chunks {
		if off < w.to && off+c.size > w.from {
			c.window = h.window
		}
		off += c.size
	}
	rest := h.rest[:0]
	for i := range runs {
		rest = runs[i].without(rest, func(c *chunk) bool { return c.window == h.window })
	}
	h.rest = rest
	slices.SortStableFunc(rest, func(a, b run) int { return cmp.Compare(b.size, a.size) })
	return rest
}
