//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package sysmem

import "github.com/cupool/cupool/device"

// Supported says whether there is memory outside Go's heap here.
const Supported = false

// PageSize is the size of the system's pages, in bytes.
var PageSize int64 = 4096

func Alloc(int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func Free(device.Ptr, int64) error    { return device.ErrNotSupported }
