// Package calls has the calls that are made with the handle of a stream, and their
// end: when the handle is destroyed no call uses it, and none does afterwards.
package calls

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/lock"
)

// Driver is what waits for a device.
type Driver interface {
	SyncStream(s device.Stream) error
	SyncEvent(e device.Event) error
}

// Device is what the streams of an allocator have in common. It is set up before the
// first of them.
type Device struct {
	Driver   Driver
	Patience epoch.Patience    // bounds the waits
	Failed   func(error) error // is told of what the device fails with, and returns it
	Closed   *atomic.Bool      // the allocator was closed
}

// Stream is a stream as far as calls are concerned: open, closing or closed. It is
// safe for use from several goroutines, but Close, Reopen and End are called by one at
// a time. The zero Stream is not one.
type Stream struct {
	device  *Device
	handle  device.Stream
	clock   *epoch.Clock
	lasting bool // the handle is never destroyed

	state   atomic.Int32 // open, closing or closed
	within  atomic.Int32 // functions of Go that the stream runs at this moment
	running lock.RWMutex // held while a call uses the handle; taken for writing to wait for the calls
}

// The states of a stream.
const (
	open    = iota
	closing // its work is waited for
	closed  // the work is done
)

// Init sets up an open stream. The handle of a lasting one is never destroyed.
func (s *Stream) Init(d *Device, h device.Stream, clock *epoch.Clock, lasting bool) {
	s.running.Init(lock.StreamCalls, 0)
	s.device, s.handle, s.clock, s.lasting = d, h, clock, lasting
}

// IsOpen reports whether the stream takes work.
func (s *Stream) IsOpen() bool { return s.state.Load() == open }

// IsClosing reports whether the stream's work is being waited for.
func (s *Stream) IsClosing() bool { return s.state.Load() == closing }

// IsClosed reports whether the stream's work is done for good.
func (s *Stream) IsClosed() bool { return s.state.Load() == closed }

// Lasts reports whether the stream can be used, and that without Do, as its handle is
// never destroyed.
func (s *Stream) Lasts() bool { return s.lasting && s.IsOpen() && !s.device.Closed.Load() }

// Do calls f, which uses the handle, while that is not destroyed. It fails with
// ErrClosed where the stream or its allocator is closed, or with f's error.
func (s *Stream) Do(op string, f func() error) error {
	if err := s.Begin(op); err != nil {
		return err
	}
	if !s.lasting {
		defer s.Leave()
	}
	return s.Submitted(op, f())
}

// Begin is the part of Do before f, whose end is Done.
func (s *Stream) Begin(op string) error {
	if err := s.Usable(op); err != nil {
		return err
	}
	if !s.lasting && !s.Enter() {
		return s.closedError(op)
	}
	return nil
}

// Done is the part of Do after f, which failed with err.
func (s *Stream) Done(op string, err error) error {
	err = s.Submitted(op, err)
	if !s.lasting {
		s.Leave()
	}
	return err
}

// Enter begins a call, until whose end, Leave, Close waits. It reports false, without
// a wait, where the stream is not open.
func (s *Stream) Enter() bool {
	if !s.running.TryRLock() { // Close is at work
		return false
	}
	if !s.IsOpen() { // Close waits for no more calls
		s.running.RUnlock()
		return false
	}
	return true
}

// enterWait begins a wait, which Leave ends, of a stream in any state. It waits while Close
// does: for calls, which may wait for work that waits for the caller. So it fails with the
// cause of ctx when that is done.
func (s *Stream) enterWait(ctx context.Context) error {
	if ctx.Done() == nil {
		s.running.RLock()
		return nil
	}
	return s.clock.Until(ctx, func() (bool, error) { return s.running.TryRLock(), nil })
}

// Leave ends what Enter began.
func (s *Stream) Leave() { s.running.RUnlock() }

// Usable fails with ErrClosed for a stream that was closed, or whose allocator was.
func (s *Stream) Usable(op string) error {
	if !s.IsOpen() || s.device.Closed.Load() {
		return s.closedError(op)
	}
	return nil
}

func (s *Stream) closedError(op string) error {
	return fmt.Errorf("cupool: %s on %v: %w", op, s.handle, device.ErrClosed)
}

// Submitted says on which stream a call of the device failed.
func (s *Stream) Submitted(op string, err error) error {
	if err == nil {
		return nil
	}
	return s.failed(op, err)
}

func (s *Stream) failed(op string, err error) error {
	if errors.Is(err, device.ErrInvalidHandle) && s.device.Closed.Load() { // Close was faster
		return s.closedError(op)
	}
	return s.device.Failed(fmt.Errorf("cupool: %s on %v: %w", op, s.handle, err))
}

// Await waits for the stream's work before a call of the device that would wait
// for it, where waits are bounded.
func (s *Stream) Await() error {
	if err := s.Outside("synchronize"); err != nil {
		return err
	}
	if s.device.Patience == 0 || s.clock.Captured() {
		return nil
	}
	ctx, cancel := s.device.Patience.Bound(context.Background())
	defer cancel()
	return s.clock.Finish(ctx)
}

