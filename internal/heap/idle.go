package heap

import "cmp"

// Order returns OldestFirst, or else LargestFirst.
func Order(oldest bool) func(a, b Idle) int {
	if oldest {
		return OldestFirst
	}
	return LargestFirst
}

// LargestFirst orders idle segments by their sizes, and those of one size by their
// addresses.
func LargestFirst(a, b Idle) int {
	return cmp.Or(cmp.Compare(b.Seg.Size, a.Seg.Size), cmp.Compare(a.Seg.Base, b.Seg.Base))
}

// OldestFirst orders idle segments by how long they have been idle.
func OldestFirst(a, b Idle) int { return cmp.Compare(a.Since, b.Since) }

// releaseBatch bounds the segments that leave a heap at once, for which an
// allocation may have to wait: some tens of microseconds.
const releaseBatch = 1024

// Together returns the first idle segments, as far as they are of one heap, none
// more than need bytes take and no more than may leave at once.
func Together(found []Idle, need int64) []Idle {
	found = found[:min(len(found), releaseBatch)]
	bytes := int64(0)
	for i := range found {
		if bytes >= need || found[i].Owner != found[0].Owner {
			return found[:i]
		}
		bytes += found[i].Seg.Size
	}
	return found
}
