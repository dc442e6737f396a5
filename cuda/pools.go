package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// AllocAsync implements NativePools.
func (d *driver) AllocAsync(size int64, pool NativePool, s StreamHandle) (Ptr, error) {
	if err := d.on(s); err != nil {
		return 0, err
	}
	if size <= 0 {
		return 0, fmt.Errorf("cupool: %s: AllocAsync: %w: size %d", d.label, device.ErrInvalidRange, size)
	}
	p, r := cudadrv.AllocAsync(d.ctx.handle, uintptr(pool), size, uintptr(s))
	if r != cudadrv.Success {
		call := "cuMemAllocFromPoolAsync"
		if pool == 0 {
			call = "cuMemAllocAsync"
		}
		return 0, d.ctx.fail(call, r, fmt.Sprintf("%d bytes, pool 0x%x, %s", size, uintptr(pool), stream(s)))
	}
	return Ptr(p), nil
}

// FreeAsync implements NativePools.
func (d *driver) FreeAsync(p Ptr, s StreamHandle) error {
	if err := d.on(s); err != nil {
		return err
	}
	if r := cudadrv.FreeAsync(d.ctx.handle, uintptr(p), uintptr(s)); r != cudadrv.Success {
		return d.ctx.failRange("cuMemFreeAsync", r, fmt.Sprintf("%v, %s", p, stream(s)))
	}
	return nil
}

// DefaultNativePool implements NativePools.
func (d *driver) DefaultNativePool() (NativePool, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.DefaultPool(d.ctx.handle, d.ctx.device)
	return NativePool(p), d.poolError("cuDeviceGetDefaultMemPool", r, 0)
}

// CurrentNativePool implements NativePools.
func (d *driver) CurrentNativePool() (NativePool, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.CurrentPool(d.ctx.handle, d.ctx.device)
	return NativePool(p), d.poolError("cuDeviceGetMemPool", r, 0)
}

// SetCurrentNativePool implements NativePools.
func (d *driver) SetCurrentNativePool(pool NativePool) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.poolError("cuDeviceSetMemPool", cudadrv.SetCurrentPool(d.ctx.handle, d.ctx.device, uintptr(pool)), pool)
}

// NewNativePool implements NativePools.
func (d *driver) NewNativePool(cfg NativePoolConfig) (NativePool, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if cfg.Win32 {
		return 0, fmt.Errorf("cupool: %s: NewNativePool: Win32 handles are Windows': %w", d.label, device.ErrNotSupported)
	}
	handles := cudadrv.HandleNone
	if cfg.Shareable {
		handles = cudadrv.HandleFD
	}
	at := cfg.Location
	if at == (Location{}) {
		at = Location{Kind: OnDevice, ID: d.ctx.device}
	}
	p, r := cudadrv.PoolCreate(d.ctx.handle, cfg.Managed, int(at.Kind), at.ID, handles, cfg.MaxSize)
	if r != cudadrv.Success {
		return 0, d.poolError("cuMemPoolCreate", r, 0)
	}
	if at.Kind != OnDevice { // whose memory the device may not use by itself
		if r = cudadrv.PoolSetAccess(d.ctx.handle, p, d.ctx.device, int(ReadWriteAccess)); r != cudadrv.Success {
			_ = cudadrv.PoolDestroy(d.ctx.handle, p)
			return 0, d.poolError("cuMemPoolSetAccess", r, 0)
		}
	}
	d.pools.put(p, struct{}{})
	return NativePool(p), nil
}

// DestroyNativePool implements NativePools. It fails with ErrInvalidHandle
// for a pool that this Driver did not make.
func (d *driver) DestroyNativePool(pool NativePool) error {
	if err := d.usable(); err != nil {
		return err
	}
	if _, ok := d.pools.take(uintptr(pool)); !ok {
		return fmt.Errorf("cupool: %s: DestroyNativePool: %w: this Driver did not make pool 0x%x, or destroyed it before", d.label, device.ErrInvalidHandle, uintptr(pool))
	}
	r := cudadrv.PoolDestroy(d.ctx.handle, uintptr(pool))
	if r != cudadrv.Success {
		d.pools.put(uintptr(pool), struct{}{})
	}
	return d.poolError("cuMemPoolDestroy", r, pool)
}

// TrimNativePool implements NativePools.
func (d *driver) TrimNativePool(pool NativePool, keep int64) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.poolError("cuMemPoolTrimTo", cudadrv.PoolTrim(d.ctx.handle, uintptr(pool), keep), pool)
}

// NativePoolAttribute implements NativePools.
func (d *driver) NativePoolAttribute(pool NativePool, a NativePoolAttribute) (uint64, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	v, r := cudadrv.PoolAttr(d.ctx.handle, uintptr(pool), int(a))
	return v, d.poolError("cuMemPoolGetAttribute", r, pool)
}

// SetNativePoolAttribute implements NativePools.
func (d *driver) SetNativePoolAttribute(pool NativePool, a NativePoolAttribute, v uint64) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.poolError("cuMemPoolSetAttribute", cudadrv.PoolSetAttr(d.ctx.handle, uintptr(pool), int(a), v), pool)
}

// NativePoolAccess implements NativePools.
func (d *driver) NativePoolAccess(pool NativePool, ordinal int) (Access, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	a, r := cudadrv.PoolAccess(d.ctx.handle, uintptr(pool), ordinal)
	return Access(a), d.poolError("cuMemPoolGetAccess", r, pool)
}

// SetNativePoolAccess implements NativePools.
func (d *driver) SetNativePoolAccess(pool NativePool, ordinal int, a Access) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.poolError("cuMemPoolSetAccess", cudadrv.PoolSetAccess(d.ctx.handle, uintptr(pool), ordinal, int(a)), pool)
}

// ExportNativePool implements NativePools.
func (d *driver) ExportNativePool(pool NativePool) (fd int, err error) {
	if err := d.usable(); err != nil {
		return -1, err
	}
	fd, r := cudadrv.PoolExportFD(d.ctx.handle, uintptr(pool))
	return fd, d.poolError("cuMemPoolExportToShareableHandle", r, pool)
}

// ImportNativePool implements NativePools.
func (d *driver) ImportNativePool(fd int) (NativePool, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.PoolImportFD(d.ctx.handle, fd)
	if r == cudadrv.Success {
		d.pools.put(p, struct{}{})
	}
	return NativePool(p), d.poolError("cuMemPoolImportFromShareableHandle", r, 0)
}

// ExportNativePointer implements NativePools.
func (d *driver) ExportNativePointer(p Ptr) (PoolPointer, error) {
	if err := d.usable(); err != nil {
		return PoolPointer{}, err
	}
	data, r := cudadrv.PoolExportPointer(d.ctx.handle, uintptr(p))
	if r != cudadrv.Success {
		return PoolPointer{}, d.ctx.failRange("cuMemPoolExportPointer", r, p.String())
	}
	return PoolPointer(data), nil
}

// ImportNativePointer implements NativePools.
func (d *driver) ImportNativePointer(pool NativePool, data PoolPointer) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.PoolImportPointer(d.ctx.handle, uintptr(pool), cudadrv.PointerExport(data))
	return Ptr(p), d.poolError("cuMemPoolImportPointer", r, pool)
}

func (d *driver) poolError(call string, r cudadrv.Result, pool NativePool) error {
	if r == cudadrv.Success {
		return nil
	}
	detail := ""
	if pool != 0 {
		detail = fmt.Sprintf("pool 0x%x", uintptr(pool))
	}
	return d.ctx.fail(call, r, detail)
}
