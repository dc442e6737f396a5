package sysmem

import (
	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
)

// mapNoReserve keeps untouched memory from counting as used.
const mapNoReserve = unix.MAP_NORESERVE

// adviseHuge asks for huge pages where the system gives them on request:
// segments are touched all over, and page faults are most of the cost of the
// first time.
func adviseHuge(p device.Ptr, size int64) {
	if size >= memAlign {
		_ = unix.Madvise(View(p, uint64(size)), unix.MADV_HUGEPAGE) // only advice
	}
}
