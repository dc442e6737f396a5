package cupool

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// maxInFlight bounds the events of one stream that are recorded ahead. More
// of them free memory sooner, fewer cost less.
const maxInFlight = 4

// mark is a recorded event and the epoch that it closed.
type mark struct {
	event EventHandle
	epoch uint64
}

// clock counts a stream's epochs and knows which are over.
type clock struct {
	tick   atomic.Uint64 // the open epoch
	done   atomic.Uint64 // every epoch up to this one is over
	newest atomic.Uint64 // the newest that a block waits for
	ended  atomic.Bool   // the stream is closed, its work is done

	captured atomic.Bool // see capture; set with mu held

	mu       sync.Mutex // taken to record and to query
	inFlight []mark     // oldest first; guarded by mu
}

// insist says what may be done to learn how far a stream is.
type insist int

const (
	peek  insist = iota // ask about the events in flight
	ask                 // and record one where blocks wait and none is
	force               // and record one where blocks wait that none covers
)

// stamp returns the open epoch for a block to wait for.
func (k *clock) stamp() uint64 {
	epoch := k.tick.Load()
	raise(&k.newest, epoch)
	return epoch
}

// raise makes a value no lower than v.
func raise(p *atomic.Uint64, v uint64) {
	for old := p.Load(); old < v && !p.CompareAndSwap(old, v); {
		old = p.Load()
	}
}

// capture calls begin, which makes the device keep the stream's work as a graph
// (tensor_graph.go). Until endCapture the allocator neither records events on
// the stream nor waits for it, as that would break the capture: what waits for
// the stream waits on.
func (u *Stream) capture(begin func() error) error {
	k := &u.base.clock
	k.mu.Lock()
	defer k.mu.Unlock()
	err := begin()
	if err == nil {
		k.captured.Store(true)
	}
	return err
}

func (u *Stream) endCapture() {
	k := &u.base.clock
	k.mu.Lock()
	k.captured.Store(false)
	k.mu.Unlock()
}

func (u *Stream) isCaptured() bool { return u.base.clock.captured.Load() }

// recordAhead records an event unless there are enough in flight.
func (u *Stream) recordAhead() {
	k := &u.clock
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.inFlight) < maxInFlight {
		_ = u.recordLocked()
	}
}

// recordLocked closes the open epoch with an event; clock.mu is held. When
// the device refuses, the next event covers the epoch, as it does while the
// stream is captured.
func (u *Stream) recordLocked() error {
	c, k := u.c, &u.clock
	if u.isCaptured() {
		return nil
	}
	epoch := k.tick.Add(1) - 1 // before the event: see waits.go
	e, err := u.recordEvent()
	if err != nil {
		c.books.eventFailures.Add(1)
		c.cfg.Logger.Warn("recording an event failed; freed blocks wait on", "stream", uintptr(u.handle), "error", err)
		return c.driverError(fmt.Errorf("cupool: recording an event on stream 0x%x: %w", uintptr(u.handle), err))
	}
	k.inFlight = append(k.inFlight, mark{event: e, epoch: epoch})
	return nil
}

// recordEvent marks the present end of the stream with an event of the pool.
func (u *Stream) recordEvent() (EventHandle, error) {
	c := u.c
	e, err := c.events.get()
	if err != nil {
		return 0, err
	}
	if err = c.driver.RecordEvent(e, u.handle); err != nil {
		c.events.put(e)
		return 0, err
	}
	c.books.eventsRecorded.Add(1)
	return e, nil
}

// uncovered reports whether a block waits for an epoch that no event in
// flight covers; mu is held.
func (k *clock) uncovered() bool {
	covered := k.done.Load()
	if n := len(k.inFlight); n > 0 {
		covered = max(covered, k.inFlight[n-1].epoch)
	}
	return k.newest.Load() > covered
}

// advance learns how far the stream is.
func (u *Stream) advance(how insist) error {
	k := &u.clock
	if k.newest.Load() <= k.done.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if (how == force || how == ask && len(k.inFlight) == 0) && k.uncovered() {
		err = u.recordLocked()
	}
	err = errors.Join(err, u.queryLocked())
	if how != peek && len(k.inFlight) < maxInFlight && k.uncovered() {
		err = errors.Join(err, u.recordLocked())
	}
	return err
}

// queryLocked asks about the events in flight, oldest first, up to the first
// that is not done; clock.mu is held.
func (u *Stream) queryLocked() error {
	c, k := u.c, &u.clock
	for len(k.inFlight) > 0 {
		m := k.inFlight[0]
		if m.epoch > k.done.Load() {
			c.books.eventQueries.Add(1)
			done, err := c.driver.QueryEvent(m.event)
			if err != nil {
				c.books.eventFailures.Add(1)
				return c.driverError(fmt.Errorf("cupool: querying an event of stream 0x%x: %w", uintptr(u.handle), err))
			}
			if !done {
				return nil
			}
			raise(&k.done, m.epoch)
		}
		c.events.put(m.event)
		k.inFlight = append(k.inFlight[:0], k.inFlight[1:]...)
	}
	return nil
}

// waitEpoch waits on the host until an epoch of u is over, unless that is part
// of a capture.
func (c *Caching) waitEpoch(u *Stream, epoch uint64) error {
	k := &u.clock
	k.mu.Lock()
	if k.done.Load() >= epoch || k.ended.Load() {
		k.mu.Unlock()
		return nil
	}
	var m mark
	for _, m = range k.inFlight {
		if m.epoch >= epoch {
			break
		}
	}
	if m.epoch < epoch {
		if err := u.recordLocked(); err != nil || u.isCaptured() {
			k.mu.Unlock()
			return err
		}
		m = k.inFlight[len(k.inFlight)-1]
	}
	k.mu.Unlock()
	// The event may be recycled meanwhile; then it was done.
	if err := c.driver.SyncEvent(m.event); err != nil {
		return c.driverError(fmt.Errorf("cupool: waiting for an event of stream 0x%x: %w", uintptr(u.handle), err))
	}
	raise(&k.done, m.epoch)
	return nil
}

// eventPool recycles the device's events.
type eventPool struct {
	driver Driver
	mu     sync.Mutex
	free   []EventHandle
	made   []EventHandle
}

func (p *eventPool) get() (EventHandle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e, nil
	}
	e, err := p.driver.NewEvent()
	if err == nil {
		p.made = append(p.made, e)
	}
	return e, err
}

func (p *eventPool) put(e EventHandle) {
	p.mu.Lock()
	p.free = append(p.free, e)
	p.mu.Unlock()
}

func (p *eventPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, e := range p.made {
		errs = append(errs, p.driver.DestroyEvent(e))
	}
	p.made, p.free = nil, nil
	return errors.Join(errs...)
}
