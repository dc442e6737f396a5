package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

var _ device.RangeSharing = (*driver)(nil)

// imports are the ranges of other processes that a Driver maps.
type imports struct {
	mu     sync.Mutex
	ranges map[Ptr]imported
}

// imported is a range by where it was mapped.
type imported struct {
	base  Ptr   // of the pieces
	total int64 // bytes of the pieces
	named bool  // an allocation of OpenMemory
	count int   // of imports at the address
}

// ExportRange implements device.RangeSharing: virtual memory by the file
// descriptors of its handles, and memory of MemAlloc by CUDA's IPC handle.
func (d *driver) ExportRange(p Ptr, n int64) (device.SharedRange, error) {
	if err := d.checkWork(0, p, n); err != nil {
		return device.SharedRange{}, err
	}
	start, size, kind, mapped := d.ctx.memory.mappingsOf(p, n)
	switch {
	case n <= 0 || kind == spanReserved && len(mapped) == 0:
		return device.SharedRange{}, fmt.Errorf("cupool: %s: ExportRange: %w: the %d bytes at %v are not mapped", d.label, device.ErrInvalidRange, n, p)
	case kind == spanReserved:
		return d.exportMappings(p, n, mapped)
	case kind != spanAllocated || d.kind != MemoryDevice || size == 0:
		return device.SharedRange{}, fmt.Errorf("cupool: %s: ExportRange: %w: %v is not device memory of this Driver", d.label, device.ErrNotSupported, p)
	}
	h, err := d.ExportMemory(start)
	if err != nil {
		return device.SharedRange{}, err
	}
	return device.SharedRange{Skip: int64(p - start), Size: n, Pieces: []device.SharedPiece{{Size: size, Name: h}}}, nil
}

// exportMappings exports the handles that are mapped to a range.
func (d *driver) exportMappings(p Ptr, n int64, mapped []mapping) (r device.SharedRange, err error) {
	if d.ways[0].handleTypes == cudadrv.HandleNone {
		return r, fmt.Errorf("cupool: %s: ExportRange: %w: its virtual memory cannot be exported: open the device with cuda.Shareable()", d.label, device.ErrNotSupported)
	}
	r = device.SharedRange{Skip: int64(p - mapped[0].start), Size: n}
	for _, m := range mapped {
		x, err := d.exportMapping(m)
		if err != nil {
			return device.SharedRange{}, errors.Join(err, r.Close())
		}
		r.Pieces = append(r.Pieces, x)
	}
	return r, nil
}

func (d *driver) exportMapping(m mapping) (x device.SharedPiece, err error) {
	detail := fmt.Sprintf("%d bytes at %v", m.size, m.start)
	h, r := cudadrv.MemRetain(d.ctx.handle, uintptr(m.start))
	if r != cudadrv.Success {
		return x, d.ctx.failRange("cuMemRetainAllocationHandle", r, detail)
	}
	fd, r := cudadrv.MemExportFD(d.ctx.handle, h)
	if d.ways[d.way.Load()].handleTypes&cudadrv.HandleFabric != 0 {
		if fabric, r := cudadrv.MemExportFabric(d.ctx.handle, h); r == cudadrv.Success {
			x.Fabric = fabric
		}
	}
	released := cudadrv.MemRelease(d.ctx.handle, h)
	if r != cudadrv.Success {
		return x, d.ctx.fail("cuMemExportToShareableHandle", r, detail)
	}
	x.Size, x.File = m.size, os.NewFile(uintptr(fd), "memory")
	if released != cudadrv.Success {
		return x, errors.Join(d.ctx.fail("cuMemRelease", released, detail), x.File.Close())
	}
	return x, nil
}

