package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Virtual memory backing.
//
// Each pool has a home: one large range of addresses that physical memory,
// in chunks, is mapped to from its start on. Blocks are cut from it as from
// a segment. It grows by no more than a request misses, so what is wasted is
// only what lies free between blocks and is smaller than a chunk; everything
// else can be stitched (stitch.go).

// VirtualMemory is the optional part of a Driver that maps physical memory
// to addresses, after CUDA's virtual memory management. Sizes and addresses
// are multiples of VMMGranularity, in bytes; a handle is mapped as a whole,
// at any number of addresses. None of the calls waits for running work.
type VirtualMemory interface {
	// VMMGranularity returns 0 where the device cannot do it.
	VMMGranularity() int64
	AddressReserve(size int64) (Ptr, error)
	AddressFree(p Ptr, size int64) error
	MemCreate(size int64) (handle uintptr, err error)
	MemRelease(handle uintptr) error
	MemMap(p Ptr, size int64, handle uintptr) error
	MemSetAccess(p Ptr, size int64) error
	MemUnmap(p Ptr, size int64) error
}

// chunk is a piece of a home that one handle backs, or a gap (handle 0).
type chunk struct {
	off, size int64
	handle    uintptr
}

// home is a range of addresses with memory mapped to its beginning. Guarded
// by the lock of the stream that owns it.
type home struct {
	seg    *block.Segment
	limit  int64   // bytes of addresses
	chunks []chunk // tile the segment, by offset
	gaps   int64   // bytes of the segment without memory
}

// chunkAt returns the first chunk that begins at or after an offset.
func (h *home) chunkAt(off int64) int {
	i, _ := slices.BinarySearchFunc(h.chunks, off, func(c chunk, o int64) int { return cmp.Compare(c.off, o) })
	return i
}

// maxChunk bounds the size of a handle: the driver's costs go by handle, so
// larger ones are cheaper, but only whole ones can be stitched or given
// back.
const maxChunk = 16 << 20

// chunkFraction makes a chunk of a pool at most this part of it, so that
// the free rests of chunks stay a small part of the whole.
const chunkFraction = 256

// chunkSize returns the bytes of the next handle of a home that lacks need.
func (c *Caching) chunkSize(k kind, have, need int64) int64 {
	g := c.granularity
	size := g
	if k == large && have > g*chunkFraction {
		size = min(int64(1)<<(bits.Len64(uint64(have/chunkFraction))-1), max(maxChunk, g))
	}
	for size > g && size > sizeclass.RoundTo(need, g) {
		size /= 2
	}
	return sizeclass.RoundTo(size, g)
}

// smallGrowth makes a small pool of more than 2 GiB grow by this part of it at
// once: before it grows, all that it has cached is merged in vain.
const smallGrowth = 1024

// growByLocked maps at least need more bytes to the pool's home, and for a
// small pool a little more where the device has it.
func (s *Stream) growByLocked(k kind, need int64) error {
	if more := s.extraLocked(s.c.granularity); more > need {
		if err := s.growHomeLocked(k, more); !errors.Is(err, ErrOutOfMemory) {
			return err
		}
	}
	if n := len(s.homes[k]); k == small && n > 0 && s.c.cfg.GrowthFactor != 1 {
		if more := s.homes[k][n-1].seg.Size / smallGrowth; more > need {
			if err := s.growHomeLocked(k, more); !errors.Is(err, ErrOutOfMemory) {
				return err
			}
		}
	}
	return s.growHomeLocked(k, need)
}

// growHomeLocked maps at least need more bytes of memory to the pool's home
// and adds them to its free blocks: first into gaps, then at the end.
func (s *Stream) growHomeLocked(k kind, need int64) error {
	if have := s.c.reserved.Load(); need > s.c.capacity-have {
		return fmt.Errorf("%w: %d more bytes, with %d reserved of the device's %d", ErrOutOfMemory, need, have, s.c.capacity)
	}
	h, err := s.growingHomeLocked(k, need)
	if err != nil {
		return err
	}
	if need, err = s.fillGapsLocked(h, k, need); err != nil || need <= 0 {
		return err
	}
	if !h.hasRoom(sizeclass.RoundTo(need, s.c.granularity)) {
		return fmt.Errorf("cupool: %d more bytes do not fit the address range of %d bytes: %w", need, h.limit, ErrOutOfMemory)
	}
	var add []chunk
	total := int64(0)
	for total < need {
		size := s.c.chunkSize(k, h.seg.Size+total, need-total)
		add = append(add, chunk{off: h.seg.Size + total, size: size})
		total += size
	}
	if err := s.slots.Ensure(1); err != nil {
		return fmt.Errorf("cupool: %w", err)
	}
	if err := s.c.back(h, add); err != nil {
		return err
	}
	s.bookChunks(k, add)
	s.extendLocked(h, k, add)
	return nil
}

