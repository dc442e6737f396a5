package heap

import (
	"math"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/magazine"
)

// Take serves a request from the free blocks: a small one from the fast bins if
// it can, and these merge before it fails. misses is how often the size missed
// in the magazines. It returns a live block, or 0.
func (h *Heap) Take(size, rounded int64, misses magazine.Misses) (block.ID, *block.Block) {
	h.noteAsked(rounded)
	if rounded <= h.space.Policy.FastLimit {
		if id, b := h.fast.Pop(rounded); id != 0 {
			return h.out(size, ledger.Small, id, b, misses)
		}
	}
	k := h.space.Policy.KindOf(rounded)
	id := h.fit(k, rounded)
	if id == 0 && k == ledger.Small {
		id, k = h.fitMissed(rounded)
	}
	if id == 0 || h.slots.Ensure(1) != nil { // growing finds the same error
		return 0, nil
	}
	b := h.space.Blocks.At(id)
	h.free[k].Remove(id, b)
	return h.HandOut(size, rounded, id, b, misses)
}

// fewMerges is how many blocks of the fast bins a miss merges before it looks elsewhere. The
// largest ones serve it most often; the others serve later requests as they are.
const fewMerges = 4

// fitMissed chooses a free block for a small request that no small one serves yet, and
// returns the set that it is in, or 0.
func (h *Heap) fitMissed(rounded int64) (block.ID, ledger.Kind) {
	if h.mergeFor(rounded, fewMerges) {
		return h.fit(ledger.Small, rounded), ledger.Small
	}
	if id := h.fitAmongLarge(rounded); id != 0 {
		h.mixed = true
		return id, ledger.Large
	}
	if h.mergeFor(rounded, math.MaxInt) {
		return h.fit(ledger.Small, rounded), ledger.Small
	}
	return 0, ledger.Small
}

// fit chooses a free block of at least size bytes, or returns 0.
func (h *Heap) fit(k ledger.Kind, size int64) block.ID {
	below := h.space.Policy.FitsBelow(k, size)
	if h.space.Policy.FirstFit || h.fragmented && k == ledger.Large {
		return h.free[k].FirstFit(size, below)
	}
	if k == ledger.Large && h.lives.spares(size) {
		return h.fitSparing(size)
	}
	return h.bestFit(k, size, below)
}

// bestFit chooses the smallest free block of at least size and less than below bytes, or
// returns 0.
func (h *Heap) bestFit(k ledger.Kind, size, below int64) block.ID {
	id := h.free[k].BestFit(size)
	if below != math.MaxInt64 && id != 0 && h.space.Blocks.At(id).Size >= below {
		return 0
	}
	return id
}

// LargestSegment returns the most bytes of a wholly free segment that may serve a
// request.
func (h *Heap) LargestSegment(k ledger.Kind, rounded int64) int64 {
	p := &h.space.Policy
	if k == ledger.Large && h.lives.spares(rounded) {
		return p.SparingSegment(rounded)
	}
	return p.FitsBelow(k, rounded) - 1
}

// SparingSegment returns the most bytes of a segment that is not too large for a request
// where larger ones are spared, or 0 where none are.
func (p *Policy) SparingSegment(rounded int64) int64 {
	if p.SharedSegment == 0 {
		return 0
	}
	return max(spareFactor*rounded, p.SharedSegment)
}

// fitSparing chooses the best fit in segments that are not too large for a block of
// size bytes, or were reserved on purpose, or returns 0.
func (h *Heap) fitSparing(size int64) (found block.ID) {
	most := h.LargestSegment(ledger.Large, size)
	h.free[ledger.Large].EachFrom(size, func(id block.ID, b *block.Block) bool {
		if seg := h.segs[b.Seg]; b.Size >= size && (seg.Size <= most || seg.Kept) {
			found = id
		}
		return found == 0
	})
	return found
}

// TakeSpared takes the best fit for a large request that Take left alone out of the
// free blocks, or returns 0.
func (h *Heap) TakeSpared(rounded int64) (block.ID, *block.Block) {
	if !h.lives.spares(rounded) {
		return 0, nil
	}
	id := h.free[ledger.Large].BestFit(rounded)
	if id == 0 {
		return 0, nil
	}
	b := h.space.Blocks.At(id)
	h.free[ledger.Large].Remove(id, b)
	return id, b
}

// Served returns the bytes of all large blocks that went out.
func (h *Heap) Served() int64 { return h.lives.served }

// sparePart makes small blocks lie beside large ones where small ranges would grow again while
// this part of the pool is free for large blocks. Most of what large blocks leave free is too
// small for other large ones. Where less is free, a range costs less than what small blocks
// break up; and small blocks that come and go alone have a range of their own.
const sparePart = 32

