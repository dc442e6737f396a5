// Package origins remembers where live blocks came from: the Go stacks that
// allocated them and the labels that they stand under.
package origins

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cupool/cupool/internal/callstack"
)

// Stack is the program counters of the code that allocated a block.
type Stack [20]uintptr

// Count is a quantity over time.
type Count struct{ Current, Peak, Allocated, Freed int64 }

func (c *Count) add(n int64) {
	c.Allocated += n
	c.Current += n
	c.Peak = max(c.Peak, c.Current)
}

func (c *Count) take(n int64) {
	c.Freed += n
	c.Current -= n
}

// Label is one name, and the blocks that stand under it.
type Label struct {
	Name          string
	Blocks, Bytes Count
}

// Here returns the stack of the caller's caller.
func Here() (s Stack) {
	runtime.Callers(3, s[:])
	return s
}

// Frames returns the functions of the stack without those of the allocator's
// package at its top.
func (s *Stack) Frames(allocator string) []callstack.Frame {
	return callstack.Frames(s[:], isOf(allocator))
}

// Origin is what is remembered of a block.
type Origin struct {
	Weight float64 // of the sample that it is; 0: none
	Homed  bool    // it came from a place in the magazines

	stack Stack
	label *Label // nil: none
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
	return callstack.Format(o.stack[:], isOf(allocator)), o.Label()
}

// Frames is Describe with the stack's functions one by one.
func (o Origin) Frames(allocator string) (stack []callstack.Frame, label string) {
	return o.stack.Frames(allocator), o.Label()
}

// Label returns the name of the label, "" for none.
func (o Origin) Label() string {
	if o.label == nil {
		return ""
	}
	return o.label.Name
}

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
	mu     sync.Mutex
	list   []Origin
	free   []uint32
	labels []*Label // by name
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

// Drop forgets the origin of a block of so many bytes as requested.
func (t *Table) Drop(i uint32, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.list[i-1].label; l != nil {
		l.Blocks.take(1)
		l.Bytes.take(bytes)
	}
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

// Label makes the label of a name, when it is new.
func (t *Table) Label(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.label(name)
}

func (t *Table) label(name string) *Label {
	i, ok := slices.BinarySearchFunc(t.labels, name, func(l *Label, name string) int { return cmp.Compare(l.Name, name) })
	if !ok {
		t.labels = slices.Insert(t.labels, i, &Label{Name: name})
	}
	return t.labels[i]
}

// SetLabel puts a block of so many bytes as requested under the label of a name. i
// is the number of its origin, 0 for none; the number that it has then is returned.
func (t *Table) SetLabel(i uint32, name string, bytes int64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.label(name)
	if i == 0 {
		i = t.add(Origin{})
	}
	t.list[i-1].label = l
	l.Blocks.add(1)
	l.Bytes.add(bytes)
	return i
}

// Labels returns all labels, by name.
func (t *Table) Labels() (all []Label) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.labels {
		all = append(all, *l)
	}
	return all
}

// Reset calls reset for the counts of all labels.
func (t *Table) Reset(reset func(*Count)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.labels {
		reset(&l.Blocks)
		reset(&l.Bytes)
	}
}
