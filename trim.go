package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Trim gives wholly free segments back to the device until at most keep bytes
// are reserved, and returns the bytes that went: the largest first, where some
// can stay. It does not wait for pending blocks, but the device may wait for
// its work.
func (c *Caching) Trim(keep int64) (released int64, err error) {
	if keep < 0 {
		return 0, &BlockError{Op: "trim", Size: keep, Err: ErrInvalidSize}
	}
	if c.closed.Load() {
		return 0, fmt.Errorf("cupool: trim: %w", ErrClosed)
	}
	if err := c.fadePools(); err != nil {
		return 0, err
	}
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.sleep.asleep.Load() {
		return 0, c.asleepError("trim")
	}
	if err := c.settleEverything(); err != nil {
		return 0, err
	}
	c.flushAll()
	return c.releaseSegments(c.reserved.Load() - keep)
}

// EmptyCache waits for pending blocks and gives every wholly free segment
// back to the device.
func (c *Caching) EmptyCache() error {
	if c.closed.Load() {
		return fmt.Errorf("cupool: empty cache: %w", ErrClosed)
	}
	if err := c.fadePools(); err != nil {
		return err
	}
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.sleep.asleep.Load() {
		return c.asleepError("empty cache")
	}
	c.drainLater()
	c.flushAll()
	if _, err := c.waitPending(); err != nil {
		return err
	}
	_, err := c.releaseSegments(math.MaxInt64)
	return err
}

// Reserve sees to it that a request of size bytes on s (nil: the default
// stream) would be served without the device, so that the first steps of a
// program are as fast as later ones. It fails as Alloc does.
func (c *Caching) Reserve(size int64, s *Stream) error {
	h, err := c.Alloc(size, s)
	if err != nil {
		return err
	}
	return c.Free(h)
}

// Close waits for all work, gives everything back to the device and
// destroys the streams made here. It returns a *LeakError when blocks were
// still live; their memory goes back too. Calls after Close fail with
// ErrClosed.
func (c *Caching) Close() error {
	var errs []error
	if c == c.family.root {
		errs = append(errs, c.family.close())
	}
	defer c.family.leave(c)
	c.decay.end()
	c.drainLater()
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	c.streamsMu.Lock() // a stream that is being made is seen below, or refused
	first := c.closed.CompareAndSwap(false, true)
	c.streamsMu.Unlock()
	if !first {
		return fmt.Errorf("cupool: close: %w", ErrClosed)
	}
	for _, s := range c.openStreams() {
		errs = append(errs, s.sync())
	}
	var leaks []Leak
	for _, s := range c.openStreams() {
		l, err := s.shutDown()
		leaks = append(leaks, l...)
		errs = append(errs, err)
	}
	errs = append(errs, c.dissolve())
	errs = append(errs, c.events.close())
	if c.vm != nil {
		errs = append(errs, c.giveBackLeftovers())
	}
	if c.ownsDriver {
		errs = append(errs, c.driver.Close())
	}
	if len(leaks) > 0 {
		errs = append(errs, newLeakError(leaks))
	}
	return errors.Join(errs...)
}

// shutDown ends a stream, gives back all that it holds and lists its live
// blocks.
func (s *Stream) shutDown() (leaks []Leak, err error) {
	leaks, err = s.dismantle()
	s.clock.ended.Store(true)
	if !s.adopted {
		err = errors.Join(err, s.submit("destroy stream", s.c.driver.DestroyStream(s.handle)))
	}
	return leaks, err
}

// dismantle gives back all that a stream holds and lists its live blocks.
func (s *Stream) dismantle() (leaks []Leak, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unhomeAllLocked()
	var errs []error
	for _, seg := range slices.Clone(s.segs) {
		if seg != nil {
			leaks = append(leaks, s.abandonLocked(seg)...)
		}
	}
	s.waits, s.waiting = nil, 0 // nothing is left that waits
	s.mergeFastLocked()
	errs = append(errs, s.closeHomesLocked())
	for _, f := range s.appendIdleLocked(nil) { // all that are left
		_, err := s.freeSegmentsLocked([]idle{f})
		errs = append(errs, err)
	}
	return leaks, errors.Join(errs...)
}

// abandonLocked frees whatever a segment holds and lists the blocks that
// were live.
func (s *Stream) abandonLocked(seg *block.Segment) (leaks []Leak) {
	c := s.c
	var held []block.ID
	seg.Each(&c.blocks, func(id block.ID, b *block.Block) {
		if st := b.Word().State(); st != block.Free && st != block.Part && st != block.Gap {
			held = append(held, id)
		}
	})
	for _, id := range held {
		b := c.blocks.At(id)
		if b.Word().State() == block.Live {
			l := Leak{Ptr: Ptr(b.Addr()), Size: b.Requested(), Stream: s.handle}
			l.Stack, l.Label = c.stacks.at(b.Stack).describe()
			leaks = append(leaks, l)
		}
		if b.Uses() != 0 {
			s.dropUsesLocked(b)
		}
		s.releaseLocked(id, b)
	}
	return leaks
}

func newLeakError(leaks []Leak) *LeakError {
	slices.SortFunc(leaks, func(a, b Leak) int { return cmp.Compare(a.Ptr, b.Ptr) })
	e := &LeakError{Leaks: leaks}
	for _, l := range leaks {
		e.Bytes += l.Size
	}
	return e
}
