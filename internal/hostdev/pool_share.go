package hostdev

import (
	"encoding/binary"
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

// Pools in several processes: their memory is a file, which both map.

// ExportNativePool returns a file descriptor for other processes.
func (d *Device) ExportNativePool(h device.Pool) (fd int, err error) {
	err = d.withPool("ExportNativePool", h, func(p *pool) error {
		if p.file == nil || p.imported {
			return fmt.Errorf("hostdev: ExportNativePool: %w: the pool was not made shareable", device.ErrNotSupported)
		}
		fd, err = p.file.Dup()
		return err
	})
	return fd, err
}

// ImportNativePool makes a pool of another process known by its descriptor,
// which stays the caller's.
func (d *Device) ImportNativePool(fd int) (h device.Pool, err error) {
	const op = "ImportNativePool"
	err = d.withPool(op, 0, func(*pool) error {
		f, err := sysmem.OpenFile(fd)
		if err != nil {
			return fmt.Errorf("hostdev: %s: descriptor %d: %w", op, fd, err)
		}
		h = d.addPoolLocked(&pool{file: f, imported: true})
		return nil
	})
	return h, err
}

// pointerMagic begins every PoolPointer of a host device.
const pointerMagic = 0x6c6f6f70_74736f68 // "hostpool"

// ExportNativePointer describes an allocation of a shareable pool.
func (d *Device) ExportNativePointer(p device.Ptr) (data device.PoolPointer, err error) {
	const op = "ExportNativePointer"
	err = d.withPool(op, 0, func(*pool) error {
		b, ok := d.pools.live[p]
		if !ok || b.pool.file == nil || b.pool.imported {
			return fmt.Errorf("hostdev: %s: %w: %v is no allocation of a shareable pool", op, device.ErrInvalidRange, p)
		}
		for i, v := range []uint64{pointerMagic, uint64(b.off), uint64(b.size)} {
			binary.LittleEndian.PutUint64(data[8*i:], v)
		}
		return nil
	})
	return data, err
}

// ImportNativePointer maps an allocation of a pool that was imported.
func (d *Device) ImportNativePointer(h device.Pool, data device.PoolPointer) (at device.Ptr, err error) {
	const op = "ImportNativePointer"
	err = d.withPool(op, h, func(p *pool) error {
		b := pooled{pool: p, off: int64(binary.LittleEndian.Uint64(data[8:])), size: int64(binary.LittleEndian.Uint64(data[16:]))}
		if !p.imported || binary.LittleEndian.Uint64(data[:]) != pointerMagic || b.size <= 0 || b.off < 0 || b.size%sysmem.PageSize != 0 || b.off%sysmem.PageSize != 0 {
			return fmt.Errorf("hostdev: %s: %w: not a pointer for this pool", op, device.ErrInvalidRange)
		}
		if at, err = p.file.MapNew(b.off, b.size); err != nil {
			return fmt.Errorf("hostdev: %s: %w", op, err)
		}
		d.space.AddAlloc(at, b.size)
		d.pools.live[at] = b
		p.raise(device.PoolReservedCurrent, b.size)
		p.raise(device.PoolUsedCurrent, b.size)
		return nil
	})
	return at, err
}

// NativePointerSize returns how many bytes a live allocation of a pool has, in
// whole pages, and 0 where p is the address of none. native.Allocator asks it
// when another process says how large its block is.
func (d *Device) NativePointerSize(p device.Ptr) int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.pools.live[p].size
}
