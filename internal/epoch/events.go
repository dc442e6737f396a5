// Package epoch knows when a stream is done with a block.
//
// Recording an event closes a stream's open epoch. A block that is freed while
// a stream may still use it waits for that stream's open epoch: until an event
// of that epoch or of a later one is done. So one event serves every block that
// was freed since the last event. A block that is freed while enough events are
// in flight costs no driver call: the event that covers it is recorded when an
// earlier one completes, or when somebody needs the memory.
//
// Reading the open epoch takes no lock of the stream. An epoch is closed before
// its event is recorded, so a goroutine that still reads its number has
// submitted its work before the event.
//
// An order that the program makes itself proves the same without an event: once
// a stream waits for an event, on the device, everything that the event covers
// is over for the work that follows (vector clocks; Lamport 1978, Mattern 1988).
package epoch

import (
	"errors"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/lock"
)

// Device is what a clock asks of a device. The methods are a Driver's.
type Device interface {
	NewEvent() (device.Event, error)
	DestroyEvent(e device.Event) error
	RecordEvent(e device.Event, s device.Stream) error
	QueryEvent(e device.Event) (done bool, err error)
	SyncEvent(e device.Event) error
}

// Events are a device's events, which are used again and again, and the counts
// of what is done with them. They are safe for use from several goroutines.
type Events struct {
	Recorded, Queries, Failures atomic.Int64

	// Time is the device's: it goes on before each record of an event and each wait for a
	// stream. Memory that is freed at a time is not used any more by a stream that is past
	// a later time (Clock.Passed).
	Time atomic.Uint64

	Dated bool // note when events are recorded, for WaitError.Age; set before use

	device Device
	failed func(stream device.Stream, err error) // told of a record that fails where no error can be returned

	mu     lock.Mutex
	free   []device.Event
	made   []device.Event
	closed bool
}

// Init sets the device, and a function that is called, with a clock's lock
// held, when an event cannot be recorded and blocks wait on.
func (p *Events) Init(d Device, failed func(device.Stream, error)) { p.device, p.failed = d, failed }

// Get returns an event that is not in use. After Close it fails with
// device.ErrClosed.
func (p *Events) Get() (device.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, device.ErrClosed
	}
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e, nil
	}
	e, err := p.device.NewEvent()
	if err == nil {
		p.made = append(p.made, e)
	}
	return e, err
}

// Put takes an event back.
func (p *Events) Put(e device.Event) {
	p.mu.Lock()
	p.free = append(p.free, e)
	p.mu.Unlock()
}

// Record marks the present end of a stream with an event.
func (p *Events) Record(s device.Stream) (device.Event, error) {
	e, err := p.Get()
	if err == nil {
		if err = p.device.RecordEvent(e, s); err != nil {
			p.Put(e)
		}
	}
	if err != nil {
		p.Failures.Add(1)
		return 0, err
	}
	p.Recorded.Add(1)
	return e, nil
}

// Query asks whether an event is done.
func (p *Events) Query(e device.Event) (bool, error) {
	p.Queries.Add(1)
	done, err := p.device.QueryEvent(e)
	if err != nil {
		p.Failures.Add(1)
	}
	return done, err
}

// Close destroys all events. One that the device refuses to destroy is tried
// again once.
func (p *Events) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, e := range p.made {
		err := p.device.DestroyEvent(e)
		if err != nil {
			err = p.device.DestroyEvent(e)
		}
		errs = append(errs, err)
	}
	p.made, p.free, p.closed = nil, nil, true
	return errors.Join(errs...)
}
