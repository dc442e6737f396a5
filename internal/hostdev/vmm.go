package hostdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
	"github.com/cupool/cupool/internal/hostdev/vspace"
)

// The virtual memory calls have the rules of CUDA's (cuMemAddressReserve,
// cuMemCreate, cuMemMap, …): sizes and addresses are multiples of
// VMMGranularity, a handle maps only as a whole but at any number of
// addresses, and physical memory lives until it is released and mapped
// nowhere. None of these calls waits for running work. Where the system
// cannot map the same pages twice they return ErrNotSupported.

// VMMGranularity returns the granularity of virtual memory in bytes, 2 MiB,
// or 0 where the calls below are not supported.
func (d *Device) VMMGranularity() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.phys == nil {
		return 0
	}
	return vspace.Granularity
}

// AddressReserve reserves size bytes of addresses, without memory behind
// them. It returns ErrInvalidRange for a size that is no multiple of the
// granularity and ErrOutOfMemory when the system has no addresses left.
func (d *Device) AddressReserve(size int64) (device.Ptr, error) {
	if err := d.lockVMM("AddressReserve"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if err := vspace.CheckSize(size); err != nil {
		return 0, d.failure("AddressReserve", err)
	}
	p, err := sysmem.Reserve(size)
	if err != nil {
		return 0, fmt.Errorf("hostdev: AddressReserve of %d bytes: %w: %w", size, device.ErrOutOfMemory, err)
	}
	d.space.AddReservation(p, size)
	return p, nil
}

// AddressFree gives back a reservation, which must be given exactly as
// AddressReserve made it and hold no mapping; else it returns ErrInvalidRange.
func (d *Device) AddressFree(p device.Ptr, size int64) error {
	if err := d.lockVMM("AddressFree"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.failure("AddressFree", d.space.RemoveReservation(p, size, func() error {
		return sysmem.Unreserve(p, size)
	}))
}

// MemCreate makes size bytes of physical memory, which count against the
// capacity, and returns their handle, never 0. It returns ErrOutOfMemory
// when they are not to be had and ErrInvalidRange for a size that is no
// multiple of the granularity.
func (d *Device) MemCreate(size int64) (uintptr, error) {
	if err := d.lockVMM("MemCreate"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if err := vspace.CheckSize(size); err != nil {
		return 0, d.failure("MemCreate", err)
	}
	if err := d.roomLocked("MemCreate", size); err != nil {
		return 0, err
	}
	off, err := d.createLocked(size)
	if err != nil {
		return 0, fmt.Errorf("hostdev: MemCreate of %d bytes: %w: %w", size, device.ErrOutOfMemory, err)
	}
	d.used += size
	return d.space.AddHandle(off, size), nil
}

// MemRelease gives a handle back. Its memory lives on until it is mapped
// nowhere. It returns ErrInvalidHandle for an unknown handle.
func (d *Device) MemRelease(handle uintptr) error {
	if err := d.lockVMM("MemRelease"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	mem, gone, err := d.space.Release(handle)
	if err == nil && gone {
		err = d.dropLocked(mem)
	}
	return d.failure("MemRelease", err)
}

// MemMap maps the whole of handle at p, inside one reservation, where nothing
// is mapped yet. The same handle may be mapped at several addresses. Access
// needs MemSetAccess. It returns ErrInvalidHandle and ErrInvalidRange.
func (d *Device) MemMap(p device.Ptr, size int64, handle uintptr) error {
	if err := d.lockVMM("MemMap"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.failure("MemMap", d.space.Map(p, size, handle, func(off int64) error {
		return d.mapAtLocked(p, size, off)
	}))
}

// MemSetAccess makes a range of whole mappings readable and writable. It
// returns ErrInvalidRange when the range is anything else.
func (d *Device) MemSetAccess(p device.Ptr, size int64) error {
	if err := d.lockVMM("MemSetAccess"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	_, err := d.space.SetAccess(p, size, func() error { return sysmem.Protect(p, size) })
	return d.failure("MemSetAccess", err)
}

// MemUnmap ends a range of whole mappings; the addresses stay reserved. It
// does not wait: work that still uses the range makes the device lost. It
// returns ErrInvalidRange when the range is anything else.
func (d *Device) MemUnmap(p device.Ptr, size int64) error {
	if err := d.lockVMM("MemUnmap"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	_, gone, err := d.space.Unmap(p, size, func() error { return d.phys.UnmapAt(p, size) })
	for _, mem := range gone {
		if e := d.dropLocked(mem); err == nil {
			err = e
		}
	}
	return d.failure("MemUnmap", err)
}

// dropLocked gives physical memory back to the capacity and to the system.
func (d *Device) dropLocked(mem vspace.Physical) error {
	d.used -= mem.Size
	if f, ok := d.share.handles[mem.Off]; ok {
		delete(d.share.handles, mem.Off)
		return f.Close()
	}
	return d.phys.Release(mem.Off, mem.Size)
}

// lockVMM takes mu when the device is usable and has virtual memory.
func (d *Device) lockVMM(op string) error {
	if err := d.usable(op); err != nil {
		return err
	}
	d.mu.Lock()
	if d.phys != nil {
		return nil
	}
	d.mu.Unlock()
	if err := d.usable(op); err != nil { // closed meanwhile
		return err
	}
	return fmt.Errorf("hostdev: %s: %w: no virtual memory on this system", op, device.ErrNotSupported)
}
