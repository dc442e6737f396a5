package heap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/vmem"
)

// Chunks that leave an address range, for the device or for another heap, and
// chunks that sleep.

// Extent is the memory of a chunk that is mapped nowhere.
type Extent struct {
	vmem.Piece
	kind ledger.Kind // under which the ledger counts it
}

// Extents is a list of them.
type Extents []Extent

// Bytes returns the sum of their sizes.
func (x Extents) Bytes() (n int64) {
	for _, e := range x {
		n += e.Size
	}
	return n
}

// Runs are the whole chunks of a heap that are free, as of when they were listed.
type Runs struct{ list []run }

// Empty reports whether there are none.
func (r Runs) Empty() bool { return len(r.list) == 0 }

// WholeChunks lists the whole chunks that are free, of the large kind first.
func (h *Heap) WholeChunks() (r Runs) {
	h.MergeFast()
	for _, k := range [...]ledger.Kind{ledger.Large, ledger.Small} {
		r.list, _ = h.idleRuns(r.list, k)
	}
	r.list = slices.DeleteFunc(r.list, func(x run) bool { return x.size == 0 })
	sortRuns(r.list)
	return r
}

// Bytes returns the bytes of the chunks.
func (r Runs) Bytes() (n int64) {
	for _, x := range r.list {
		n += x.size
	}
	return n
}

// Ages returns the ticks since when each of them is free, where the Policy has the
// heap note that.
func (r Runs) Ages() (ticks []uint64) {
	for _, x := range r.list {
		ticks = append(ticks, x.since)
	}
	return ticks
}

// UpTo returns the runs that are free since a tick or for longer.
func (r Runs) UpTo(tick uint64) Runs {
	return Runs{slices.DeleteFunc(slices.Clone(r.list), func(x run) bool { return x.since > tick })}
}

// FreedBefore returns of each run the longest row of chunks that were freed before a time
// of the device, where the Policy has the heap note that.
func (r Runs) FreedBefore(time uint64) (before Runs) {
	for _, x := range r.list {
		best := run{}
		for _, row := range x.without(nil, func(c *chunk) bool { return c.freedAt >= time }) {
			if row.size > best.size {
				best = row
			}
		}
		if best.size > 0 {
			best.id, best.since = x.id, x.since
			before.list = append(before.list, best)
		}
	}
	return before
}

// EachFreed calls f for each chunk with the time at which it was freed, where the Policy has
// the heap note that, and its bytes.
func (r Runs) EachFreed(f func(at uint64, size int64)) {
	for _, x := range r.list {
		for _, c := range x.r.chunks[x.lo:x.hi] {
			f(c.freedAt, c.size)
		}
	}
}

// Of returns the runs of one kind.
func (r Runs) Of(k ledger.Kind) Runs {
	return Runs{slices.DeleteFunc(slices.Clone(r.list), func(x run) bool { return x.r.kind() != k })}
}

// Detach unmaps as many of the chunks, the longest rows first, as make need
// bytes, until a call fails. No work may use them. The ledger goes on to count
// them.
func (h *Heap) Detach(runs Runs, need int64) (out Extents, err error) {
	return h.detachUpTo(runs, need, false)
}

// Yield is Detach of chunks that another heap will Attach. Stitched ranges go on to map
// them, and serve as before when the chunks come back.
func (h *Heap) Yield(runs Runs, need int64) (out Extents, err error) {
	return h.detachUpTo(runs, need, true)
}

func (h *Heap) detachUpTo(runs Runs, need int64, stitched bool) (out Extents, err error) {
	for _, r := range runs.list {
		hi := r.lo
		for ; hi < r.hi && need > 0; hi++ {
			need -= r.r.chunks[hi].size
		}
		got, err := h.detach(r, hi, stitched)
		if out = append(out, got...); err != nil || need <= 0 {
			return out, err
		}
	}
	return out, nil
}

