// Package budget counts what pools hold from a device against their limits, and
// tells what went back.
package budget

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/lock"
)

// A Device is what all pools of a device have in common. It is safe for use from
// several goroutines.
type Device struct {
	Limit   int64         // bytes, MaxInt64 without one
	Returns atomic.Uint64 // times that memory went back to the device

	mu      lock.Mutex
	held    int64 // bytes held from the device by all pools
	ceiling int64 // see SetCeiling
}

// SetCeiling bounds the bytes held beside Limit; 0 ends that. More may be held by then.
func (d *Device) SetCeiling(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ceiling = bytes
}

// Bound returns the bytes that may be held, MaxInt64 without a limit.
func (d *Device) Bound() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boundLocked()
}

func (d *Device) boundLocked() int64 {
	if d.ceiling > 0 {
		return min(d.Limit, d.ceiling)
	}
	return d.Limit
}

// Held returns the bytes held from the device by all pools.
func (d *Device) Held() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held
}

// Check verifies C6, for all pools that hold memory.
func (d *Device) Check(pools []*Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := int64(0)
	for _, p := range pools {
		sum += p.Held()
	}
	if sum != d.held {
		return fmt.Errorf("C6: %d bytes are counted against the limit of all pools, the pools hold %d", d.held, sum)
	}
	return nil
}

// A Pool counts a pool's memory against its limit and that of the device. It is
// safe for use from several goroutines.
type Pool struct {
	Device *Device
	Limit  int64        // bytes, MaxInt64 without one
	Lock   *ReclaimLock // that tells what went back

	Soft      atomic.Int64 // bytes held above which idle memory is used before the pool grows; 0: none
	Threshold atomic.Int64 // the same for Config.GarbageCollectionThreshold; the smaller of both applies

	held atomic.Int64 // bytes held from the device
	most atomic.Int64 // that were ever held
}

// Held returns the bytes held from the device.
func (p *Pool) Held() int64 { return p.held.Load() }

// Most returns the most bytes that were ever held.
func (p *Pool) Most() int64 { return p.most.Load() }

// soft returns what holds of Soft and Threshold, or 0.
func (p *Pool) soft() int64 {
	soft, threshold := p.Soft.Load(), p.Threshold.Load()
	if threshold > 0 && (soft == 0 || threshold < soft) {
		return threshold
	}
	return soft
}

// Pressed reports whether size bytes more would exceed the soft limit.
func (p *Pool) Pressed(size int64) bool {
	soft := p.soft()
	return soft > 0 && p.Held()+size > soft
}

// Sufficient returns the reserve, in bytes, beyond which idle memory is used or given back
// first: the most that was ever held, at least floor, and at most the soft limit.
func (p *Pool) Sufficient(floor int64) int64 {
	n := max(p.Most(), floor)
	if soft := p.soft(); soft > 0 {
		n = min(n, soft)
	}
	return n
}

// Take counts bytes against both limits. A request that is refused never counts,
// not even for a moment, so that no other is refused for its sake.
func (p *Pool) Take(size int64) error {
	d := p.Device
	d.mu.Lock()
	defer d.mu.Unlock()
	if held := p.held.Load(); size > p.Limit-held {
		return fmt.Errorf("%w: %d more bytes would exceed the limit of %d with %d reserved", device.ErrOutOfMemory, size, p.Limit, held)
	}
	if bound := d.boundLocked(); size > bound-d.held {
		return fmt.Errorf("%w: %d more bytes would exceed the limit of %d with %d reserved by the allocator and its pools", device.ErrOutOfMemory, size, bound, d.held)
	}
	d.held += size
	p.held.Add(size)
	return nil
}

// Cancel is the opposite of Take.
func (p *Pool) Cancel(size int64) {
	p.Device.mu.Lock()
	defer p.Device.mu.Unlock()
	p.Device.held -= size
	p.held.Add(-size)
}

// Keep keeps the highest value that Held has had.
func (p *Pool) Keep() {
	for held := p.held.Load(); ; {
		most := p.most.Load()
		if held <= most || p.most.CompareAndSwap(most, held) {
			return
		}
	}
}

// Return counts bytes that went back to the device.
func (p *Pool) Return(size int64) {
	p.Cancel(size)
	p.Device.Returns.Add(1)
	p.Lock.released.Add(size)
}

// Room returns the bytes that the limits leave, math.MaxInt64 without one, and
// what the other pools of the device hold.
func (p *Pool) Room() (room, others int64) {
	d := p.Device
	d.mu.Lock()
	defer d.mu.Unlock()
	room = math.MaxInt64
	if own := p.held.Load(); p.Limit != math.MaxInt64 {
		room = p.Limit - own
	}
	if bound := d.boundLocked(); bound != math.MaxInt64 {
		room = min(room, bound-d.held)
	}
	return room, d.held - p.held.Load()
}

// Beyond returns the bytes that are held beyond the limits, which SetCeiling may have lowered.
func (p *Pool) Beyond() int64 {
	room, _ := p.Room()
	return max(-room, 0)
}

// Bound returns the bytes that the pool may hold, MaxInt64 without a limit.
func (p *Pool) Bound() int64 { return min(p.Limit, p.Device.Bound()) }

// Printed returns the limit as statistics and errors have it: 0 for none.
func (p *Pool) Printed() int64 {
	d := p.Device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ceiling > 0:
		return min(p.Limit, d.boundLocked())
	case p.Limit == math.MaxInt64:
		return 0
	}
	return p.Limit
}

// Miscount counts bytes of a pool, or of the device where of is nil, that are not
// there, for tests of what checks the books.
func Miscount(of *Pool, d *Device, n int64) {
	if of != nil {
		of.held.Add(n)
	} else {
		d.held += n
	}
}

// ReclaimLock is the lock under which memory is taken away from heaps. NewReclaimLock
// makes one.
type ReclaimLock struct {
	lock.Chan
	tell     func(released int64) // or nil
	released atomic.Int64         // memory also goes back without the lock, when moving it fails
}

// NewReclaimLock returns the lock of the pool with a number. It calls tell, which may be nil,
// for what went back to the device while it was held.
func NewReclaimLock(pool uint64, tell func(released int64)) *ReclaimLock {
	l := &ReclaimLock{tell: tell}
	l.Init(lock.Reclaim, pool)
	return l
}

// Unlock gives the lock back and tells what went back to the device.
func (l *ReclaimLock) Unlock() {
	l.Chan.Unlock()
	l.Report()
}

// UnlockUntold is Unlock that leaves it to the caller to Report.
func (l *ReclaimLock) UnlockUntold() { l.Chan.Unlock() }

// Report tells what went back since it was last called; no locks are held.
func (l *ReclaimLock) Report() {
	if n := l.released.Swap(0); n > 0 && l.tell != nil {
		l.tell(n)
	}
}