// hasRoom reports whether size more bytes of addresses are left at the end.
func (h *home) hasRoom(size int64) bool { return h.seg.Size+size <= h.limit }

// growingHomeLocked returns the pool's newest home, made when there is none or it
// has no addresses left for need bytes more.
func (s *Stream) growingHomeLocked(k kind, need int64) (*home, error) {
	if n := len(s.homes[k]); n > 0 {
		h := s.homes[k][n-1]
		if h.gaps > 0 || h.hasRoom(sizeclass.RoundTo(need, s.c.granularity)) {
			return h, nil
		}
	}
	return s.newHomeLocked(k)
}

func (s *Stream) newHomeLocked(k kind) (*home, error) {
	c := s.c
	limit := sizeclass.RoundTo(c.capacity, c.granularity)
	p, err := c.vm.AddressReserve(limit)
	if err != nil {
		return nil, c.driverError(fmt.Errorf("cupool: reserving %d bytes of addresses on %s: %w", limit, c.driver.Name(), err))
	}
	h := &home{seg: &block.Segment{Base: uint64(p), Large: k == large, Virtual: true}, limit: limit}
	s.addSegmentLocked(h.seg)
	c.segments.add(h.seg, limit, s)
	s.homes[k] = append(s.homes[k], h)
	return h, nil
}

// fillGapsLocked gives memory to address ranges that lost it, and returns
// how much of need is left.
func (s *Stream) fillGapsLocked(h *home, k kind, need int64) (int64, error) {
	for i := 0; i < len(h.chunks) && need > 0 && h.gaps > 0; i++ {
		if h.chunks[i].handle != 0 {
			continue
		}
		if err := s.slots.Ensure(2); err != nil {
			return need, fmt.Errorf("cupool: %w", err)
		}
		gap := h.chunks[i]
		fill := []chunk{{off: gap.off, size: min(gap.size, s.c.chunkSize(k, h.seg.Size, need))}}
		if err := s.c.back(h, fill); err != nil {
			return need, err
		}
		need -= fill[0].size
		s.bookChunks(k, fill)
		s.fillGapLocked(h, i, fill[0])
	}
	return need, nil
}

// extendLocked enters chunks that were mapped to the end of a home.
func (s *Stream) extendLocked(h *home, k kind, add []chunk) {
	h.chunks = append(h.chunks, add...)
	if last := s.c.blocks.At(h.seg.Last); h.seg.Last != 0 && last.Prev == 0 && last.Word().State() == block.Free {
		s.noteUnsplit(k, -1, -last.Size) // it was alone and shares the home now
	}
	total := int64(0)
	for _, ch := range add {
		total += ch.size
	}
	id, b := h.seg.Extend(total, &s.slots)
	s.insertFreeLocked(h.seg, id, b)
}

// fillGapLocked enters a chunk that was mapped to the beginning of gap i. Two
// slots must have been ensured.
func (s *Stream) fillGapLocked(h *home, i int, fill chunk) {
	gap := h.chunks[i]
	h.chunks[i] = fill
	if rest := gap.size - fill.size; rest > 0 {
		h.chunks = slices.Insert(h.chunks, i+1, chunk{off: gap.off + fill.size, size: rest})
	}
	// One block may stand for several gaps in a row.
	at := h.seg.Base + uint64(gap.off)
	id, b := h.seg.Find(s.slots.Table, at)
	if front := int64(at - b.Addr()); front > 0 {
		id, b = h.seg.Split(id, b, front, &s.slots)
	}
	if b.Size > fill.size {
		_, rest := h.seg.Split(id, b, fill.size, &s.slots)
		rest.SetWord(block.MakeWord(rest.Word().Gen(), block.Gap))
	}
	h.gaps -= fill.size
	s.insertFreeLocked(h.seg, id, b)
}

