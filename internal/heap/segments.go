package heap

import (
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// addSegment gives a segment a place in the heap's table.
func (h *Heap) addSegment(seg *block.Segment) {
	i := h.segsFull
	for i < len(h.segs) && h.segs[i] != nil {
		i++
	}
	if i == len(h.segs) {
		h.segs = append(h.segs, nil)
	}
	h.segs[i], h.segsFull = seg, i+1
	seg.Index, seg.Owner = uint32(i), h.index
}

// dropSegment takes a segment out of the heap's table.
func (h *Heap) dropSegment(i uint32) {
	h.segs[i] = nil
	h.segsFull = min(h.segsFull, int(i))
}

// Has reports whether the heap has a segment.
func (h *Heap) Has(seg *block.Segment) bool {
	return int(seg.Index) < len(h.segs) && h.segs[seg.Index] == seg
}

// SegmentOf returns the segment that a block of the heap is in.
func (h *Heap) SegmentOf(b *block.Block) *block.Segment { return h.segs[b.Seg] }

// AddSegment enters memory of the device as a segment and returns it as one
// Free block that is in no set. Two slots must have been ensured.
func (h *Heap) AddSegment(p device.Ptr, size int64, k ledger.Kind) (block.ID, *block.Block) {
	seg := &block.Segment{Base: uint64(p), Size: size, Large: k == ledger.Large}
	h.addSegment(seg)
	h.space.Index.add(seg, size)
	id, b := seg.Begin(&h.slots)
	h.Ledger.Segment(k, size)
	h.work.Grown++
	if k == ledger.Large && h.space.Policy.SharedSegment > 0 {
		h.lives.grew(size, h.heldLarge())
	}
	return id, b
}

// heldLarge returns the bytes of large segments.
func (h *Heap) heldLarge() (n int64) {
	for _, seg := range h.segs {
		if seg != nil && seg.Large {
			n += seg.Size
		}
	}
	return n
}

// AddFree adds a block that is in no set to the free blocks.
func (h *Heap) AddFree(id block.ID, b *block.Block) { h.insert(h.segs[b.Seg], id, b) }

// Idle is a wholly free segment of a heap.
type Idle struct {
	Seg   *block.Segment
	block *block.Block // that covers the segment
	Since uint64       // the tick of Segment.IdleSince
	index uint32       // in the heap's table
	Owner uint32       // the heap's index
}

// Kind returns the set that the segment's block is in.
func (f *Idle) Kind() ledger.Kind { return ledger.KindOf(f.Seg.Large) }

// AppendIdle adds the heap's wholly free segments to a list. Each is written in
// its place: a copy of one that was built elsewhere would wait for the stores
// before it, which miss the caches.
func (h *Heap) AppendIdle(found []Idle) []Idle {
	blocks := &h.space.Blocks
	found = slices.Grow(found, len(h.segs))
	for i, seg := range h.segs {
		if seg == nil || seg.Virtual || seg.Stitched {
			continue
		}
		if b := blocks.At(seg.First); b.IsWhole() {
			n := len(found)
			found = found[:n+1]
			f := &found[n]
			f.Seg, f.block = seg, b
			f.Since, f.index, f.Owner = seg.IdleSince, uint32(i), h.index
		}
	}
	return found
}

// sweepPart is the part of the free blocks from which on to look at all of them
// is faster than to look for each.
const sweepPart = 8

// DetachSegments takes those of the segments in the list that are still there and wholly
// free out of the free sets and out of the index of addresses: as soon as the device has
// the memory, another heap may get it. It returns them in the list's own memory. Where
// most of the free blocks go, that is one pass over all of them. The books count the
// segments until Forget.
func (h *Heap) DetachSegments(list []Idle) (out []Idle) {
	sweep := len(list) > (h.free[ledger.Small].Len()+h.free[ledger.Large].Len())/sweepPart
	var n [2]int
	out = list[:0]
	for i := range list {
		f := &list[i]
		if int(f.index) >= len(h.segs) || h.segs[f.index] != f.Seg || !f.block.IsWhole() {
			continue
		}
		if out = list[:len(out)+1]; i >= len(out) { // one before it was passed over
			out[len(out)-1] = *f
		}
		k := f.Kind()
		n[k]++
		if !sweep {
			h.free[k].Remove(f.Seg.First, f.block)
		}
		f.block.SetWord(block.MakeWord(f.block.Word().Gen(), block.Gap))
		f.Seg.EndTours()
		h.dropSegment(f.index)
	}
	if sweep {
		h.free[ledger.Small].Sweep(n[ledger.Small])
		h.free[ledger.Large].Sweep(n[ledger.Large])
	}
	h.space.Index.removeIdle(out)
	h.leaving = out
	return out
}

// Forget takes the first n of the segments that DetachSegments was given out of
// the books, as the device has them, and takes the others back. It returns the
// bytes that went.
func (h *Heap) Forget(out []Idle, n int) int64 {
	var count, bytes [2]int64
	for i := range out[:n] {
		f := &out[i]
		k := f.Kind()
		count[k]++
		bytes[k] += f.Seg.Size
		f.block.SetWord(block.MakeWord(f.block.Word().Gen(), block.Free))
		h.slots.Put(f.Seg.First, f.block)
	}
	for k := range count {
		h.Ledger.SegmentsGone(ledger.Kind(k), count[k], bytes[k])
	}
	for i := range out[n:] {
		h.reattach(out[n+i].Seg)
	}
	h.leaving = nil
	return bytes[ledger.Small] + bytes[ledger.Large]
}

// reattach takes a segment back that the device would not have.
func (h *Heap) reattach(seg *block.Segment) {
	h.addSegment(seg)
	b := h.space.Blocks.At(seg.First)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
	b.Seg = seg.Index
	b.SetOwner(h.index)
	h.free[ledger.KindOf(seg.Large)].Insert(seg.First, b)
	h.space.Index.add(seg, seg.Size)
}

// BestIdle returns the smallest wholly free segment of a kind that has at least
// size and at most most bytes, or nil.
func (h *Heap) BestIdle(k ledger.Kind, size, most int64) (best *block.Segment) {
	for _, seg := range h.segs {
		if seg == nil || ledger.KindOf(seg.Large) != k || seg.Size < size || seg.Size > most || !seg.IsWhollyFree(&h.space.Blocks) {
			continue
		}
		if best == nil || seg.Size < best.Size {
			best = seg
		}
	}
	return best
}

// MoveSegment moves a segment to another heap of the pool. The ledgers' sum
// stays.
func (h *Heap) MoveSegment(seg *block.Segment, to *Heap) {
	i, k := seg.Index, ledger.KindOf(seg.Large)
	to.keeps, to.mixed = to.keeps || h.keeps, to.mixed || h.mixed
	to.addSegment(seg)
	h.space.Index.setOwner(seg, to.index)
	seg.Each(&h.space.Blocks, func(id block.ID, b *block.Block) {
		free := b.Word().State() == block.Free
		if free {
			h.free[k].Remove(id, b)
		}
		b.Seg = seg.Index
		b.SetOwner(to.index)
		if free {
			to.free[k].Insert(id, b)
		}
	})
	h.dropSegment(i)
}
