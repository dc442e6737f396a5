package heap

import (
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/vmem"
)

// Which chunks a stitched range is made of.

// chunk is a piece of an address range that one handle backs, or a gap (handle
// 0), or a chunk that sleeps, or one that another heap took.
type chunk struct {
	r         *addressRange // nil: another heap took it
	off, size int64
	handle    vmem.Handle

	listed     uint64 // the listing of the heap in which these were free:
	head, tail int64  // bytes at its beginning and at its end
	window     uint64 // the last window of the heap that it was in

	freedAt uint64 // as Heap.FreedAt, of what was on it; noted with Policy.TrackFrees
}

// asleep is the handle of a chunk whose memory was given back until it is woken.
const asleep = ^vmem.Handle(0)

// end returns the offset behind the chunk.
func (c *chunk) end() int64 { return c.off + c.size }

func (c *chunk) backed() bool { return c.handle != 0 && c.handle != asleep }

// away reports whether another heap took the memory.
func (c *chunk) away() bool { return c.r == nil }

func (c *chunk) piece() vmem.Piece { return vmem.Piece{Handle: c.handle, Size: c.size} }

// run is a free block of an address range: a row of whole chunks and, before and
// behind it, the parts of two chunks that it shares with other blocks.
type run struct {
	r        *addressRange
	id       block.ID
	from, to int64 // offsets of the block
	lo, hi   int   // chunks[lo:hi] are whole
	size     int64 // bytes of them
	front    int64 // bytes up to the end of chunk lo-1
	back     int64 // bytes from the beginning of chunk hi on
	since    uint64
}

// without appends to rows those of chunks that are left of a run without some. What it knows
// of its block is not theirs.
func (r run) without(rows []run, taken func(*chunk) bool) []run {
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

// choose picks the chunks for need bytes: whole ones, the longest rows first, and for
// the rest the part of a chunk that it fills best, or a whole one. Where these are
// too few, it picks a part before them and one behind.
func choose(need int64, runs []run) *stitch {
	st := &stitch{}
	left, next := st.addWhole(need, runs)
	if left == 0 {
		return st
	}
	r, front := bestPart(left, runs, true, true)
	switch {
	case r != nil && front:
		st.addFront(r, left)
	case r != nil:
		st.addBack(r)
	case next != nil:
		st.add(next)
	default:
		front, back := longestParts(runs)
		st.addFront(&front, front.front)
		st.addBack(&back)
	}
	return st
}

// addWhole adds whole chunks of the runs, as long as they hold no more than need
// bytes. It returns how many bytes are left, and the next chunk.
func (st *stitch) addWhole(need int64, runs []run) (left int64, next *chunk) {
	for _, r := range runs {
		for i := r.lo; i < r.hi && need > 0; i++ {
			c := r.r.chunks[i]
			if c.size > need {
				return need, c
			}
			st.add(c)
			need -= c.size
		}
	}
	return need, nil
}

// bestPart returns the run with the smallest part of a chunk that holds need bytes,
// and whether that is the one before its whole chunks; or nil.
func bestPart(need int64, runs []run, fronts, backs bool) (best *run, front bool) {
	size := int64(math.MaxInt64)
	for i := range runs {
		r := &runs[i]
		if fronts && need <= r.front && r.front < size {
			best, size, front = r, r.front, true
		}
		if backs && need <= r.back && r.back < size {
			best, size, front = r, r.back, false
		}
	}
	return best, front
}

func (st *stitch) add(c *chunk) {
	st.chunks = append(st.chunks, c)
	st.size += c.size
}

func (st *stitch) addFirst(c *chunk) {
	st.chunks = slices.Insert(st.chunks, 0, c)
	st.size += c.size
}

// addBack adds the chunk behind a run.
func (st *stitch) addBack(r *run) { st.add(r.r.chunks[r.hi]) }

// addFront has the range begin with the last n bytes of the chunk before a run.
func (st *stitch) addFront(r *run, n int64) {
	c := r.r.chunks[r.lo-1]
	st.addFirst(c)
	st.skip = c.size - n
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

// longestParts returns the runs with the largest part of a chunk before the whole
// ones and behind them.
func longestParts(runs []run) (front, back run) {
	for _, r := range runs {
		if r.front > front.front {
			front = r
		}
		if r.back > back.back {
			back = r
		}
	}
	return front, back
}

// pieces returns the memory of the range's chunks.
func (st *stitch) pieces() (pieces []vmem.Piece) {
	for _, p := range st.chunks {
		pieces = append(pieces, p.piece())
	}
	return pieces
}
