package cupool

import (
	"errors"
	"maps"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Estates: what closed streams leave.

// bequeath hands over what a closed stream leaves: to the default stream
// when some of it is still in use, else to the first that misses. The reclaim
// lock is held.
func (s *Stream) bequeath() {
	maps.DeleteFunc(s.c.regrets, func(r regret, _ int) bool { return r.s == s })
	left := &s.c.stranded
	left.mu.Lock()
	defer left.mu.Unlock()
	s.mu.Lock()
	s.unhomeAllLocked()
	s.magazine.Drop()
	used, empty := false, true
	for _, seg := range s.segs {
		if seg != nil {
			empty = false
			used = used || !s.isIdleLocked(seg)
		}
	}
	s.mu.Unlock()
	switch {
	case used:
		s.moveTo(s.c.def)
	case !empty:
		left.estates = append(left.estates, s)
	}
}

// isIdleLocked reports whether nothing in a segment is in use.
func (s *Stream) isIdleLocked(seg *block.Segment) bool {
	idle := true
	seg.Each(&s.c.blocks, func(_ block.ID, b *block.Block) {
		if st := b.Word().State(); st != block.Free && st != block.Gap {
			idle = false
		}
	})
	return idle
}

// holders lists the streams that may hold memory.
func (c *Caching) holders() []*Stream {
	c.stranded.mu.Lock()
	defer c.stranded.mu.Unlock()
	return append(c.openStreams(), c.stranded.estates...)
}

// moveHomesLocked moves the homes of an estate's pool as they are, with what
// was stitched from them alone.
func (s *Stream) moveHomesLocked(k kind, heir *Stream) (bytes int64, err error) {
	moves := func(p chunkRef) bool { return kindOf(p.h.seg.Large) == k }
	stays := func(p chunkRef) bool { return !moves(p) }
	err = s.dropLocked(func(st *stitch) bool {
		return slices.ContainsFunc(st.chunks, moves) && slices.ContainsFunc(st.chunks, stays)
	})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, h := range s.homes[k] {
		s.handOverLocked(h.seg, heir)
		for _, ch := range h.chunks {
			if ch.handle != 0 {
				n++
				bytes += ch.size
			}
		}
	}
	heir.homes[k] = append(s.homes[k], heir.homes[k]...)
	s.homes[k] = nil
	s.stitches = slices.DeleteFunc(s.stitches, func(st *stitch) bool {
		if moves(st.chunks[0]) {
			heir.stitches = append(heir.stitches, st)
			return true
		}
		return false
	})
	s.noteMoves(n, bytes)
	return bytes, nil
}

// bury gives the addresses of estates back that hold no memory any more.
func (c *Caching) bury() error {
	c.stranded.mu.Lock()
	defer c.stranded.mu.Unlock()
	return c.buryLocked()
}

// dissolve gives back all that estates hold.
func (c *Caching) dissolve() (err error) {
	c.stranded.mu.Lock()
	defer c.stranded.mu.Unlock()
	for _, e := range c.stranded.estates {
		_, failed := e.dismantle()
		err = errors.Join(err, failed)
	}
	return err
}

func (c *Caching) buryLocked() (err error) {
	c.stranded.estates = slices.DeleteFunc(c.stranded.estates, func(e *Stream) bool {
		e.mu.Lock()
		held := len(e.leaving) > 0
		for _, seg := range e.segs {
			held = held || seg != nil && !seg.Virtual
		}
		for _, homes := range e.homes {
			for _, h := range homes {
				held = held || h.gaps < h.seg.Size
			}
		}
		e.mu.Unlock()
		if !held {
			_, e := e.dismantle()
			err = errors.Join(err, e)
		}
		return !held
	})
	return err
}