// AwaitEvent waits for an event of the stream that is not one of its clock's.
func (s *Stream) AwaitEvent(e device.Event) error {
	if s.device.Patience == 0 {
		return s.device.Driver.SyncEvent(e)
	}
	ctx, cancel := s.device.Patience.Bound(context.Background())
	defer cancel()
	return s.clock.Await(ctx, e)
}

// Finish waits for the work of a stream that is not destroyed meanwhile, or until ctx
// is done, and has the clock know.
func (s *Stream) Finish(ctx context.Context) error {
	if err := s.Outside("synchronize"); err != nil {
		return err
	}
	if ctx.Done() != nil || s.clock.Captured() { // the device's own wait would break the capture
		return s.clock.Finish(ctx)
	}
	return s.clock.Sync(func() error { return s.device.Driver.SyncStream(s.handle) })
}

// Drain is Finish of a stream that may be closed meanwhile.
func (s *Stream) Drain(ctx context.Context) error {
	if err := s.Outside("synchronize"); err != nil { // before the lock, whose holder may wait for the caller
		return err
	}
	if err := s.enterWait(ctx); err != nil {
		return err
	}
	defer s.Leave()
	switch {
	case s.IsClosed():
		return nil
	case s.clock.Captured():
		return s.Submitted("synchronize", s.clock.AwaitPassed(ctx, s.clock.Now()))
	}
	return s.Submitted("synchronize", s.Finish(ctx))
}

// WaitIdle is Drain that fails with ErrNotSupported for a stream that is captured.
func (s *Stream) WaitIdle(ctx context.Context) error { return s.awaitPassed(ctx, s.clock.Now(), true) }

// awaitPassed waits until passed. It fails with ErrNotSupported for a stream that is
// captured and owns the memory.
func (s *Stream) awaitPassed(ctx context.Context, freed uint64, owner bool) error {
	if err := s.Outside("synchronize"); err != nil {
		return err
	}
	if err := s.enterWait(ctx); err != nil {
		return err
	}
	defer s.Leave()
	captured := s.clock.Captured()
	switch {
	case s.IsClosed():
		return nil
	case captured && owner:
		return fmt.Errorf("cupool: waiting for %v, which is captured: %w", s.handle, device.ErrNotSupported)
	case s.clock.Ended(): // Close is at work; what came since its wait are fills of the allocator
		return s.Submitted("synchronize", s.device.Driver.SyncStream(s.handle))
	case s.clock.Past(freed):
		return nil
	case captured || ctx.Done() != nil:
		return s.Submitted("synchronize", s.clock.AwaitPassed(ctx, freed))
	}
	return s.Submitted("synchronize", s.Finish(ctx))
}

// WaitAWhile is WaitIdle for as long as the Patience lasts.
func (s *Stream) WaitAWhile() error {
	ctx, cancel := s.device.Patience.Bound(context.Background())
	defer cancel()
	return s.WaitIdle(ctx)
}

// Idle reports whether all that the stream was given is done, and that it is not captured.
// polls bounds how often the device is asked, and is what is left of that.
func (s *Stream) Idle(polls *int) bool { return s.passed(s.clock.Now(), polls) && !s.captured() }

// passed reports whether the stream has passed where it was at a time of the device, when
// memory was freed.
func (s *Stream) passed(freed uint64, polls *int) bool {
	if s.IsClosed() {
		return true
	}
	if s.clock.Ended() || !s.running.TryRLock() { // Close is at work
		return false
	}
	defer s.running.RUnlock()
	passed, err := s.clock.Passed(freed, polls)
	_ = s.device.Failed(err)
	return passed
}

// passedUntil is passed that returns the time before which the stream has passed all.
func (s *Stream) passedUntil(freed uint64, polls *int) uint64 {
	switch {
	case s.passed(freed, polls):
		return max(freed+1, s.clock.PassedUntil())
	case s.clock.Ended(): // Close is at work
		return 0
	}
	return s.clock.PassedUntil()
}

// captured reports whether the stream takes no events.
func (s *Stream) captured() bool { return !s.IsClosed() && s.clock.Captured() }

// Close lets no more calls begin, and waits for those that are under way. It reports
// false where the stream was not open.
func (s *Stream) Close() bool {
	if !s.state.CompareAndSwap(open, closing) {
		return false
	}
	s.running.Lock()
	//lint:ignore SA2001 to have waited is all
	s.running.Unlock()
	return true
}

// Reopen undoes Close.
func (s *Stream) Reopen() { s.state.Store(open) }

// End closes a stream whose work is done, and calls destroy once no call uses the
// handle.
func (s *Stream) End(destroy func() error) error {
	s.running.Lock()
	defer s.running.Unlock()
	s.state.Store(closed)
	return destroy()
}
