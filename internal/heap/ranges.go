package heap

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Virtual memory.
//
// Each kind has an address range that physical memory, in chunks, is mapped to
// from its start on. Blocks are cut from it as from a segment. It grows by no
// more than a request misses, so all that is wasted is what lies free between
// blocks and is smaller than a chunk; everything else can be stitched.

// addressRange is a range of addresses with memory mapped to its beginning.
type addressRange struct {
	seg    *block.Segment
	limit  int64    // bytes of addresses
	chunks []*chunk // tile the segment, by offset
	gaps   int64    // bytes of the segment without memory

	unit   int64    // the granularity of chunks
	places []uint32 // by unit of the segment: the number of the chunk that has it
}

// kind returns the set that the range's free blocks are in.
func (r *addressRange) kind() ledger.Kind { return ledger.KindOf(r.seg.Large) }

// at returns the address of a chunk.
func (r *addressRange) at(off int64) device.Ptr { return device.Ptr(r.seg.Base) + device.Ptr(off) }

// chunkOf returns the chunk that has the byte at an offset, len(chunks) behind the last.
func (r *addressRange) chunkOf(off int64) int {
	if unit := int(off / r.unit); unit < len(r.places) {
		return int(r.places[unit])
	}
	return len(r.chunks)
}

// chunkAt returns the first chunk that begins at or after an offset.
func (r *addressRange) chunkAt(off int64) int {
	i := r.chunkOf(off)
	if i < len(r.chunks) && r.chunks[i].off < off {
		i++
	}
	return i
}

// setPlaces enters the chunks from number i on, after a change of these.
func (r *addressRange) setPlaces(i int) {
	r.places = r.places[:r.chunks[i].off/r.unit]
	for ; i < len(r.chunks); i++ {
		for range r.chunks[i].size / r.unit {
			r.places = append(r.places, uint32(i))
		}
	}
}

// hasRoom reports whether size more bytes of addresses are left at the end.
func (r *addressRange) hasRoom(size int64) bool { return r.seg.Size+size <= r.limit }

// chunkFraction makes a chunk at most this part of what the pool holds, so that the free
// rests of chunks stay a small part of the whole.
const chunkFraction = 128

// chunkSize returns the bytes of the next handle of a kind that lacks need, of a pool that
// holds have bytes.
func (h *Heap) chunkSize(k ledger.Kind, have, need int64) int64 {
	g := h.space.Memory.Granularity
	size, part, most := g, int64(chunkFraction), h.space.Policy.MaxChunk
	if h.fragmented && have < fragmentedMaxChunk*chunkFraction {
		part, most = fragmentedChunkFraction, min(most, fragmentedMaxChunk)
	}
	if k == ledger.Large && have > g*part {
		size = min(powerOfTwo(have/part), max(most, g))
	}
	for size > g && size > sizeclass.RoundTo(need, g) {
		size /= 2
	}
	return sizeclass.RoundTo(size, g)
}

// handlesOfRequest is the part of a large request that the handles which a range gets for it may
// have. What other blocks leave free of such a handle is small beside the request. Where the
// pool's chunks are smaller, handles of that size save calls of the driver.
const handlesOfRequest = 10

// requestChunkSize returns the bytes of the next handle by handlesOfRequest, for a request that
// lacks need, or 0 where chunkSize alone counts: the chunks of a fragmented heap are larger anyway.
func (h *Heap) requestChunkSize(k ledger.Kind, need, request int64) int64 {
	if k != ledger.Large || h.fragmented {
		return 0
	}
	g := h.space.Memory.Granularity
	return powerOfTwo(min(need, request/handlesOfRequest, h.space.Policy.MaxChunk)) / g * g
}

// powerOfTwo rounds down a positive number.
func powerOfTwo(n int64) int64 { return int64(1) << (bits.Len64(uint64(n)) - 1) }

// growBy maps at least need more bytes for a request of a kind. Where the device has
// them, it maps as many as a GrowthFactor asks for, or as growthStep says.
func (h *Heap) growBy(k ledger.Kind, need, request int64) error {
	for _, more := range [...]int64{h.Extra(h.space.Memory.Granularity), h.growthStep(k, need)} {
		if more > need {
			if err := h.grow(k, more, request); !errors.Is(err, device.ErrOutOfMemory) {
				return err
			}
		}
	}
	return h.grow(k, need, request)
}

// smallGrowth makes a small range of more than 2 GiB grow by this part of it at
// once: before it grows, all that it has cached is merged in vain.
const smallGrowth = 1024

