package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// HostAlloc implements HostMemory.
func (d *driver) HostAlloc(size int64) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if size <= 0 {
		return 0, fmt.Errorf("cupool: %s: HostAlloc: %w: size %d", d.label, device.ErrInvalidRange, size)
	}
	if err := pinnable(size); err != nil {
		return 0, err
	}
	p, r := cudadrv.HostAlloc(d.ctx.handle, size)
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuMemHostAlloc", r, fmt.Sprintf("%d bytes", size))
	}
	d.ctx.memory.add(span{start: Ptr(p), size: size, kind: spanPinned, owner: d.id})
	return Ptr(p), nil
}

// HostFree implements HostMemory.
func (d *driver) HostFree(p Ptr) error { return d.free("HostFree", p, spanPinned) }

// HostRegister implements HostMemory.
func (d *driver) HostRegister(b []byte) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, fmt.Errorf("cupool: %s: HostRegister: %w: no bytes", d.label, device.ErrInvalidRange)
	}
	var pinner runtime.Pinner
	pinner.Pin(unsafe.SliceData(b))
	d.pinned.mu.Lock()
	defer d.pinned.mu.Unlock()
	p, r := cudadrv.HostRegister(d.ctx.handle, b)
	if r != cudadrv.Success {
		pinner.Unpin()
		return 0, d.ctx.failRange("cuMemHostRegister", r, fmt.Sprintf("%d bytes at %p", len(b), b))
	}
	if d.pinned.m == nil {
		d.pinned.m = make(map[*byte]registration)
	}
	d.pinned.m[unsafe.SliceData(b)] = registration{b, &pinner}
	return Ptr(p), nil
}

// HostUnregister implements HostMemory. b is exactly the slice that was registered.
func (d *driver) HostUnregister(b []byte) error {
	if err := d.usable(); err != nil {
		return err
	}
	d.pinned.mu.Lock()
	defer d.pinned.mu.Unlock()
	reg, ok := d.pinned.m[unsafe.SliceData(b)]
	if !ok || len(reg.bytes) != len(b) {
		return fmt.Errorf("cupool: %s: HostUnregister: %w: %d bytes at %p are not registered", d.label, device.ErrInvalidRange, len(b), b)
	}
	if r := cudadrv.HostUnregister(d.ctx.handle, reg.bytes); r != cudadrv.Success {
		return d.ctx.fail("cuMemHostUnregister", r, fmt.Sprintf("%d bytes at %p", len(b), b))
	}
	delete(d.pinned.m, unsafe.SliceData(b))
	reg.pinner.Unpin()
	return nil
}
