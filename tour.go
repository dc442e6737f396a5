package cupool

import (
	"math"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/origins"
)

// portionBlocks is how many blocks are looked at while a lock is held. It takes some tenths
// of a millisecond.
const portionBlocks = 2048

// tour looks at the blocks of a pool: segment by segment, the large ones first, each kind by
// address. It holds the locks of all heaps for the first portion, so that what is seen of a
// small pool is of one moment, and then that of one heap for each other portion.
//
// A segment that comes meanwhile may be seen, and one that goes back to the device ends with
// a piece that says so. All others are seen once, whichever heap they move to.
type tour struct {
	heaps *heapTable
	most  int    // blocks, and segments that are passed over, that may be looked at yet
	size  int    // blocks of a portion
	began func() // called with all locks held after the first portion; nil: nothing is

	// visit is called for each block, with its heap's lock held, in place of what the pieces
	// would have of it. nil: they have it.
	visit func(*streamHeap, block.ID, *block.Block)

	between func() // called without locks after each portion, by tests; nil: nothing is

	portions int
	small    bool // the large segments were seen
	next     uint64
	seg      *block.Segment // that is under way, or nil
	place    *block.Tour    // in it

	pieces  []piece
	seen    []seenBlock
	origins []origins.Origin
}

// piece is blocks of a segment in a row, of one portion. The first begins where the piece of
// the segment before ended or, where memory merged meanwhile, before that.
type piece struct {
	seg    block.Segment // as it was, without blocks
	stream *Stream       // in whose order the memory is reused
	blocks []seenBlock
	first  bool // of the segment
	gone   bool // the segment is not there any more, or not seen to its end
}

// seenBlock is a block as it was.
type seenBlock struct {
	addr            uint64
	size, requested int64
	state           block.State
	origin          uint32 // in tour.origins, from 1; 0: none
}

// tour begins a tour that ends after so many blocks, if there are more.
func (t *heapTable) tour(most int) *tour {
	return &tour{heaps: t, most: most, size: portionBlocks}
}

// everyBlock is the most of a tour that has no bound.
const everyBlock = math.MaxInt

// each calls f for all pieces, without locks, and reports whether all blocks were seen.
func (w *tour) each(f func(*piece)) (all bool) {
	w.seen = make([]seenBlock, 0, w.size)
	for more := true; more; {
		w.pieces, w.seen, w.origins = w.pieces[:0], w.seen[:0], w.origins[:0]
		more = w.portion()
		w.portions++
		for i := range w.pieces {
			f(&w.pieces[i])
		}
		if w.between != nil {
			w.between()
		}
	}
	return w.most > 0
}

// origin returns that of a block of the present portion.
func (w *tour) origin(b *seenBlock) (o origins.Origin) {
	if b.origin != 0 {
		o = w.origins[b.origin-1]
	}
	if s := w.heaps.sanitizer; s != nil && s.Delays() { // the others have their stacks, too
		o.Weight = min(o.Weight, 1)
	}
	return o
}

// portion looks at the next portion and reports whether there may be more.
func (w *tour) portion() (more bool) {
	if w.portions == 0 {
		_, unlock := w.heaps.lockAll()
		defer unlock()
		more = w.lookLocked(nil)
		if w.began != nil {
			w.began()
		}
		return more
	}
	h := w.lockNext()
	if h == nil {
		return false
	}
	defer h.mu.Unlock()
	return w.lookLocked(h)
}

// lockNext locks the heap that has the segment which comes next. It returns nil where there
// is none.
func (w *tour) lockNext() *streamHeap {
	for {
		n := w.size
		e, ok := w.entry(&n)
		switch h := w.heaps.at(e.Owner); {
		case !ok && n > 0:
			w.lose()
			return nil
		case !ok || h == nil: // the segment has another heap by now, or is gone
		default:
			h.mu.Lock()
			if now, ok := w.entry(&n); ok && now.Seg == e.Seg && now.Owner == e.Owner && h.Has(e.Seg) {
				return h
			}
			h.mu.Unlock()
		}
	}
}

// entry returns the segment that is under way, or else the next one. It passes over at most n
// segments of the other kind, and counts them.
func (w *tour) entry(n *int) (heap.Entry, bool) {
	index := &w.heaps.space.Index
	if w.seg != nil {
		if e, ok := index.Find(w.seg.Base); ok && e.Seg == w.seg {
			return e, true
		}
	}
	for *n > 0 && w.most > 0 {
		e, ok := index.From(w.next)
		switch {
		case ok && e.Seg.Large != w.small:
			return e, true
		case ok:
			w.next = e.Seg.Base + 1
			*n, w.most = *n-1, w.most-1
		case w.small:
			return heap.Entry{}, false
		default:
			w.small, w.next = true, 0
		}
	}
	return heap.Entry{}, false
}

// lookLocked looks at blocks of a heap that is locked, or of all, for nil. It reports whether
// there may be more.
func (w *tour) lookLocked(h *streamHeap) (more bool) {
	n := w.size
	for n > 0 {
		e, ok := w.entry(&n)
		if ok && h != nil && e.Owner != h.Index() {
			return true
		}
		if w.seg != nil && (!ok || e.Seg != w.seg || !w.place.Goes()) {
			w.lose()
			continue
		}
		if !ok {
			return n == 0 && w.most > 0
		}
		came := w.pieceLocked(w.heaps.at(e.Owner), e.Seg, min(n, w.most))
		if n, w.most = n-max(came, 1), w.most-max(came, 1); w.most <= 0 {
			w.stopLocked()
			return false
		}
	}
	return true
}

// pieceLocked looks at up to n blocks of a segment of a heap that is locked.
func (w *tour) pieceLocked(h *streamHeap, seg *block.Segment, n int) (came int) {
	p := piece{seg: seg.Shape(), stream: h.stream, first: w.seg == nil}
	if w.seg == nil {
		w.seg, w.place, w.next = seg, new(block.Tour), seg.Base+1
		w.place.Begin(seg)
	}
	from, stacks := len(w.seen), &h.c.stacks
	came, done := w.place.Next(&h.c.space.Blocks, n, func(id block.ID, b *block.Block) {
		if w.visit != nil {
			w.visit(h, id, b)
			return
		}
		x := seenBlock{addr: b.Addr(), size: b.Size, requested: b.Requested(), state: b.Word().State()}
		if id := b.Origin(); id != 0 {
			w.origins = append(w.origins, stacks.At(id))
			x.origin = uint32(len(w.origins))
		}
		w.seen = append(w.seen, x)
	})
	if done {
		w.seg = nil
	}
	p.blocks = w.seen[from:]
	w.pieces = append(w.pieces, p)
	return came
}

// lose ends the part of the tour that is in a segment which is gone.
func (w *tour) lose() {
	if w.seg != nil {
		w.pieces = append(w.pieces, piece{gone: true})
		w.seg = nil
	}
}

// stopLocked ends the tour inside a segment.
func (w *tour) stopLocked() {
	if w.seg != nil {
		w.place.End()
		w.lose()
	}
}
