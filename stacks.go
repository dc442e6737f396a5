package cupool

import (
	"sync"

	"github.com/cupool/cupool/internal/callstack"
)

// origin is what is remembered of where a live block came from.
type origin struct {
	pc    [16]uintptr // with Config.RecordStacks
	label *label      // of an Allocator of WithLabel; nil: none
}

// stackTable keeps the origins of live blocks that have any. Numbers are one
// more than the place in the list, 0 is no origin.
type stackTable struct {
	mu     sync.Mutex
	list   []origin
	free   []uint32
	labels []*label // by name
}

func (t *stackTable) add(pc [16]uintptr) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(origin{pc: pc})
}

func (t *stackTable) addLocked(o origin) uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.list[i-1] = o
		return i
	}
	t.list = append(t.list, o)
	return uint32(len(t.list))
}

// drop forgets the origin of a block of so many bytes as requested.
func (t *stackTable) drop(i uint32, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.list[i-1].label; l != nil {
		l.free(bytes)
	}
	t.free = append(t.free, i)
}

// at returns a block's origin, the zero one for 0.
func (t *stackTable) at(i uint32) origin {
	if i == 0 {
		return origin{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list[i-1]
}

// describe returns the stack as Go prints it, "" for none, and the label.
func (o origin) describe() (stack, label string) {
	return callstack.Format(o.pc[:]), o.label.text()
}
