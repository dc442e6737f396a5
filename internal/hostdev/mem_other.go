//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package hostdev

import "github.com/cupool/cupool/internal/device"

const memSupported = false

var pageSize int64 = 4096

func memAlloc(int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func memFree(device.Ptr, int64) error    { return device.ErrNotSupported }
