package cuda

import (
	"fmt"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// ExportMemory implements MemoryIPC.
func (d *driver) ExportMemory(p Ptr) (IPCHandle, error) {
	if err := d.checkWork(0, p, 0); err != nil {
		return IPCHandle{}, err
	}
	if start, _, _, ok := d.ctx.memory.find(p); ok && start != p {
		// The driver would export the whole allocation without an error.
		return IPCHandle{}, fmt.Errorf("cupool: %s: ExportMemory of %v: %w: the allocation starts at %v", d.label, p, device.ErrInvalidRange, start)
	}
	h, r := cudadrv.IPCGetMem(d.ctx.handle, uintptr(p))
	if r != cudadrv.Success {
		return IPCHandle{}, d.ctx.failRange("cuIpcGetMemHandle", r, p.String())
	}
	return IPCHandle(h), nil
}

// OpenMemory implements MemoryIPC.
func (d *driver) OpenMemory(h IPCHandle) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	p, r := cudadrv.IPCOpenMem(d.ctx.handle, cudadrv.IPCHandle(h))
	if r != cudadrv.Success {
		return 0, d.ctx.fail("cuIpcOpenMemHandle", r, "")
	}
	d.opened.put(p)
	return Ptr(p), nil
}

// CloseMemory implements MemoryIPC.
func (d *driver) CloseMemory(p Ptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	if !d.opened.take(uintptr(p)) {
		return fmt.Errorf("cupool: %s: CloseMemory of %v: %w: OpenMemory did not return it", d.label, p, device.ErrInvalidRange)
	}
	if r := cudadrv.IPCCloseMem(d.ctx.handle, uintptr(p)); r != cudadrv.Success {
		d.opened.put(uintptr(p))
		return d.ctx.fail("cuIpcCloseMemHandle", r, p.String())
	}
	return nil
}

// openings are the addresses of OpenMemory. CUDA gives an allocation the same address however often it
// is opened, and counts.
type openings struct {
	mu sync.Mutex
	m  map[uintptr]int
}

func (o *openings) put(p uintptr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.m == nil {
		o.m = map[uintptr]int{}
	}
	o.m[p]++
}

// take takes one of an address back, and reports whether there was one.
func (o *openings) take(p uintptr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok := o.m[p]
	if n > 1 {
		o.m[p]--
	} else {
		delete(o.m, p)
	}
	return ok
}

// takeAll takes all back, each address as often as it was opened.
func (o *openings) takeAll() (all []uintptr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, n := range o.m {
		for range n {
			all = append(all, p)
		}
	}
	o.m = nil
	return all
}
