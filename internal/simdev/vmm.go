package simdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/vspace"
)

// VMMGranularity returns the granularity of virtual memory in bytes, 2 MiB.
func (d *Device) VMMGranularity() int64 { return vspace.Granularity }

// AddressReserve reserves size bytes of addresses. It returns ErrInvalidRange
// for a size that is no multiple of the granularity.
func (d *Device) AddressReserve(size int64) (device.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(AddressReserve); err != nil {
		return 0, err
	}
	if err := vspace.CheckSize(size); err != nil {
		return 0, wrap(AddressReserve, err)
	}
	p, ok := d.addresses.take(size)
	if !ok {
		return 0, wrap(AddressReserve, fmt.Errorf("%w: no addresses left for %d bytes", device.ErrOutOfMemory, size))
	}
	d.space.AddReservation(p, size)
	d.chargeLocked(AddressReserve, size, 1)
	return p, nil
}

// AddressFree gives back a reservation, which must be given exactly as
// AddressReserve made it and hold no mapping; else it returns ErrInvalidRange.
func (d *Device) AddressFree(p device.Ptr, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(AddressFree); err != nil {
		return err
	}
	if err := d.space.RemoveReservation(p, size, nil); err != nil {
		return wrap(AddressFree, err)
	}
	d.addresses.put(p, size)
	d.chargeLocked(AddressFree, size, 1)
	return nil
}

// MemCreate makes size bytes of physical memory, which count against the
// capacity, and returns their handle, never 0. It returns ErrOutOfMemory, and
// ErrInvalidRange for a size that is no multiple of the granularity.
func (d *Device) MemCreate(size int64) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemCreate); err != nil {
		return 0, err
	}
	if err := vspace.CheckSize(size); err != nil {
		return 0, wrap(MemCreate, err)
	}
	if err := d.takeLocked(MemCreate, size); err != nil {
		return 0, err
	}
	d.chargeLocked(MemCreate, size, 1)
	return d.space.AddHandle(0, size), nil
}

// MemRelease gives a handle back. Its memory lives on until it is mapped
// nowhere. It returns ErrInvalidHandle for an unknown handle.
func (d *Device) MemRelease(handle uintptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemRelease); err != nil {
		return err
	}
	mem, gone, err := d.space.Release(handle)
	if err != nil {
		return wrap(MemRelease, err)
	}
	if gone {
		d.used -= mem.Size
	}
	d.chargeLocked(MemRelease, mem.Size, 1)
	return nil
}

// MemMap maps the whole of handle at p, inside one reservation, where nothing
// is mapped yet; any number of addresses may show the same handle. It returns
// ErrInvalidHandle and ErrInvalidRange.
func (d *Device) MemMap(p device.Ptr, size int64, handle uintptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemMap); err != nil {
		return err
	}
	if err := d.space.Map(p, size, handle, nil); err != nil {
		return wrap(MemMap, err)
	}
	d.chargeLocked(MemMap, size, 1)
	return nil
}

// MemSetAccess makes a range of whole mappings usable. It returns
// ErrInvalidRange when the range is anything else.
func (d *Device) MemSetAccess(p device.Ptr, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemSetAccess); err != nil {
		return err
	}
	n, err := d.space.SetAccess(p, size, nil)
	if err != nil {
		return wrap(MemSetAccess, err)
	}
	d.chargeLocked(MemSetAccess, size, n)
	return nil
}

// MemUnmap ends a range of whole mappings, without waiting: queued work that
// uses the range makes the device lost when it runs. It returns
// ErrInvalidRange when the range is anything else.
func (d *Device) MemUnmap(p device.Ptr, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.beginLocked(MemUnmap); err != nil {
		return err
	}
	n, gone, err := d.space.Unmap(p, size, nil)
	if err != nil {
		return wrap(MemUnmap, err)
	}
	for _, mem := range gone {
		d.used -= mem.Size
	}
	d.chargeLocked(MemUnmap, size, n)
	return nil
}
