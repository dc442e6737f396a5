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

// growHomeLocked maps at least need more bytes of memory to the pool's home
// and adds them to its free blocks: first into gaps, then at the end.
func (s *Stream) growHomeLocked(k kind, need int64) error {
	if have := s.c.reserved.Load(); need > s.c.capacity-have {
		return fmt.Errorf("%w: %d more bytes, with %d reserved of the device's %d", ErrOutOfMemory, need, have, s.c.capacity)
	}
	h, err := s.homeLocked(k, need)
	if err != nil {
		return err
	}
	if need, err = s.fillGapsLocked(h, k, need); err != nil || need <= 0 {
		return err
	}
	if h.seg.Size+sizeclass.RoundTo(need, s.c.granularity) > h.limit {
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
	h.chunks = append(h.chunks, add...)
	if last := s.c.blocks.At(h.seg.Last); h.seg.Last != 0 && last.Prev == 0 && last.Word().State() == block.Free {
		s.c.books.begin()
		s.c.books.splitTaken(k, -1, -last.Size) // it was alone and shares the home now
		s.c.books.end()
	}
	id, b := h.seg.Extend(total, &s.slots)
	s.backedLocked(h, k, add, id, b)
	return nil
}

// homeLocked returns the pool's newest home, made when there is none or it
// has no addresses left for need bytes more.
func (s *Stream) homeLocked(k kind, need int64) (*home, error) {
	if n := len(s.homes[k]); n > 0 {
		h := s.homes[k][n-1]
		if h.gaps > 0 || h.seg.Size+sizeclass.RoundTo(need, s.c.granularity) <= h.limit {
			return h, nil
		}
	}
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
		h.chunks[i] = fill[0]
		if rest := gap.size - fill[0].size; rest > 0 {
			h.chunks = slices.Insert(h.chunks, i+1, chunk{off: gap.off + fill[0].size, size: rest})
		}
		id, b := h.seg.Find(s.slots.Table, h.seg.Base+uint64(gap.off))
		if b.Size > fill[0].size {
			_, rest := h.seg.Split(id, b, fill[0].size, &s.slots)
			rest.SetWord(block.MakeWord(rest.Word().Gen(), block.Gap))
		}
		h.gaps -= fill[0].size
		need -= fill[0].size
		s.backedLocked(h, k, fill, id, b)
	}
	return need, nil
}

// backedLocked enters memory that was mapped into the books, as one block.
func (s *Stream) backedLocked(h *home, k kind, add []chunk, id block.ID, b *block.Block) {
	books := &s.c.books
	books.begin()
	for _, c := range add {
		books.segmentAdded(k, c.size)
	}
	books.end()
	s.insertFreeLocked(h.seg, id, b)
}

