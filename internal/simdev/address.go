package simdev

import (
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/vspace"
)

// firstAddress is where addresses begin: far from 0 and from Go's heap, and
// easy to tell in a report.
const firstAddress uint64 = 1 << 40

// addresses places ranges: in the lowest free one that fits, else at the end.
// The device's mu guards it.
type addresses struct {
	fresh bool       // never reuse
	end   device.Ptr // nothing was ever placed from here on
	free  []gap      // below end, ordered, no two adjacent
}

type gap struct{ start, end device.Ptr }

func newAddresses(fresh bool) addresses {
	end := device.Ptr(firstAddress & uint64(^device.Ptr(0)))
	return addresses{fresh: fresh, end: max(end, device.Ptr(vspace.Granularity))}
}

// take returns the address of size bytes, aligned to vspace.Granularity; ok
// is false when no addresses are left.
func (a *addresses) take(size int64) (p device.Ptr, ok bool) {
	n := footprint(size)
	if uint64(n) < uint64(size) { // overflow, on a 32-bit system
		return 0, false
	}
	for i, g := range a.free {
		if g.end-g.start < n {
			continue
		}
		if a.free[i].start += n; a.free[i].start == g.end {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return g.start, true
	}
	if a.end+n < a.end {
		return 0, false
	}
	p, a.end = a.end, a.end+n
	return p, true
}

// put makes a range free that take returned for size.
func (a *addresses) put(p device.Ptr, size int64) {
	if a.fresh {
		return
	}
	g := gap{p, p + footprint(size)}
	i, _ := slices.BinarySearchFunc(a.free, p, func(g gap, p device.Ptr) int {
		if g.start < p {
			return -1
		}
		return 1
	})
	if i < len(a.free) && a.free[i].start == g.end {
		g.end = a.free[i].end
		a.free = slices.Delete(a.free, i, i+1)
	}
	if i > 0 && a.free[i-1].end == g.start {
		a.free[i-1].end = g.end
		return
	}
	a.free = slices.Insert(a.free, i, g)
}

func footprint(size int64) device.Ptr {
	const mask = device.Ptr(vspace.Granularity - 1)
	return (device.Ptr(size) + mask) &^ mask
}
