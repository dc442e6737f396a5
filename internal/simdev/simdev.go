// Package simdev is a device for tests and for replaying traces. It has no
// memory behind it, so it can be of any size, and it is deterministic: the
// same calls give the same addresses. Every kind of call is counted, has a
// modelled cost, and can be made to fail. In manual mode nothing on a stream
// is done before the test says so.
//
// Files: simdev.go holds the Device and its memory, stream.go streams, events
// and the work on them, vmm.go virtual memory, call.go counts, costs and
// failures, address.go places ranges. The books of addresses and handles are
// those of the host device.
package simdev

import (
	"fmt"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/handles"
	"github.com/cupool/cupool/internal/hostdev/vspace"
)

// DefaultCapacity is the Capacity of a zero Config, in bytes.
const DefaultCapacity int64 = 80 << 30

// Config says which device to make. The zero Config is a good one.
type Config struct {
	// Capacity in bytes; 0 means DefaultCapacity.
	Capacity int64
	// Name is what Device.Name returns; "" means "sim".
	Name string
	// ManualEvents queues all work, until CompleteEvent, CompleteStream or
	// CompleteAll, or a call that waits on the host, runs it. Otherwise work
	// is done when it is submitted.
	ManualEvents bool
	// IdleEvents has an event be done at once, with ManualEvents, where its stream
	// has nothing queued, as on a GPU.
	IdleEvents bool
	// FreshAddresses never gives an address out twice. Otherwise the lowest
	// free range is reused at once, so that a stale pointer meets new memory.
	FreshAddresses bool
}

// A Device is one simulated device. All methods are safe from several
// goroutines. Functions given to Launch must not call the device.
//
// After Close every method with an error returns ErrClosed; after Lose, after
// a launched function panicked, and after queued work met memory that was
// given back before it ran, ErrDeviceLost.
type Device struct {
	cfg    Config
	mu     sync.Mutex // guards all below; the tables are locked again by themselves
	closed bool
	lost   error // nil, or what every call returns

	trouble bool // closed, lost, or some fault is armed
	faults  [NumCalls]fault
	tallies [NumCalls]tally

	addresses addresses
	space     vspace.Space
	used      int64 // bytes of allocations and of handles
	peak      int64 // the highest used

	stream0 stream
	streams handles.Table[stream]
	events  handles.Table[event]
}

// New makes a device. It panics for a negative capacity.
func New(cfg Config) *Device {
	if cfg.Capacity < 0 {
		panic(fmt.Sprintf("simdev: negative capacity %d", cfg.Capacity))
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = DefaultCapacity
	}
	if cfg.Name == "" {
		cfg.Name = "sim"
	}
	return &Device{cfg: cfg, addresses: newAddresses(cfg.FreshAddresses)}
}

// Name returns the name.
func (d *Device) Name() string { return d.cfg.Name }

// HostAccessible returns false: there is nothing to access.
func (d *Device) HostAccessible() bool { return false }

// MemAlloc takes size bytes of the capacity and returns their address, which
// is aligned to 2 MiB. It returns ErrOutOfMemory and, for a size that is not
// positive, ErrInvalidRange.
func (d *Device) MemAlloc(size int64) (device.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemAlloc); err != nil {
		return 0, err
	}
	if size <= 0 {
		return 0, wrap(MemAlloc, fmt.Errorf("%w: size %d is not positive", device.ErrInvalidRange, size))
	}
	if err := d.takeLocked(MemAlloc, size); err != nil {
		return 0, err
	}
	p, ok := d.addresses.take(size)
	if !ok {
		d.used -= size
		return 0, wrap(MemAlloc, fmt.Errorf("%w: no addresses left for %d bytes", device.ErrOutOfMemory, size))
	}
	d.space.AddAlloc(p, size)
	d.chargeLocked(MemAlloc, size, 1)
	return p, nil
}

// MemFree gives back what MemAlloc returned, after all queued work. It returns
// ErrInvalidRange for any other address.
func (d *Device) MemFree(p device.Ptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemFree); err != nil {
		return err
	}
	if start, _, ok := d.space.AllocOf(p); ok && start == p {
		if d.completeAllLocked(); d.lost != nil {
			return wrap(MemFree, d.lost)
		}
	}
	size, err := d.space.RemoveAlloc(p)
	if err != nil {
		return wrap(MemFree, err)
	}
	d.used -= size
	d.addresses.put(p, size)
	d.chargeLocked(MemFree, size, 1)
	return nil
}

// MemInfo returns the capacity that is not taken, and the capacity, in bytes.
func (d *Device) MemInfo() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemInfo); err != nil {
		return 0, 0, err
	}
	d.chargeLocked(MemInfo, 0, 1)
	return d.cfg.Capacity - d.used, d.cfg.Capacity, nil
}

// Stats counts what the device holds.
type Stats struct {
	Allocations, Streams, Events       int // Streams does not count stream 0
	Reservations, MemHandles, Mappings int
	UsedBytes, PeakBytes               int64 // of the capacity, now and at most
}

// Stats returns the present counts. It works after Close too, and then says
// what was leaked.
func (d *Device) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.space.Counts()
	return Stats{
		Allocations: c.Allocations, Reservations: c.Reservations, MemHandles: c.Handles, Mappings: c.Mappings,
		Streams: d.streams.Len(), Events: d.events.Len(),
		UsedBytes: d.used, PeakBytes: d.peak,
	}
}

// Close ends the device; queued work does not run. A second Close returns
// ErrClosed.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("simdev: Close: %w", device.ErrClosed)
	}
	d.closed, d.trouble = true, true
	return nil
}

// takeLocked takes size bytes of the capacity or returns ErrOutOfMemory.
func (d *Device) takeLocked(c Call, size int64) error {
	if free := d.cfg.Capacity - d.used; size > free {
		return wrap(c, fmt.Errorf("%w: %d bytes asked for, %d of %d free",
			device.ErrOutOfMemory, size, free, d.cfg.Capacity))
	}
	d.used += size
	d.peak = max(d.peak, d.used)
	return nil
}