// detach unmaps a run's chunks up to hi and leaves a gap in their place. With stitched,
// stitched ranges go on to map them.
func (h *Heap) detach(x run, hi int, stitched bool) (out Extents, err error) {
	r := x.r
	if err := h.Slots(2); err != nil {
		return nil, err
	}
	if !stitched {
		if err := h.unmapSecond(r, x.lo, hi); err != nil {
			return nil, err
		}
	}
	size := int64(0)
	for i := x.lo; i < hi; i++ {
		ch := r.chunks[i]
		if err = h.space.Memory.Unmap(r.at(ch.off), ch.size); err != nil {
			break
		}
		h.tell(Unmapped, r.at(ch.off), ch.size)
		out = append(out, Extent{ch.piece(), r.kind()})
		size += ch.size
	}
	if len(out) == 0 {
		return nil, err
	}
	_, b, _ := h.carve(r.seg, x.id, r.chunks[x.lo].off, size)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Gap))
	gone := slices.Clone(r.chunks[x.lo : x.lo+len(out)])
	for i, c := range gone { // the places stay, for the indexes of other runs
		r.chunks[x.lo+i] = &chunk{r: r, off: c.off, size: c.size}
		c.r = nil
	}
	r.gaps += size
	if stitched {
		h.addAliases(gone)
	}
	return out, err
}

// addAliases notes where stitched ranges map chunks that another heap takes.
func (h *Heap) addAliases(gone []*chunk) {
	h.window = h.newMark()
	for _, c := range gone {
		c.window = h.window
	}
	h.eachStitched(func(c *chunk, at device.Ptr) {
		if c.window == h.window {
			h.space.Memory.AddAlias(c.handle, at)
		}
	})
}

// eachStitched calls f for the chunks of all stitched ranges and where these map them.
func (h *Heap) eachStitched(f func(c *chunk, at device.Ptr)) {
	for _, st := range h.stitches {
		at := st.base
		for _, c := range st.chunks {
			f(c, at)
			at += device.Ptr(c.size)
		}
	}
}

// chunkOf returns a chunk for memory of another heap and where stitched ranges map it: one
// that was away, if it is that memory.
func (h *Heap) chunkOf(p vmem.Piece) (back *chunk, aliases []device.Ptr) {
	h.eachStitched(func(c *chunk, at device.Ptr) {
		if c.away() && c.handle == p.Handle && (c == back || back == nil && h.space.Memory.HasAlias(p.Handle, at)) {
			back, aliases = c, append(aliases, at)
		}
	})
	if back == nil {
		back = &chunk{handle: p.Handle, size: p.Size}
	}
	return back, aliases
}

// Release gives the memory of extents that the heap detached back to the device.
func (h *Heap) Release(out Extents) (err error) {
	for _, x := range out {
		err = errors.Join(err, h.space.Memory.Release(x.Piece))
		h.Ledger.SegmentsGone(x.kind, 1, x.Size)
	}
	return err
}

// Attach maps extents that another heap of the pool detached to the ranges of a
// kind, and returns their bytes. The ledgers' sum stays, but for the kind. What a
// call fails for goes back to the device.
func (h *Heap) Attach(from *Heap, k ledger.Kind, in Extents) (attached int64, err error) {
	for _, x := range in {
		if err == nil {
			c, aliases := h.chunkOf(x.Piece)
			if err = h.attachChunk(k, c); err == nil {
				h.space.Memory.DropAliases(x.Handle, aliases)
			}
		}
		if err != nil {
			err = errors.Join(err, from.Release(Extents{x}))
			continue
		}
		attached += x.Size
		if x.kind != k {
			from.Ledger.SegmentsGone(x.kind, 1, x.Size)
			h.Ledger.Segment(k, x.Size)
		}
	}
	return attached, err
}

// attachChunk maps a chunk to the end of the newest range, where it makes the
// largest free block larger, or else to the first gap that holds it.
func (h *Heap) attachChunk(k ledger.Kind, ch *chunk) error {
	if err := h.Slots(2); err != nil {
		return err
	}
	r, err := h.growing(k, ch.size)
	if err != nil {
		return err
	}
	gap := -1
	if !r.hasRoom(ch.size) {
		gap = slices.IndexFunc(r.chunks, func(o *chunk) bool { return o.handle == 0 && o.size >= ch.size })
		if gap < 0 {
			if r, err = h.newRange(k, ch.size); err != nil {
				return err
			}
		}
	}
	off := r.seg.Size
	if gap >= 0 {
		off = r.chunks[gap].off
	}
	if err := h.space.Memory.Map(r.at(off), []vmem.Piece{ch.piece()}); err != nil {
		return err
	}
	ch.r, ch.off = r, off
	h.work.Mapped++
	h.tell(Mapped, r.at(ch.off), ch.size)
	if gap >= 0 {
		h.fillGap(r, gap, ch)
	} else {
		h.extend(r, []*chunk{ch})
	}
	return nil
}

