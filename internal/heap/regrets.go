package heap

import (
	"maps"

	"github.com/cupool/cupool/internal/ledger"
)

// Regrets counts the segments that heaps gave back to the device, until they miss
// them. The zero value is to be made.
type Regrets map[Regret]int

// Regret is a segment of a heap, by what a request that misses it asks for.
type Regret struct {
	Heap *Heap
	Kind ledger.Kind
	Size int64 // bytes
}

// Enter counts segments of a heap that were given back.
func (r Regrets) Enter(h *Heap, gone []Idle) {
	for i, n := 0, 0; i < len(gone); i, n = i+n, 0 {
		of := Regret{h, gone[i].Kind(), gone[i].Seg.Size}
		for i+n < len(gone) && gone[i+n].Kind() == of.Kind && gone[i+n].Seg.Size == of.Size {
			n++ // those of one size mostly come together
		}
		r[of] += n
	}
}

// Spend takes one off a count that is above limit, and reports whether it was.
func (r Regrets) Spend(of Regret, limit int) bool {
	if r[of] <= limit {
		return false
	}
	r[of]--
	return true
}

// Forget drops the counts of a heap.
func (r Regrets) Forget(h *Heap) {
	maps.DeleteFunc(r, func(of Regret, _ int) bool { return of.Heap == h })
}
