package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Stitching.
//
// When no free block is large enough, but free chunks together are, they are
// mapped a second time, side by side, at fresh addresses, and that is the
// block (GMLake, Guo et al., ASPLOS 2024). Nothing is unmapped and nothing
// waits: the chunks are free in the order of the pool's stream, and the
// block is for that stream. In the home the pieces are taken as Parts until
// the block is freed; then they go home and merge. The mapping stays and is
// used again when its chunks are free again. Small blocks are cut from homes
// alone, but the chunks that they leave free serve stitched blocks too.

// stitch is a range of addresses that chunks are mapped to a second time.
type stitch struct {
	base   Ptr
	limit  int64      // bytes of addresses
	size   int64      // bytes mapped
	chunks []chunkRef // in the order of the range
	seg    *block.Segment
	parts  []part // while the range holds a block
	asleep bool   // not mapped until Wake
}

// chunkRef names a chunk by where it is mapped first.
type chunkRef struct {
	h   *home
	off int64
}

func (p chunkRef) index() int   { return p.h.chunkAt(p.off) }
func (p chunkRef) chunk() chunk { return p.h.chunks[p.index()] }

// in returns the number of the run that has the chunk, or -1.
func (p chunkRef) in(runs []run) int {
	i := p.index()
	return slices.IndexFunc(runs, func(r run) bool { return r.h == p.h && r.lo <= i && i < r.hi })
}

// part is a block of a home that backs a piece of a stitched one.
type part struct {
	h  *home
	id block.ID
}

// maxStitches bounds the ranges that a stream keeps mapped for later use.
const maxStitches = 512

// A stitch costs the driver about 20 µs a chunk, which a program that keeps
// asking for other sizes at random would pay at every step. So stitches are
// rationed: stitchBurst at first, then one in stitchEvery allocations; beyond
// that a pool grows, until the best fit serves by itself. Replays of real
// programs need no more than the burst.
const (
	stitchBurst = 256
	stitchEvery = 16384
)

// creditLocked returns how many stitches the stream may still make.
func (s *Stream) creditLocked() int64 {
	return stitchBurst + s.searches/stitchEvery - s.stitched
}

// run is a row of whole chunks inside one free block.
type run struct {
	h      *home
	id     block.ID
	lo, hi int // chunks[lo:hi]
	size   int64
}

// idleRunsLocked lists the whole chunks that are free in a pool, the
// longest rows first, with their sum.
func (s *Stream) idleRunsLocked(k kind) (runs []run, total int64) {
	s.pools[k].EachFrom(s.c.granularity, func(id block.ID, b *block.Block) bool {
		h := s.homeOf(b, k)
		off := int64(b.Addr() - h.seg.Base)
		r := run{h: h, id: id, lo: h.chunkAt(off)}
		for r.hi = r.lo; r.hi < len(h.chunks) && h.chunks[r.hi].off+h.chunks[r.hi].size <= off+b.Size; r.hi++ {
			r.size += h.chunks[r.hi].size
		}
		if r.size > 0 {
			runs = append(runs, r)
			total += r.size
		}
		return true
	})
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.h.seg.Base, b.h.seg.Base), cmp.Compare(a.lo, b.lo))
	})
	return runs, total
}

// stitchableLocked lists the whole chunks that are free for a large block of
// need bytes: those of the large pool, and behind them, where these are too few
// and the program is no small one, those that the small pool has no use for.
func (s *Stream) stitchableLocked(need int64) (runs []run, total int64) {
	runs, total = s.idleRunsLocked(large)
	if total >= need || s.c.reserved.Load() < idleFloor {
		return runs, total
	}
	s.mergeFastLocked()
	lent, more := s.idleRunsLocked(small)
	return append(runs, lent...), total + more
}

func (s *Stream) homeOf(b *block.Block, k kind) *home {
	for _, h := range s.homes[k] {
		if h.seg.Index == b.Seg {
			return h
		}
	}
	return nil
}