// MoveRanges moves the address ranges of a kind as they are, with what was
// stitched from them alone, to another heap of the pool, and returns how many
// chunks and bytes these have. Nothing of the kind may be in use, and no work
// may use stitched ranges that also have other chunks: they are unmapped.
func (h *Heap) MoveRanges(k ledger.Kind, to *Heap) (n int, bytes int64, err error) {
	moves := func(p *chunk) bool { return !p.away() && p.r.kind() == k }
	stays := func(p *chunk) bool { return !moves(p) }
	err = h.dropStitches(func(st *stitch) bool {
		return slices.ContainsFunc(st.chunks, moves) && slices.ContainsFunc(st.chunks, stays)
	})
	if err != nil {
		return 0, 0, err
	}
	for _, r := range h.ranges[k] {
		h.MoveSegment(r.seg, to)
		for _, ch := range r.chunks {
			if ch.backed() {
				n++
				bytes += ch.size
			}
		}
	}
	h.moveRanges(k, to)
	h.stitches = slices.DeleteFunc(h.stitches, func(st *stitch) bool {
		if moves(st.chunks[0]) {
			to.stitches = append(to.stitches, st)
			return true
		}
		return false
	})
	return n, bytes, nil
}

// moveRanges moves the ranges of a kind, and how much of them was reserved on purpose.
func (h *Heap) moveRanges(k ledger.Kind, to *Heap) {
	to.ranges[k] = append(h.ranges[k], to.ranges[k]...)
	to.kept[k] += h.kept[k]
	h.ranges[k], h.kept[k] = nil, 0
}

// MoveKept moves the note of how much of the ranges was reserved on purpose, for a heap whose
// chunks go to others one by one.
func (h *Heap) MoveKept(to *Heap) {
	for k, n := range h.kept {
		to.kept[k] += n
	}
	h.kept = [2]int64{}
}

// MoveAll moves everything to another heap of the pool. The magazines are empty.
func (h *Heap) MoveAll(to *Heap) {
	for _, seg := range h.segs {
		if seg != nil {
			h.MoveSegment(seg, to)
		}
	}
	for k := range h.ranges {
		h.moveRanges(ledger.Kind(k), to)
	}
	to.stitches = append(to.stitches, h.stitches...)
	h.stitches = nil
	to.lives.join(&h.lives)
	to.freedAt = max(to.freedAt, h.freedAt)
}

// DropGaps gives address ranges back that hold no memory, but for the newest of
// each kind unless all is true. The stream's work must be done.
func (h *Heap) DropGaps(all bool) (err error) {
	if all {
		here := func(c *chunk) bool { return !c.away() }
		err = h.dropStitches(func(st *stitch) bool { return !slices.ContainsFunc(st.chunks, here) })
	}
	for k := range h.ranges {
		var newest *addressRange
		if n := len(h.ranges[k]); n > 0 && !all {
			newest = h.ranges[k][n-1]
		}
		h.ranges[k] = slices.DeleteFunc(h.ranges[k], func(r *addressRange) bool {
			if r.gaps < r.seg.Size || r == newest {
				return false
			}
			_, e := h.closeRange(r)
			err = errors.Join(err, e)
			return true
		})
	}
	return err
}

// GapRanges returns how many address ranges hold no memory, the newest of each
// kind aside.
func (h *Heap) GapRanges() (n int) {
	for _, ranges := range h.ranges {
		for i, r := range ranges {
			if r.gaps == r.seg.Size && i < len(ranges)-1 {
				n++
			}
		}
	}
	return n
}

