//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sysmem

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
)

// Supported says that there is memory outside Go's heap here.
const Supported = true

// PageSize is the size of the system's pages, in bytes.
var PageSize = int64(unix.Getpagesize())

// memAlign is what large allocations are aligned to, as on a GPU; it is also
// the size of a huge page.
const memAlign = 2 << 20

// Alloc returns size zeroed bytes, a multiple of the page size, of memory
// that the system provides when it is touched.
func Alloc(size int64) (device.Ptr, error) {
	p, err := mapAligned(size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return 0, err
	}
	adviseHuge(p, size)
	return p, nil
}

// Free gives back what Alloc returned.
func Free(p device.Ptr, size int64) error {
	return unix.MunmapPtr(pointer(p), uintptr(size))
}

// mapAligned maps size bytes of anonymous memory, aligned to memAlign when
// they are that large.
func mapAligned(size int64, prot int) (device.Ptr, error) {
	p, err := mapAnywhere(size, prot)
	if err != nil || size < memAlign || p%memAlign == 0 {
		return p, err
	}
	// Not aligned by luck: map so much more that an aligned part is in it,
	// and give the rest back.
	if err := Free(p, size); err != nil {
		return 0, err
	}
	if p, err = mapAnywhere(size+memAlign, prot); err != nil {
		return 0, err
	}
	head := -int64(p) & (memAlign - 1)
	if head > 0 {
		err = Free(p, head)
	}
	start := p + device.Ptr(head)
	if tail := memAlign - head; err == nil && tail > 0 {
		err = Free(start+device.Ptr(size), tail)
	}
	return start, err
}

func mapAnywhere(size int64, prot int) (device.Ptr, error) {
	if int64(uintptr(size)) != size { // on a 32-bit system
		return 0, unix.ENOMEM
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), prot, unix.MAP_ANON|unix.MAP_PRIVATE|mapNoReserve)
	return device.Ptr(uintptr(p)), err
}

// pointer makes a pointer of an address outside Go's heap.
func pointer(p device.Ptr) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(nil), p) }
