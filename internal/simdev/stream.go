package simdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
)

// A stream is a queue of work. In manual mode every call that submits work
// counts up submitted, RecordEvent too, so that an event on an idle stream is
// pending as well; otherwise both counters stay 0, and everything is done.
//
// Rules, which Check verifies:
//
//	W1  ops holds the operations completed+1 … submitted, in order
type stream struct {
	submitted, completed uint64
	ops                  []op
}

// An op is one piece of queued work: a function, memory work or a wait. The
// zero op is a record.
type op struct {
	fn     func()
	ranges [2]device.Ptr // memory work: n bytes at each that is not 0
	n      int64
	on     *stream // wait: until on.completed >= seq
	seq    uint64
}

// An event is done when on.completed >= seq, or when on is nil.
type event struct {
	on  *stream
	seq uint64
}

func (e *event) done() bool { return e.on == nil || e.on.completed >= e.seq }

// NewStream makes a stream.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(NewStream); err != nil {
		return 0, err
	}
	h := d.streams.Add(new(stream))
	if h == 0 {
		return 0, wrap(NewStream, fmt.Errorf("%w: too many streams", device.ErrOutOfMemory))
	}
	return device.Stream(h), nil
}

// DestroyStream completes the stream's work and takes it away. It returns
// ErrInvalidHandle for an unknown stream and for stream 0.
func (d *Device) DestroyStream(h device.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.beginOnLocked(DestroyStream, h)
	if err != nil {
		return err
	}
	if h == 0 {
		return wrap(DestroyStream, fmt.Errorf("%w: the default stream cannot be destroyed", device.ErrInvalidHandle))
	}
	d.streams.Remove(uintptr(h))
	return d.waitLocked(DestroyStream, s, s.submitted)
}

// SyncStream completes the stream's work. It returns ErrInvalidHandle for an
// unknown stream.
func (d *Device) SyncStream(h device.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.beginOnLocked(SyncStream, h)
	if err != nil {
		return err
	}
	return d.waitLocked(SyncStream, s, s.submitted)
}

// Launch runs f: at once on the caller's goroutine, or in manual mode when
// the stream gets there, with the device locked. A panic in f makes the
// device lost. It returns ErrInvalidHandle for an unknown stream and for no function.
func (d *Device) Launch(h device.Stream, f func()) error {
	d.mu.Lock()
	s, err := d.beginOnLocked(Launch, h)
	if err == nil && f == nil {
		err = wrap(Launch, fmt.Errorf("%w: no function", device.ErrInvalidHandle))
	}
	if err == nil && d.cfg.ManualEvents {
		d.queueLocked(s, op{fn: f})
	}
	d.mu.Unlock()
	if err != nil || d.cfg.ManualEvents {
		return err
	}
	if reason := call(f); reason != "" {
		d.Lose(reason)
	}
	return nil
}

// NewEvent makes an event, which counts as done until it is recorded.
func (d *Device) NewEvent() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(NewEvent); err != nil {
		return 0, err
	}
	h := d.events.Add(new(event))
	if h == 0 {
		return 0, wrap(NewEvent, fmt.Errorf("%w: too many events", device.ErrOutOfMemory))
	}
	d.chargeLocked(NewEvent, 0, 1)
	return device.Event(h), nil
}

// DestroyEvent takes an event away; its work may still be queued. It returns
// ErrInvalidHandle for an unknown event.
func (d *Device) DestroyEvent(h device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.beginEventLocked(DestroyEvent, h); err != nil {
		return err
	}
	d.events.Remove(uintptr(h))
	return nil
}

// RecordEvent marks e at the present end of the stream. It returns
// ErrInvalidHandle for an unknown event or stream.
func (d *Device) RecordEvent(e device.Event, h device.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev, err := d.beginEventLocked(RecordEvent, e)
	if err != nil {
		return err
	}
	s, err := d.streamLocked(RecordEvent, h)
	if err != nil {
		return err
	}
	if d.cfg.ManualEvents && !(d.cfg.IdleEvents && len(s.ops) == 0) {
		d.queueLocked(s, op{})
	}
	ev.on, ev.seq = s, s.submitted
	d.chargeLocked(RecordEvent, 0, 1)
	return nil
}

// QueryEvent reports whether all work before the last record of e is done.
// It returns ErrInvalidHandle for an unknown event.
func (d *Device) QueryEvent(e device.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev, err := d.beginEventLocked(QueryEvent, e)
	if err != nil {
		return false, err
	}
	d.chargeLocked(QueryEvent, 0, 1)
	return ev.done(), nil
}

// SyncEvent completes the work before the last record of e. It returns
// ErrInvalidHandle for an unknown event.
func (d *Device) SyncEvent(e device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev, err := d.beginEventLocked(SyncEvent, e)
	if err != nil || ev.on == nil {
		return err
	}
	return d.waitLocked(SyncEvent, ev.on, ev.seq)
}

