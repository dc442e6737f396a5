package cupool

import (
	"slices"
	"sync"
	"time"
)

// Decay of idle memory (Config.Decay). The allocator looks at times how much
// memory is idle. The least that it saw within the last Config.Decay was not
// needed in all that time, and goes back. A program that repeats itself shows
// at one time or another that it needs what it frees, and keeps it.

// decaySteps is how often within Config.Decay the allocator looks: so often
// that it sees what is needed a tenth of the time at least once in five of
// six cases; and minDecay makes that no more than a few hundred times a
// second.
const (
	decaySteps = 16
	minDecay   = 50 * time.Millisecond
)

// decay is the state of it. Only its goroutine uses idle and at.
type decay struct {
	idle [decaySteps]int64 // bytes, the last times that it looked
	at   int               // the oldest of them

	stop  chan struct{} // nil without Config.Decay
	once  sync.Once     // closes it
	ended sync.WaitGroup
}

// startDecay starts the goroutine that looks, if one is wanted.
func (c *Caching) startDecay() {
	if c.cfg.Decay == 0 {
		return
	}
	d := &c.decay
	d.stop = make(chan struct{})
	d.ended.Go(func() {
		tick := time.NewTicker(c.cfg.Decay / decaySteps)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.decayStep()
			case <-d.stop:
				return
			}
		}
	})
}

// end stops the goroutine and waits for it.
func (d *decay) end() {
	if d.stop != nil {
		d.once.Do(func() { close(d.stop) })
		d.ended.Wait()
	}
}

// decayStep looks, and gives back what has been idle for long.
func (c *Caching) decayStep() {
	d := &c.decay
	d.idle[d.at] = c.Stats().CachedBytes
	d.at = (d.at + 1) % decaySteps
	unused := slices.Min(d.idle[:])
	if unused <= 0 {
		return
	}
	released, err := c.releaseDecayed(unused)
	for i := range d.idle {
		d.idle[i] -= released
	}
	c.books.decayedBytes.Add(released)
	if err != nil {
		c.cfg.Logger.Warn("giving idle memory back failed", "device", c.driver.Name(), "error", err)
	}
}

// releaseDecayed gives idle memory back as Trim does, but waits for nothing:
// memory of streams at work stays, and segments do while any stream is, as
// freeing them waits for the device.
func (c *Caching) releaseDecayed(need int64) (released int64, err error) {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.closed.Load() || c.sleep.asleep.Load() || c.lost.Load() != nil {
		return 0, nil
	}
	if err := c.settleEverything(); err != nil {
		return 0, err
	}
	c.flushAll()
	if c.vm != nil {
		return c.releaseVirtual(need, false)
	}
	for _, s := range c.openStreams() {
		if !s.isOver() {
			return 0, nil
		}
	}
	return c.releaseSegments(need)
}
