package cupool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// The ends of streams, pools and allocators. deviceState.closing is held by each, so
// that none begins while another is under way.

// Close waits for the stream's work and destroys it, unless it was adopted. Its
// idle memory goes to the next stream that needs some. Blocks that are live
// count as allocated on the default stream from then on. The default stream
// cannot be closed: ErrNotSupported. Closing twice is ErrClosed. When the device
// fails to wait, or its work is not done after Config.WaitTimeout, the stream stays
// open, and the error is returned.
func (s *Stream) Close() error {
	if s == nil || s.root == nil {
		return fmt.Errorf("cupool: closing no stream: %w", ErrInvalidHandle)
	}
	d := s.root.dev
	if s == d.def {
		return fmt.Errorf("cupool: closing the default stream: %w", ErrNotSupported)
	}
	d.closing.Lock()
	defer d.closing.Unlock()
	if s.root.closed.Load() || !s.calls.Close() {
		return fmt.Errorf("cupool: closing stream 0x%x: %w", uintptr(s.handle), ErrClosed)
	}
	now := s.clock.Now()
	ctx, cancel := d.waiting(context.Background())
	defer cancel()
	err := s.calls.Submitted("synchronize", s.calls.Finish(ctx))
	if err == nil && d.outlived(s) { // what is free beside such blocks becomes the default stream's
		err = d.order.Await(ctx, &s.calls, now)
	}
	if err != nil {
		s.calls.Reopen()
		return err
	}
	d.ended(s)
	var errs []error
	for _, c := range d.open() {
		h, err := c.idle.inherit(s, c.def)
		if h != nil {
			c.reclaim.forget(h)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.destroy())...) // another stream may have its slot then
}

