// Package origins remembers where live blocks came from: the Go stacks that
// allocated them and the labels that they stand under.
package origins

import (
	"strings"

	"github.com/cupool/cupool/internal/callstack"
	"github.com/cupool/cupool/internal/lock"
)

// Stack is the program counters of the code that allocated a block.
type Stack [20]uintptr

// Frames returns the functions of the stack without those of the allocator's
// package at its top.
func (s *Stack) Frames(allocator string) []callstack.Frame {
	return callstack.Frames(s[:], isOf(allocator))
}

// Origin is what is remembered of a block.
type Origin struct {
	Weight float64 // of the sample that it is; 0: none
	Homed  bool    // it came from a place in the magazines

	Labeled bool // it stands under Label
	Label   string

	stack Stack
	freed *Stack // nil: not recorded
}

// FreedAt returns the stack that freed the block, as Describe does that which
// allocated it.
func (o Origin) FreedAt(allocator string) string {
	if o.freed == nil {
		return ""
	}
	stack, _ := Origin{stack: *o.freed}.Describe(allocator)
	return stack
}

// Describe returns the stack as Go prints it, without the frames of the
// allocator's package at its top, "" for none, and the label.
func (o Origin) Describe(allocator string) (stack, label string) {
	return callstack.Format(o.stack[:], isOf(allocator)), o.Label
}

// Stack returns the stack that allocated the block, the zero one where it was not recorded.
func (o Origin) Stack() Stack { return o.stack }

// isOf says which functions are of the allocator's package.
func isOf(allocator string) func(function string) bool {
	return func(function string) bool {
		return function == "runtime.Callers" || strings.HasPrefix(function, allocator+".")
	}
}

// Table keeps the origins of live blocks that have any. A block has the number
// of its origin, which is one more than its place in the list; 0 is no origin.
// It is safe for use from several goroutines.
type Table struct {
	mu   lock.Mutex
	list []Origin
	free []uint32
}

// Add remembers a stack and returns the number of the origin. The other arguments
// are Origin's fields.
func (t *Table) Add(s Stack, weight float64, homed bool) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(Origin{stack: s, Weight: weight, Homed: homed})
}

func (t *Table) add(o Origin) uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.list[i-1] = o
		return i
	}
	t.list = append(t.list, o)
	return uint32(len(t.list))
}

// Drop forgets an origin.
func (t *Table) Drop(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list[i-1] = Origin{} // the label may be long
	t.free = append(t.free, i)
}

// Freed remembers the stack that freed a block that has an origin.
func (t *Table) Freed(i uint32, s Stack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list[i-1].freed = &s
}

// At returns an origin, the zero one for 0.
func (t *Table) At(i uint32) Origin {
	if i == 0 {
		return Origin{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list[i-1]
}

// SetLabel puts a block under a label. i is the number of its origin, 0 for none; the
// number that it has then is returned.
func (t *Table) SetLabel(i uint32, name string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i == 0 {
		i = t.add(Origin{})
	}
	t.list[i-1].Labeled, t.list[i-1].Label = true, name
	return i
}