// fitAmongLarge chooses a large free block for a small request that no small one serves,
// or returns 0.
func (h *Heap) fitAmongLarge(rounded int64) block.ID {
	switch m := h.space.Memory; {
	case m != nil && len(h.ranges[ledger.Small]) > 0 && h.free[ledger.Large].Bytes() >= m.Held()/sparePart:
		return h.bestFit(ledger.Large, rounded, h.space.Policy.FitsBelow(ledger.Large, rounded))
	case h.keeps:
		return h.fitKept(rounded)
	}
	return 0
}

// fitKept chooses a free block for a small request from memory that was reserved
// on purpose, or returns 0.
func (h *Heap) fitKept(rounded int64) (found block.ID) {
	if h.space.Policy.NoSplit {
		return 0
	}
	below := h.space.Policy.FitsBelow(ledger.Large, rounded)
	h.free[ledger.Large].EachFrom(rounded, func(id block.ID, b *block.Block) bool {
		if b.Size >= rounded && h.segs[b.Seg].Kept {
			found = id
		}
		return found == 0 && b.Size < below
	})
	if found != 0 && h.space.Blocks.At(found).Size >= below {
		return 0
	}
	return found
}

// FitSize returns the bytes of the free block that serves a request, or 0.
func (h *Heap) FitSize(k ledger.Kind, rounded int64) int64 {
	id := h.fit(k, rounded)
	if id == 0 && k == ledger.Small {
		id = h.fitAmongLarge(rounded)
	}
	if id == 0 {
		return 0
	}
	return h.space.Blocks.At(id).Size
}

// HandOut makes a Free block that is in no set the program's, and splits off
// what is not needed. A slot must have been ensured.
func (h *Heap) HandOut(size, rounded int64, id block.ID, b *block.Block, misses magazine.Misses) (block.ID, *block.Block) {
	p := &h.space.Policy
	seg, wanted := h.segs[b.Seg], p.KindOf(rounded)
	k := ledger.KindOf(seg.Large)
	n, bytes := int64(0), int64(0) // of what shares a segment and is free no more
	if b.Prev|b.Next != 0 {
		n, bytes = 1, b.Size
	}
	if b.Size-rounded >= h.minSplit(wanted) && !p.isOversize(k, rounded) {
		restID, rest := seg.Split(id, b, rounded, &h.slots)
		h.free[k].Insert(restID, rest)
		h.Ledger.Split(k, rest.Size, n, bytes)
	} else if n > 0 {
		h.Ledger.Unsplit(k, n, bytes)
	}
	h.space.note(wanted, id, b)
	return h.out(size, k, id, b, misses)
}

// TakeAt makes exactly size bytes at an address of a segment the program's, or returns 0
// where they are no part of one free block, or no block of the segment's kind. With no
// segment the address is one of an idle stitched range. The size is a multiple of the unit of
// blocks, and positive.
func (h *Heap) TakeAt(seg *block.Segment, addr uint64, size, requested int64) (block.ID, *block.Block) {
	p := &h.space.Policy
	if seg == nil {
		return h.takeStitchedAt(addr, size, requested)
	}
	k := ledger.KindOf(seg.Large)
	if seg.Stitched || (addr-seg.Base)%uint64(p.MinBlock) != 0 {
		return 0, nil
	}
	if p.NoSplit && size != seg.Size || !p.NoSplit && !h.mixed && p.KindOf(size) != k {
		return 0, nil
	}
	id, b := seg.Find(&h.space.Blocks, addr)
	if id == 0 || b.Word().State() != block.Free || size > b.Size-int64(addr-b.Addr()) || h.slots.Ensure(2) != nil {
		return 0, nil
	}
	id, b, _ = h.carve(seg, id, int64(addr-seg.Base), size)
	h.space.note(p.KindOf(size), id, b)
	return h.out(requested, k, id, b, 0)
}

// out makes a block the program's as it is, and gives it a place in the
// magazines when its size recurs.
func (h *Heap) out(size int64, k ledger.Kind, id block.ID, b *block.Block, misses magazine.Misses) (block.ID, *block.Block) {
	b.SetRequested(size)
	b.SetUses(0)
	b.SetWord(block.MakeWord(b.Word().Gen()+1, block.Live))
	h.Ledger.Out(k, b.Size, size)
	if k == ledger.Large {
		h.lives.began(b.Size)
	}
	if h.noHomes > 0 {
		h.noHomes--
	} else if misses != 0 && b.Size <= h.space.Policy.HomeLimit && misses.Recurs(k == ledger.Large) {
		h.giveHome(misses.Shard(), id, b, block.Live) // may merge an evicted block with a rest
	}
	return id, b
}

// minSplit returns the smallest rest worth a block of its own, in bytes.
func (h *Heap) minSplit(k ledger.Kind) int64 {
	switch p := &h.space.Policy; {
	case p.NoSplit:
		return math.MaxInt64
	case k == ledger.Small || h.space.Memory != nil:
		return p.MinBlock
	default:
		return p.MinSplit
	}
}
