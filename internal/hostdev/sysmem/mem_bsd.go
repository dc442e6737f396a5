//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package sysmem

import "github.com/cupool/cupool/device"

// mapNoReserve is nothing here: these systems do not count untouched memory.
const mapNoReserve = 0

func adviseHuge(device.Ptr, int64) {}
