package cupool

import (
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/block"
)

// segmentIndex finds the segment that holds an address. Entries that were
// removed stay in the list until as many are gone as are left, so that giving
// back many takes no time for each of the others.
type segmentIndex struct {
	mu   sync.RWMutex
	list []segmentEntry // by base
	gone int            // of them, removed
}

type segmentEntry struct {
	base  uint64
	size  int64
	seg   *block.Segment
	owner *Stream
}

// search returns the place of the first entry that ends after addr.
func (x *segmentIndex) search(addr uint64) int {
	i, _ := slices.BinarySearchFunc(x.list, addr, func(e segmentEntry, a uint64) int {
		if e.base+uint64(e.size) <= a {
			return -1
		}
		return 1
	})
	return i
}

// add enters a segment that takes size bytes of addresses. Only entries that
// are gone can be in the way.
func (x *segmentIndex) add(seg *block.Segment, size int64, owner *Stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.search(seg.Base)
	j := i
	for j < len(x.list) && x.list[j].base < seg.Base+uint64(size) {
		j++
	}
	x.gone -= j - i
	seg.Gone = false
	x.list = slices.Replace(x.list, i, j, segmentEntry{seg.Base, size, seg, owner})
}

func (x *segmentIndex) remove(seg *block.Segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	seg.Gone = true
	x.tidy(1)
}

// removeIdle is remove for a list of idle segments.
func (x *segmentIndex) removeIdle(out []idle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range out {
		out[i].seg.Gone = true
	}
	x.tidy(len(out))
}

// tidy counts entries that are gone, and drops these when they are many: where
// all are gone, without a look at each.
func (x *segmentIndex) tidy(more int) {
	switch x.gone += more; {
	case x.gone == len(x.list):
		clear(x.list)
		x.list, x.gone = x.list[:0], 0
	case x.gone > len(x.list)/2:
		x.list = slices.DeleteFunc(x.list, func(e segmentEntry) bool { return e.seg.Gone })
		x.gone = 0
	}
}

func (x *segmentIndex) setOwner(seg *block.Segment, owner *Stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list[x.search(seg.Base)].owner = owner
}

func (x *segmentIndex) find(p Ptr) (segmentEntry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := x.search(uint64(p))
	if i == len(x.list) || uint64(p) < x.list[i].base || x.list[i].seg.Gone {
		return segmentEntry{}, false
	}
	return x.list[i], true
}

// each calls fn for every segment, by address, with the index locked.
func (x *segmentIndex) each(fn func(segmentEntry)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.list {
		if !e.seg.Gone {
			fn(e)
		}
	}
}

// bytes returns the memory that the index takes, with the segments' books.
func (x *segmentIndex) bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return int64(cap(x.list))*32 + int64(len(x.list)-x.gone)*64
}
