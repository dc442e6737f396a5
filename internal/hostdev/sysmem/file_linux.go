package sysmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
)

// File is an unlinked file in memory, whose pages can be mapped at several
// addresses. Each range that Create makes has offsets of its own, which are not
// used again: a hole in the file costs nothing. It is for one goroutine at a
// time.
type File struct {
	fd  int
	end int64 // bytes; where the next handle starts
}

// NewFile makes an empty file, which can grow and not shrink.
func NewFile() (*File, error) {
	fd, err := unix.MemfdCreate("cupool-hostdev", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &File{fd: fd}, nil
}

// Close forgets the file; its pages go with the last mapping.
func (f *File) Close() error { return unix.Close(f.fd) }

// Create returns the offset of size new bytes, which are zero.
func (f *File) Create(size int64) (int64, error) {
	off := f.end
	if err := unix.Ftruncate(f.fd, off+size); err != nil {
		return 0, err
	}
	f.end += size
	return off, nil
}

// Release gives the pages of a range back to the system.
func (f *File) Release(off, size int64) error {
	return unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, size)
}

// MapAt replaces the reserved pages at p by those at off, without access.
func (f *File) MapAt(p device.Ptr, size, off int64) error {
	_, err := unix.MmapPtr(f.fd, off, pointer(p), uintptr(size), unix.PROT_NONE,
		unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// UnmapAt makes the pages at p reserved ones again, in one step, so that
// nobody else's mapping can slip in between.
func (f *File) UnmapAt(p device.Ptr, size int64) error {
	_, err := unix.MmapPtr(-1, 0, pointer(p), uintptr(size), unix.PROT_NONE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// Holds fails with ErrInvalidRange where the pages at off are not all in the file.
func (f *File) Holds(off, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if off < 0 || size <= 0 || size > st.Size || off > st.Size-size {
		return fmt.Errorf("%w: %d bytes at %d of a file of %d", device.ErrInvalidRange, size, off, st.Size)
	}
	return nil
}

// MapNew maps the pages at off to addresses that the system chooses. It fails as
// Holds does.
func (f *File) MapNew(off, size int64) (device.Ptr, error) {
	if err := f.Holds(off, size); err != nil {
		return 0, err
	}
	p, err := unix.MmapPtr(f.fd, off, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	return device.Ptr(uintptr(p)), err
}

// Dup returns another descriptor of the file, for another process.
func (f *File) Dup() (int, error) { return unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0) }

// OpenFile opens what Dup gave to another process. Any other file is refused with
// ErrInvalidHandle: where it shrinks, its mapped pages fault.
func OpenFile(fd int) (*File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if seals, err := unix.FcntlInt(uintptr(own), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, errors.Join(fmt.Errorf("%w: not the memory of a pool", device.ErrInvalidHandle), unix.Close(own))
	}
	return &File{fd: own}, nil
}

// Protect makes mapped pages readable and writable.
func Protect(p device.Ptr, size int64) error {
	return unix.Mprotect(View(p, uint64(size)), unix.PROT_READ|unix.PROT_WRITE)
}

// Reserve reserves addresses, aligned to memAlign, without memory.
func Reserve(size int64) (device.Ptr, error) { return mapAligned(size, unix.PROT_NONE) }

// Unreserve gives back what Reserve returned.
func Unreserve(p device.Ptr, size int64) error { return Free(p, size) }