// growVirtualLocked makes a block for the request out of virtual memory:
// stitched from what is free, after growing by what is missing only.
func (s *Stream) growVirtualLocked(r request) (block.ID, *block.Block, error) {
	grown := false
	for {
		if id := s.fitLocked(r.kind, r.rounded); id != 0 {
			b := s.c.blocks.At(id)
			if err := s.slots.Ensure(1); err != nil {
				return 0, nil, fmt.Errorf("cupool: %w", err)
			}
			s.pools[r.kind].Remove(id, b)
			if grown {
				s.c.books.misses.Add(1)
			}
			return id, b, nil
		}
		missing := r.rounded - s.tailLocked(r.kind)
		if r.kind == large {
			runs, total := s.stitchableLocked(r.rounded)
			if missing = r.rounded - total; missing <= 0 && s.creditLocked() <= 0 {
				if err := s.growHomeLocked(large, r.rounded-s.tailLocked(large)); err == nil {
					grown = true
					continue
				} else if !errors.Is(err, ErrOutOfMemory) {
					return 0, nil, err
				}
			}
			if missing <= 0 {
				id, b, err := s.stitchLocked(r, runs)
				if err == nil && grown {
					s.c.books.misses.Add(1)
				}
				return id, b, err
			}
		}
		if err := s.growByLocked(r.kind, missing); err != nil {
			return 0, nil, err
		}
		grown = true
	}
}

// tailLocked returns the free bytes at the end of the pool's home, which
// growing makes longer.
func (s *Stream) tailLocked(k kind) int64 {
	if n := len(s.homes[k]); n > 0 {
		h := s.homes[k][n-1]
		if h.seg.Last == 0 {
			return 0 // nothing was ever mapped there
		}
		if b := s.c.blocks.At(h.seg.Last); b.Word().State() == block.Free {
			return b.Size
		}
	}
	return 0
}

// stitchLocked returns a block on chunks of the runs, which together are
// large enough: on a range that is mapped already or on a new one.
func (s *Stream) stitchLocked(r request, runs []run) (block.ID, *block.Block, error) {
	st := s.findStitchLocked(r.rounded, runs)
	if st == nil {
		var err error
		if st, err = s.mapStitchLocked(r.rounded, runs); err != nil {
			return 0, nil, err
		}
	} else {
		s.c.books.stitchReuses.Add(1)
	}
	if err := s.slots.Ensure(2*len(st.chunks) + 1); err != nil {
		return 0, nil, fmt.Errorf("cupool: %w", err)
	}
	s.takePartsLocked(st, r.rounded, runs)
	st.seg = &block.Segment{Base: uint64(st.base), Size: r.rounded, Large: true, Stitched: true}
	s.addSegmentLocked(st.seg)
	s.c.segments.add(st.seg, st.size, s)
	id, b := st.seg.Begin(&s.slots)
	return id, b, nil
}

// findStitchLocked returns the smallest idle range of at least need bytes
// whose first chunks, as far as need goes, are all free; or nil.
func (s *Stream) findStitchLocked(need int64, runs []run) (best *stitch) {
	for _, st := range s.stitches {
		if st.seg == nil && st.size >= need && (best == nil || st.size < best.size) && st.isFree(need, runs) {
			best = st
		}
	}
	return best
}

// isFree reports whether the chunks under the first need bytes are in runs.
func (st *stitch) isFree(need int64, runs []run) bool {
	for _, p := range st.chunks {
		if p.in(runs) < 0 {
			return false
		}
		if need -= p.chunk().size; need <= 0 {
			break
		}
	}
	return true
}

// mapStitchLocked maps chunks of the runs, the longest first, side by side
// until they hold need bytes. What a failing call left is undone.
func (s *Stream) mapStitchLocked(need int64, runs []run) (_ *stitch, err error) {
	c := s.c
	if len(s.stitches) >= maxStitches && !s.isCaptured() {
		if err := s.forgetStitchesLocked(); err != nil {
			return nil, err
		}
	}
	st := &stitch{}
	for _, r := range runs {
		for i := r.lo; i < r.hi && st.size < need; i++ {
			st.chunks = append(st.chunks, chunkRef{r.h, r.h.chunks[i].off})
			st.size += r.h.chunks[i].size
		}
	}
	st.limit = st.size
	if st.base, err = c.vm.AddressReserve(st.limit); err != nil {
		return nil, c.driverError(fmt.Errorf("cupool: reserving %d bytes of addresses on %s: %w", st.size, c.driver.Name(), err))
	}
	if err = c.mapStitch(st); err != nil {
		return nil, errors.Join(err, c.giveBack(leftover{base: st.base, addresses: st.limit}))
	}
	s.stitches = append(s.stitches, st)
	s.stitched++
	c.books.stitches.Add(1)
	return st, nil
}

