//go:build gpu

package cupool

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// HostAlloc implements HostMemory.
func (d *cudaDriver) HostAlloc(size int64) (Ptr, error) {
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
	d.ctx.memory.add(span{start: Ptr(p), size: size, kind: spanPinned, owner: d})
	return Ptr(p), nil
}

// HostFree implements HostMemory.
func (d *cudaDriver) HostFree(p Ptr) error { return d.free("HostFree", p, spanPinned) }

// registrations are the pieces of Go memory that the driver has page-locked.
// Go must neither move nor collect them meanwhile, hence the pinner.
type registrations struct {
	mu sync.Mutex
	m  map[*byte]registration
}

type registration struct {
	bytes  []byte
	pinner *runtime.Pinner
}

func (r *registrations) takeAll() []registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []registration
	for _, b := range r.m {
		all = append(all, b)
	}
	r.m = nil
	return all
}

// HostRegister implements HostMemory.
func (d *cudaDriver) HostRegister(b []byte) (Ptr, error) {
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

// HostUnregister implements HostMemory. b is what was registered.
func (d *cudaDriver) HostUnregister(b []byte) error {
	if err := d.usable(); err != nil {
		return err
	}
	d.pinned.mu.Lock()
	defer d.pinned.mu.Unlock()
	reg, ok := d.pinned.m[unsafe.SliceData(b)]
	if !ok {
		return fmt.Errorf("cupool: %s: HostUnregister: %w: %d bytes at %p are not registered", d.label, device.ErrInvalidRange, len(b), b)
	}
	if r := cudadrv.HostUnregister(d.ctx.handle, reg.bytes); r != cudadrv.Success {
		return d.ctx.fail("cuMemHostUnregister", r, fmt.Sprintf("%d bytes at %p", len(b), b))
	}
	delete(d.pinned.m, unsafe.SliceData(b))
	reg.pinner.Unpin()
	return nil
}

// Prefetch implements ManagedHints.
func (d *cudaDriver) Prefetch(p Ptr, n int64, to Location, s StreamHandle) error {
	if err := d.checkWork(s, p, n); err != nil {
		return err
	}
	if r := cudadrv.Prefetch(d.ctx.handle, uintptr(p), n, int(to.Kind), to.ID, uintptr(s)); r != cudadrv.Success {
		return d.ctx.fail("cuMemPrefetchAsync", r, fmt.Sprintf("%d bytes at %v to %+v, %s", n, p, to, stream(s)))
	}
	return nil
}

// Advise implements ManagedHints.
func (d *cudaDriver) Advise(p Ptr, n int64, a Advice, at Location) error {
	if err := d.checkWork(0, p, n); err != nil {
		return err
	}
	if r := cudadrv.Advise(d.ctx.handle, uintptr(p), n, int(a), int(at.Kind), at.ID); r != cudadrv.Success {
		return d.ctx.fail("cuMemAdvise", r, fmt.Sprintf("advice %d, %d bytes at %v, %+v", a, n, p, at))
	}
	return nil
}

// ExportMemory implements MemoryIPC.
func (d *cudaDriver) ExportMemory(p Ptr) (IPCHandle, error) {
	if err := d.checkWork(0, p, 0); err != nil {
		return IPCHandle{}, err
	}
	if start, _, ok := d.ctx.memory.find(p); ok && start != p {
		// The driver would export the whole allocation, and not say so.
		return IPCHandle{}, fmt.Errorf("cupool: %s: ExportMemory of %v: %w: the allocation starts at %v", d.label, p, device.ErrInvalidRange, start)
	}
	h, r := cudadrv.IPCGetMem(d.ctx.handle, uintptr(p))
	if r != cudadrv.Success {
		return IPCHandle{}, d.ctx.failRange("cuIpcGetMemHandle", r, p.String())
	}
	return IPCHandle(h), nil
}

// OpenMemory implements MemoryIPC.
func (d *cudaDriver) OpenMemory(h IPCHandle) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.IPCOpenMem(d.ctx.handle, cudadrv.IPCHandle(h))
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuIpcOpenMemHandle", r, "")
	}
	d.opened.put(p, struct{}{})
	return Ptr(p), nil
}

// CloseMemory implements MemoryIPC.
func (d *cudaDriver) CloseMemory(p Ptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	if _, ok := d.opened.take(uintptr(p)); !ok {
		return fmt.Errorf("cupool: %s: CloseMemory of %v: %w: OpenMemory did not return it", d.label, p, device.ErrInvalidRange)
	}
	if r := cudadrv.IPCCloseMem(d.ctx.handle, uintptr(p)); r != cudadrv.Success {
		d.opened.put(uintptr(p), struct{}{})
		return d.ctx.fail("cuIpcCloseMemHandle", r, p.String())
	}
	return nil
}
