package cupool

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Labels say what memory is for. A block's label stands beside its stack, if
// that is recorded (stacks.go): blocks without one pay nothing, and those with
// one have no home in the magazines, so that every free is seen.

// LabelStats are the statistics of a label. A block counts until its memory
// can be used again: for one that other streams use, until they are done.
type LabelStats struct {
	Label  string
	Blocks Stat
	Bytes  Stat // as requested
}

func (l *LabelStats) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "for %s: %d blocks, %s; at most %d, %s\n", l.Label, l.Blocks.Current, formatBytes(l.Bytes.Current), l.Blocks.Peak, formatBytes(l.Bytes.Peak))
	return err
}

// label is one name. Guarded by stackTable.mu.
type label struct {
	name          string
	blocks, bytes Stat
}

// text returns the name, "" for no label.
func (l *label) text() string {
	if l == nil {
		return ""
	}
	return l.name
}

func (l *label) alloc(bytes int64) { l.blocks.Add(1); l.bytes.Add(bytes) }
func (l *label) free(bytes int64)  { l.blocks.Take(1); l.bytes.Take(bytes) }

// WithLabel returns the allocator as it is seen by a part of the program: what
// is allocated through it stands under a name in Labels, WriteStats, Snapshot,
// Layout and a LeakError, whoever frees it. An Engine or a goroutine gets a
// name of its own that way, a scope by Engine.ScopeLabeled; the same name
// twice is one label. Such blocks take the stream's lock when they are
// allocated and freed.
func (c *Caching) WithLabel(name string) Allocator {
	return &labeled{Caching: c, label: c.stacks.labelOf(name)}
}

// labeled is a Caching whose allocations have a label.
type labeled struct {
	*Caching
	label *label
}

// Alloc implements Allocator.
func (l *labeled) Alloc(size int64, s *Stream) (Block, error) {
	if s == nil {
		s = l.def
	}
	h, err := l.allocSlow(size, s, 0) // what lies in magazines stays there
	if err != nil || h.IsEmpty() {
		return h, err
	}
	c, label := l.Caching, l.label
	if o := c.other(h); o != nil { // lent by another pool
		c, label = o, o.stacks.labelOf(label.name)
	}
	owner, b, err := c.lockOwner("label", h, ErrUseAfterFree)
	if err != nil {
		return Block{}, err // the allocator was closed meanwhile
	}
	defer owner.mu.Unlock()
	if b.Word().Has(block.Homed) {
		owner.unhomeLocked(h.id(), b)
		owner.crossed = crossedRest // a home is of no use to such blocks
	}
	c.stacks.setLabel(b, label)
	return h, nil
}

// labelOf returns the label of a name, made when it is new.
func (t *stackTable) labelOf(name string) *label {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := slices.BinarySearchFunc(t.labels, name, func(l *label, name string) int { return cmp.Compare(l.name, name) })
	if !ok {
		t.labels = slices.Insert(t.labels, i, &label{name: name})
	}
	return t.labels[i]
}

// setLabel gives a block that just went out its label. Its stream is locked.
func (t *stackTable) setLabel(b *block.Block, l *label) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.Stack == 0 {
		b.Stack = t.addLocked(origin{})
	}
	t.list[b.Stack-1].label = l
	l.alloc(b.Requested())
}

// Labels returns the statistics of all labels, by name. They are exact. A
// block that another pool of the family lent is counted there.
func (c *Caching) Labels() (all []LabelStats) {
	t := &c.stacks
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.labels {
		all = append(all, LabelStats{l.name, l.blocks, l.bytes})
	}
	return all
}

// resetLabels is ResetPeak or ResetAccumulated for the labels.
func (t *stackTable) resetLabels(reset func(*Stat)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.labels {
		reset(&l.blocks)
		reset(&l.bytes)
	}
}
