package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// alignment is that of MemAlloc's addresses, in bytes. CUDA promises 256 for
// cuMemAlloc and gives 512 when the size is a multiple of 512.
const alignment = 512

// MemAlloc implements Driver. It fails with ErrOutOfMemory and, for a size that
// is not positive, ErrInvalidRange.
func (d *driver) MemAlloc(size int64) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if size <= 0 || size > 1<<62 {
		return 0, fmt.Errorf("cupool: %s: MemAlloc: %w: size %d", d.label, device.ErrInvalidRange, size)
	}
	rounded := (size + alignment - 1) &^ (alignment - 1)
	if d.kind == MemoryPinned {
		if err := pinnable(rounded); err != nil {
			return 0, err
		}
	}
	if err := d.takeManaged(rounded); err != nil {
		return 0, err
	}
	p, call, r := d.ctx.allocate(d.kind, rounded)
	if r != cudadrv.Success {
		d.managed.Add(-rounded)
		return 0, d.ctx.fail(call, r, fmt.Sprintf("%d bytes", rounded))
	}
	s := span{start: p, size: rounded, kind: d.kind.span(), owner: d.id}
	if p%alignment != 0 {
		d.managed.Add(-rounded)
		d.ctx.giveBack(s)
		return 0, fmt.Errorf("cupool: %s: %s of %d bytes returned %v, which is not aligned to %d bytes", d.label, call, rounded, p, alignment)
	}
	d.ctx.memory.add(s)
	return p, nil
}

// span returns what MemAlloc's memory of a kind is in the book.
func (k MemoryKind) span() spanKind {
	switch k {
	case MemoryManaged:
		return spanManaged
	case MemoryPinned:
		return spanPinned
	}
	return spanAllocated
}

// takeManaged counts managed memory against the device's. CUDA would give out
// more than the device has and page it in and out, which can hang a GPU for
// minutes. Other kinds of memory have no limit here, as the driver refuses them
// by itself.
func (d *driver) takeManaged(size int64) error {
	now := d.managed.Add(size)
	if d.kind != MemoryManaged {
		return nil
	}
	_, total, err := d.MemInfo()
	if err == nil && now > total {
		err = fmt.Errorf("cupool: %s: cuMemAllocManaged of %d bytes, with %d of %d taken: %w", d.label, size, now-size, total, device.ErrOutOfMemory)
	}
	if err != nil {
		d.managed.Add(-size)
	}
	return err
}

func (c *context) allocate(k MemoryKind, size int64) (p Ptr, call string, r cudadrv.Result) {
	switch k {
	case MemoryManaged:
		q, r := cudadrv.MemAllocManaged(c.handle, size)
		return Ptr(q), "cuMemAllocManaged", r
	case MemoryPinned:
		q, r := cudadrv.HostAlloc(c.handle, size)
		return Ptr(q), "cuMemHostAlloc", r
	default:
		q, r := cudadrv.MemAlloc(c.handle, size)
		return Ptr(q), "cuMemAlloc", r
	}
}

// giveBack ends a span that was taken out of the book.
func (c *context) giveBack(s span) (call string, r cudadrv.Result) {
	switch s.kind {
	case spanReserved:
		return "cuMemAddressFree", cudadrv.AddressFree(c.handle, uintptr(s.start), s.size)
	case spanPinned:
		return "cuMemFreeHost", cudadrv.HostFree(c.handle, uintptr(s.start))
	default:
		return "cuMemFree", cudadrv.MemFree(c.handle, uintptr(s.start))
	}
}

// MemFree implements Driver. It fails with ErrInvalidRange for an address that
// MemAlloc of this Driver did not return, or that was freed before.
func (d *driver) MemFree(p Ptr) error {
	return d.free("MemFree", p, d.kind.span())
}

// free takes the span out of the book first, so that only one of two calls with
// the same address frees it. It enters the span again when the driver refuses.
func (d *driver) free(op string, p Ptr, kind spanKind) error {
	if err := d.usable(); err != nil {
		return err
	}
	s, ok := d.ctx.memory.take(p, kind, d.id)
	if !ok {
		return fmt.Errorf("cupool: %s: %s of %v: %w: no allocation of this device starts there", d.label, op, p, device.ErrInvalidRange)
	}
	call, r := d.ctx.giveBack(s)
	if r != cudadrv.Success {
		d.ctx.memory.add(s)
		return d.ctx.failRange(call, r, fmt.Sprintf("%d bytes at %v", s.size, p))
	}
	if op == "MemFree" {
		d.managed.Add(-s.size)
	}
	return nil
}

// MemInfo implements Driver. Managed memory counts as taken once MemAlloc gave
// it out, touched or not. For pinned memory the figures are the computer's: the
// bytes that may still be page-locked, and all of its memory.
func (d *driver) MemInfo() (free, total int64, err error) {
	if err := d.usable(); err != nil {
		return 0, 0, err
	}
	if d.kind == MemoryPinned {
		return pinnedMemInfo()
	}
	free, total, r := cudadrv.MemInfo(d.ctx.handle)
	if r != cudadrv.Success {
		return 0, 0, d.ctx.fail("cuMemGetInfo", r, "")
	}
	if d.kind == MemoryManaged { // which the driver counts when it is touched
		free = max(0, min(free, total-d.managed.Load()))
	}
	return free, total, nil
}
