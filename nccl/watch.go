package nccl

import (
	"fmt"
	"slices"
	"time"

	"github.com/cupool/cupool"
)

// lookEvery is how often the watch looks, at most; a short Timeout makes it
// shorter.
const lookEvery = time.Second / 4

// A mark is an event behind work that the Comm has queued in a stream.
type mark struct {
	event *cupool.Event
	since time.Time
}

// watch looks at the Comm until it ends: errors that NCCL notices while it works,
// ranks that are gone, and work that takes longer than the Timeout.
func (c *Comm) watch() {
	defer c.watching.Done()
	every := lookEvery
	if c.cfg.Timeout > 0 {
		every = min(every, max(c.cfg.Timeout/8, time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			c.mu.Lock()
			ended := c.comm == nil
			c.mu.Unlock()
			if ended {
				c.forget()
			}
			return
		case now := <-tick.C:
			_ = c.Err() // what has failed ends the Comm, and Close the watch
			for _, s := range c.behind() {
				c.watching.Go(func() { c.mark(s, now) }) // the device may wait for the stream until expire ends its work
			}
			c.lookAt()
			c.expire(now)
		}
	}
}

// markStreams marks the ends of the streams of c.tasks, which are just queued, with c.order held.
// Between two looks a stream gets one mark here, so that a call costs no event. The look marks
// what came later, as nobody knows here which call is the last.
func (c *Comm) markStreams() {
	for i, s := range c.streams {
		if slices.Contains(c.streams[:i], s) || s.Captured() { // the work of a captured stream is a graph's
			continue
		}
		c.mu.Lock()
		_, marked := c.used[s]
		c.used[s] = marked
		c.mu.Unlock()
		if !marked {
			c.mark(s, time.Now())
		}
	}
}

// mark marks the end of a stream. It does not hold c.mu meanwhile: where a stream is full, the
// device may wait for its work, which Abort ends.
func (c *Comm) mark(s *cupool.Stream, now time.Time) {
	e, err := s.Record()
	if err != nil { // the stream is closed and has no work left, or the device tells others
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm == nil { // nobody may give the event back any more
		_ = e.Close()
		return
	}
	c.marks = append(c.marks, mark{e, now})
}

// behind returns the streams that were used behind their last mark since the last look.
func (c *Comm) behind() (streams []*cupool.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, more := range c.used {
		if more && s.Captured() { // until the capture ends, an event would be part of it
			continue
		}
		delete(c.used, s)
		if more {
			streams = append(streams, s)
		}
	}
	return streams
}

// lookAt drops the marks that are done.
func (c *Comm) lookAt() {
	c.takeMarks()
	waits := c.queued[:0]
	for _, m := range c.queued {
		if done, err := m.event.Done(); done || err != nil { // an error is the device's, which others tell
			_ = m.event.Close()
			continue
		}
		waits = append(waits, m)
	}
	c.queued = waits
}

// expire ends the Comm when something is queued for too long.
func (c *Comm) expire(now time.Time) {
	if c.cfg.Timeout < 0 || len(c.queued) == 0 || now.Sub(c.queued[0].since) < c.cfg.Timeout {
		return
	}
	_ = c.fail(late("work in a stream", c.rank, c.size, fmt.Sprintf("not done after %v", c.cfg.Timeout), errLate))
}

// takeMarks takes the marks since the last look.
func (c *Comm) takeMarks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = append(c.queued, c.marks...)
	c.marks = c.marks[:0]
}

// forget gives the events back.
func (c *Comm) forget() {
	c.takeMarks()
	for _, m := range c.queued {
		_ = m.event.Close()
	}
	c.queued = nil
}
