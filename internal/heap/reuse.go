package heap

import (
	"errors"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/vmem"
)

// What stitched ranges are used for again.
//
// A range stays mapped when its block is freed. The next block lies wherever enough of
// its memory in a row is free: in a window. Where no window is large enough, one at an
// end of its range becomes longer by chunks that are mapped beside it, if these are less
// than those of a new range. A range has addresses for that on each side, as many times
// what is mapped at first.
const addressesBeside = 2

// reuse returns an idle range with need bytes of free memory in a row, from its skip on,
// or nil.
func (h *Heap) reuse(need int64, runs []run) *stitch {
	h.mark(runs)
	return h.reuseWindow(h.bestWindow(need))
}

func (h *Heap) reuseWindow(w window) *stitch {
	if w.st != nil {
		h.space.StitchReuses.Add(1)
		w.st.skip = w.from
	}
	return w.st
}

// lengthen maps chunks of the runs beside the window at an end of a range until it holds
// need bytes. It returns the range and how many chunks it mapped, or nil where a new range
// is better.
func (h *Heap) lengthen(need int64, runs []run) (_ *stitch, mapped int, err error) {
	w := h.endWindow()
	if w.size() >= need || w.st == nil { // the last window seen from its end, where a chunk is mapped twice
		return h.reuseWindow(w), 0, nil
	}
	st, more, front := w.st, &stitch{}, w.to != w.st.size
	if !more.chooseBeside(need-w.size(), h.without(&w, runs), front) {
		return nil, 0, nil
	}
	room := st.at + device.Ptr(st.limit) - st.base - device.Ptr(st.size)
	at := st.base + device.Ptr(st.size)
	if front {
		room, at = st.base-st.at, st.base-device.Ptr(more.size)
	}
	if device.Ptr(more.size) > room || len(more.chunks) >= len(choose(need, runs).chunks) {
		return nil, 0, nil
	}
	if err := h.space.Memory.Map(at, more.pieces()); err != nil {
		return nil, 0, err
	}
	if st.skip = w.from; front {
		st.base, st.skip = at, more.size+w.to-need
		st.chunks = append(more.chunks, st.chunks...)
	} else {
		st.chunks = append(st.chunks, more.chunks...)
	}
	st.size += more.size
	return st, len(more.chunks), nil
}

// reserve gets addresses for a range, with none beside it where they are scarce.
func (st *stitch) reserve(m *vmem.Mapper) (err error) {
	for _, times := range [...]int64{1, 0} {
		st.limit = (2*addressesBeside*times + 1) * st.size
		if st.at, err = m.Reserve(st.limit); err == nil {
			st.base = st.at + device.Ptr(addressesBeside*times*st.size)
			return nil
		}
	}
	return err
}

// shorten unmaps a range's chunks that match, and those behind them or before them that
// its block does not need.
func (h *Heap) shorten(st *stitch, uses func(*chunk) bool) error {
	lo, hi, off := 0, len(st.chunks), int64(0)
	for i, c := range st.chunks {
		switch end := off + c.size; {
		case end <= st.skip && uses(c):
			lo = i + 1
		case off >= st.skip+st.seg.Size && hi == len(st.chunks) && uses(c):
			hi = i
		}
		off += c.size
	}
	if err := st.cutBack(h.space.Memory, hi); err != nil {
		return err
	}
	return st.cutFront(h.space.Memory, lo)
}

// cutBack unmaps the chunks of a range from its end on until n are left, those that are
// away one by one.
func (st *stitch) cutBack(m *vmem.Mapper, n int) error {
	for len(st.chunks) > n {
		lo, size := len(st.chunks), int64(0)
		for lo > n && (size == 0 || !st.chunks[lo].away() && !st.chunks[lo-1].away()) {
			lo--
			size += st.chunks[lo].size
		}
		if err := unmapRow(m, st.base+device.Ptr(st.size-size), size, st.chunks[lo]); err != nil {
			return err
		}
		st.chunks, st.size = st.chunks[:lo], st.size-size
	}
	return nil
}

// cutFront unmaps the first n chunks of a range, those that are away one by one.
func (st *stitch) cutFront(m *vmem.Mapper, n int) error {
	for n > 0 {
		hi, size := 0, int64(0)
		for hi < n && (size == 0 || !st.chunks[hi-1].away() && !st.chunks[hi].away()) {
			size += st.chunks[hi].size
			hi++
		}
		if err := unmapRow(m, st.base, size, st.chunks[0]); err != nil {
			return err
		}
		st.base, st.skip = st.base+device.Ptr(size), st.skip-size
		st.chunks, st.size, n = st.chunks[hi:], st.size-size, n-hi
	}
	return nil
}

// leave gives a range back whose chunks go. What the device refuses is tried again later.
func (st *stitch) leave(m *vmem.Mapper) error {
	var errs []error
	at := st.base
	for _, c := range st.chunks {
		switch {
		case c.away():
			errs = append(errs, m.LeaveAlias(at, c.piece()))
		case !st.asleep:
			errs = append(errs, m.Leave(at, c.size))
		}
		at += device.Ptr(c.size)
	}
	return errors.Join(append(errs, m.Unreserve(st.at, st.limit))...)
}

// unmapRow unmaps size bytes of chunks, of which the first is the only one or none is away.
func unmapRow(m *vmem.Mapper, at device.Ptr, size int64, first *chunk) error {
	if first.away() {
		return m.UnmapAlias(at, first.piece())
	}
	return m.Unmap(at, size)
}
