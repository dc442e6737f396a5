package cupool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/lock"
)

// lifecycle ends the streams, the pools and the allocator of a device, one at a time.
// Each end refuses new work first, waits for the device, and then moves or gives back
// what is left. Nothing else closes streams and pools.
type lifecycle struct {
	dev *deviceState

	mu      lock.Mutex     // held through waits for the device; guards what follows
	refused []StreamHandle // of closed streams, that the device did not destroy
}

// Close waits for the stream's work and destroys it, unless it was adopted. Its
// idle memory goes to the next stream that needs some. Blocks that are live count as
// allocated on the default stream from the beginning of Close on; where there are any,
// DeviceOrder has Close wait for the work that all streams have by then. The default stream
// cannot be closed: ErrNotSupported. Closing twice is ErrClosed. When the device fails to
// wait, or the work is not done after Config.WaitTimeout, the stream stays open, and the
// error is returned.
func (s *Stream) Close() error {
	if s == nil || s.root == nil {
		return fmt.Errorf("cupool: closing no stream: %w", ErrInvalidHandle)
	}
	d := s.root.dev
	if s == d.def {
		return fmt.Errorf("cupool: closing the default stream: %w", ErrNotSupported)
	}
	if err := d.outside("closing a stream"); err != nil {
		return err
	}
	return d.life.closeStream(s)
}

// closeStream is Stream.Close of a stream that is not the default one.
func (l *lifecycle) closeStream(s *Stream) error {
	d := l.dev
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.root.closed.Load() || !s.calls.Close() {
		return fmt.Errorf("cupool: closing %v: %w", s.handle, ErrClosed)
	}
	d.eachHeap(s, (*streamHeap).UnhomeAll) // so that whoever frees sees that the stream is closing
	now := s.clock.Now()
	ctx, cancel := d.waiting(context.Background())
	defer cancel()
	err := s.calls.Submitted("synchronize", s.calls.Finish(ctx))
	if err == nil && l.outlived(s) { // what is free beside such blocks becomes the default stream's
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
	return errors.Join(append(errs, l.destroyLocked(s))...) // another stream may have its slot then
}

// outlived reports whether blocks of the stream are out, in any pool.
func (l *lifecycle) outlived(s *Stream) (out bool) {
	l.dev.eachHeap(s, func(h *streamHeap) { out = out || h.InUse() })
	return out
}

// destroyLocked ends the use of the stream's handle.
func (l *lifecycle) destroyLocked(s *Stream) error {
	return s.calls.End(func() error {
		if s.adopted {
			return nil
		}
		return s.calls.Submitted("destroy stream", l.destroyHandleLocked(s.handle))
	})
}

// destroyHandleLocked destroys a stream of the device, or remembers to try again. It may be
// called with the lock of calls.Stream held, and so takes no other.
func (l *lifecycle) destroyHandleLocked(h StreamHandle) error {
	err := l.dev.driver.DestroyStream(h)
	if err != nil {
		l.refused = append(l.refused, h)
	}
	return err
}

// finishLocked tries again what the device refused when streams and pools were closed.
func (l *lifecycle) finishLocked() error {
	d, streams := l.dev, l.refused
	l.refused = nil
	var errs []error
	for _, h := range streams {
		if err := l.destroyHandleLocked(h); err != nil {
			errs = append(errs, d.failed(fmt.Errorf("cupool: destroy %v, which was closed: %w", h, err)))
		}
	}
	for _, c := range d.remains.All() {
		errs = append(errs, l.finishPoolLocked(c))
	}
	return errors.Join(errs...)
}

// finishPoolLocked tries again to give back what a closed pool holds.
func (l *lifecycle) finishPoolLocked(c *Pool) error {
	if !c.reclaim.TryLock() { // another goroutine releases
		return nil
	}
	defer c.reclaim.UnlockUntold()
	_, err := c.reclaim.everything()
	if !c.holdsMemory() {
		l.dev.settled(c)
	}
	return err
}

// Retire ends a private pool gently: nothing can be allocated from it any more,
// while blocks that are live stay valid and are freed as before. What is free
// goes back to the device now, where no work is under way, and the rest, with the
// pool, when the allocator next empties its cache, trims or lacks memory after the
// last block was freed, also while it sleeps. It fails with ErrClosed, for an allocator that
// New made with ErrNotSupported, or with what the device says.
func (c *Pool) Retire() error {
	if err := c.made("retire"); err != nil {
		return err
	}
	if c == c.dev.root {
		return fmt.Errorf("cupool: retire: only private pools can be; use Close: %w", ErrNotSupported)
	}
	if err := c.dev.outside("retire"); err != nil {
		return err
	}
	if c.closed.Load() || !c.retired.CompareAndSwap(false, true) {
		return fmt.Errorf("cupool: retire %s: %w", c.name, ErrClosed)
	}
	return c.dev.life.retire(c)
}

// retire is Pool.Retire of a pool from which nothing can be allocated any more.
func (l *lifecycle) retire(c *Pool) error {
	heaps, unlock := c.heaps.lockAll()
	for _, h := range heaps {
		h.UnhomeAll() // a block in a magazine comes and goes without asking
	}
	unlock()
	defer c.reclaim.Report() // without locks
	if !l.mu.TryLock() {
		return nil // finish comes back to it
	}
	defer l.mu.Unlock()
	ctx, cancel := epoch.Patience(retireWait).Bound(context.Background())
	defer cancel()
	if err := l.closeUnusedLocked(ctx, c); !errors.Is(err, ErrClosed) {
		return notLate(err)
	}
	return nil // the next to lack memory was faster
}

// retireWait is for an event to come through on streams that are idle. Pools are retired where
// nothing may wait for work, as in destructors.
const retireWait = time.Millisecond

// closeUnusedLocked gives back what a retired pool has no use for, and closes it
// when that is all. While it sleeps it holds nothing that could go.
func (l *lifecycle) closeUnusedLocked(ctx context.Context, c *Pool) error {
	if !c.reclaim.LockUntil(ctx) {
		return nil // another goroutine gives its memory back; finish comes back to it
	}
	defer c.reclaim.UnlockUntold()
	err := c.reclaim.emptyLocked(ctx)
	if errors.Is(err, ErrAsleep) {
		err = nil
	}
	if err != nil || c.heaps.inUse() {
		return err
	}
	return l.closeReclaiming(ctx, c)
}

// finish is finishLocked, and then closeUnusedLocked for all retired pools. It does nothing while a
// stream, a pool or the allocator is being closed: that may wait for work, which
// may wait for the caller.
func (l *lifecycle) finish(ctx context.Context) error {
	d := l.dev
	if !l.mu.TryLock() {
		return nil
	}
	ended := slices.Concat(d.remains.All(), d.private())
	errs := []error{l.finishLocked()}
	for _, c := range d.private() {
		if !c.retired.Load() {
			continue
		}
		bound, cancel := d.waiting(ctx)
		if err := l.closeUnusedLocked(bound, c); !errors.Is(err, ErrClosed) {
			errs = append(errs, err)
		}
		cancel()
	}
	l.mu.Unlock()
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
	if err := c.mayWait("close"); err != nil {
		return err
	}
	return c.dev.life.closePool(c)
}

// closePool is Pool.Close.
func (l *lifecycle) closePool(c *Pool) error {
	d := l.dev
	ended := []*Pool{c}
	defer func() { // without locks, which OnRelease may take
		for _, p := range ended {
			p.reclaim.decay.Wait()
		}
		report(ended)
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
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
		return l.closeLocked(ctx, c)
	}
	d.setClosed(true)
	ended = slices.Concat(ended, d.private(), d.remains.All())
	var errs []error
	for _, p := range d.private() {
		err := l.closeLocked(ctx, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("cupool: closing %s: %w", p.name, err))
		}
		if stays(err) {
			d.setClosed(false)
			return join(errs)
		}
	}
	err := l.closeLocked(ctx, c)
	if stays(err) {
		d.setClosed(false)
	}
	return join(append(errs, err))
}

