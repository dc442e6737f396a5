package snapshot

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/intern"
)

// Line is live memory that one line of the program has allocated under one label: the
// innermost line outside of libraries.
type Line struct {
	Pool   string `json:"pool,omitempty"`   // name of a private pool
	Label  string `json:"label,omitempty"`  // of WithLabel, if any
	Stack  Stack  `json:"frames,omitempty"` // the line, and its callers as far as they are the same; empty: not recorded
	Blocks int64  `json:"blocks"`
	Bytes  int64  `json:"bytes"` // as requested; an estimate where blocks were sampled
}

// shownFrames is how many functions of a stack are shown.
const shownFrames = 3

// String describes the line: "3 blocks, 12 MiB, for weights, allocated at main.load
// (train.go:42)", with up to two callers.
func (l Line) String() string {
	var sb strings.Builder
	plural := "s"
	if l.Blocks == 1 {
		plural = ""
	}
	fmt.Fprintf(&sb, "%d block%s, %s", l.Blocks, plural, bytesize.Format(l.Bytes))
	if l.Pool != "" {
		fmt.Fprintf(&sb, ", in pool %q", l.Pool)
	}
	if l.Label != "" {
		fmt.Fprintf(&sb, ", for %s", l.Label)
	}
	if len(l.Stack) == 0 {
		return sb.String() + ", not recorded where"
	}
	before := ", allocated at "
	for i, f := range l.Stack[:min(len(l.Stack), shownFrames)] {
		if i == 1 {
			before = ", called by "
		}
		fmt.Fprintf(&sb, "%s%v", before, f)
		before = ", "
	}
	return sb.String()
}

// String is the frame without folders: "main.load (train.go:42)".
func (f Frame) String() string {
	return fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
}

func (f Frame) compare(g Frame) int {
	return cmp.Or(cmp.Compare(f.Function, g.Function), cmp.Compare(f.File, g.File), cmp.Compare(f.Line, g.Line))
}

// What is not the program's: the beginnings of functions of Go, and folders of Python.
var (
	libraries = []string{"github.com/cupool/cupool.", "github.com/cupool/cupool/", "gorgonia.org/", "runtime.", "testing."}
	folders   = []string{"/site-packages/", "/dist-packages/"}
)

// isOwn reports whether a function is of the program. Tests of a library are a program, and
// so are the examples.
func (f Frame) isOwn() bool {
	if strings.HasSuffix(f.File, "_test.go") || strings.HasPrefix(f.Function, "github.com/cupool/cupool/examples/") {
		return true
	}
	return !slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(f.Function, l) }) &&
		!slices.ContainsFunc(folders, func(l string) bool { return strings.Contains(f.File, l) })
}

// Program returns the functions of the stack that are the program's own, without those of
// cupool, Gorgonia, Python's packages and Go; all of it where there is none.
func (s Stack) Program() Stack {
	own := slices.DeleteFunc(slices.Clone(s), func(f Frame) bool { return !f.isOwn() })
	if len(own) == 0 {
		return s
	}
	return own
}

// Lines adds up which lines hold memory. The zero Lines is empty.
type Lines struct {
	sums    map[lineKey]*lineSum
	stacks  intern.Stacks[Frame]
	program []Stack // of a stack's number, its Program
}

type lineKey struct {
	pool, label string
	at          Frame // zero: not recorded
}

type lineSum struct {
	stack         Stack
	of            map[int]bool // the numbers of the stacks that it is the common part of
	blocks, bytes float64
}

// add makes the stack what it has in common with another one.
func (s *lineSum) add(own Stack, number int) {
	if s.of[number] {
		return
	}
	if s.of == nil {
		s.stack, s.of = own, map[int]bool{}
	}
	s.of[number] = true
	same := 0
	for same < min(len(s.stack), len(own)) && s.stack[same] == own[same] {
		same++
	}
	s.stack = s.stack[:same]
}

func (t *Lines) of(k lineKey) *lineSum {
	if t.sums == nil {
		t.sums = map[lineKey]*lineSum{}
	}
	s := t.sums[k]
	if s == nil {
		s = &lineSum{}
		t.sums[k] = s
	}
	return s
}

// Add adds live blocks of a pool under a label, and their bytes as requested.
func (t *Lines) Add(pool, label string, blocks, bytes int64) {
	s := t.of(lineKey{pool: pool, label: label})
	s.blocks += float64(blocks)
	s.bytes += float64(bytes)
}

// Record says where blocks that were added are from: as many as samples stand for.
func (t *Lines) Record(pool, label string, stack Stack, blocks, bytes float64) {
	if len(stack) == 0 {
		return
	}
	number := t.stacks.Number(stack)
	if number == len(t.program) {
		t.program = append(t.program, stack.Program())
	}
	own := t.program[number]
	rest, s := t.of(lineKey{pool: pool, label: label}), t.of(lineKey{pool, label, own[0]})
	rest.blocks -= blocks
	rest.bytes -= bytes
	s.add(own, number)
	s.blocks += blocks
	s.bytes += bytes
}

// List returns the lines, those of the most bytes first. What no stack is recorded of
// stands under its label, or under none.
func (t *Lines) List() []Line {
	list := make([]Line, 0, len(t.sums))
	for k, s := range t.sums {
		if s.bytes >= 0.5 {
			blocks := max(whole(s.blocks), 1) // samples of small blocks may stand for more than there are
			list = append(list, Line{k.pool, k.label, s.stack, blocks, whole(s.bytes)})
		}
	}
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Label, b.Label), slices.CompareFunc(a.Stack, b.Stack, Frame.compare))
	})
	return list
}

// whole rounds a sum that is not negative. A stranger's file may claim more than an int64 holds.
func whole(sum float64) int64 {
	if sum >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(sum))
}

// LinesOf returns which lines hold the memory of snapshots, as Lines.List does.
func LinesOf(of ...Snapshot) []Line {
	var t Lines
	for _, s := range flat(of) {
		for i := range s.Segments {
			for j := range s.Segments[i].Blocks {
				b := &s.Segments[i].Blocks[j]
				if b.State != Live {
					continue
				}
				t.Add(s.Pool, b.Label, 1, b.Requested)
				t.Record(s.Pool, b.Label, b.Stack, b.weight(), b.weight()*float64(b.Requested))
			}
		}
	}
	return t.List()
}
