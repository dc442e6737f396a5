package hostdev

import (
	"errors"
	"fmt"
	"os"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

var _ device.RangeSharing = (*Device)(nil)

// sharing is the memory of a device that other processes may map, and theirs that it
// maps. A file each lets another process have what it was given and no more.
// Device.mu guards it.
type sharing struct {
	enabled bool
	allocs  map[device.Ptr]*sysmem.File // of MemAlloc, by address
	handles map[int64]*sysmem.File      // of MemCreate, by a number that stands for their place
	last    int64                       // of handles
	imports map[device.Ptr]imported     // by the address of the range
}

// imported is another process's memory where it is mapped, as one allocation.
type imported struct {
	base  device.Ptr
	total int64 // bytes
}

func newSharing(enabled bool) sharing {
	return sharing{enabled: enabled, allocs: map[device.Ptr]*sysmem.File{}, handles: map[int64]*sysmem.File{}, imports: map[device.Ptr]imported{}}
}

// allocLocked returns memory for MemAlloc.
func (d *Device) allocLocked(size int64) (device.Ptr, error) {
	if !d.share.enabled {
		return sysmem.Alloc(size)
	}
	f, err := newFile(size)
	if err != nil {
		return 0, err
	}
	p, err := sysmem.Reserve(size)
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	if err = errors.Join(f.MapAt(p, size, 0), sysmem.Protect(p, size)); err != nil {
		return 0, errors.Join(err, sysmem.Unreserve(p, size), f.Close())
	}
	d.share.allocs[p] = f
	return p, nil
}

// newFile returns a file of size bytes.
func newFile(size int64) (*sysmem.File, error) {
	f, err := sysmem.NewFile()
	if err != nil {
		return nil, err
	}
	if _, err := f.Create(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// createLocked returns the place of memory for MemCreate.
func (d *Device) createLocked(size int64) (off int64, err error) {
	if !d.share.enabled {
		return d.phys.Create(size)
	}
	f, err := newFile(size)
	if err != nil {
		return 0, err
	}
	d.share.last++
	d.share.handles[d.share.last] = f
	return d.share.last, nil
}

// mapAtLocked maps what createLocked returned.
func (d *Device) mapAtLocked(p device.Ptr, size, off int64) error {
	if f, ok := d.share.handles[off]; ok {
		return f.MapAt(p, size, 0)
	}
	return d.phys.MapAt(p, size, off)
}

// forget closes the file of an allocation that is freed; its pages go with the last
// mapping.
func (s *sharing) forget(p device.Ptr) {
	if f, ok := s.allocs[p]; ok {
		delete(s.allocs, p)
		_ = f.Close()
	}
}

// isBase reports whether another process's memory is mapped from p on.
func (s *sharing) isBase(p device.Ptr) bool {
	for _, i := range s.imports {
		if i.base == p {
			return true
		}
	}
	return false
}

func (s *sharing) close() error {
	var errs []error
	for _, f := range s.allocs {
		errs = append(errs, f.Close())
	}
	for _, f := range s.handles {
		errs = append(errs, f.Close())
	}
	*s = newSharing(s.enabled)
	return errors.Join(errs...)
}

// ExportRange implements device.RangeSharing.
func (d *Device) ExportRange(p device.Ptr, n int64) (r device.SharedRange, err error) {
	const op = "ExportRange"
	if err := d.usable(op); err != nil {
		return r, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if n <= 0 {
		err = fmt.Errorf("%w: %d bytes at %v", device.ErrInvalidRange, n, p)
	} else {
		err = d.space.Check(p, n)
	}
	switch {
	case err != nil:
		return r, d.failure(op, err)
	case !d.share.enabled:
		return r, d.failure(op, fmt.Errorf("%w: its memory cannot be exported: open the device with HostConfig.Shareable", device.ErrNotSupported))
	}
	r.Size = n
	if start, size, ok := d.space.AllocOf(p); ok {
		r.Skip, err = int64(p-start), add(&r, d.share.allocs[start], roundPage(size))
	} else {
		first := true
		d.space.EachMappingOf(p, n, func(start device.Ptr, size, off int64) {
			if first {
				first, r.Skip = false, int64(p-start)
			}
			err = errors.Join(err, add(&r, d.share.handles[off], size))
		})
	}
	if err != nil {
		return device.SharedRange{}, d.failure(op, errors.Join(err, r.Close()))
	}
	return r, nil
}

// add adds a file to a range.
func add(r *device.SharedRange, f *sysmem.File, size int64) error {
	if f == nil {
		return fmt.Errorf("%w: the memory is not this device's own", device.ErrNotSupported)
	}
	fd, err := f.Dup()
	if err == nil {
		r.Pieces = append(r.Pieces, device.SharedPiece{Size: size, File: os.NewFile(uintptr(fd), "memory")})
	}
	return err
}

// ImportRange implements device.RangeSharing. The memory does not count against the
// capacity.
func (d *Device) ImportRange(r device.SharedRange) (device.Ptr, error) {
	const op = "ImportRange"
	if err := d.usable(op); err != nil {
		return 0, err
	}
	total, err := r.Total()
	if err != nil {
		return 0, d.failure(op, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return 0, d.failure(op, device.ErrClosed)
	}
	base, err := sysmem.Reserve(roundPage(total))
	if err != nil {
		return 0, d.failure(op, err)
	}
	at := base
	for _, x := range r.Pieces {
		if err = mapPiece(at, x); err != nil {
			break
		}
		at += device.Ptr(x.Size)
	}
	if err == nil {
		err = sysmem.Protect(base, total)
	}
	if err != nil {
		return 0, d.failure(op, errors.Join(err, sysmem.Unreserve(base, roundPage(total))))
	}
	d.space.AddAlloc(base, total)
	d.share.imports[base+device.Ptr(r.Skip)] = imported{base, total}
	return base + device.Ptr(r.Skip), nil
}

// mapPiece maps another process's file, as far as it is one that cannot shrink.
func mapPiece(at device.Ptr, x device.SharedPiece) error {
	if x.File == nil || x.Size%sysmem.PageSize != 0 {
		return fmt.Errorf("%w: a piece of %d bytes is none of a host device", device.ErrInvalidRange, x.Size)
	}
	f, err := sysmem.OpenFile(int(x.File.Fd()))
	if err != nil {
		return err
	}
	if err = f.Holds(0, x.Size); err == nil {
		err = f.MapAt(at, x.Size, 0)
	}
	return errors.Join(err, f.Close())
}

// CloseRange implements device.RangeSharing. It waits for all work on the device.
func (d *Device) CloseRange(p device.Ptr) error {
	const op = "CloseRange"
	if err := d.usable(op); err != nil {
		return err
	}
	d.mu.Lock()
	i, ok := d.share.imports[p]
	if !ok {
		d.mu.Unlock()
		return d.failure(op, fmt.Errorf("%w: ImportRange did not return %v", device.ErrInvalidRange, p))
	}
	delete(d.share.imports, p)
	_, err := d.space.RemoveAlloc(i.base)
	d.mu.Unlock()
	if err != nil {
		return d.failure(op, err)
	}
	d.syncAll() // as MemFree
	return d.failure(op, sysmem.Unreserve(i.base, roundPage(i.total)))
}