// stays reports whether the error of close says that the pool stays open.
func stays(err error) bool { return isLate(err) || errors.Is(err, errHeld) }

// closeLocked is closePool without the private pools. When the
// device's work is not done when ctx is, or blocks are held, the pool is open again.
func (l *lifecycle) closeLocked(ctx context.Context, c *Pool) error {
	c.reclaim.Lock()
	defer c.reclaim.UnlockUntold()
	return l.closeReclaiming(ctx, c)
}

// closeReclaiming is closeLocked with the reclaimer's lock held, too.
func (l *lifecycle) closeReclaiming(ctx context.Context, c *Pool) error {
	d := l.dev
	d.drainLater()
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
		return err
	}
	c.reclaim.decay.Stop()
	defer d.leave(c)
	errs := []error{err, c.heaps.endSanitizers()}
	leaks, err := c.reclaim.everything()
	if err != nil {
		_, err = c.reclaim.everything()
	}
	errs = append(errs, err)
	if c == d.root {
		l.closeStreamsLocked()
		errs = append(errs, l.finishLocked(), d.events.Close())
	}
	if c.ownsDriver {
		errs = append(errs, c.driver.Close())
	}
	if len(leaks) > 0 {
		errs = append(errs, newLeakError(leaks))
	}
	return join(errs)
}

// reset is Pool.Reset.
func (l *lifecycle) reset(c *Pool) error {
	defer c.reclaim.Report() // without locks
	l.mu.Lock()              // the blocks of a stream that is closed go to another heap
	defer l.mu.Unlock()
	c.reclaim.Lock()
	defer c.reclaim.UnlockUntold()
	switch {
	case c.closed.Load():
		return fmt.Errorf("cupool: reset: %w", ErrClosed)
	case c.asleep.Load():
		return c.asleepError("reset")
	}
	l.dev.drainLater()
	ctx, cancel := l.dev.waiting(context.Background())
	defer cancel()
	if err := l.dev.syncAll(ctx); err != nil {
		return fmt.Errorf("cupool: reset: %w", err)
	}
	_, err := c.reclaim.everything()
	if errors.Is(err, errHeld) {
		return fmt.Errorf("cupool: reset: %w", err)
	}
	c.resets.Add(1)
	clear(c.reclaim.regrets)
	c.ResetPeak()
	return err
}

// closeStreamsLocked destroys the streams that are open, whose work is done. Those
// that the device refuses are tried again by finishLocked.
func (l *lifecycle) closeStreamsLocked() {
	for _, s := range l.dev.openStreams() {
		s.calls.Close()
		s.clock.End()
		_ = l.destroyLocked(s)
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
