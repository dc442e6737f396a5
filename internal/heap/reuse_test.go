package heap

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// usual are rows of free chunks, in MiB.
var usual = [4]int64{8, 2, 4, 4}

// stitched is a heap with rows of free chunks, of so many MiB, between live blocks of 2
// MiB, and no more memory on the device. A range is stitched of the first three, the
// longest first. It returns the blocks that are live.
func stitched(t *testing.T, mibs [4]int64) (r *rig, h *Heap, between []block.ID) {
	r = newRig(t, 1, true, policy)
	h = r.heaps[0]
	var rows []block.ID
	for _, size := range mibs {
		rows = append(rows, r.alloc(h, size*mib))
		between = append(between, r.alloc(h, 2*mib))
	}
	r.budget.Limit = r.budget.Held()
	r.free(rows[:3]...)
	sum := mibs[0] + mibs[1] + mibs[2]
	id, n := r.maps(h, sum*mib)
	require.EqualValues(t, sum/2, n)
	r.free(append(rows[3:], id)...)
	return r, h, between
}

// maps returns a block of a heap, and how many chunks it took to map.
func (r *rig) maps(h *Heap, size int64) (block.ID, int) {
	r.t.Helper()
	was := r.d.Calls(simdev.MemMap)
	id := r.alloc(h, size)
	r.check()
	return id, int(r.d.Calls(simdev.MemMap) - was)
}

// TestReuse: an idle range serves from a window of what is free of it, and becomes longer
// at an end that is free. A new one is made where that is better.
func TestReuse(t *testing.T) {
	for name, c := range map[string]struct {
		rows   [4]int64
		taken  []int64 // in MiB, of the rows that they fill best
		need   int64   // in MiB
		maps   int
		moved  int64 // MiB by which the range begins earlier
		skip   int64 // MiB before the block
		ranges int
	}{
		"a window behind what is taken":         {taken: []int64{8}, need: 6, skip: 8, ranges: 1},
		"a window before what is taken":         {taken: []int64{2}, need: 12, ranges: 1},
		"longer behind":                         {need: 16, maps: 1, ranges: 1},
		"longer behind what is taken":           {taken: []int64{8}, need: 10, maps: 2, skip: 8, ranges: 1},
		"longer before what is taken":           {taken: []int64{2}, need: 14, maps: 1, moved: 2, ranges: 1},
		"longer by a part of one of its chunks": {rows: partly, taken: []int64{5}, need: 13, maps: 2, moved: 4, skip: 1, ranges: 1},
		"too little of it is free":              {taken: []int64{8, 2}, need: 8, maps: 4, ranges: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rows == [4]int64{} {
				c.rows = usual
			}
			r, h, live := stitched(t, c.rows)
			st := h.stitches[0]
			base := int64(st.base)
			for _, size := range c.taken {
				live = append(live, r.alloc(h, size*mib))
			}
			id, n := r.maps(h, c.need*mib)
			require.Equal(t, c.maps, n)
			require.Len(t, h.stitches, c.ranges)
			require.Equal(t, base-c.moved*mib, int64(st.base))
			if c.ranges == 1 {
				require.Equal(t, c.skip*mib, st.skip)
				require.EqualValues(t, uint64(st.base)+uint64(st.skip), r.block(id).Addr())
			}
			r.free(id)
			id, n = r.maps(h, c.need*mib)
			require.Zero(t, n, "it is there")
			r.free(append(live, id)...)
			r.check()
			for _, size := range []int64{20, 13, 17} { // also where a chunk is mapped twice
				id = r.alloc(h, size*mib)
				r.check()
				r.free(id)
			}
			r.close()
		})
	}
}

// TestWindowBehindAPart: a window begins with whole memory that is free, and not with the chunk
// before, whose end is not.
func TestWindowBehindAPart(t *testing.T) {
	r, h, live := stitched(t, usual)
	rows := []block.ID{r.alloc(h, 2*mib), r.alloc(h, 4*mib), r.alloc(h, 4*mib)} // all rows but the first
	live = append(live, r.alloc(h, 4*mib))
	middle := r.alloc(h, 2560*kib) // to the middle of the last chunk of the row
	live = append(live, r.alloc(h, 1536*kib), rows[2])
	r.free(middle, rows[0], rows[1])
	id, n := r.maps(h, 6*mib)
	require.Zero(t, n)
	require.EqualValues(t, 8*mib, h.stitches[0].skip)
	r.distinct()
	r.free(append(live, id)...)
	r.close()
}

