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
		h.eachWindow(st, need, func(w window) {
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
		for _, w := range [...]window{h.frontWindow(st), h.backWindow(st)} {
			if w.chunks > best.chunks {
				best = w
			}
		}
	}
	return best
}

// frontWindow returns the window at the beginning of a range. It has no chunks where there
// is none.
func (h *Heap) frontWindow(st *stitch) window {
	w := window{st: st}
	h.window = h.space.marks.Add(1)
	for _, c := range st.chunks {
		head, _ := h.freeOf(c)
		if w.chunks == 0 && head < c.size {
			break
		}
		if c.window == h.window {
			head = 0
		}
		w.to, w.chunks, c.window = w.to+head, w.chunks+1, h.window
		if head < c.size {
			break
		}
	}
	return w
}

// backWindow is frontWindow for the end of a range.
func (h *Heap) backWindow(st *stitch) window {
	w := window{st: st, from: st.size, to: st.size}
	h.window = h.space.marks.Add(1)
	for i := len(st.chunks) - 1; i >= 0; i-- {
		c := st.chunks[i]
		_, tail := h.freeOf(c)
		if tail == 0 || c.window == h.window {
			break
		}
		w.from, w.chunks, c.window = w.from-tail, w.chunks+1, h.window
		if tail < c.size {
			break
		}
	}
	return w
}

// without returns the runs without the chunks of a window, those with the most bytes of
// whole chunks first. The list is good until the next call.
func (h *Heap) without(w *window, runs []run) []run {
	h.window = h.space.marks.Add(1)
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