// StreamWaitEvent makes later work of the stream wait for the last record of
// e, as of this call. It returns ErrInvalidHandle for an unknown stream or
// event.
func (d *Device) StreamWaitEvent(h device.Stream, e device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev, err := d.beginEventLocked(StreamWaitEvent, e)
	if err != nil {
		return err
	}
	s, err := d.streamLocked(StreamWaitEvent, h)
	if err != nil {
		return err
	}
	if d.cfg.ManualEvents && !ev.done() && ev.on != s {
		d.queueLocked(s, op{on: ev.on, seq: ev.seq})
	}
	d.chargeLocked(StreamWaitEvent, 0, 1)
	return nil
}

// CompleteEvent runs all work before the last record of e, and what that work
// waits for. It panics for an unknown event.
func (d *Device) CompleteEvent(e device.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev := d.events.Get(uintptr(e))
	if ev == nil {
		panic(fmt.Sprintf("simdev: CompleteEvent: no event %#x", uintptr(e)))
	}
	if ev.on != nil {
		d.runLocked(ev.on, ev.seq)
	}
}

// CompleteStream runs all work of the stream, and what that work waits for.
// It panics for an unknown stream.
func (d *Device) CompleteStream(h device.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamLocked(SyncStream, h)
	if err != nil {
		panic(err)
	}
	d.runLocked(s, s.submitted)
}

// CompleteNext runs the oldest work of the stream, if there is any, and what
// it waits for. It panics for an unknown stream.
func (d *Device) CompleteNext(h device.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamLocked(SyncStream, h)
	if err != nil {
		panic(err)
	}
	d.runLocked(s, min(s.completed+1, s.submitted))
}

// CompleteAll runs all work of all streams.
func (d *Device) CompleteAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.completeAllLocked()
}

func (d *Device) completeAllLocked() {
	if !d.cfg.ManualEvents {
		return // nothing is ever queued
	}
	d.runLocked(&d.stream0, d.stream0.submitted)
	for _, s := range d.streams.All() {
		d.runLocked(s, s.submitted)
	}
}

// queueLocked adds work to a stream, in manual mode.
func (d *Device) queueLocked(s *stream, o op) {
	s.submitted++
	s.ops = append(s.ops, o)
}

// waitLocked is a wait of the host: it lets the device run.
func (d *Device) waitLocked(c Call, s *stream, seq uint64) error {
	if d.runLocked(s, seq); d.lost != nil {
		return wrap(c, d.lost)
	}
	return nil
}

// runLocked runs the work of s up to seq. It ends, because a wait names only
// work that was submitted before it. Nothing runs on a lost device, but
// everything is over.
func (d *Device) runLocked(s *stream, seq uint64) {
	for s.completed < seq {
		o := s.ops[0]
		if o.on != nil {
			d.runLocked(o.on, o.seq)
		}
		if d.lost == nil {
			d.runOpLocked(o)
		}
		s.ops[0] = op{}
		s.ops = s.ops[1:]
		s.completed++
	}
}

func (d *Device) runOpLocked(o op) {
	if o.fn != nil {
		if reason := call(o.fn); reason != "" {
			d.loseLocked(reason)
		}
	}
	// Valid when it was queued; a range that no longer is was given back too
	// early.
	for _, p := range o.ranges {
		if p == 0 {
			continue
		}
		if err := d.space.Check(p, o.n); err != nil {
			d.loseLocked(fmt.Sprintf("illegal address in queued work: %v", err))
		}
	}
}

// call runs f and returns what went wrong, or "".
func call(f func()) (reason string) {
	defer func() {
		if r := recover(); r != nil {
			reason = fmt.Sprintf("a launched function panicked: %v", r)
		}
	}()
	f()
	return ""
}

// beginOnLocked is beginLocked for a call on a stream.
func (d *Device) beginOnLocked(c Call, h device.Stream) (*stream, error) {
	if err := d.beginLocked(c); err != nil {
		return nil, err
	}
	return d.streamLocked(c, h)
}

// beginEventLocked is beginLocked for a call on an event.
func (d *Device) beginEventLocked(c Call, h device.Event) (*event, error) {
	if err := d.beginLocked(c); err != nil {
		return nil, err
	}
	if e := d.events.Get(uintptr(h)); e != nil {
		return e, nil
	}
	return nil, wrap(c, fmt.Errorf("%w: event %#x", device.ErrInvalidHandle, uintptr(h)))
}

func (d *Device) streamLocked(c Call, h device.Stream) (*stream, error) {
	if h == 0 {
		return &d.stream0, nil
	}
	if s := d.streams.Get(uintptr(h)); s != nil {
		return s, nil
	}
	return nil, wrap(c, fmt.Errorf("%w: %v", device.ErrInvalidHandle, h))
}
