package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Check proves a plan: no two blocks that live at the same time share a
// byte, and no offset is negative. It returns the first pair it finds that
// does not hold. n blocks take n log n steps.
//
// Blocks are stacked in the order of their offsets. A block that begins
// below the top of what was stacked during its life overlaps some of that:
// what it meets there begins no higher than itself.
func Check(blocks []Interval, offsets []int64) error {
	if err := validate(blocks); err != nil {
		return err
	}
	if len(blocks) != len(offsets) {
		return fmt.Errorf("plan: %d offsets for %d blocks", len(offsets), len(blocks))
	}
	steps, count := toSteps(blocks)
	order := make([]int32, len(blocks))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(offsets[a], offsets[b]), cmp.Compare(a, b)) })
	t := newTops(count)
	for _, i := range order {
		b := &steps[i]
		if offsets[i] < 0 {
			return fmt.Errorf("plan: block %d is at offset %d", i, offsets[i])
		}
		if top, id := t.query(1, 0, t.leaves, b.Birth, b.Death); top > offsets[i] {
			return fmt.Errorf("plan: block %d (%v) at %d shares memory with block %d (%v) at %d", i, blocks[i], offsets[i], id, blocks[id], offsets[id])
		}
		t.stack(1, 0, t.leaves, b.Birth, b.Death, topOf{offsets[i] + b.Size, i})
	}
	return nil
}

// topOf is the end of a block.
type topOf struct {
	end int64
	id  int32
}

// tops is a segment tree over the steps: the highest end at some time of a
// node, and of the blocks that live throughout it.
type tops struct {
	leaves    int32
	some, all []topOf
}

func newTops(steps int32) *tops {
	leaves := int32(1)
	for leaves < steps {
		leaves *= 2
	}
	return &tops{leaves, make([]topOf, 2*leaves), make([]topOf, 2*leaves)}
}

func (t *tops) stack(node, lo, hi, b, d int32, top topOf) {
	if top.end > t.some[node].end {
		t.some[node] = top
	}
	if b <= lo && hi <= d {
		if top.end > t.all[node].end {
			t.all[node] = top
		}
		return
	}
	mid := (lo + hi) / 2
	if b < mid {
		t.stack(2*node, lo, mid, b, d, top)
	}
	if mid < d {
		t.stack(2*node+1, mid, hi, b, d, top)
	}
}

func (t *tops) query(node, lo, hi, b, d int32) (end int64, id int32) {
	if b <= lo && hi <= d {
		return t.some[node].end, t.some[node].id
	}
	best := t.all[node]
	mid := (lo + hi) / 2
	if b < mid {
		if end, id := t.query(2*node, lo, mid, b, d); end > best.end {
			best = topOf{end, id}
		}
	}
	if mid < d {
		if end, id := t.query(2*node+1, mid, hi, b, d); end > best.end {
			best = topOf{end, id}
		}
	}
	return best.end, best.id
}