// bookChunks enters memory that came from the device into the books.
func (s *Stream) bookChunks(k kind, add []chunk) {
	for _, ch := range add {
		s.noteSegment(k, ch.size)
	}
}

// insertFreeLocked adds a block that is in no set to the pool, merged with
// its free neighbours, and returns the bytes that these are now.
func (s *Stream) insertFreeLocked(seg *block.Segment, id block.ID, b *block.Block) int64 {
	k := kindOf(seg.Large)
	id, b, merged, mergedBytes := seg.Coalesce(id, b, &s.pools[k], &s.slots)
	s.pools[k].Insert(id, b)
	if merged > 0 {
		s.noteUnsplit(k, merged, mergedBytes)
	}
	if b.Prev|b.Next != 0 {
		s.noteSplit(k, b.Size)
	} else if s.c.collectAbove > 0 {
		seg.IdleSince = s.c.idleTick.Add(1)
	}
	return b.Size
}

// back makes handles for the chunks, maps them to the home and opens them
// for access. When a call fails, everything it did is undone.
func (c *Caching) back(h *home, chunks []chunk) (err error) {
	base, size := Ptr(h.seg.Base)+Ptr(chunks[0].off), int64(0)
	for _, ch := range chunks {
		size += ch.size
	}
	if err := c.reserve(size); err != nil {
		return err
	}
	_ = c.giveBackLeftovers() // they may lie where the chunks go
	mapped := 0
	defer func() {
		if err != nil {
			c.unreserve(size)
			err = c.driverError(fmt.Errorf("cupool: backing %d bytes at %v on %s: %w", size, base, c.driver.Name(), errors.Join(err, c.unback(h, chunks, mapped))))
		}
	}()
	for i := range chunks {
		if chunks[i].handle, err = c.vm.MemCreate(chunks[i].size); err != nil {
			return err
		}
		c.books.driverAllocs.Add(1)
		if err = c.vm.MemMap(Ptr(h.seg.Base)+Ptr(chunks[i].off), chunks[i].size, chunks[i].handle); err != nil {
			return err
		}
		mapped = i + 1
	}
	if err = c.vm.MemSetAccess(base, size); err != nil {
		return err
	}
	c.noteReserved()
	return nil
}

// unback unmaps the first mapped chunks and releases all handles.
func (c *Caching) unback(h *home, chunks []chunk, mapped int) error {
	var errs []error
	for i, ch := range chunks {
		l := leftover{base: Ptr(h.seg.Base) + Ptr(ch.off), handle: ch.handle}
		if i < mapped {
			l.mapped = ch.size
		}
		errs = append(errs, c.giveBack(l))
	}
	return errors.Join(errs...)
}

// closeHomesLocked unmaps and gives back everything the homes hold, when
// nothing is live any more.
func (s *Stream) closeHomesLocked() error {
	var errs []error
	for k := range s.homes {
		for _, h := range s.homes[k] {
			errs = append(errs, s.dropStitchesLocked(h, 0, len(h.chunks)))
			errs = append(errs, s.closeHomeLocked(h, kind(k)))
		}
		s.homes[k] = nil
	}
	return errors.Join(errs...)
}

func (s *Stream) closeHomeLocked(h *home, k kind) error {
	c := s.c
	backed := slices.DeleteFunc(slices.Clone(h.chunks), func(ch chunk) bool {
		if ch.handle == asleep {
			c.sleep.bytes.Add(-ch.size)
		}
		return ch.handle == 0 || ch.handle == asleep
	})
	err := c.unback(h, backed, len(backed))
	err = errors.Join(err, c.giveBack(leftover{base: Ptr(h.seg.Base), addresses: h.limit}))
	for _, ch := range backed {
		c.returned(ch.size)
		s.noteSegmentsGone(k, 1, ch.size)
	}
	var ids []block.ID
	h.seg.Each(&c.blocks, func(id block.ID, _ *block.Block) { ids = append(ids, id) })
	for _, id := range ids {
		b := c.blocks.At(id)
		if b.Word().State() == block.Free {
			s.pools[k].Remove(id, b)
			if b.Prev|b.Next != 0 {
				s.noteUnsplit(k, 1, b.Size)
			}
		}
		b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
		s.slots.Put(id, b)
	}
	c.segments.remove(h.seg)
	s.dropSegmentLocked(h.seg.Index)
	return err
}
