package cuda

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// The methods of cupool.VirtualMemory. None of them waits for running work. Only
// Drivers of device memory have virtual memory.

// VMMGranularity returns the number of bytes that sizes and addresses of virtual
// memory are multiples of, or 0 where there is none.
func (d *driver) VMMGranularity() int64 { return d.granularity }

// AddressReserve reserves addresses without memory behind them. It fails with
// ErrInvalidRange for a size that is no multiple of the granularity.
func (d *driver) AddressReserve(size int64) (Ptr, error) {
	if err := d.vmm("AddressReserve", size); err != nil {
		return 0, err
	}
	p, r := cudadrv.AddressReserve(d.ctx.handle, size)
	if r != cudadrv.Success {
		return 0, d.ctx.failRange("cuMemAddressReserve", r, fmt.Sprintf("%d bytes", size))
	}
	d.ctx.memory.add(span{start: Ptr(p), size: size, kind: spanReserved, owner: d.id})
	return Ptr(p), nil
}

// AddressFree gives back a reservation, which must be given exactly as it was
// made and hold no mapping; else it fails with ErrInvalidRange.
func (d *driver) AddressFree(p Ptr, size int64) error {
	if err := d.vmm("AddressFree", size); err != nil {
		return err
	}
	s, ok := d.ctx.memory.take(p, spanReserved, d.id)
	if !ok || s.size != size || len(s.mapped) > 0 {
		if ok {
			d.ctx.memory.add(s)
		}
		return fmt.Errorf("cupool: %s: AddressFree: %w: no reservation of %d bytes without mappings starts at %v", d.label, device.ErrInvalidRange, size, p)
	}
	if call, r := d.ctx.giveBack(s); r != cudadrv.Success {
		d.ctx.memory.add(s)
		return d.ctx.failRange(call, r, fmt.Sprintf("%d bytes at %v", size, p))
	}
	return nil
}

// MemCreate makes physical memory and returns its handle, never 0. Network
// cards may register it where the device has that (GPUDirect RDMA). It fails
// with ErrOutOfMemory, and with ErrInvalidRange for a size that is no multiple of
// the granularity.
func (d *driver) MemCreate(size int64) (uintptr, error) {
	if err := d.vmm("MemCreate", size); err != nil {
		return 0, err
	}
	h, r := d.create(size)
	if r != cudadrv.Success {
		return 0, d.ctx.failRange("cuMemCreate", r, fmt.Sprintf("%d bytes", size))
	}
	d.handles.put(h, size)
	return h, nil
}

// create makes physical memory in the best way that the system has, which is found out once.
func (d *driver) create(size int64) (h uintptr, r cudadrv.Result) {
	first := d.way.Load()
	for i, w := range d.ways[first:] {
		h, r = cudadrv.MemCreate(d.ctx.handle, size, d.ctx.device, w.handleTypes, w.rdma)
		if r == cudadrv.NotSupported || r == cudadrv.NotPermitted {
			continue
		}
		if r == cudadrv.Success && i > 0 {
			d.way.Store(first + int32(i))
		}
		break
	}
	return h, r
}

// MemRelease gives a handle back. Its memory lives on until it is mapped
// nowhere. It fails with ErrInvalidHandle for a handle that is not there.
func (d *driver) MemRelease(handle uintptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	size, ok := d.handles.take(handle)
	if !ok {
		return d.unknownMemory("MemRelease", handle)
	}
	if r := cudadrv.MemRelease(d.ctx.handle, handle); r != cudadrv.Success {
		d.handles.put(handle, size)
		return d.ctx.fail("cuMemRelease", r, fmt.Sprintf("handle 0x%x of %d bytes", handle, size))
	}
	return nil
}

// MemMap maps the whole of handle at p, inside one reservation, where nothing
// is mapped. The same handle may be mapped at several addresses. It fails
// with ErrInvalidHandle and ErrInvalidRange.
func (d *driver) MemMap(p Ptr, size int64, handle uintptr) error {
	if err := d.vmm("MemMap", size); err != nil {
		return err
	}
	whole, ok := d.handles.get(handle)
	if !ok {
		return d.unknownMemory("MemMap", handle)
	}
	if size != whole {
		return fmt.Errorf("cupool: %s: MemMap: %w: memory handle 0x%x has %d bytes and maps only as a whole, not as %d bytes", d.label, device.ErrInvalidRange, handle, whole, size)
	}
	return d.inReservation("MemMap", p, size, func(s *span) error {
		i := s.firstFrom(p)
		if i < len(s.mapped) && s.mapped[i].start < p+Ptr(size) || i > 0 && s.mapped[i-1].end() > p {
			return fmt.Errorf("cupool: %s: MemMap: %w: something is mapped in the %d bytes at %v already", d.label, device.ErrInvalidRange, size, p)
		}
		if r := cudadrv.MemMap(d.ctx.handle, uintptr(p), size, handle); r != cudadrv.Success {
			return d.ctx.failRange("cuMemMap", r, fmt.Sprintf("%d bytes at %v, handle 0x%x", size, p, handle))
		}
		s.mapped = slices.Insert(s.mapped, i, mapping{p, size})
		return nil
	})
}

