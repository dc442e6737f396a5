package history

import (
	"sync"

	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// stacks are the Go stacks that events and totals have, each with a number.
type stacks struct {
	numbers map[origins.Stack]uint32
	list    []*stack // by number; 0 is none
	free    []uint32
}

// stack is one of them. The program counters never change.
type stack struct {
	pcs  origins.Stack
	uses int

	once   sync.Once
	frames snapshot.Stack
}

func newStacks() stacks {
	return stacks{numbers: map[origins.Stack]uint32{}, list: make([]*stack, 1)}
}

// add returns the number of a stack, with one use more.
func (t *stacks) add(s *origins.Stack) uint32 {
	if s == nil {
		return 0
	}
	n, ok := t.numbers[*s]
	if !ok {
		if k := len(t.free); k > 0 {
			n, t.free = t.free[k-1], t.free[:k-1]
		} else {
			n = uint32(len(t.list))
			t.list = append(t.list, nil)
		}
		t.numbers[*s] = n
		t.list[n] = &stack{pcs: *s}
	}
	t.use(n)
	return n
}

// use counts one use more.
func (t *stacks) use(n uint32) {
	if n != 0 {
		t.list[n].uses++
	}
}

// drop counts one use less, and forgets a stack that has none.
func (t *stacks) drop(n uint32) {
	if n == 0 {
		return
	}
	s := t.list[n]
	if s.uses--; s.uses == 0 {
		delete(t.numbers, s.pcs)
		t.list[n] = nil
		t.free = append(t.free, n)
	}
}

// name returns the functions of a stack, looked up once.
func (s *stack) name(allocator string) snapshot.Stack {
	s.once.Do(func() { s.frames = Frames(&s.pcs, allocator) })
	return s.frames
}

// Frames returns the functions of a stack without those of the allocator's package
// at its top.
func Frames(s *origins.Stack, allocator string) (out snapshot.Stack) {
	for _, f := range s.Frames(allocator) {
		out = append(out, snapshot.Frame(f))
	}
	return out
}

// totals are the sums of the weights of sampled allocations, and of their bytes, by
// stack, pool and label. There are maxTotals at most; what finds no place is summed up
// by pool alone.
type totals map[totalKey]*totalOf

type totalKey struct {
	stack, id uint32 // of the pool
	label     string
}

type totalOf struct {
	totalKey
	allocations, bytes float64
}

const maxTotals = 1 << 14

func (t totals) add(s *stacks, r record) {
	k := totalKey{r.stack, r.id, r.label}
	x := t[k]
	if x == nil && len(t) >= maxTotals {
		k = totalKey{id: r.id}
		x = t[k]
	}
	if x == nil {
		x = &totalOf{totalKey: k}
		t[k] = x
		s.use(k.stack)
	}
	x.allocations += r.weight
	x.bytes += r.weight * float64(r.size)
}
