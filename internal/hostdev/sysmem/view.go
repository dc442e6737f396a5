// Package sysmem gets memory outside Go's heap from the operating system. On
// Linux it also has files in memory, whose pages can be mapped at several
// addresses at once. Elsewhere NewFile returns device.ErrNotSupported.
package sysmem

import (
	"unsafe"

	"github.com/cupool/cupool/device"
)

// View is the memory at p as a slice. It is built from a nil pointer because
// p is no Go pointer and the collector must never take it for one.
func View(p device.Ptr, n uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), p)), n)
}