// outlived reports whether blocks of the stream are out, in any pool.
func (d *deviceState) outlived(s *Stream) bool {
	return slices.ContainsFunc(d.open(), func(c *Pool) bool {
		h := c.heaps.of(s)
		if h == nil {
			return false
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.InUse()
	})
}

// destroy ends the use of the stream's handle.
func (s *Stream) destroy() error {
	return s.calls.End(func() error {
		if s.adopted {
			return nil
		}
		return s.calls.Submitted("destroy stream", s.root.dev.destroyStream(s.handle))
	})
}

// destroyStream destroys a stream of the device, or remembers to try again. It may be
// called with the lock of calls.Stream held, and so takes no other.
func (d *deviceState) destroyStream(h StreamHandle) error {
	err := d.driver.DestroyStream(h)
	if err != nil {
		d.refused = append(d.refused, h)
	}
	return err
}

// finishClosed tries again what the device refused when streams and pools were
// closed; deviceState.closing is held.
func (d *deviceState) finishClosed() error {
	streams := d.refused
	d.refused = nil
	var errs []error
	for _, h := range streams {
		if err := d.destroyStream(h); err != nil {
			errs = append(errs, d.failed(fmt.Errorf("cupool: destroy stream 0x%x, which was closed: %w", uintptr(h), err)))
		}
	}
	for _, c := range d.remains.All() {
		errs = append(errs, c.finishClosed())
	}
	return errors.Join(errs...)
}

// finishClosed tries again to give back what a closed pool holds.
func (c *Pool) finishClosed() error {
	if !c.reclaim.TryLock() { // another goroutine releases
		return nil
	}
	defer c.reclaim.UnlockUntold()
	_, err := c.reclaim.everything()
	if !c.holdsMemory() {
		d := c.dev
		d.mu.Lock()
		defer d.mu.Unlock()
		d.remains.Remove(c)
	}
	return err
}

// Retire ends a private pool gently: nothing can be allocated from it any more,
// while blocks that are live stay valid and are freed as before. What is free
// goes back to the device now, and the rest, with the pool, when the allocator
// next empties its cache, trims or lacks memory after the last block was freed.
// It fails with ErrClosed, for an allocator that New made with ErrNotSupported,
// or with what the device says.
func (c *Pool) Retire() error {
	if c == c.dev.root {
		return fmt.Errorf("cupool: retire: only private pools can be; use Close: %w", ErrNotSupported)
	}
	if c.closed.Load() || !c.retired.CompareAndSwap(false, true) {
		return fmt.Errorf("cupool: retire %s: %w", c.name, ErrClosed)
	}
	heaps, unlock := c.heaps.lockAll()
	for _, h := range heaps {
		h.UnhomeAll() // a block in a magazine comes and goes without asking
	}
	unlock()
	defer c.reclaim.Report() // without locks
	c.dev.closing.Lock()
	defer c.dev.closing.Unlock()
	if err := c.closeIfUnused(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil // the next to lack memory was faster
}

// closeIfUnused gives back what a retired pool has no use for, and closes it
// when that is all. While it sleeps it holds nothing that could go.
func (c *Pool) closeIfUnused() error {
	err := c.reclaim.empty()
	if errors.Is(err, ErrAsleep) {
		err = nil
	}
	if err != nil || c.heaps.inUse() {
		return err
	}
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	return c.close(ctx)
}

// closeRetired is closeIfUnused for all retired pools, after finishClosed. It does nothing while a
// stream, a pool or the allocator is being closed: that may wait for work, which
// may wait for the caller.
func (d *deviceState) closeRetired() error {
	if !d.closing.TryLock() {
		return nil
	}
	ended := slices.Concat(d.remains.All(), d.private())
	errs := []error{d.finishClosed()}
	for _, c := range d.private() {
		if !c.retired.Load() {
			continue
		}
		if err := c.closeIfUnused(); !errors.Is(err, ErrClosed) {
			errs = append(errs, err)
		}
	}
	d.closing.Unlock()
	report(ended)
	return errors.Join(errs...)
}

// report tells the program what went back of pools; no locks are held.
func report(pools []*Pool) {
	for _, c := range pools {
		c.reclaim.Report()
	}
}

// Close waits for the work of all streams of the device, whichever of them used
// the pool's blocks, and gives everything back to the device. An allocator that
// New made closes its private pools first and destroys the streams made here. It
// returns a *WaitError when that is not done after Config.WaitTimeout: nothing is
// closed then but pools whose turn had come, and Close can be called again. It
// returns a *LeakError when blocks were still live; their memory goes back too. It
// fails with ErrNotSupported while blocks are held (Hold).
// With Config.Sanitize it returns corrupted blocks as Check does.
// What the device refuses is tried once more. Memory of a private pool that it
// still refuses counts as reserved, and is tried again when the allocator
// empties its cache, trims, lacks memory or is closed. Calls after Close fail with
// ErrClosed.
func (c *Pool) Close() error {
	d := c.dev
	ended := []*Pool{c}
	defer func() { report(ended) }()
	d.closing.Lock()
	defer d.closing.Unlock()
	for _, m := range d.open() {
		if (m == c || c == d.root) && m.held.Load() > 0 {
			return fmt.Errorf("cupool: close: %w", errHeld)
		}
	}
	ctx, cancel := d.waiting(context.Background())
	defer cancel()
	if d.calls.Patience > 0 && !c.closed.Load() { // first while everything is open
		if err := d.syncAll(ctx); isLate(err) {
			return err
		}
	}
	if c != d.root {
		return c.close(ctx)
	}
	d.setClosed(true)
	ended = slices.Concat(ended, d.private(), d.remains.All())
	var errs []error
	for _, p := range d.private() {
		err := p.close(ctx)
		if stays(err) {
			d.setClosed(false)
			return fmt.Errorf("cupool: closing %s: %w", p.name, err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cupool: closing %s: %w", p.name, err))
		}
	}
	err := c.close(ctx)
	if stays(err) {
		d.setClosed(false)
	}
	return errors.Join(append(errs, err)...)
}

// stays reports whether the error of close says that the pool stays open.
func stays(err error) bool { return isLate(err) || errors.Is(err, errHeld) }

func (d *deviceState) setClosed(closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = closed
}

// close is Close with deviceState.closing held, without the private pools. When the
// device's work is not done when ctx is, or blocks are held, the pool is open again.
func (c *Pool) close(ctx context.Context) error {
	d := c.dev
	c.reclaim.decay.End()
	c.dev.drainLater()
	c.reclaim.Lock()
	defer c.reclaim.UnlockUntold()
	_, unlock := c.heaps.lockAll() // a heap that is being made, and a Hold, are seen below or refused
	first := c.closed.CompareAndSwap(false, true)
	unlock()
	if !first {
		return fmt.Errorf("cupool: close: %w", ErrClosed)
	}
	err := d.syncAll(ctx)
	if err != nil { // the failure may be gone
		err = d.syncAll(ctx)
	}
	if c.held.Load() > 0 && !isLate(err) {
		err = fmt.Errorf("cupool: close: %w", errHeld)
	}
	if stays(err) {
		c.closed.Store(false)
		c.reclaim.startDecay()
		return err
	}
	defer d.leave(c)
	errs := []error{err, c.heaps.endSanitizers()}
	leaks, err := c.reclaim.everything()
	if err != nil {
		_, err = c.reclaim.everything()
	}
	errs = append(errs, err)
	if c == d.root {
		d.closeStreams()
		errs = append(errs, d.finishClosed(), d.events.Close())
	}
	if c.ownsDriver {
		errs = append(errs, c.driver.Close())
	}
	if len(leaks) > 0 {
		errs = append(errs, newLeakError(leaks))
	}
	return errors.Join(errs...)
}

// everything ends the life of all blocks of a pool at one moment, gives back what all heaps
// hold, and what earlier calls left, and lists the blocks that were live. No work is under
// way, and the lock is held. While blocks are held it fails with errHeld and changes nothing.
func (r *reclaimer) everything() (leaks []Leak, err error) {
	heaps, unlock := r.heaps.lockAll()
	if r.held.Load() > 0 {
		unlock()
		return nil, errHeld
	}
	var errs []error
	for _, h := range heaps {
		l, err := h.endLocked()
		leaks = append(leaks, l...)
		errs = append(errs, err)
	}
	unlock()
	for _, h := range heaps {
		errs = append(errs, h.releaseSegments())
	}
	if r.memory != nil {
		errs = append(errs, r.memory.Retry())
	}
	return leaks, errors.Join(errs...)
}

// closeStreams destroys the streams that are open, whose work is done. Those
// that the device refuses are tried again by finishClosed.
func (d *deviceState) closeStreams() {
	for _, s := range d.openStreams() {
		s.calls.Close()
		s.clock.End()
		_ = s.destroy()
	}
}

func newLeakError(leaks []Leak) *LeakError {
	slices.SortFunc(leaks, func(a, b Leak) int { return cmp.Compare(a.Ptr, b.Ptr) })
	e := &LeakError{Leaks: leaks}
	for _, l := range leaks {
		e.Bytes += l.Size
	}
	return e
}
