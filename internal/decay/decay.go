// Package decay finds memory that has been idle for a while. It looks at times
// how much is idle. The least that it saw within that while was not needed in all
// that time, and goes back. A program that repeats itself shows at one time or
// another that it needs what it frees, and keeps it.
package decay

import (
	"slices"
	"sync"
	"time"
)

// steps is how often within the while Decay looks: so often that it sees what is
// needed a tenth of the time at least once in five of six cases; and Min makes
// that no more than a few hundred times a second.
const (
	steps = 16
	Min   = 50 * time.Millisecond
)

// Decay looks at the idle memory of a pool, on a goroutine of its own. Its
// functions are set before Start.
type Decay struct {
	Idle    func() int64             // returns the bytes that are idle now
	Release func(unused int64) int64 // gives bytes back, and returns how many

	window [steps]int64 // idle bytes, the last times that it looked; of the goroutine alone
	at     int          // the oldest of them

	stop  chan struct{} // nil: not started
	once  sync.Once     // closes it
	ended sync.WaitGroup
}

// Start starts the goroutine.
func (d *Decay) Start(within time.Duration) {
	d.stop = make(chan struct{})
	d.ended.Go(func() {
		tick := time.NewTicker(within / steps)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.look()
			case <-d.stop:
				return
			}
		}
	})
}

// Stop has the goroutine end, if it was started. It may be in a last call of Release.
func (d *Decay) Stop() {
	if d.stop != nil {
		d.once.Do(func() { close(d.stop) })
	}
}

// Wait waits for the goroutine, if it was stopped.
func (d *Decay) Wait() {
	select {
	case <-d.stop:
		d.ended.Wait()
	default:
	}
}

// look gives back what has been idle for long.
func (d *Decay) look() {
	d.window[d.at] = d.Idle()
	d.at = (d.at + 1) % steps
	unused := slices.Min(d.window[:])
	if unused <= 0 {
		return
	}
	released := d.Release(unused)
	for i := range d.window {
		d.window[i] -= released
	}
}
