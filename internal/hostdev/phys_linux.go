package hostdev

import (
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/internal/device"
)

// physical is the memory behind the handles of MemCreate: one unlinked file
// in memory, of which each handle owns a range of offsets. Offsets are not
// reused; a hole in the file costs nothing. The device's mu guards it.
type physical struct {
	fd  int
	end int64 // bytes; where the next handle starts
}

func openPhysical() (*physical, error) {
	fd, err := unix.MemfdCreate("cupool-hostdev", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &physical{fd: fd}, nil
}

// close forgets the file; its pages go with the last mapping.
func (f *physical) close() error { return unix.Close(f.fd) }

// create returns the offset of size new bytes, which are zero.
func (f *physical) create(size int64) (int64, error) {
	off := f.end
	if err := unix.Ftruncate(f.fd, off+size); err != nil {
		return 0, err
	}
	f.end += size
	return off, nil
}

// release gives the pages of a handle back to the system.
func (f *physical) release(off, size int64) error {
	return unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, size)
}

// mapAt replaces the reserved pages at p by those at off, without access.
func (f *physical) mapAt(p device.Ptr, size, off int64) error {
	_, err := unix.MmapPtr(f.fd, off, pointer(p), uintptr(size), unix.PROT_NONE,
		unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// unmapAt makes the pages at p reserved ones again, in one step, so that
// nobody else's mapping can slip in between.
func (f *physical) unmapAt(p device.Ptr, size int64) error {
	_, err := unix.MmapPtr(-1, 0, pointer(p), uintptr(size), unix.PROT_NONE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// mapNew maps the pages at off to addresses that the system chooses.
func (f *physical) mapNew(off, size int64) (device.Ptr, error) {
	p, err := unix.MmapPtr(f.fd, off, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	return device.Ptr(uintptr(p)), err
}

// dup returns another descriptor of the file, for another process.
func (f *physical) dup() (int, error) { return unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0) }

// reopenPhysical opens what dup gave to another process.
func reopenPhysical(fd int) (*physical, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return &physical{fd: own}, err
}

func memProtect(p device.Ptr, size int64) error {
	return unix.Mprotect(view(p, uint64(size)), unix.PROT_READ|unix.PROT_WRITE)
}

// memReserve reserves addresses, aligned to memAlign, without memory.
func memReserve(size int64) (device.Ptr, error) { return mapAligned(size, unix.PROT_NONE) }

func memUnreserve(p device.Ptr, size int64) error { return memFree(p, size) }
