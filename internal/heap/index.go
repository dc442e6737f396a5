package heap

import (
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/lock"
)

// Index finds the segment of a pool that holds an address. It is safe for use
// from several goroutines; its lock is taken after those of heaps. Entries that
// were removed stay in the list until as many are gone as are left, so that
// giving back many takes no time for each of the others.
type Index struct {
	mu   lock.RWMutex
	list []Entry // by base
	gone int     // of them, removed
}

// Entry is a segment, the bytes of addresses that it takes, and the index of
// the heap that it is in.
type Entry struct {
	base  uint64
	size  int64
	Seg   *block.Segment
	Owner uint32
}

// search returns the place of the first entry that ends after addr.
func (x *Index) search(addr uint64) int {
	i, _ := slices.BinarySearchFunc(x.list, addr, func(e Entry, a uint64) int {
		if e.base+uint64(e.size) <= a {
			return -1
		}
		return 1
	})
	return i
}

// add enters a segment that takes size bytes of addresses. Only entries that
// are gone can be in the way.
func (x *Index) add(seg *block.Segment, size int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.search(seg.Base)
	j := i
	for j < len(x.list) && x.list[j].base < seg.Base+uint64(size) {
		j++
	}
	x.gone -= j - i
	seg.Gone = false
	x.list = slices.Replace(x.list, i, j, Entry{seg.Base, size, seg, seg.Owner})
}

func (x *Index) remove(seg *block.Segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	seg.Gone = true
	x.tidy(1)
}

// removeIdle is remove for a list of idle segments.
func (x *Index) removeIdle(out []Idle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range out {
		out[i].Seg.Gone = true
	}
	x.tidy(len(out))
}

// tidy counts entries that are gone, and drops these when they are many: where
// all are gone, without a look at each.
func (x *Index) tidy(more int) {
	switch x.gone += more; {
	case x.gone == len(x.list):
		clear(x.list)
		x.list, x.gone = x.list[:0], 0
	case x.gone > len(x.list)/2:
		x.list = slices.DeleteFunc(x.list, func(e Entry) bool { return e.Seg.Gone })
		x.gone = 0
	}
}

func (x *Index) setOwner(seg *block.Segment, owner uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list[x.search(seg.Base)].Owner = owner
}

// Find returns the segment whose addresses hold addr.
func (x *Index) Find(addr uint64) (Entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := x.search(addr)
	if i == len(x.list) || addr < x.list[i].base || x.list[i].Seg.Gone {
		return Entry{}, false
	}
	return x.list[i], true
}

// From returns the first segment whose addresses begin at addr or above it.
func (x *Index) From(addr uint64) (Entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := x.search(addr); i < len(x.list); i++ {
		if e := x.list[i]; e.base >= addr && !e.Seg.Gone {
			return e, true
		}
	}
	return Entry{}, false
}

// bytes returns the memory that the index takes, with the segments' books.
func (x *Index) bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return int64(cap(x.list))*32 + int64(len(x.list)-x.gone)*64
}
