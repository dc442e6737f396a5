package cupool

import (
	"sync"
	"sync/atomic"
	"time"
)

// Memory pressure, for blocks that Go's garbage collector gives back
// (lifetime.go): it does not know that a device is filling up. When to run it
// is CUDA.jl's rule: beyond three quarters of the memory, for a twentieth of
// the time, twice that if the last run was worth it, and twice that again the
// nearer the end is.
const (
	pressureFrom   = 0.75
	pressureBudget = 0.05
	pressureWorth  = 0.1 // of the memory, that a run gave back
	pressureFresh  = 10 * time.Second
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

// pressure decides whether a miss runs the collector before it grows.
type pressure struct {
	on   atomic.Bool
	runs atomic.Uint64 // of the collector, by any member

	mu       sync.Mutex // taken first of all locks, by the one that collects
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
func (p *pressure) hopeful(now time.Time) bool {
	if forgiven := vainBudget * now.Sub(p.vainAt).Seconds() / p.vainTook.Seconds(); p.vain > 0 {
		p.vain, p.vainAt = max(p.vain-forgiven, 0), now
	}
	return p.on.Load() || p.vain <= vainRuns-1
}

// noteRefused remembers a run for a request that would be refused, which ended
// at a time, took some and gave so many blocks back.
func (p *pressure) noteRefused(at time.Time, took time.Duration, freed int) {
	if p.vain++; freed > 0 {
		p.vain = 0
	}
	p.vainAt, p.vainTook = at, max(took, 1)
}

// due reports whether it is time to collect, with so many bytes in use.
func (p *pressure) due(now time.Time, used int64) bool {
	full := float64(used) / float64(max(p.size, 1))
	if full < pressureFrom {
		return false
	}
	budget := pressureBudget
	for _, more := range []bool{float64(p.lastFree) > pressureWorth*float64(p.size), full > 0.9, full > 0.95} {
		if more {
			budget *= 2
		}
	}
	return p.lastAt.IsZero() || p.lastTook.Seconds() <= budget*now.Sub(p.lastAt).Seconds()
}

// note remembers a run that began at a time, took some and freed bytes.
func (p *pressure) note(at time.Time, took time.Duration, freed int64) {
	if p.lastAt.IsZero() {
		p.lastTook = took
	}
	p.lastTook = (3*p.lastTook + took) / 4
	p.lastAt, p.lastFree = at, freed
}

// relieve runs Go's collector when the device fills up and tensors have
// lifetimes, before the device is asked for more.
func (c *Caching) relieve(r request) (bool, error) {
	p := &c.family.root.pressure
	if !p.on.Load() || !p.mu.TryLock() {
		return false, nil
	}
	defer p.mu.Unlock()
	start, reserved := time.Now(), c.family.reservedNow()
	if start.Sub(p.sizedAt) > pressureFresh {
		size, err := c.obtainable(reserved)
		if err != nil {
			return false, err
		}
		p.size, p.sizedAt = size, start
	}
	if !p.due(start, reserved+r.rounded) {
		return false, nil
	}
	before := c.Stats().LiveBytes
	freed := c.runCollector()
	p.note(start, time.Since(start), before-c.Stats().LiveBytes)
	return freed > 0, nil
}

// reservedNow returns the bytes held from the device by all members.
func (f *family) reservedNow() (sum int64) {
	for _, c := range f.list() {
		sum += c.reserved.Load()
	}
	return sum
}

// obtainable returns how many bytes the allocator can have: its limit, or what
// it holds and the device has left.
func (c *Caching) obtainable(reserved int64) (int64, error) {
	free, _, err := c.Driver().MemInfo()
	if err != nil {
		return 0, c.driverError(err)
	}
	return min(c.family.root.limit, reserved+free), nil
}