// ImportRange implements device.RangeSharing.
func (d *driver) ImportRange(r device.SharedRange) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	total, err := r.Total()
	if err != nil {
		return 0, fmt.Errorf("cupool: %s: ImportRange: %w", d.label, err)
	}
	if d.kind != MemoryDevice {
		return 0, fmt.Errorf("cupool: %s: ImportRange: %w: only Drivers of device memory import", d.label, device.ErrNotSupported)
	}
	i := imported{total: total}
	if i.named = r.Pieces[0].File == nil && r.Pieces[0].Fabric == (IPCHandle{}); !i.named {
		i.base, err = d.mapShared(r.Pieces, total)
	} else if len(r.Pieces) == 1 {
		i.base, err = d.OpenMemory(r.Pieces[0].Name)
	} else {
		err = fmt.Errorf("cupool: %s: ImportRange: %w: %d pieces have one name", d.label, device.ErrInvalidRange, len(r.Pieces))
	}
	if err != nil {
		return 0, err
	}
	p := i.base + Ptr(r.Skip)
	d.imports.mu.Lock()
	defer d.imports.mu.Unlock()
	if d.imports.ranges == nil {
		d.imports.ranges = map[Ptr]imported{}
	}
	i.count = d.imports.ranges[p].count + 1
	d.imports.ranges[p] = i
	return p, nil
}

// mapShared maps the memory of file descriptors, or fabric handles, side by side.
func (d *driver) mapShared(pieces []device.SharedPiece, total int64) (Ptr, error) {
	base, err := d.AddressReserve(total)
	if err != nil {
		return 0, err
	}
	at := base
	for _, x := range pieces {
		if err = d.mapPiece(at, x); err != nil {
			break
		}
		at += Ptr(x.Size)
	}
	if err == nil {
		err = d.MemSetAccess(base, total)
	}
	if err != nil {
		return 0, errors.Join(err, d.unmapShared(base, int64(at-base), total))
	}
	return base, nil
}

// mapPiece maps one piece. Its handle goes at once: the mapping keeps the memory.
func (d *driver) mapPiece(at Ptr, x device.SharedPiece) error {
	var h uintptr
	var r cudadrv.Result
	switch {
	case x.File != nil:
		h, r = cudadrv.MemImportFD(d.ctx.handle, int(x.File.Fd()))
	case x.Fabric != (IPCHandle{}):
		h, r = cudadrv.MemImportFabric(d.ctx.handle, x.Fabric)
	default:
		return fmt.Errorf("cupool: %s: ImportRange: %w: a piece of %d bytes has no file", d.label, device.ErrInvalidRange, x.Size)
	}
	if r != cudadrv.Success {
		return d.ctx.fail("cuMemImportFromShareableHandle", r, fmt.Sprintf("%d bytes", x.Size))
	}
	err := d.vmm("ImportRange", x.Size)
	if err == nil {
		err = d.inReservation("ImportRange", at, x.Size, func(s *span) error {
			detail := fmt.Sprintf("%d bytes at %v of another process's memory", x.Size, at)
			if r := cudadrv.MemMap(d.ctx.handle, uintptr(at), x.Size, h); r != cudadrv.Success {
				return d.ctx.failRange("cuMemMap", r, detail)
			}
			s.mapped = append(s.mapped, mapping{at, x.Size})
			return nil
		})
	}
	if r := cudadrv.MemRelease(d.ctx.handle, h); r != cudadrv.Success {
		failed := d.ctx.fail("cuMemRelease", r, fmt.Sprintf("%d bytes", x.Size))
		if err == nil { // who fails has mapped nothing
			err = d.MemUnmap(at, x.Size)
		}
		err = errors.Join(failed, err)
	}
	return err
}

func (d *driver) unmapShared(base Ptr, mapped, total int64) error {
	if mapped > 0 {
		if err := d.MemUnmap(base, mapped); err != nil {
			return err
		}
	}
	return d.AddressFree(base, total)
}

// CloseRange implements device.RangeSharing.
func (d *driver) CloseRange(p Ptr) error {
	if err := d.usable(); err != nil {
		return err
	}
	d.imports.mu.Lock()
	defer d.imports.mu.Unlock()
	i, ok := d.imports.ranges[p]
	if !ok {
		return fmt.Errorf("cupool: %s: CloseRange of %v: %w: ImportRange did not return it", d.label, p, device.ErrInvalidRange)
	}
	var err error
	if i.named {
		err = d.CloseMemory(i.base)
	} else {
		err = d.unmapShared(i.base, i.total, i.total)
	}
	if err != nil {
		return err
	}
	if i.count--; i.count == 0 {
		delete(d.imports.ranges, p)
	} else {
		d.imports.ranges[p] = i
	}
	return nil
}