// MemSetAccess lets the device, and those that EnablePeer has let in, read and
// write a range of whole mappings. It fails with ErrInvalidRange for any other
// range.
func (d *driver) MemSetAccess(p Ptr, size int64) error {
	if err := d.vmm("MemSetAccess", size); err != nil {
		return err
	}
	return d.inReservation("MemSetAccess", p, size, func(s *span) error {
		if _, _, err := d.whole("MemSetAccess", s, p, size); err != nil {
			return err
		}
		if r := cudadrv.MemSetAccess(d.ctx.handle, uintptr(p), size, d.ctx.admitted, true); r != cudadrv.Success {
			return d.ctx.failRange("cuMemSetAccess", r, fmt.Sprintf("%d bytes at %v", size, p))
		}
		return nil
	})
}

// MemUnmap ends a range of whole mappings; the addresses stay reserved. It
// does not wait: work that still uses the range makes the device lost. It
// fails with ErrInvalidRange for any other range.
func (d *driver) MemUnmap(p Ptr, size int64) error {
	if err := d.vmm("MemUnmap", size); err != nil {
		return err
	}
	return d.inReservation("MemUnmap", p, size, func(s *span) error {
		i, j, err := d.whole("MemUnmap", s, p, size)
		if err != nil {
			return err
		}
		if r := cudadrv.MemUnmap(d.ctx.handle, uintptr(p), size); r != cudadrv.Success {
			return d.ctx.failRange("cuMemUnmap", r, fmt.Sprintf("%d bytes at %v", size, p))
		}
		s.mapped = slices.Delete(s.mapped, i, j)
		return nil
	})
}

// vmm returns nil when the Driver is usable and has virtual memory, and size
// fits it.
func (d *driver) vmm(op string, size int64) error {
	if err := d.usable(); err != nil {
		return err
	}
	switch {
	case d.granularity == 0 && d.kind != MemoryDevice:
		return fmt.Errorf("cupool: %s: %s: %w: only Drivers of device memory have virtual memory", d.label, op, device.ErrNotSupported)
	case d.granularity == 0:
		return fmt.Errorf("cupool: %s: %s: %w: the GPU or its driver lacks virtual memory (CUDA 10.2)", d.label, op, device.ErrNotSupported)
	case size <= 0 || size%d.granularity != 0:
		return fmt.Errorf("cupool: %s: %s: %w: size %d is not a positive multiple of the granularity %d", d.label, op, device.ErrInvalidRange, size, d.granularity)
	}
	return nil
}

// inReservation runs f with the book locked and the reservation that holds
// the size bytes at p.
func (d *driver) inReservation(op string, p Ptr, size int64, f func(*span) error) error {
	b := &d.ctx.memory
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.holding(p)
	if s == nil || s.kind != spanReserved || s.owner != d.id || size > s.size-int64(p-s.start) {
		return fmt.Errorf("cupool: %s: %s: %w: the %d bytes at %v are in no reservation", d.label, op, device.ErrInvalidRange, size, p)
	}
	return f(s)
}

// whole returns which mappings make up the size bytes at p.
func (d *driver) whole(op string, s *span, p Ptr, size int64) (i, j int, err error) {
	i = s.firstFrom(p)
	at := p
	for j = i; j < len(s.mapped) && s.mapped[j].start == at && at < p+Ptr(size); j++ {
		at = s.mapped[j].end()
	}
	if at != p+Ptr(size) {
		return 0, 0, fmt.Errorf("cupool: %s: %s: %w: the %d bytes at %v are not whole mappings", d.label, op, device.ErrInvalidRange, size, p)
	}
	return i, j, nil
}

func (d *driver) unknownMemory(op string, handle uintptr) error {
	return fmt.Errorf("cupool: %s: %s: %w: memory handle 0x%x was not made by this Driver, or was released", d.label, op, device.ErrInvalidHandle, handle)
}
