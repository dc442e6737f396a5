// Package hostdev is the embedded default device: the computer itself, made
// to behave like a GPU. Memory is real and outside Go's heap, streams run
// what is submitted to them asynchronously and in order, events are real, and
// on Linux the same physical pages can be mapped at several addresses, as
// CUDA's virtual memory calls do.
//
// Files: device.go has the Device and its memory, stream.go the streams,
// copies.go what is submitted to them, job.go what they run, event.go the
// events, peers.go what devices do together, vmm.go virtual memory, sharing.go
// memory of several processes, pool*.go stream-ordered pools, state.go what all
// of these ask of the Device. Package sysmem talks to the operating system,
// vspace keeps the books of addresses, and handles names streams and events.
package hostdev

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/hostdev/handles"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
	"github.com/cupool/cupool/internal/hostdev/vspace"
	"github.com/cupool/cupool/internal/leaks"
)

// DefaultCapacity is the Capacity of a zero Config, in bytes.
const DefaultCapacity int64 = 16 << 30

// Config says which device to open. The zero Config is a good one.
type Config struct {
	// Capacity is the most memory that may be allocated at once, in bytes;
	// 0 means DefaultCapacity. It is address space until it is touched, so it
	// may exceed the computer's memory.
	Capacity int64
	// Name is what Device.Name returns; "" means "host (16 GiB)" with the
	// capacity.
	Name string
	// Shareable makes memory that other processes can map: a file in memory for
	// each allocation and each handle of virtual memory. It takes Linux.
	Shareable bool
}

// A Device is one host device. All methods are safe from several goroutines,
// on any OS thread. None may be called from a function given to Launch, as
// CUDA forbids it too: some wait for the stream that the function holds up.
//
// After Close every method with an error returns ErrClosed, and after a
// launched function panicked or a job touched memory that is no longer there,
// ErrDeviceLost with the reason.
//
// Lock order: mu, then a stream's; an event's or a table's lock is held
// around no other.
type Device struct {
	name     string
	capacity int64 // bytes
	lost     atomic.Pointer[error]
	closed   atomic.Bool
	workers  sync.WaitGroup

	mu    sync.RWMutex // guards space, used, phys and pools
	space vspace.Space
	used  int64        // bytes of capacity taken: allocations and handles
	phys  *sysmem.File // nil: no virtual memory here
	pools pools
	share sharing

	pooling atomic.Bool // there are pools

	streams handles.Table[stream] // without stream 0
	stream0 *stream
	events  handles.Table[event]

	peers sync.Map // of *Device: those whose memory its work may touch
}

// Open opens a host device. It returns an error for a negative capacity, and
// ErrNotSupported where memory outside Go's heap is not to be had.
func Open(cfg Config) (*Device, error) {
	if cfg.Capacity < 0 {
		return nil, fmt.Errorf("hostdev: negative capacity %d", cfg.Capacity)
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = DefaultCapacity
	}
	if cfg.Name == "" {
		cfg.Name = "host (" + bytesize.Format(cfg.Capacity) + ")"
	}
	if !sysmem.Supported {
		return nil, fmt.Errorf("hostdev: %w: no memory outside Go's heap on this system", device.ErrNotSupported)
	}
	d := &Device{name: cfg.Name, capacity: cfg.Capacity, share: newSharing(cfg.Shareable)}
	d.stream0 = newStream(d)
	// Without physical memory to map, the device is whole but for the VMM
	// calls, and VMMGranularity says so.
	var err error
	if d.phys, err = sysmem.NewFile(); err != nil && cfg.Shareable {
		return nil, fmt.Errorf("hostdev: %w: no memory that processes can share on this system", device.ErrNotSupported)
	}
	opened.add(d)
	return d, nil
}

// Name returns the name, by default "host" and the capacity.
func (d *Device) Name() string { return d.name }

// HostAccessible returns true: this device's memory is the program's own.
func (d *Device) HostAccessible() bool { return true }

