package cupool

import (
	"fmt"
)

// Event is a point in the work of a stream. It is safe to use from several
// goroutines, but for Close.
type Event struct {
	s      *Stream
	handle EventHandle
	epoch  uint64   // of s, that it closed
	seen   []uint64 // by stream: what s was ordered after at that point
	closed bool
}

// Record returns an event at the present end of the stream. Close gives its
// resources back.
func (s *Stream) Record() (*Event, error) {
	c := s.c
	if err := s.usable("record event"); err != nil {
		return nil, err
	}
	h, err := c.events.get()
	if err != nil {
		return nil, s.submit("new event", err)
	}
	s.mu.Lock()
	seen := append([]uint64(nil), s.seen...)
	s.mu.Unlock()
	epoch := s.clock.tick.Add(1) - 1 // before the event: see waits.go
	if err := c.driver.RecordEvent(h, s.handle); err != nil {
		c.events.put(h)
		return nil, s.submit("record event", err)
	}
	c.books.eventsRecorded.Add(1)
	return &Event{s: s, handle: h, epoch: epoch, seen: seen}, nil
}

// Done reports whether everything before the event is done.
func (e *Event) Done() (bool, error) {
	if e.closed {
		return false, fmt.Errorf("cupool: event: %w", ErrClosed)
	}
	done, err := e.s.c.driver.QueryEvent(e.handle)
	if done {
		raise(&e.s.clock.done, e.epoch)
	}
	return done, e.s.submit("query event", err)
}

// Sync waits on the host until everything before the event is done.
func (e *Event) Sync() error {
	if e.closed {
		return fmt.Errorf("cupool: event: %w", ErrClosed)
	}
	if err := e.s.submit("synchronize event", e.s.c.driver.SyncEvent(e.handle)); err != nil {
		return err
	}
	raise(&e.s.clock.done, e.epoch)
	return nil
}

// Close gives the event's resources back. Streams that were told to wait for
// it still do.
func (e *Event) Close() error {
	if e.closed {
		return fmt.Errorf("cupool: event: %w", ErrClosed)
	}
	e.closed = true
	e.s.c.events.put(e.handle)
	return nil
}

// Wait makes everything that is submitted to the stream from now on wait for
// the event, on the device. Blocks of this stream that were freed while the
// event's stream still used them, before the event was recorded, are ready
// for reuse on this stream from then on. An event of another allocator is
// ErrForeignStream.
func (s *Stream) Wait(e *Event) error {
	switch {
	case e.s.c != s.c:
		return fmt.Errorf("cupool: wait for an event: %w", ErrForeignStream)
	case e.closed:
		return fmt.Errorf("cupool: wait for an event: %w", ErrClosed)
	}
	if err := s.usable("wait for an event"); err != nil {
		return err
	}
	if err := s.submit("wait for an event", s.c.driver.StreamWaitEvent(s.handle, e.handle)); err != nil {
		return err
	}
	s.sees(e)
	return nil
}

// sees merges the event's clock into the stream's, and frees the blocks whose
// waits that proves to be over.
func (s *Stream) sees(e *Event) {
	s.learn(e)
	s.eachTwin(func(t *Stream) { t.learn(e) })
}

// learn is sees for one member of the family.
func (s *Stream) learn(e *Event) {
	streams := *e.s.c.streams.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(i uint32, epoch uint64) {
		for uint32(len(s.seen)) <= i {
			s.seen = append(s.seen, 0)
		}
		if epoch > s.seen[i] && i != s.index {
			s.seen[i] = epoch
			if l := s.findWaitsLocked(streams[i]); l != nil {
				s.popLocked(l, epoch)
			}
		}
	}
	for i, epoch := range e.seen {
		note(uint32(i), epoch)
	}
	note(e.s.index, e.epoch)
	s.checkLocked()
}

// WaitStream makes later work of s wait for everything that o has been given
// so far.
func (s *Stream) WaitStream(o *Stream) error {
	e, err := o.Record()
	if err != nil {
		return err
	}
	defer e.Close()
	return s.Wait(e)
}