// partly are rows of which the third is the best for 5 MiB, which end inside of a chunk.
var partly = [4]int64{10, 2, 8, 4}

// TestChunkTwice: a chunk that is in a range twice is in a window once.
func TestChunkTwice(t *testing.T) {
	r, h, live := stitched(t, partly)
	five := r.alloc(h, 5*mib)
	r.free(r.alloc(h, 13*mib)) // begins in the chunk that the 5 MiB end in
	r.free(five)
	runs, _ := h.idleRuns(nil, ledger.Large)
	h.mark(runs)
	var sizes []int64
	h.eachWindow(h.stitches[0], func(w window) { sizes = append(sizes, w.size()/mib) })
	require.Equal(t, []int64{18, 6}, sizes)

	// Without the first of the two, the window at the end is the longest.
	id, n := r.maps(h, 20*mib)
	require.Zero(t, n)
	require.EqualValues(t, 2*mib, h.stitches[0].skip)
	r.distinct()
	r.free(id)
	r.free(live...)
	r.close()
}

// TestEndWindows: the windows at the ends of a range are those that eachWindow finds.
func TestEndWindows(t *testing.T) {
	r := testkit.Rand(t)
	h := &Heap{space: &Space{}}
	h.listing = h.newMark()
	for range 3000 {
		st := &stitch{}
		for range 1 + r.IntN(6) {
			c := &chunk{size: 1 + r.Int64N(3)}
			switch r.IntN(4) {
			case 0: // nothing is free
			case 1:
				c.listed, c.head = h.listing, r.Int64N(c.size)
				c.tail = r.Int64N(c.size - c.head)
			default:
				c.listed, c.head, c.tail = h.listing, c.size, c.size
			}
			st.add(c)
		}
		var front, back window
		h.eachWindow(st, func(w window) {
			if w.from == 0 {
				front = w
			}
			if w.to == st.size {
				back = w
			}
		})
		n, size := h.frontWindow(st)
		require.Equal(t, front.chunks, n)
		require.Equal(t, front.size(), size)
		n, size = h.backWindow(st)
		require.Equal(t, back.chunks, n)
		require.Equal(t, back.size(), size)
	}
}

// TestMarksOfAnotherHeap: what a heap noted of chunks says nothing once they are another
// heap's, also where that one notes for the first time, too.
func TestMarksOfAnotherHeap(t *testing.T) {
	r, from, live := stitched(t, usual)
	r.free(r.alloc(from, 14*mib)) // the chunks of its range are noted as free
	r.free(live...)
	to := &Heap{}
	to.Init(r.space, 1, new(ledger.Guard))
	r.heaps = append(r.heaps, to)
	_, _, err := from.MoveRanges(ledger.Large, to)
	require.NoError(t, err)
	first, middle, last := r.alloc(to, 8*mib), r.alloc(to, 10*mib), r.alloc(to, 2*mib)
	r.free(middle)
	require.Equal(t, "large [Live 8M][Free 10M][Live 2M][Free 6M]", r.layout(to))
	id := r.alloc(to, 14*mib) // the range begins with memory of the first
	r.check()
	r.distinct()
	r.free(first, last, id)
	r.close()
}

// TestNoRoomBeside: where addresses are scarce, a range has none to become longer.
func TestNoRoomBeside(t *testing.T) {
	r, h, live := stitched(t, usual)
	require.NoError(t, h.DropIdleStitches())
	r.d.FailNth(simdev.AddressReserve, 1, errBroken)
	id, n := r.maps(h, 14*mib)
	require.Equal(t, 7, n)
	require.Equal(t, h.stitches[0].size, h.stitches[0].limit)
	require.Equal(t, h.stitches[0].at, h.stitches[0].base)
	r.free(id)
	id, n = r.maps(h, 16*mib)
	require.Equal(t, 8, n)
	require.Len(t, h.stitches, 2)
	r.free(append(live, id)...)
	r.close()
}

