package cupool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Chunks that leave a home, for the device or for another stream's home.

// loose is the memory of a chunk that is mapped nowhere.
type loose struct {
	handle uintptr
	size   int64
	k      kind // of the pool whose books it is in
}

// releaseChunks gives memory of whole free chunks back to the device until
// need bytes went, and returns how many did. Nothing may use the memory, nor
// anything new before it is unmapped: so with the stream's lock held the
// stream's work is waited for or, without wait, nothing is done unless that
// is over.
func (s *Stream) releaseChunks(need int64, wait bool) (released int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mergeFastLocked()
	runs := s.wholeRunsLocked()
	switch {
	case len(runs) == 0 || need <= 0 || s.isCaptured():
		return 0, nil
	case s.heir.Load() != nil: // it waited when it was closed
	case !wait:
		if polls := provePolls; !s.isOverLocked(&polls) {
			return 0, nil
		}
	default:
		if err := s.c.driver.SyncStream(s.handle); err != nil {
			return 0, s.submit("synchronize", err)
		}
	}
	out, err := s.detachRunsLocked(runs, need)
	for _, l := range out {
		released += l.size
		err = errors.Join(err, s.releaseLoose(l))
	}
	s.checkLocked()
	return released, err
}

// releaseLoose gives memory back to the device.
func (s *Stream) releaseLoose(l loose) error {
	err := s.c.giveBack(leftover{handle: l.handle})
	s.noteSegmentsGone(l.k, 1, l.size)
	s.c.returned(l.size)
	return err
}

// wholeRunsLocked lists the whole chunks that are free, of the large pool
// first.
func (s *Stream) wholeRunsLocked() (runs []run) {
	for _, k := range [...]kind{large, small} {
		r, _ := s.idleRunsLocked(k)
		runs = append(runs, r...)
	}
	return runs
}

// detachRunsLocked is detachLocked for as many of the chunks, the longest
// rows first, as make need bytes.
func (s *Stream) detachRunsLocked(runs []run, need int64) (out []loose, err error) {
	for _, r := range runs {
		hi := r.lo
		for ; hi < r.hi && need > 0; hi++ {
			need -= r.h.chunks[hi].size
		}
		got, err := s.detachLocked(r, hi)
		if out = append(out, got...); err != nil || need <= 0 {
			return out, err
		}
	}
	return out, nil
}

// detachLocked unmaps a run's chunks up to hi, which no work uses any more,
// until a call fails, and leaves a gap in their place. It returns their
// memory, which the books go on to count.
func (s *Stream) detachLocked(r run, hi int) (out []loose, err error) {
	c, h := s.c, r.h
	if err := s.slots.Ensure(2); err != nil {
		return nil, fmt.Errorf("cupool: %w", err)
	}
	if err := s.dropStitchesLocked(h, r.lo, hi); err != nil {
		return nil, err
	}
	size := int64(0)
	for _, ch := range h.chunks[r.lo:hi] {
		at := Ptr(h.seg.Base) + Ptr(ch.off)
		if err = c.vm.MemUnmap(at, ch.size); err != nil {
			err = c.driverError(fmt.Errorf("cupool: unmapping %d bytes at %v on %s: %w", ch.size, at, c.driver.Name(), err))
			break
		}
		out = append(out, loose{ch.handle, ch.size, kindOf(h.seg.Large)})
		size += ch.size
	}
	if len(out) == 0 {
		return nil, err
	}
	_, b, _ := s.carveLocked(h.seg, r.id, h.chunks[r.lo].off, size)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Gap))
	for i := range out {
		h.chunks[r.lo+i].handle = 0 // the places stay, for the indexes of other runs
	}
	h.gaps += size
	return out, err
}

// attachLocked maps memory of another stream to a home of the pool. What a
// call fails for goes back to the device.
func (s *Stream) attachLocked(k kind, in []loose) (attached int64, err error) {
	for _, l := range in {
		if err == nil {
			err = s.attachChunkLocked(k, chunk{handle: l.handle, size: l.size})
		}
		if err != nil {
			err = errors.Join(err, s.releaseLoose(l))
			continue
		}
		attached += l.size
		if l.k != k {
			s.noteSegmentsGone(l.k, 1, l.size)
			s.noteSegment(k, l.size)
		}
	}
	return attached, err
}

// attachChunkLocked maps a chunk to the end of the newest home, where it makes
// the largest free block larger, or else to the first gap that holds it.
func (s *Stream) attachChunkLocked(k kind, ch chunk) error {
	c := s.c
	if err := s.slots.Ensure(2); err != nil {
		return fmt.Errorf("cupool: %w", err)
	}
	h, err := s.growingHomeLocked(k, ch.size)
	if err != nil {
		return err
	}
	gap := -1
	if !h.hasRoom(ch.size) {
		gap = slices.IndexFunc(h.chunks, func(o chunk) bool { return o.handle == 0 && o.size >= ch.size })
		if gap < 0 {
			if h, err = s.newHomeLocked(k); err != nil {
				return err
			}
		}
	}
	if ch.off = h.seg.Size; gap >= 0 {
		ch.off = h.chunks[gap].off
	}
	if err := c.mapChunk(h, ch); err != nil {
		return err
	}
	if gap >= 0 {
		s.fillGapLocked(h, gap, ch)
	} else {
		s.extendLocked(h, k, []chunk{ch})
	}
	return nil
}

// mapChunk maps a chunk's handle to its place and opens it for access, or
// undoes what it did.
func (c *Caching) mapChunk(h *home, ch chunk) error {
	at := Ptr(h.seg.Base) + Ptr(ch.off)
	_ = c.giveBackLeftovers() // they may lie there
	err := c.vm.MemMap(at, ch.size, ch.handle)
	if err == nil {
		if err = c.vm.MemSetAccess(at, ch.size); err != nil {
			err = errors.Join(err, c.giveBack(leftover{base: at, mapped: ch.size}))
		}
	}
	if err != nil {
		return c.driverError(fmt.Errorf("cupool: mapping %d bytes at %v on %s: %w", ch.size, at, c.driver.Name(), err))
	}
	return nil
}

// carveLocked cuts size bytes at an offset of the segment out of a free
// block and returns them as a block in no set, with the block of what
// remains behind it, or 0. The pieces beside it stay in the pool. Two slots
// must have been ensured.
func (s *Stream) carveLocked(seg *block.Segment, id block.ID, off, size int64) (block.ID, *block.Block, block.ID) {
	k, b := kindOf(seg.Large), s.c.blocks.At(id)
	s.pools[k].Remove(id, b)
	if b.Prev|b.Next != 0 {
		s.noteUnsplit(k, 1, b.Size)
	}
	if front := int64(seg.Base) + off - int64(b.Addr()); front > 0 {
		restID, rest := seg.Split(id, b, front, &s.slots)
		s.pools[k].Insert(id, b)
		s.noteSplit(k, b.Size)
		id, b = restID, rest
	}
	var behind block.ID
	if b.Size > size {
		restID, rest := seg.Split(id, b, size, &s.slots)
		s.pools[k].Insert(restID, rest)
		s.noteSplit(k, rest.Size)
		behind = restID
	}
	return id, b, behind
}