// MemAlloc reserves size bytes, zeroed, aligned to a page at least and to
// 2 MiB when size is 2 MiB or more. The capacity is charged in whole pages.
// It returns ErrOutOfMemory when the capacity, or the system, has not that
// much left, and ErrInvalidRange for a size that is not positive.
func (d *Device) MemAlloc(size int64) (device.Ptr, error) {
	if err := d.usable("MemAlloc"); err != nil {
		return 0, err
	}
	if size <= 0 {
		return 0, fmt.Errorf("hostdev: MemAlloc: %w: size %d is not positive", device.ErrInvalidRange, size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.roomLocked("MemAlloc", size); err != nil {
		return 0, err
	}
	charge := roundPage(size)
	p, err := d.allocLocked(charge)
	if err != nil {
		return 0, fmt.Errorf("hostdev: MemAlloc of %d bytes: %w: %w", size, device.ErrOutOfMemory, err)
	}
	d.space.AddAlloc(p, size)
	d.used += charge
	return p, nil
}

// MemFree waits for all work on the device, then gives back what MemAlloc
// returned. It returns ErrInvalidRange for any other address.
func (d *Device) MemFree(p device.Ptr) error {
	if err := d.usable("MemFree"); err != nil {
		return err
	}
	d.mu.Lock()
	size, err := d.removeLocked(p)
	if err == nil {
		d.share.forget(p)
	}
	d.mu.Unlock()
	if err != nil {
		return d.failure("MemFree", err)
	}
	// From here on no new job can name the range, and once the queued ones
	// are done none can touch it.
	d.syncAll()
	err = sysmem.Free(p, roundPage(size))
	d.giveBack(roundPage(size))
	if err != nil {
		return fmt.Errorf("hostdev: MemFree of %d bytes at %v: %w", size, p, err)
	}
	return d.usable("MemFree")
}

// removeLocked forgets an allocation, unless it is a pool's.
func (d *Device) removeLocked(p device.Ptr) (int64, error) {
	if _, ok := d.pools.live[p]; ok {
		return 0, fmt.Errorf("%w: %v is a pool's, for FreeAsync", device.ErrInvalidRange, p)
	}
	if d.share.isBase(p) {
		return 0, fmt.Errorf("%w: %v is another process's memory, for CloseRange", device.ErrInvalidRange, p)
	}
	return d.space.RemoveAlloc(p)
}

// MemInfo returns the capacity that is not taken, and the capacity, in bytes.
func (d *Device) MemInfo() (free, total int64, err error) {
	if err := d.usable("MemInfo"); err != nil {
		return 0, 0, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.capacity - d.used, d.capacity, nil
}

// Stats counts what the device holds, for tests and reports.
type Stats struct {
	Allocations, Streams, Events       int // Streams does not count stream 0
	Reservations, MemHandles, Mappings int
	UsedBytes                          int64 // of the capacity
}

// Stats returns the present counts. It works after Close too.
func (d *Device) Stats() Stats {
	d.mu.RLock()
	defer d.mu.RUnlock()
	c := d.space.Counts()
	return Stats{
		Allocations: c.Allocations, Reservations: c.Reservations, MemHandles: c.Handles, Mappings: c.Mappings,
		Streams: d.streams.Len(), Events: d.events.Len(),
		UsedBytes: d.used,
	}
}

// Held returns what the device holds. It works after Close too.
func (d *Device) Held() leaks.Held {
	d.mu.RLock()
	defer d.mu.RUnlock()
	h := leaks.Held{Streams: d.streams.Len(), Events: d.events.Len()}
	count := func(_ device.Ptr, size int64) {
		h.Ranges++
		h.RangeBytes += size
	}
	d.space.EachAlloc(count)
	d.space.EachReservation(count)
	return h
}

// Close waits for all submitted work and gives back all memory, also what
// was not freed. A second Close returns ErrClosed; other errors are the
// system's, and the device is closed all the same.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return fmt.Errorf("hostdev: Close: %w", device.ErrClosed)
	}
	d.syncAll()
	d.workers.Wait()
	opened.remove(d)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closePoolsLocked()
	var errs []error
	d.space.EachAlloc(func(p device.Ptr, size int64) {
		errs = append(errs, sysmem.Free(p, roundPage(size)))
	})
	d.space.EachReservation(func(p device.Ptr, size int64) {
		errs = append(errs, sysmem.Unreserve(p, size))
	})
	if d.phys != nil {
		errs = append(errs, d.phys.Close())
	}
	errs = append(errs, d.share.close())
	d.space, d.used, d.phys = vspace.Space{}, 0, nil
	d.streams.Clear()
	d.events.Clear()
	return errors.Join(errs...)
}