// TestFailingShorten: a stitched block keeps its memory when chunks before it and behind it
// are given back, also where a call fails half way.
func TestFailingShorten(t *testing.T) {
	for nth := range 9 { // 0: none fails
		r, h, live := stitched(t, usual)
		row, behind := r.alloc(h, 8*mib), r.alloc(h, 2*mib)
		r.free(row)
		before := r.alloc(h, 6*mib)
		id, n := r.maps(h, 6*mib)
		require.Zero(t, n)
		require.EqualValues(t, 6*mib, h.stitches[0].skip)
		r.free(before, behind)
		if nth > 0 {
			r.d.FailNth(simdev.MemUnmap, nth, errBroken)
			out, err := h.Detach(h.WholeChunks(), 1<<40)
			require.ErrorIs(t, err, errBroken)
			require.NoError(t, h.Release(out))
			r.check()
			r.distinct()
		}
		out, err := h.Detach(h.WholeChunks(), 1<<40)
		require.NoError(t, err)
		require.NoError(t, h.Release(out))
		r.check()
		r.distinct()
		require.EqualValues(t, 6*mib, h.stitches[0].size)
		require.Zero(t, h.stitches[0].skip)
		require.Equal(t, r.block(id).Addr(), uint64(h.stitches[0].base))
		require.Len(t, h.stitches[0].chunks, 3)
		r.free(append(live, id)...)
		r.close()
	}
}

// TestShorten: of a range of nine chunks goes, at each end, what lies up to the last one
// that has to and that its block does not need, and nothing else.
func TestShorten(t *testing.T) {
	rnd := testkit.Rand(t)
	r, h, between := scattered(t)
	for range 200 {
		r.free(r.alloc(h, 18*mib))
		st := h.stitches[0]
		was, base := st.chunks, st.base
		from := rnd.IntN(len(was)) // of the block
		to := from + 1 + rnd.IntN(len(was)-from)
		lo, hi := 0, len(was)
		goes := map[*chunk]bool{}
		for range 1 + rnd.IntN(3) {
			i := rnd.IntN(len(was))
			if goes[was[i]] = true; i < from {
				lo = max(lo, i+1)
			} else if i >= to {
				hi = min(hi, i)
			}
		}
		before, short := rnd.Int64N(2)*mib, rnd.Int64N(2)*mib // it begins and ends inside of chunks
		if to-from == 1 {
			short = 0
		}
		st.skip, st.seg = int64(from)*unit+before, &block.Segment{Size: int64(to-from)*unit - before - short}
		require.NoError(t, h.shorten(st, func(c *chunk) bool { return goes[c] }))
		require.Equal(t, was[lo:hi], st.chunks)
		require.Equal(t, base+r1(uint64(lo)*unit), st.base)
		require.Equal(t, int64(hi-lo)*unit, st.size)
		require.Equal(t, int64(from-lo)*unit+before, st.skip)
		for i := range was {
			at := base + r1(uint64(i)*unit)
			mapped := slices.ContainsFunc(r.d.mapped, func(m mapped) bool { return m.at <= at && at < m.at+r1(uint64(m.size)) })
			require.Equal(t, lo <= i && i < hi, mapped)
		}
		st.seg = nil
		require.NoError(t, h.DropIdleStitches())
	}
	r.free(between...)
	r.close()
}

// TestWithout: what is left of a run of three chunks, with a part of the one before and
// of the one behind them, when some are taken.
func TestWithout(t *testing.T) {
	x := &addressRange{}
	for range 5 {
		x.chunks = append(x.chunks, &chunk{size: unit})
	}
	for taken, want := range map[string][]run{
		"":     {{r: x, lo: 1, hi: 4, size: 3 * unit, front: 1, back: 2}},
		"0":    {{r: x, lo: 1, hi: 4, size: 3 * unit, back: 2}},
		"4":    {{r: x, lo: 1, hi: 4, size: 3 * unit, front: 1}},
		"2":    {{r: x, lo: 1, hi: 2, size: unit, front: 1}, {r: x, lo: 3, hi: 4, size: unit, back: 2}},
		"12":   {{r: x, lo: 1, hi: 1, front: 1}, {r: x, lo: 3, hi: 4, size: unit, back: 2}},
		"3":    {{r: x, lo: 1, hi: 3, size: 2 * unit, front: 1}, {r: x, lo: 4, hi: 4, back: 2}},
		"0123": {{r: x, lo: 4, hi: 4, back: 2}},
	} {
		whole := run{r: x, id: 7, lo: 1, hi: 4, size: 3 * unit, front: 1, back: 2}
		got := whole.without(nil, func(c *chunk) bool {
			return strings.Contains(taken, strconv.Itoa(slices.Index(x.chunks, c)))
		})
		require.Equal(t, want, got, "without %q", taken)
	}
}
