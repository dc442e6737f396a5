package snapshot

import "math/rand/v2"

// tree is the allocations of blocks, by address. It is a treap: the nodes above have
// the lower priorities, which are random, so it is about as deep as a
// balanced one. Cutting and joining take few steps however many blocks there are.
type tree struct {
	*torchEvent
	priority    uint64
	left, right *tree
}

func leaf(e *torchEvent) *tree { return &tree{torchEvent: e, priority: rand.Uint64()} }

// cut returns the blocks below an address, and the others. What is at the address is
// below where with says so.
func (t *tree) cut(p Ptr, with bool) (below, above *tree) {
	switch {
	case t == nil:
		return nil, nil
	case t.Address < p || with && t.Address == p:
		t.right, above = t.right.cut(p, with)
		return t, above
	default:
		below, t.left = t.left.cut(p, with)
		return below, t
	}
}

// join returns the blocks of two trees; those of a are below those of b.
func join(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority < b.priority:
		a.right = join(a.right, b)
		return a
	default:
		b.left = join(a, b.left)
		return b
	}
}

// find returns the last block at or below an address.
func (t *tree) find(p Ptr) (last *torchEvent) {
	for t != nil {
		if t.Address <= p {
			last, t = t.torchEvent, t.right
		} else {
			t = t.left
		}
	}
	return last
}

// backward calls f for each block, from the highest address down.
func (t *tree) backward(f func(*torchEvent)) {
	if t != nil {
		t.right.backward(f)
		f(t.torchEvent)
		t.left.backward(f)
	}
}
