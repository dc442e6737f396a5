package cupool

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// Sleep and Wake, for programs that share a GPU by turns, such as servers of
// several models: the memory goes back to the device and the addresses stay.

// sleep is what an allocator remembers meanwhile. Guarded by
// Caching.reclaim, but for the atomics.
type sleep struct {
	asleep atomic.Bool
	bytes  atomic.Int64 // that chunks took which are asleep
	kept   []contents
}

// asleep is the handle of a chunk whose memory was given back until Wake.
const asleep = ^uintptr(0)

// contents are what a block held.
type contents struct {
	b    Block
	data []byte
}

func (c *Caching) asleepError(op string) error {
	return fmt.Errorf("cupool: %s on %s: the allocator is %w; call Wake first", op, c.driver.Name(), ErrAsleep)
}

// Sleep gives all memory back to the device until Wake. It waits for the work
// of all streams first; from then on until Wake nothing may use the memory.
// Addresses and handles stay valid: live blocks have memory again after Wake,
// where they were. The contents are lost, but for the blocks that keep
// chooses: those are held in the computer's memory meanwhile. keep, nil for
// none, is called for every live block and must not use the allocator.
//
// Blocks can be freed while the allocator sleeps; allocating, Trim,
// EmptyCache and Sleep fail with ErrAsleep. Sleep needs virtual memory and
// fails with ErrNotSupported without it, with ErrClosed, and with what the
// device says: when that is before anything was given back, the allocator
// stays awake; else it sleeps, and only what the error names stays reserved.
func (c *Caching) Sleep(keep func(Block) bool) error {
	if c.vm == nil {
		return fmt.Errorf("cupool: sleep on %s without virtual memory: %w", c.driver.Name(), ErrNotSupported)
	}
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	switch {
	case c.closed.Load():
		return fmt.Errorf("cupool: sleep: %w", ErrClosed)
	case c.lost.Load() != nil:
		return c.lostError()
	case c.sleep.asleep.Load():
		return c.asleepError("sleep")
	}
	err := c.calm()
	if err == nil {
		_, err = c.releaseSegments(c.reserved.Load())
	}
	if err == nil {
		err = c.keepContents(keep)
	}
	if err != nil {
		c.sleep.kept = nil
		c.sleep.asleep.Store(false)
		return fmt.Errorf("cupool: sleep: %w", err)
	}
	unlock := c.lockAll()
	defer unlock()
	return c.unmapAll()
}

// calm ends allocating and waits until nothing uses the memory any more.
func (c *Caching) calm() (err error) {
	unlock := c.lockAll()
	c.sleep.asleep.Store(true)
	for _, s := range *c.streams.Load() {
		s.unhomeAllLocked() // a block with a home comes and goes without asking
	}
	unlock()
	err = c.family.syncAll()
	c.drainLater()
	c.flushAll()
	return err
}

// keepContents copies the contents of the blocks that keep chooses.
func (c *Caching) keepContents(keep func(Block) bool) error {
	if keep == nil {
		return nil
	}
	for _, b := range c.liveBlocks() {
		if !keep(b) {
			continue
		}
		data := make([]byte, b.size)
		if err := c.driver.CopyOut(data, b.ptr, c.def.handle); err != nil {
			return c.driverError(fmt.Errorf("keeping the contents of %v: %w", b, err))
		}
		c.sleep.kept = append(c.sleep.kept, contents{b, data})
	}
	return nil
}

// liveBlocks lists what the program holds, by stream and address.
func (c *Caching) liveBlocks() (live []Block) {
	unlock := c.lockAll()
	defer unlock()
	for _, s := range *c.streams.Load() {
		for _, seg := range s.segs {
			if seg == nil {
				continue
			}
			seg.Each(&c.blocks, func(id block.ID, b *block.Block) {
				if w := b.Word(); w.State() == block.Live {
					live = append(live, newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, c.id))
				}
			})
		}
	}
	return live
}

// unmapAll puts every chunk to sleep. What a call fails for stays as it is:
// its memory stays reserved, and the other chunks go on. All streams are
// locked.
func (c *Caching) unmapAll() error {
	var errs []error
	for _, s := range *c.streams.Load() {
		awake, err := s.unmapStitchesLocked()
		errs = append(errs, err)
		for k := range s.homes {
			for _, h := range s.homes[k] {
				for i := range h.chunks {
					if !slices.Contains(awake, chunkRef{h, h.chunks[i].off}) {
						errs = append(errs, s.sleepChunkLocked(h, i))
					}
				}
			}
		}
	}
	return errors.Join(errs...)
}