// growthStep returns the bytes that a kind should grow by when it lacks need: a part
// of a small range, and whole chunks for the large kind of a fragmented heap.
func (h *Heap) growthStep(k ledger.Kind, need int64) int64 {
	n := len(h.ranges[k])
	if n == 0 {
		return need
	}
	have := h.ranges[k][n-1].seg.Size
	switch {
	case k == ledger.Small && h.space.Policy.GrowthFactor != 1:
		return have / smallGrowth
	case k == ledger.Large && h.fragmented:
		return sizeclass.RoundTo(need, h.chunkSize(k, h.space.Memory.Held(), h.space.Policy.MaxChunk))
	}
	return need
}

// Extra returns the bytes, a multiple of unit, that the heap should grow by with
// a GrowthFactor, or 0.
func (h *Heap) Extra(unit int64) int64 {
	p := &h.space.Policy
	if p.GrowthFactor <= 1 {
		return 0
	}
	more := min((p.GrowthFactor-1)*float64(h.Held()), sizeclass.MaxRequest)
	if p.MaxSplit > 0 { // a segment of that size would serve no small request
		more = min(more, float64(p.MaxSplit-unit))
	}
	return int64(more) / unit * unit
}

// Grow maps at least need more bytes for a kind and adds them to the free
// blocks: first into gaps, then at the end of the newest range, or of a new one
// where that has no addresses left.
func (h *Heap) Grow(k ledger.Kind, need int64) error { return h.grow(k, need, need) }

// grow is Grow for a request.
func (h *Heap) grow(k ledger.Kind, need, request int64) error {
	if err := h.space.Memory.Fits(need); err != nil {
		return err
	}
	r, err := h.growing(k, need)
	if err != nil {
		return err
	}
	if need, err = h.fillGaps(r, need); err != nil || need <= 0 {
		return err
	}
	if !r.hasRoom(sizeclass.RoundTo(need, h.space.Memory.Granularity)) {
		if r, err = h.newRange(k, need); err != nil {
			return err
		}
	}
	var sizes []int64
	total, held := int64(0), h.space.Memory.Held()
	for total < need {
		size := max(h.chunkSize(k, held+total, need-total), h.requestChunkSize(k, need-total, request))
		sizes = append(sizes, size)
		total += size
	}
	if err := h.Slots(1); err != nil {
		return err
	}
	add, err := h.create(r, r.seg.Size, sizes)
	if err != nil {
		return err
	}
	h.extend(r, add)
	return nil
}

// create maps new memory to a range and counts it.
func (h *Heap) create(r *addressRange, off int64, sizes []int64) ([]*chunk, error) {
	handles, err := h.space.Memory.Create(r.at(off), sizes)
	if err != nil {
		return nil, err
	}
	h.work.Grown++
	chunks := make([]*chunk, len(sizes))
	for i, size := range sizes {
		chunks[i] = &chunk{r: r, off: off, size: size, handle: handles[i]}
		off += size
		h.Ledger.Segment(r.kind(), size)
		h.tell(Mapped, r.at(chunks[i].off), size)
	}
	return chunks, nil
}

// growing returns the newest range of a kind, made when there is none or it has
// no addresses left for need bytes more.
func (h *Heap) growing(k ledger.Kind, need int64) (*addressRange, error) {
	if n := len(h.ranges[k]); n > 0 {
		r := h.ranges[k][n-1]
		if r.gaps > 0 || r.hasRoom(sizeclass.RoundTo(need, h.space.Memory.Granularity)) {
			return r, nil
		}
	}
	return h.newRange(k, need)
}

// newRange reserves addresses for all the memory that the device has or, where
// the addresses are scarce, for less, but for need bytes at least.
func (h *Heap) newRange(k ledger.Kind, need int64) (*addressRange, error) {
	m := h.space.Memory
	limit := sizeclass.RoundTo(m.Capacity, m.Granularity)
	p, err := m.Reserve(limit)
	for least := sizeclass.RoundTo(need, m.Granularity); err != nil && limit > least; {
		limit = max(sizeclass.RoundTo(limit/4, m.Granularity), least)
		p, err = m.Reserve(limit)
	}
	if err != nil {
		return nil, err
	}
	r := &addressRange{seg: &block.Segment{Base: uint64(p), Large: k == ledger.Large, Virtual: true}, limit: limit, unit: m.Granularity}
	h.addSegment(r.seg)
	h.space.Index.add(r.seg, limit)
	h.ranges[k] = append(h.ranges[k], r)
	return r, nil
}