// mapStitch maps a range's chunks side by side, or undoes what it did.
func (c *Caching) mapStitch(st *stitch) (err error) {
	_ = c.giveBackLeftovers() // they may lie there
	at := st.base
	for _, p := range st.chunks {
		ch := p.chunk()
		if err = c.vm.MemMap(at, ch.size, ch.handle); err != nil {
			break
		}
		at += Ptr(ch.size)
	}
	if err == nil {
		err = c.vm.MemSetAccess(st.base, st.size)
	}
	if err != nil {
		undo := c.giveBack(leftover{base: st.base, mapped: int64(at - st.base)})
		return c.driverError(fmt.Errorf("cupool: stitching %d chunks to %d bytes at %v on %s: %w", len(st.chunks), st.size, st.base, c.driver.Name(), errors.Join(err, undo)))
	}
	return nil
}

// takePartsLocked takes the memory under the first need bytes of a range out
// of the homes' free blocks.
func (s *Stream) takePartsLocked(st *stitch, need int64, runs []run) {
	type piece struct {
		chunkRef
		size int64
	}
	var pieces []piece
	for _, p := range st.chunks {
		if need <= 0 {
			break
		}
		size := min(need, p.chunk().size)
		pieces = append(pieces, piece{p, size})
		need -= size
	}
	// From left to right, so that what is left behind a piece is known as
	// the block in which the next one lies.
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.h.seg.Base, b.h.seg.Base), cmp.Compare(a.off, b.off))
	})
	behind := map[block.ID]block.ID{}
	for _, p := range pieces {
		r := runs[p.in(runs)]
		in := r.id
		if next, ok := behind[in]; ok {
			in = next
		}
		id, b, rest := s.carveLocked(p.h.seg, in, p.off, p.size)
		behind[r.id] = rest
		b.SetWord(block.MakeWord(b.Word().Gen(), block.Part))
		st.parts = append(st.parts, part{p.h, id})
	}
}

// unstitchLocked sends the memory of a stitched block home.
func (s *Stream) unstitchLocked(seg *block.Segment, id block.ID, b *block.Block) {
	i := slices.IndexFunc(s.stitches, func(st *stitch) bool { return st.seg == seg })
	st := s.stitches[i]
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))
	s.slots.Put(id, b)
	s.c.segments.remove(seg)
	s.dropSegmentLocked(seg.Index)
	st.seg = nil
	for _, p := range st.parts {
		s.insertFreeLocked(p.h.seg, p.id, s.c.blocks.At(p.id))
	}
	st.parts = st.parts[:0]
}

// dropStitchesLocked ends the second mappings of a home's chunks from lo up
// to hi, which are free: idle ranges are unmapped, those that hold a block
// become shorter behind it. The stream's work must be done.
func (s *Stream) dropStitchesLocked(h *home, lo, hi int) error {
	uses := func(p chunkRef) bool { return p.h == h && lo <= p.index() && p.index() < hi }
	for _, st := range s.stitches {
		if i := slices.IndexFunc(st.chunks, uses); i >= 0 && st.seg != nil {
			if err := s.c.shorten(st, i); err != nil {
				return err
			}
		}
	}
	return s.dropLocked(func(st *stitch) bool { return slices.ContainsFunc(st.chunks, uses) })
}

// shorten unmaps a range's chunks from the n-th on.
func (c *Caching) shorten(st *stitch, n int) error {
	size := int64(0)
	for _, p := range st.chunks[:n] {
		size += p.chunk().size
	}
	if err := c.vm.MemUnmap(st.base+Ptr(size), st.size-size); err != nil {
		return c.driverError(fmt.Errorf("cupool: unmapping the end of a stitched range on %s: %w", c.driver.Name(), err))
	}
	st.chunks, st.size = st.chunks[:n], size
	return nil
}

// forgetStitchesLocked unmaps all idle ranges, after waiting for the
// stream's work: there are so many that few can be of use.
func (s *Stream) forgetStitchesLocked() error {
	if err := s.c.driver.SyncStream(s.handle); err != nil {
		return s.submit("synchronize", err)
	}
	return s.dropLocked(func(*stitch) bool { return true })
}

// dropLocked unmaps the idle ranges that match. One that cannot be unmapped
// stays; addresses that cannot be given back are left over.
func (s *Stream) dropLocked(match func(*stitch) bool) (err error) {
	s.stitches = slices.DeleteFunc(s.stitches, func(st *stitch) bool {
		if st.seg != nil || err != nil || !match(st) {
			return false
		}
		if !st.asleep {
			if err = s.c.vm.MemUnmap(st.base, st.size); err != nil {
				return false
			}
		}
		err = s.c.giveBack(leftover{base: st.base, addresses: st.limit})
		return true
	})
	if err != nil {
		return s.c.driverError(fmt.Errorf("cupool: unmapping a stitched range on %s: %w", s.c.driver.Name(), err))
	}
	return nil
}