// unmapStitchesLocked ends the second mappings of chunks: idle ranges for
// good, those of live blocks until Wake. It returns the chunks that a failing
// call left mapped.
func (s *Stream) unmapStitchesLocked() (awake []chunkRef, err error) {
	var errs []error
	for _, st := range slices.Clone(s.stitches) {
		if st.asleep {
			continue
		}
		err := s.c.vm.MemUnmap(st.base, st.size)
		if err != nil {
			awake = append(awake, st.chunks...)
			errs = append(errs, s.c.driverError(fmt.Errorf("cupool: unmapping a stitched range on %s: %w", s.c.driver.Name(), err)))
			continue
		}
		st.asleep = true
	}
	return awake, errors.Join(append(errs, s.dropLocked(func(st *stitch) bool { return st.asleep }))...)
}

// sleepChunkLocked gives the memory of a chunk back and keeps its place.
func (s *Stream) sleepChunkLocked(h *home, i int) error {
	c, ch := s.c, h.chunks[i]
	if ch.handle == 0 || ch.handle == asleep {
		return nil
	}
	at := Ptr(h.seg.Base) + Ptr(ch.off)
	if err := c.vm.MemUnmap(at, ch.size); err != nil {
		return c.driverError(fmt.Errorf("cupool: unmapping %d bytes at %v on %s: %w", ch.size, at, c.driver.Name(), err))
	}
	h.chunks[i].handle = asleep
	c.sleep.bytes.Add(ch.size)
	return s.releaseLoose(loose{ch.handle, ch.size, kindOf(h.seg.Large)})
}

// Wake gets new memory for everything that sleeps, at the same addresses, and
// puts the contents back that Sleep kept. It waits for the copies. An
// allocator that is awake is left alone. It fails with ErrOutOfMemory when
// the device has not enough by now, with ErrClosed, and with what the device
// says; the allocator then sleeps on, holds no more than before, and can be
// woken later.
func (c *Caching) Wake() error {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	switch {
	case c.closed.Load():
		return fmt.Errorf("cupool: wake: %w", ErrClosed)
	case !c.sleep.asleep.Load():
		return nil
	}
	unlock := c.lockAll()
	defer unlock()
	err := c.mapAll()
	if err == nil {
		err = c.putBack()
	}
	if err != nil {
		return fmt.Errorf("cupool: wake: %w", errors.Join(err, c.unmapAll()))
	}
	c.sleep.kept = nil
	c.sleep.asleep.Store(false)
	return nil
}

// mapAll wakes every chunk, and then the ranges that are stitched of them,
// until a call fails. All streams are locked.
func (c *Caching) mapAll() error {
	for _, s := range *c.streams.Load() {
		for k := range s.homes {
			for _, h := range s.homes[k] {
				for i := range h.chunks {
					if err := s.wakeChunkLocked(h, i); err != nil {
						return err
					}
				}
			}
		}
		if err := s.dropLocked(func(st *stitch) bool { return st.asleep }); err != nil { // freed meanwhile
			return err
		}
		for _, st := range s.stitches {
			if st.asleep {
				if err := c.mapStitch(st); err != nil {
					return err
				}
				st.asleep = false
			}
		}
	}
	return nil
}

// wakeChunkLocked gives a chunk new memory.
func (s *Stream) wakeChunkLocked(h *home, i int) error {
	if h.chunks[i].handle != asleep {
		return nil
	}
	add := []chunk{{off: h.chunks[i].off, size: h.chunks[i].size}}
	if err := s.c.back(h, add); err != nil {
		return err
	}
	h.chunks[i] = add[0]
	s.c.sleep.bytes.Add(-add[0].size)
	s.bookChunks(kindOf(h.seg.Large), add)
	return nil
}

// putBack copies the kept contents into the blocks that are still live.
func (c *Caching) putBack() error {
	for _, k := range c.sleep.kept {
		if w := c.blocks.At(k.b.id()).Word(); w.State() != block.Live || w.Gen() != k.b.gen {
			continue
		}
		if err := c.driver.CopyIn(k.b.ptr, k.data, c.def.handle); err != nil {
			return c.driverError(fmt.Errorf("putting the contents of %v back: %w", k.b, err))
		}
	}
	if len(c.sleep.kept) == 0 {
		return nil
	}
	return c.def.submit("synchronize", c.driver.SyncStream(c.def.handle))
}
