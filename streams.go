package cupool

import (
	"context"
	"errors"
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/epoch/calls"
	"github.com/cupool/cupool/internal/magazine"
)

// Stream is a queue of work on the device. It belongs to the allocator that made
// it and is used with all pools of that one. It may be used from several
// goroutines; what they submit runs in the order in which it came.
//
// Memory that was allocated on a stream and freed is reused for the same
// stream at once, because later work waits for earlier work anyway. Other
// streams that use it have to be recorded on it (RecordStream).
//
// Methods of the zero Stream and of a nil one fail with ErrInvalidHandle, those that
// return no error answer with zero values: it is a stream of nobody, and closed.
type Stream struct {
	root   *Pool
	hits   *magazine.Cache // of the root's heap for the stream
	handle StreamHandle
	slot   uint32 // by which blocks name the stream; another stream may have it later
	number uint64 // of the device's streams, in the order in which they were made; never used again

	clock   *epoch.Clock
	calls   calls.Stream
	adopted bool       // not made here, so not destroyed here
	seen    epoch.Seen // what the stream's later work comes after
}

func (s *Stream) closedError() error {
	return fmt.Errorf("cupool: %v: %w", s.handle, ErrClosed)
}

// NewStream makes a stream of the device, for all pools of the allocator. It
// fails with ErrClosed or what the device says.
func (c *Pool) NewStream() (*Stream, error) {
	if err := c.made("new stream"); err != nil {
		return nil, err
	}
	d := c.dev
	if c.closed.Load() {
		return nil, fmt.Errorf("cupool: new stream: %w", ErrClosed)
	}
	h, err := d.driver.NewStream()
	if err != nil {
		return nil, d.failed(fmt.Errorf("cupool: new stream on %s: %w", d.driver.Name(), err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || c.closed.Load() {
		return nil, errors.Join(fmt.Errorf("cupool: new stream: %w", ErrClosed), d.driver.DestroyStream(h))
	}
	return d.addStreamLocked(h, false), nil
}

// AdoptStream returns the Stream for a handle that somebody else made on
// the same device and goes on to own. The same handle gives the same Stream
// until that is closed. It fails with ErrForeignStream for a stream of another
// device, where the Driver can tell its own (StreamOwner), with ErrClosed, or with
// what the device says when it is asked.
func (c *Pool) AdoptStream(h StreamHandle) (*Stream, error) {
	if err := c.made("adopt stream"); err != nil {
		return nil, err
	}
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || c.closed.Load() {
		return nil, fmt.Errorf("cupool: adopt %v: %w", h, ErrClosed)
	}
	for _, s := range d.openStreams() {
		if s.handle == h {
			return s, nil
		}
	}
	if o, ok := d.driver.(StreamOwner); ok {
		if err := o.OwnsStream(h); err != nil {
			return nil, d.failed(fmt.Errorf("cupool: adopt %v on %s: %w", h, d.driver.Name(), err))
		}
	}
	return d.addStreamLocked(h, true), nil
}

// addStreamLocked makes the allocator's side of a device stream; deviceState.mu is
// held.
func (d *deviceState) addStreamLocked(h StreamHandle, adopted bool) *Stream {
	slot := d.vacantLocked(d.streams.All())
	s := &Stream{root: d.root, handle: h, slot: uint32(slot), number: d.numbers, adopted: adopted}
	s.clock = epoch.NewClock(h, s.slot, &d.events)
	s.calls.Init(&d.calls, h, s.clock, h == 0 && adopted && d.numbers == 0)
	d.numbers++
	d.streams.Set(slot, s)
	d.root.heaps.mu.Lock()
	defer d.root.heaps.mu.Unlock()
	s.hits = &d.root.heaps.addLocked(s).Magazine
	return s
}

// slotLooks bounds the closed streams that one NewStream looks at: where blocks
// that live long name many of them, new slots cost less than looking at all.
const slotLooks = 16

// vacantLocked returns a slot of a stream that is closed and that no block names
// any more, or else a new one; deviceState.mu is held. A call that records a stream
// looks whether the stream is closed with the lock of the block's heap held, so
// that none is recorded after the heap was looked at here.
func (d *deviceState) vacantLocked(list []*Stream) int {
	looks := slotLooks
	for range list {
		d.look = (d.look + 1) % len(list)
		if !list[d.look].calls.IsClosed() {
			continue
		}
		if !d.named(uint32(d.look)) {
			return d.look
		}
		if looks--; looks == 0 {
			break
		}
	}
	return len(list)
}

// named reports whether a block of any pool names the stream of a slot.
func (d *deviceState) named(slot uint32) bool {
	for _, c := range d.open() {
		for _, h := range c.heaps.all() {
			h.mu.Lock()
			names := h.pending.Names(slot)
			h.mu.Unlock()
			if names {
				return true
			}
		}
	}
	return false
}

// StreamOwner is the optional part of a Driver that can tell whether a
// stream that it did not make is of its device. OwnsStream fails with
// ErrForeignStream for one that is not, and with another error where it cannot tell.
type StreamOwner interface {
	OwnsStream(h StreamHandle) error
}

// Launcher is the optional part of a Driver whose streams can run Go
// functions, in order with their other work (the host device). Without a function it
// fails with ErrInvalidHandle.
type Launcher interface {
	Launch(s StreamHandle, f func()) error
}

// Handle returns the device's own handle.
func (s *Stream) Handle() (h StreamHandle) {
	if s != nil {
		h = s.handle
	}
	return h
}

// Pool returns the allocator that made the stream. Its private pools use
// the same streams. A stream of another one is a foreign stream.
func (s *Stream) Pool() (root *Pool) {
	if s != nil {
		root = s.root
	}
	return root
}

// Closed reports whether the stream takes no more work, because it or its
// allocator was closed.
func (s *Stream) Closed() bool {
	return s.made("look at") != nil || s.calls.IsClosed() || s.root.closed.Load()
}

// Captured reports whether the stream's work is being kept as a graph.
func (s *Stream) Captured() bool { return s.made("look at") == nil && s.clock.Captured() }

// Launch submits a Go function to the stream, on devices that run them;
// else it fails with ErrNotSupported. Without a function it fails with ErrInvalidHandle.
// f must not wait for work of streams, its own above all: Sync, Close, Trim and what
// else may wait fail with ErrNotPermitted in it. An allocation for which there is no
// memory may hang.
func (s *Stream) Launch(f func()) error {
	if err := s.made("launch"); err != nil {
		return err
	}
	l, ok := s.root.dev.driver.(Launcher)
	if !ok {
		return fmt.Errorf("cupool: %s does not run Go functions: %w", s.root.dev.driver.Name(), ErrNotSupported)
	}
	run := f
	if f != nil { // which the device refuses
		run = func() { s.calls.Run(f) }
	}
	return s.do("launch", func(d Driver) error { return l.Launch(s.handle, run) })
}

// Copy submits a copy of n bytes between device addresses. It returns before the copy is
// done. It fails with ErrClosed or what the device says, as ErrInvalidRange.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	return s.do("copy", func(d Driver) error { return d.Copy(dst, src, n, s.handle) })
}

// CopyIn copies src to the device in the order of the stream; src may be
// reused when it returns. It fails as Copy does, and with a *WaitError after
// Config.WaitTimeout.
func (s *Stream) CopyIn(dst Ptr, src []byte) error {
	return s.do("copy in", func(d Driver) error {
		if err := s.calls.Await(); err != nil {
			return err
		}
		return d.CopyIn(dst, src, s.handle)
	})
}

// CopyOut waits for the stream and copies from the device to dst. It fails as CopyIn does.
func (s *Stream) CopyOut(dst []byte, src Ptr) error {
	err := s.do("copy out", func(d Driver) error {
		if err := s.calls.Await(); err != nil {
			return err
		}
		if len(dst) == 0 || s.clock.Captured() { // nothing is waited for
			return d.CopyOut(dst, src, s.handle)
		}
		return s.clock.Sync(func() error { return d.CopyOut(dst, src, s.handle) })
	})
	if err == nil {
		s.waited()
	}
	return err
}

// waited frees what waited for the stream, whose work is done.
func (s *Stream) waited() {
	if s.clock.Newest() > 0 {
		s.root.dev.collect()
	}
}

// Memset submits setting n bytes to a value. It fails as Copy does.
func (s *Stream) Memset(dst Ptr, value byte, n int64) error {
	if s != nil && s.calls.Lasts() { // what do does, without the cost of a function value
		return s.calls.Submitted("memset", s.root.dev.driver.Memset(dst, value, n, s.handle))
	}
	return s.do("memset", func(d Driver) error { return d.Memset(dst, value, n, s.handle) })
}

// do calls the device with the stream's handle. It fails with ErrClosed when the
// stream is closed, and as made does.
func (s *Stream) do(op string, f func(Driver) error) error {
	if err := s.made(op); err != nil {
		return err
	}
	return s.calls.Do(op, func() error { return f(s.root.dev.driver) })
}

// made fails with ErrInvalidHandle for nil and for a Stream that no allocator made.
func (s *Stream) made(op string) error {
	if s == nil || s.root == nil {
		return fmt.Errorf("cupool: %s on no stream: %w", op, ErrInvalidHandle)
	}
	return nil
}

// usable fails for a stream that was closed, or whose allocator was, and as made does.
func (s *Stream) usable(op string) error {
	if err := s.made(op); err != nil {
		return err
	}
	return s.calls.Usable(op)
}

// Sync waits until everything submitted to the stream is done, and releases
// the blocks that waited for it. It fails with ErrClosed, with a *WaitError after
// Config.WaitTimeout, or with what the device says.
func (s *Stream) Sync() error {
	if err := s.made("synchronize"); err != nil {
		return err
	}
	err := s.calls.Do("synchronize", func() error {
		ctx, cancel := s.root.dev.waiting(context.Background())
		defer cancel()
		return s.calls.Finish(ctx)
	})
	if err == nil {
		s.waited()
	}
	s.root.dev.shed()
	return err
}

// SyncContext is Sync that gives up when ctx is done: it fails with a *WaitError
// that matches the cause of ctx. The stream's work goes on.
func (s *Stream) SyncContext(ctx context.Context) error {
	if err := s.made("synchronize"); err != nil {
		return err
	}
	if ctx == nil {
		return fmt.Errorf("cupool: synchronize: the context is nil: %w", ErrInvalidHandle)
	}
	ctx, cancel := s.root.dev.waiting(ctx)
	defer cancel()
	err := s.calls.Do("synchronize", func() error { return s.calls.Finish(ctx) })
	if err == nil {
		s.root.dev.collect()
	}
	s.root.dev.shed()
	return err
}

// syncAll waits for the work of all streams that are open or closing, and
// releases the blocks that waited for it. Streams whose work is not done when ctx
// is are named by the error.
func (d *deviceState) syncAll(ctx context.Context) (err error) {
	for _, s := range d.streams.All() {
		err = errors.Join(err, s.calls.Drain(ctx))
	}
	d.collect()
	return err
}

// Event is a point in the work of a stream. It is safe to use from several
// goroutines, but for Close. The zero Event is closed.
type Event struct {
	s      *Stream // nil: closed
	handle EventHandle
	epoch  uint64       // of s, that it closed; 0: it is part of a graph
	seen   []epoch.Past // what s was ordered after at that point
}

// Record returns an event at the present end of the stream. Close gives its
// resources back. It fails with ErrClosed or what the device says.
func (s *Stream) Record() (e *Event, err error) {
	err = s.do("record event", func(d Driver) error {
		seen := s.seen.Now()
		epoch := s.clock.Mark() // before the event: see package epoch
		h, err := s.root.dev.events.Record(s.handle)
		if s.clock.Captured() { // it says nothing about what came before the capture
			seen, epoch = nil, 0
		}
		e = &Event{s: s, handle: h, epoch: epoch, seen: seen}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

var errEventClosed = fmt.Errorf("cupool: event: %w", ErrClosed)

// Done reports whether everything before the event is done. It fails with
// ErrClosed or what the device says.
func (e *Event) Done() (bool, error) {
	if e == nil || e.s == nil {
		return false, errEventClosed
	}
	done, err := e.s.root.dev.events.Query(e.handle)
	if done {
		e.s.clock.Over(e.epoch)
	}
	return done, e.s.calls.Submitted("query event", err)
}

// Sync waits on the host until everything before the event is done. It fails
// with ErrClosed, with a *WaitError after Config.WaitTimeout, or with what the
// device says.
func (e *Event) Sync() error {
	if e == nil || e.s == nil {
		return errEventClosed
	}
	if err := e.s.calls.Outside("synchronize event"); err != nil {
		if done, late := e.Done(); done || late != nil {
			return late
		}
		return err
	}
	if err := e.s.calls.Submitted("synchronize event", e.s.calls.AwaitEvent(e.handle)); err != nil {
		return err
	}
	e.s.clock.Over(e.epoch)
	return nil
}

// Close gives the event's resources back. Streams that were told to wait for
// it still do. Closing twice is ErrClosed.
func (e *Event) Close() error {
	if e == nil || e.s == nil {
		return errEventClosed
	}
	e.s.root.dev.events.Put(e.handle)
	e.s = nil
	return nil
}

// Wait makes everything that is submitted to the stream from now on wait for
// the event, on the device. Blocks of this stream that were freed while the
// event's stream still used them, before the event was recorded, are ready
// for reuse on this stream from then on, but for waits of a capture, which are part of
// its graph. An event may be another device's, where the
// Drivers can do that. It fails with ErrForeignStream for other events of another
// allocator, with ErrClosed, or what the device says.
func (s *Stream) Wait(e *Event) error {
	const op = "wait for an event"
	switch err := s.usable(op); {
	case err != nil:
		return err
	case e == nil || e.s == nil:
		return fmt.Errorf("cupool: %s: %w", op, ErrClosed)
	case e.s.root != s.root:
		peer := e.s.root.dev.driver
		if d, ok := s.root.dev.driver.(device.Peers); ok && peer != s.root.dev.driver {
			return s.do(op, func(Driver) error { return d.StreamWaitPeerEvent(s.handle, e.handle, peer) })
		}
		return fmt.Errorf("cupool: %s: %w: it is of another allocator, on %s", op, ErrForeignStream, peer.Name())
	}
	err := s.do(op, func(d Driver) error { return d.StreamWaitEvent(s.handle, e.handle) })
	if err == nil && e.epoch > 0 && !s.clock.Captured() { // else a graph waits, and no later work of the stream
		streams := s.root.dev.streams.All()
		at := func(slot uint32) (uint64, *epoch.Clock) { return streams[slot].number, streams[slot].clock }
		s.root.dev.learned(s, s.seen.Learn(s.number, e.seen, e.s.slot, epoch.Past{Stream: e.s.number, Epoch: e.epoch}, at))
	}
	return err
}

// WaitStream makes later work of s wait for everything that o (nil: the default
// stream) has been given so far. It fails as Record and Wait do.
func (s *Stream) WaitStream(o *Stream) error {
	if err := s.usable("wait for a stream"); err != nil {
		return err
	}
	if o == nil {
		o = s.root.dev.def
	}
	e, err := o.Record()
	if err != nil {
		return err
	}
	defer e.Close()
	return s.Wait(e)
}