// insertFreeLocked adds a block that is in no set to the pool, merged with
// its free neighbours.
func (s *Stream) insertFreeLocked(seg *block.Segment, id block.ID, b *block.Block) {
	k := kindOf(seg.Large)
	id, b, merged, mergedBytes := seg.Coalesce(id, b, &s.pools[k], &s.slots)
	s.pools[k].Insert(id, b)
	books := &s.c.books
	books.begin()
	if merged > 0 {
		books.splitTaken(k, merged, mergedBytes)
	}
	if b.Prev|b.Next != 0 {
		books.splitAdded(k, b.Size)
	}
	books.end()
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
			c.reserved.Add(-size)
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

// unbackFree takes the memory of chunks away until a call fails, and returns
// how many of them have none any more. A handle that cannot be released is
// left over.
func (c *Caching) unbackFree(h *home, chunks []chunk) (n int, err error) {
	for _, ch := range chunks {
		at := Ptr(h.seg.Base) + Ptr(ch.off)
		if err := c.vm.MemUnmap(at, ch.size); err != nil {
			return n, c.driverError(fmt.Errorf("cupool: unmapping %d bytes at %v on %s: %w", ch.size, at, c.driver.Name(), err))
		}
		n++
		if err := c.giveBack(leftover{base: at, handle: ch.handle}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// releaseChunks gives memory of whole free chunks back to the device until
// need bytes went, and returns how many did. It waits for the stream's work
// first, with its lock held: only so it is certain that nothing uses the
// memory, and that nothing new does before it is unmapped.
func (s *Stream) releaseChunks(need int64) (released int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var runs []run
	for _, k := range [...]kind{large, small} {
		r, _ := s.idleRunsLocked(k)
		runs = append(runs, r...)
	}
	if len(runs) == 0 || need <= 0 {
		return 0, nil
	}
	if err := s.c.driver.SyncStream(s.handle); err != nil {
		return 0, s.submit("synchronize", err)
	}
	for _, r := range runs {
		hi := r.lo
		for want := need - released; hi < r.hi && want > 0; hi++ {
			want -= r.h.chunks[hi].size
		}
		n, err := s.unmapLocked(r, hi)
		if released += n; err != nil || released >= need {
			return released, err
		}
	}
	return released, nil
}

// unmapLocked takes the memory of a run's chunks up to hi away.
func (s *Stream) unmapLocked(r run, hi int) (int64, error) {
	c, h := s.c, r.h
	chunks := slices.Clone(h.chunks[r.lo:hi])
	if len(chunks) == 0 {
		return 0, nil
	}
	if err := s.slots.Ensure(2); err != nil {
		return 0, fmt.Errorf("cupool: %w", err)
	}
	if err := s.dropStitchesLocked(h, r.lo, hi); err != nil {
		return 0, err
	}
	n, err := c.unbackFree(h, chunks)
	if chunks = chunks[:n]; n == 0 {
		return 0, err
	}
	off, size := chunks[0].off, int64(0)
	for _, ch := range chunks {
		size += ch.size
	}
	_, b, _ := s.carveLocked(h.seg, r.id, off, size)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Gap))
	for i := r.lo; i < r.lo+n; i++ {
		h.chunks[i].handle = 0 // the places stay, for the indexes of other runs
	}
	h.gaps += size
	c.reserved.Add(-size)
	k := kindOf(h.seg.Large)
	c.books.begin()
	for _, ch := range chunks {
		c.books.segmentTaken(k, ch.size)
	}
	c.books.end()
	s.checkLocked()
	return size, err
}

// carveLocked cuts size bytes at an offset of the segment out of a free
// block and returns them as a block in no set, with the block of what
// remains behind it, or 0. The pieces beside it stay in the pool. Two slots
// must have been ensured.
func (s *Stream) carveLocked(seg *block.Segment, id block.ID, off, size int64) (block.ID, *block.Block, block.ID) {
	k, b := kindOf(seg.Large), s.c.blocks.At(id)
	books := &s.c.books
	s.pools[k].Remove(id, b)
	books.begin()
	defer books.end()
	if b.Prev|b.Next != 0 {
		books.splitTaken(k, 1, b.Size)
	}
	if front := int64(seg.Base) + off - int64(b.Addr()); front > 0 {
		restID, rest := seg.Split(id, b, front, &s.slots)
		s.pools[k].Insert(id, b)
		books.splitAdded(k, b.Size)
		id, b = restID, rest
	}
	var behind block.ID
	if b.Size > size {
		restID, rest := seg.Split(id, b, size, &s.slots)
		s.pools[k].Insert(restID, rest)
		books.splitAdded(k, rest.Size)
		behind = restID
	}
	return id, b, behind
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
	backed := slices.DeleteFunc(slices.Clone(h.chunks), func(ch chunk) bool { return ch.handle == 0 })
	err := c.unback(h, backed, len(backed))
	err = errors.Join(err, c.vm.AddressFree(Ptr(h.seg.Base), h.limit))
	c.books.begin()
	for _, ch := range backed {
		c.reserved.Add(-ch.size)
		c.books.segmentTaken(k, ch.size)
	}
	c.books.end()
	var ids []block.ID
	h.seg.Each(&c.blocks, func(id block.ID, _ *block.Block) { ids = append(ids, id) })
	for _, id := range ids {
		b := c.blocks.At(id)
		if b.Word().State() == block.Free {
			s.pools[k].Remove(id, b)
			if b.Prev|b.Next != 0 {
				c.books.begin()
				c.books.splitTaken(k, 1, b.Size)
				c.books.end()
			}
		}
		b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
		s.slots.Put(id)
	}
	c.segments.remove(h.seg)
	s.segs[h.seg.Index] = nil
	return err
}
