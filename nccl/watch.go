package nccl

import (
	"fmt"
	"time"

	"github.com/cupool/cupool"
)

// lookEvery is how often the watch looks, at most; a short Timeout makes it
// shorter.
const lookEvery = time.Second / 4

// A mark is the end of a stream's work at a time after the Comm had queued
// some there.
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
			c.lookAt(now)
			c.expire(now)
		}
	}
}

// lookAt marks the streams that were used since the last look, and drops what is
// done. A stream that is closed has no work left.
func (c *Comm) lookAt(now time.Time) {
	c.mu.Lock()
	for s := range c.used {
		if s.Captured() { // until the capture ends, an event would be part of it
			continue
		}
		delete(c.used, s)
		if e, err := s.Record(); err == nil {
			c.queued = append(c.queued, mark{e, now})
		}
	}
	c.mu.Unlock()
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

// forget gives the events back.
func (c *Comm) forget() {
	for _, m := range c.queued {
		_ = m.event.Close()
	}
	c.queued = nil
}
