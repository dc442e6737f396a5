package heap

import (
	"errors"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/vmem"
)

// CutLast gives the memory back that the last handle of a live block has behind the
// block, where all of that is free: a smaller handle takes its place. What the block holds
// in the last handle is lost. No work may use it, nor the heap's stitched ranges. CutLast
// returns the bytes that went: none where a call of the device fails and the block keeps
// its memory. It fails where the block does not, which must stay live then.
func (h *Heap) CutLast(b *block.Block) (released int64, err error) {
	last, behind, st := h.lastPiece(b)
	if behind == 0 {
		return 0, nil
	}
	r, k := last.r, last.r.kind()
	end, i := last.off+last.size, r.chunkAt(last.off+last.size)-1
	c, rest := r.chunks[i], h.space.Blocks.At(behind)
	keep := sizeclass.RoundTo(end-c.off, h.space.Memory.Granularity)
	gone := c.size - keep
	if gone <= 0 || last.off > c.off || rest.Word().State() != block.Free || end+rest.Size < c.end() {
		return 0, nil
	}
	if h.Slots(2) != nil || h.unmapSecond(r, i, i+1) != nil || st != nil && h.shorten(st, func(*chunk) bool { return true }) != nil {
		return 0, nil
	}
	old := c.piece()
	handle, err := h.replace(c, st, keep)
	if handle == 0 {
		return 0, err
	}
	h.tell(Unmapped, r.at(c.off), old.Size)
	h.tell(Mapped, r.at(c.off), keep)
	h.Ledger.Segment(k, keep)
	c.handle, c.size = handle, keep
	if st != nil {
		st.size -= gone
	}
	r.chunks = slices.Insert(r.chunks, i+1, &chunk{r: r, off: c.end(), size: gone})
	r.setPlaces(i)
	_, gap, _ := h.carve(r.seg, behind, c.end(), gone)
	gap.SetWord(block.MakeWord(gap.Word().Gen(), block.Gap))
	r.gaps += gone
	_ = h.Release(Extents{{old, k}}) // where it fails, the handle goes later
	return gone, nil
}

// lastPiece returns the memory at the end of a large block of the address ranges, the
// block behind it, 0 for none, and the stitched range whose end it is, or nil.
func (h *Heap) lastPiece(b *block.Block) (last cut, behind block.ID, st *stitch) {
	seg := h.segs[b.Seg]
	if r := h.rangeOf(b, ledger.Large); r != nil {
		return cut{r, int64(b.Addr() - seg.Base), b.Size}, b.Next, nil
	}
	i := slices.IndexFunc(h.stitches, func(st *stitch) bool { return st.seg == seg })
	if i < 0 {
		return cut{}, 0, nil
	}
	st = h.stitches[i]
	st.cuts(seg.Size, func(c cut) bool {
		last = c
		return true
	})
	for _, p := range st.parts {
		if x := h.space.Blocks.At(p.id); p.r == last.r && x.Addr() == uint64(last.r.at(last.off)) {
			behind = x.Next
		}
	}
	return last, behind, st
}

// replace maps a new handle of keep bytes where a chunk is mapped, which is the last one
// of a stitched range or of none. It returns no handle where it left the chunk as it was.
func (h *Heap) replace(c *chunk, st *stitch, keep int64) (vmem.Handle, error) {
	m, at := h.space.Memory, []device.Ptr{c.r.at(c.off)}
	if st != nil {
		at = append(at, st.base+device.Ptr(st.size-c.size))
	}
	with, err := h.createAside(keep) // before the block loses memory, as there may be none
	if err != nil {
		return 0, nil
	}
	back := func(old, now []device.Ptr) (err error) {
		for _, p := range now {
			err = errors.Join(err, m.Unmap(p, keep))
		}
		for _, p := range old {
			err = errors.Join(err, m.Map(p, []vmem.Piece{c.piece()}))
		}
		_ = m.Release(with)
		return err
	}
	for i, p := range at {
		if m.Unmap(p, c.size) != nil {
			return 0, back(at[:i], nil)
		}
	}
	for i, p := range at {
		if m.Map(p, []vmem.Piece{with}) != nil {
			return 0, back(at, at[:i])
		}
	}
	return with.Handle, nil
}

// createAside makes memory that is mapped nowhere.
func (h *Heap) createAside(size int64) (vmem.Piece, error) {
	m := h.space.Memory
	aside, err := m.Reserve(size)
	if err != nil {
		return vmem.Piece{}, err
	}
	handles, err := m.Create(aside, []int64{size})
	if err != nil {
		return vmem.Piece{}, errors.Join(err, m.Unreserve(aside, size))
	}
	with := vmem.Piece{Handle: handles[0], Size: size}
	if err = m.Unmap(aside, size); err != nil {
		err = errors.Join(err, m.Remove(aside, with))
	}
	_ = m.Unreserve(aside, size) // where it fails, the addresses go later
	return with, err
}
