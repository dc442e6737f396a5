// Package gcpressure decides when Go's garbage collector runs for the sake of
// device memory. Tensors that nobody has any more give their blocks back only
// when the collector has found them, and the collector does not know that a
// device is filling up.
package gcpressure

import (
	"sync"
	"sync/atomic"
	"time"
)

// When to run it is CUDA.jl's rule: beyond three quarters of the memory, for a twentieth of
// the time, twice that if the last run was worth it, and twice that again the
// nearer the end is.
const (
	from       = 0.75
	timeBudget = 0.05
	worth      = 0.1 // of the memory, that a run gave back
	fresh      = 10 * time.Second
)

// A request that would be refused runs the collector too, which takes
// milliseconds and is in vain where nothing was dropped. A program may be
// refused thousands of times a second: after vainRuns runs in vain, these take
// no more than vainBudget of the time. So one that drops something and asks
// again is heard at once, unless it has just been refused many times.
const (
	vainRuns   = 8
	vainBudget = 0.1
)

// Memory is what Relieve asks about memory.
type Memory struct {
	Held       func() int64                    // bytes held from the device
	Obtainable func(held int64) (int64, error) // bytes that can be, with so many held
	InUse      func() int64                    // bytes
	Drain      func() int                      // frees what cleanups gave back, and counts the blocks
}

// Pressure decides whether a miss runs the collector before it grows.
type Pressure struct {
	On   atomic.Bool   // tensors have lifetimes
	runs atomic.Uint64 // of the collector, by any pool

	mu       sync.Mutex // held by the goroutine that collects
	size     int64      // bytes that there are to have, as of sizedAt
	sizedAt  time.Time
	lastAt   time.Time
	lastTook time.Duration // smoothed
	lastFree int64         // bytes that the last run gave back

	vain     float64 // runs for refused requests that gave nothing back, less those that time has forgiven
	vainAt   time.Time
	vainTook time.Duration // the last of them
}

// hopeful reports whether it is time to collect for a request that would be
// refused. Where tensors have lifetimes it always is.
func (p *Pressure) hopeful(now time.Time) bool {
	if forgiven := vainBudget * now.Sub(p.vainAt).Seconds() / p.vainTook.Seconds(); p.vain > 0 {
		p.vain, p.vainAt = max(p.vain-forgiven, 0), now
	}
	return p.On.Load() || p.vain <= vainRuns-1
}

// noteRefused remembers a run for a request that would be refused, which ended
// at a time, took some and gave so many blocks back.
func (p *Pressure) noteRefused(at time.Time, took time.Duration, freed int) {
	if p.vain++; freed > 0 {
		p.vain = 0
	}
	p.vainAt, p.vainTook = at, max(took, 1)
}

// due reports whether it is time to collect, with so many bytes in use.
func (p *Pressure) due(now time.Time, used int64) bool {
	full := float64(used) / float64(max(p.size, 1))
	if full < from {
		return false
	}
	budget := timeBudget
	for _, more := range []bool{float64(p.lastFree) > worth*float64(p.size), full > 0.9, full > 0.95} {
		if more {
			budget *= 2
		}
	}
	return p.lastAt.IsZero() || p.lastTook.Seconds() <= budget*now.Sub(p.lastAt).Seconds()
}

// note remembers a run that began at a time, took some and freed bytes.
func (p *Pressure) note(at time.Time, took time.Duration, freed int64) {
	if p.lastAt.IsZero() {
		p.lastTook = took
	}
	p.lastTook = (3*p.lastTook + took) / 4
	p.lastAt, p.lastFree = at, freed
}