// CloseRanges unmaps and gives back everything that the address ranges hold,
// when nothing is in use any more. It returns the bytes that slept.
func (h *Heap) CloseRanges() (slept int64, err error) {
	errs := []error{h.DropIdleStitches()}
	for _, st := range h.stitches { // what a call failed for: their chunks go all the same
		errs = append(errs, st.leave(h.space.Memory))
	}
	h.stitches = nil
	for k := range h.ranges {
		for _, r := range h.ranges[k] {
			n, err := h.closeRange(r)
			slept += n
			errs = append(errs, err)
		}
		h.ranges[k], h.kept[k] = nil, 0
	}
	return slept, errors.Join(errs...)
}

// Sleep gives the memory of all chunks back and keeps the addresses. Where Space.Stays
// says so, it keeps those of idle stitched ranges, too. It returns the bytes that went.
// What a call fails for stays as it is, and the other chunks go on.
func (h *Heap) Sleep() (slept int64, err error) {
	awake, err := h.unmapStitches()
	errs := []error{err}
	for k := range h.ranges {
		for _, r := range h.ranges[k] {
			for i := range r.chunks {
				if ch := r.chunks[i]; !ch.backed() || slices.Contains(awake, ch) {
					continue
				}
				n, err := h.sleepChunk(r, i)
				slept += n
				errs = append(errs, err)
			}
		}
	}
	return slept, errors.Join(errs...)
}

// unmapStitches ends the second mappings of chunks: idle stitched ranges for
// good, unless they stay, and others until they are woken. It returns the chunks that a
// failing call left mapped.
func (h *Heap) unmapStitches() (awake []*chunk, err error) {
	var errs []error
	for _, st := range h.stitches {
		if st.asleep {
			continue
		}
		if err := h.unmapStitch(st); err != nil {
			awake = append(awake, st.chunks...)
			errs = append(errs, err)
			continue
		}
		st.asleep = true
	}
	errs = append(errs, h.dropAsleep())
	return awake, errors.Join(errs...)
}

// dropAsleep drops the stitched ranges that sleep and hold no block, unless they stay.
func (h *Heap) dropAsleep() error {
	return h.dropStitches(func(st *stitch) bool { return st.asleep && !h.stays(st) })
}

// stays reports whether a stitched range is kept with its addresses: one of memory that
// stays, as long as no other heap took of it.
func (h *Heap) stays(st *stitch) bool {
	return len(st.chunks) > 0 && h.space.Stays != nil && h.space.Stays.Load() && !slices.ContainsFunc(st.chunks, (*chunk).away)
}

// unmapStitch unmaps a range. What another heap took of it is not mapped again.
func (h *Heap) unmapStitch(st *stitch) error {
	if st.seg == nil && h.stays(st) {
		return h.space.Memory.Unmap(st.base, st.size)
	}
	if st.seg == nil {
		return st.cutBack(h.space.Memory, 0)
	}
	if err := h.shorten(st, (*chunk).away); err != nil {
		return err
	}
	return h.space.Memory.Unmap(st.base, st.size)
}

func (h *Heap) sleepChunk(r *addressRange, i int) (int64, error) {
	ch := *r.chunks[i]
	if err := h.space.Memory.Unmap(r.at(ch.off), ch.size); err != nil {
		return 0, err
	}
	r.chunks[i].handle = asleep
	h.tell(Unmapped, r.at(ch.off), ch.size)
	return ch.size, h.Release(Extents{{ch.piece(), r.kind()}})
}

// Wake gives all chunks that sleep new memory, and then maps the ranges that are
// stitched of them, until a call fails. It returns the bytes that woke.
func (h *Heap) Wake() (woken int64, err error) {
	for k := range h.ranges {
		for _, r := range h.ranges[k] {
			for i := range r.chunks {
				if r.chunks[i].handle != asleep {
					continue
				}
				add, err := h.create(r, r.chunks[i].off, []int64{r.chunks[i].size})
				if err != nil {
					return woken, err
				}
				r.chunks[i].handle = add[0].handle
				woken += add[0].size
			}
		}
	}
	if err := h.dropAsleep(); err != nil { // freed meanwhile
		return woken, err
	}
	for _, st := range h.stitches {
		if st.asleep {
			if err := h.space.Memory.Map(st.base, st.pieces()); err != nil {
				return woken, fmt.Errorf("a stitched range: %w", err)
			}
			st.asleep = false
		}
	}
	return woken, nil
}
