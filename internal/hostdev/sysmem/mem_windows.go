package sysmem

import (
	"os"

	"golang.org/x/sys/windows"

	"github.com/cupool/cupool/device"
)

// Supported says whether there is memory outside Go's heap here.
const Supported = true

// PageSize is the size of the system's pages, in bytes.
var PageSize = int64(os.Getpagesize())

// Alloc returns size zeroed bytes, a multiple of the page size, aligned to
// 64 KiB. They count against the system's commit limit at once.
func Alloc(size int64) (device.Ptr, error) {
	if int64(uintptr(size)) != size { // on a 32-bit system
		return 0, windows.ERROR_NOT_ENOUGH_MEMORY
	}
	p, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	return device.Ptr(p), err
}

// Free gives back what Alloc returned.
func Free(p device.Ptr, _ int64) error {
	return windows.VirtualFree(uintptr(p), 0, windows.MEM_RELEASE)
}
