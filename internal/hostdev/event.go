package hostdev

import (
	"fmt"
	"sync"

	"github.com/cupool/cupool/device"
)

// An event is a point in a stream's order: done when the stream's job number
// seq is over. on is nil until the first record. So recording costs no job,
// a query is one comparison, and destroying an event disturbs nobody: who
// waits for it has copied the point.
type event struct {
	mu  sync.Mutex
	on  *stream
	seq uint64
}

func (e *event) point() (on *stream, seq uint64) {
	e.mu.Lock()
	on, seq = e.on, e.seq
	e.mu.Unlock()
	return on, seq
}

// NewEvent makes an event, which counts as done until it is recorded. It
// returns an error when a million exist.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.usable("NewEvent"); err != nil {
		return 0, err
	}
	h := d.events.Add(new(event))
	if h == 0 {
		return 0, fmt.Errorf("hostdev: NewEvent: %w: too many events", device.ErrOutOfMemory)
	}
	return device.Event(h), nil
}

// DestroyEvent takes an event away; its work may still be running. It returns
// ErrInvalidHandle for an unknown event.
func (d *Device) DestroyEvent(h device.Event) error {
	if err := d.usable("DestroyEvent"); err != nil {
		return err
	}
	if d.events.Remove(uintptr(h)) == nil {
		return d.failure("DestroyEvent", fmt.Errorf("%w: event %#x", device.ErrInvalidHandle, uintptr(h)))
	}
	return nil
}

// RecordEvent marks e at the present end of the stream. The last record
// counts. It returns ErrInvalidHandle for an unknown event or stream.
func (d *Device) RecordEvent(e device.Event, h device.Stream) error {
	s, err := d.stream("RecordEvent", h)
	if err != nil {
		return err
	}
	ev, err := d.event("RecordEvent", e)
	if err != nil {
		return err
	}
	ev.mu.Lock()
	ev.on, ev.seq = s, s.submitted.Load()
	ev.mu.Unlock()
	return nil
}

// QueryEvent reports whether all work before the last record of e is done.
// It returns ErrInvalidHandle for an unknown event.
func (d *Device) QueryEvent(e device.Event) (bool, error) {
	ev, err := d.event("QueryEvent", e)
	if err != nil {
		return false, err
	}
	on, seq := ev.point()
	return on == nil || on.completed.Load() >= seq, nil
}

// SyncEvent waits until the work before the last record of e, as of this
// call, is done. It returns ErrInvalidHandle for an unknown event.
func (d *Device) SyncEvent(e device.Event) error {
	ev, err := d.event("SyncEvent", e)
	if err != nil {
		return err
	}
	if on, seq := ev.point(); on != nil {
		on.wait(seq)
	}
	if d.pooling.Load() {
		d.shrinkPools()
	}
	return d.usable("SyncEvent")
}

// StreamWaitEvent makes later work of the stream wait for the last record of
// e, as of this call; a later record changes nothing. It does not wait
// itself. It returns ErrInvalidHandle for an unknown stream or event.
func (d *Device) StreamWaitEvent(h device.Stream, e device.Event) error {
	s, err := d.stream("StreamWaitEvent", h)
	if err != nil {
		return err
	}
	ev, err := d.event("StreamWaitEvent", e)
	if err != nil {
		return err
	}
	return s.waitFor("StreamWaitEvent", ev)
}

// waitFor makes later work of the stream wait for the last record of an event.
func (s *stream) waitFor(op string, e *event) error {
	on, seq := e.point()
	// A stream's own earlier work comes first anyway.
	if on == nil || on == s || on.completed.Load() >= seq {
		return nil
	}
	_, err := s.submit(op, job{kind: jobWait, on: on, n: seq})
	return err
}

// event returns the event of a handle, when the device is usable.
func (d *Device) event(op string, h device.Event) (*event, error) {
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if e := d.events.Get(uintptr(h)); e != nil {
		return e, nil
	}
	return nil, d.failure(op, fmt.Errorf("%w: event %#x", device.ErrInvalidHandle, uintptr(h)))
}
