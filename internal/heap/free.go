package heap

import (
	"math"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// insert adds a block that is in no set to the free blocks, merged with its free
// neighbours, and returns the bytes that these are together.
func (h *Heap) insert(seg *block.Segment, id block.ID, b *block.Block) int64 {
	return h.insertFreed(seg, id, b, h.freedAt)
}

// insertFreed is insert of a block that was given back at a time of the device, or before.
func (h *Heap) insertFreed(seg *block.Segment, id block.ID, b *block.Block, at uint64) int64 {
	k := ledger.KindOf(seg.Large)
	if seg.Virtual && h.space.Policy.TrackFrees {
		h.noteFreed(b, k, at)
	}
	id, b, merged, mergedBytes := seg.Coalesce(id, b, &h.free[k], &h.slots)
	h.free[k].Insert(id, b)
	if b.Prev|b.Next != 0 {
		h.Ledger.Split(k, b.Size, merged, mergedBytes)
	} else {
		if merged > 0 {
			h.Ledger.Unsplit(k, merged, mergedBytes)
		}
		if h.space.Policy.TrackIdle {
			seg.IdleSince = h.space.idleTick.Add(1)
		}
	}
	if seg.Virtual && h.space.Policy.TrackIdle {
		b.SetIdleSince(h.space.idleTick.Add(1))
	}
	return b.Size
}

// noteFreed notes at the chunks behind a block that it was given back at a time of the device,
// or before. A chunk that is free was used until the last of its blocks was given back. A block
// comes here when it is free, and no other way makes memory of an address range free.
func (h *Heap) noteFreed(b *block.Block, k ledger.Kind, at uint64) {
	r := h.rangeOf(b, k)
	from := int64(b.Addr() - r.seg.Base)
	i := r.chunkAt(from)
	if i > 0 && r.chunks[i-1].end() > from {
		i--
	}
	for ; i < len(r.chunks) && r.chunks[i].off < from+b.Size; i++ {
		r.chunks[i].freedAt = max(r.chunks[i].freedAt, at)
	}
}

// mergeFor merges at most so many blocks of the fast bins, the largest first, until one of
// at least size bytes comes about, and reports whether it did.
func (h *Heap) mergeFor(size int64, most int) bool {
	for range most {
		id, b := h.fast.PopLargest()
		if id == 0 {
			return false
		}
		if h.insert(h.segs[b.Seg], id, b) >= size {
			return true
		}
	}
	return false
}

// MergeFast returns what lies in the fast bins to the small set, merged with its
// free neighbours, and reports whether there was anything.
func (h *Heap) MergeFast() bool {
	found := h.fast.Len() > 0
	h.mergeFor(math.MaxInt64, math.MaxInt)
	return found
}

// carve cuts size bytes at an offset of the segment out of a free block and
// returns them as a block in no set, with the block of what remains behind it,
// or 0. The pieces beside it stay free. Two slots must have been ensured.
func (h *Heap) carve(seg *block.Segment, id block.ID, off, size int64) (block.ID, *block.Block, block.ID) {
	k, b := ledger.KindOf(seg.Large), h.space.Blocks.At(id)
	h.free[k].Remove(id, b)
	if b.Prev|b.Next != 0 {
		h.Ledger.Unsplit(k, 1, b.Size)
	}
	if front := int64(seg.Base) + off - int64(b.Addr()); front > 0 {
		restID, rest := seg.Split(id, b, front, &h.slots)
		h.free[k].Insert(id, b)
		h.Ledger.Split(k, b.Size, 0, 0)
		id, b = restID, rest
	}
	var behind block.ID
	if b.Size > size {
		restID, rest := seg.Split(id, b, size, &h.slots)
		h.free[k].Insert(restID, rest)
		h.Ledger.Split(k, rest.Size, 0, 0)
		behind = restID
	}
	return id, b, behind
}