// fillGaps gives memory to addresses that lost it, and returns how much of need
// is left.
func (h *Heap) fillGaps(r *addressRange, need int64) (int64, error) {
	for i := 0; need > 0 && r.gaps > 0; i++ {
		if r.chunks[i].handle != 0 {
			continue
		}
		if err := h.Slots(2); err != nil {
			return need, err
		}
		gap := r.chunks[i]
		fill, err := h.create(r, gap.off, []int64{min(gap.size, h.chunkSize(r.kind(), h.space.Memory.Held(), need))})
		if err != nil {
			return need, err
		}
		need -= fill[0].size
		h.fillGap(r, i, fill[0])
	}
	return need, nil
}

// extend enters chunks that were mapped to the end of a range.
func (h *Heap) extend(r *addressRange, add []*chunk) {
	r.chunks = append(r.chunks, add...)
	r.setPlaces(len(r.chunks) - len(add))
	if last := h.space.Blocks.At(r.seg.Last); r.seg.Last != 0 && last.Prev == 0 && last.Word().State() == block.Free {
		h.Ledger.Resplit(r.kind(), last.Size) // it was alone and shares the range from now on
	}
	total := int64(0)
	for _, ch := range add {
		total += ch.size
	}
	id, b := r.seg.Extend(total, &h.slots)
	h.insert(r.seg, id, b)
}

// fillGap enters a chunk that was mapped to the beginning of gap i. Two slots
// must have been ensured.
func (h *Heap) fillGap(r *addressRange, i int, fill *chunk) {
	gap := r.chunks[i]
	r.chunks[i] = fill
	if rest := gap.size - fill.size; rest > 0 {
		r.chunks = slices.Insert(r.chunks, i+1, &chunk{r: r, off: gap.off + fill.size, size: rest})
		r.setPlaces(i)
	}
	// One block may stand for several gaps in a row.
	at := r.seg.Base + uint64(gap.off)
	id, b := r.seg.Find(h.slots.Table, at)
	if front := int64(at - b.Addr()); front > 0 {
		id, b = r.seg.Split(id, b, front, &h.slots)
	}
	if b.Size > fill.size {
		_, rest := r.seg.Split(id, b, fill.size, &h.slots)
		rest.SetWord(block.MakeWord(rest.Word().Gen(), block.Gap))
	}
	r.gaps -= fill.size
	h.insert(r.seg, id, b)
}

// tail returns the free bytes at the end of a kind's newest range, which growing
// makes longer.
func (h *Heap) tail(k ledger.Kind) int64 {
	if n := len(h.ranges[k]); n > 0 {
		r := h.ranges[k][n-1]
		if r.seg.Last == 0 {
			return 0 // nothing was ever mapped there
		}
		if b := h.space.Blocks.At(r.seg.Last); b.Word().State() == block.Free {
			return b.Size
		}
	}
	return 0
}

// closeRange gives everything back that a range holds, when nothing is in use.
func (h *Heap) closeRange(r *addressRange) (slept int64, err error) {
	m, k := h.space.Memory, r.kind()
	var errs []error
	for i := range r.chunks {
		switch ch := r.chunks[i]; {
		case ch.handle == asleep:
			slept += ch.size
		case ch.backed():
			errs = append(errs, m.Remove(r.at(ch.off), ch.piece()))
			h.tell(Unmapped, r.at(ch.off), ch.size)
			h.Ledger.SegmentsGone(k, 1, ch.size)
		}
	}
	h.space.forget(r.seg.Base, r.seg.Size) // another range may have the addresses next
	h.dropBlocks(r.seg)
	h.space.Index.remove(r.seg)
	errs = append(errs, m.Unreserve(device.Ptr(r.seg.Base), r.limit))
	h.dropSegment(r.seg.Index)
	return slept, errors.Join(errs...)
}

// dropBlocks gives the slots of a range's blocks back, all of which are free or
// gaps.
func (h *Heap) dropBlocks(seg *block.Segment) {
	k := ledger.KindOf(seg.Large)
	var ids []block.ID
	seg.Each(&h.space.Blocks, func(id block.ID, _ *block.Block) { ids = append(ids, id) })
	for _, id := range ids {
		b := h.space.Blocks.At(id)
		if b.Word().State() == block.Free {
			h.free[k].Remove(id, b)
			if b.Prev|b.Next != 0 {
				h.Ledger.Unsplit(k, 1, b.Size)
			}
		}
		b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
		h.slots.Put(id, b)
	}
}
