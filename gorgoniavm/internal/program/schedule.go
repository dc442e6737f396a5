package program

import (
	"slices"

	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// An elementwise operation is one launch on a GPU, and a recurrent network has
// hundreds. group puts those of one size that come one after the other together
// in steps of the kind Elementwise.

// grouper is a fuser that knows elementwise operations.
type grouper struct {
	*fuser
	el      []*element // of each instruction; nil: it is no such operation
	numbers map[int]bool
	rank    []int // of each instruction, in the order that they had

	wholes        []int
	parts         map[int][]part // of wholes
	copies        map[int]View   // where copies to rooms write to
	placed        map[int][]part // rooms that a slot is all of a part of, without gaps
	after, before map[int][]int  // wholes, and what they come after though they do not read it

	scheduled []bool
	order     []int // the schedule, from its end
}

// group returns the instructions with elementwise ones together.
func group(instrs []Instr) []Instr {
	g := &grouper{fuser: newFuser(instrs), el: make([]*element, len(instrs)), numbers: make(map[int]bool), rank: make([]int, len(instrs)),
		parts: make(map[int][]part), copies: make(map[int]View), placed: make(map[int][]part), after: make(map[int][]int), before: make(map[int][]int)}
	for i := range g.rank {
		g.rank[i] = 2 * i
	}
	g.bypass()
	g.rooms()
	g.sums()
	g.elements()
	g.copied()
	g.dropUnread()
	g.schedule()
	for w, writers := range g.after {
		for _, i := range writers {
			if g.el[i] == nil { // another whole
				g.instrs[w].In = append(g.instrs[w].In, i)
			}
		}
	}
	slices.Reverse(g.order)
	return g.orderedAs(g.order)
}

// add adds an instruction.
func (g *grouper) add(in Instr, rank int) int {
	i := len(g.instrs)
	in.Out = i
	g.instrs, g.rank, g.el = append(g.instrs, in), append(g.rank, rank), append(g.el, nil)
	g.readers, g.gone, g.taken = append(g.readers, nil), append(g.gone, false), append(g.taken, false)
	return i
}

// reads returns the slots that have to be there before an instruction.
func (g *grouper) reads(i int) []int {
	e := g.el[i]
	if e == nil {
		return append(slices.Clip(g.instrs[i].In), g.after[i]...)
	}
	var all []int
	for _, a := range e.args {
		all = append(all, a.Slot)
	}
	for _, v := range e.to {
		all = append(all, v.Slot)
	}
	return all
}

// dropUnread takes away operations that only slices and the like have read, and
// notes who reads what now.
func (g *grouper) dropUnread() {
	g.readers = make([][]int, len(g.instrs))
	byRank := g.byRank()
	for k := len(byRank) - 1; k >= 0; k-- {
		i := byRank[k]
		if g.gone[i] {
			continue
		}
		if len(g.readers[i]) == 0 && g.hidden(i) && g.instrs[i].Kind == Operation && !g.writes(i) {
			g.gone[i] = true
			continue
		}
		for _, from := range g.reads(i) {
			g.readers[from] = append(g.readers[from], i)
		}
	}
}

// writes reports whether an element writes to rooms.
func (g *grouper) writes(i int) bool { return g.el[i] != nil && len(g.el[i].to) > 0 }

// byRank returns the instructions in the order that they had.
func (g *grouper) byRank() []int {
	order := make([]int, len(g.instrs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return g.rank[a] - g.rank[b] })
	return order
}

// schedule goes through the instructions from the end. With an elementwise
// operation come those that it is connected with, as early as nobody reads them
// later.
func (g *grouper) schedule() {
	g.scheduled = make([]bool, len(g.instrs))
	left := make([]int, len(g.instrs)) // readers that are not scheduled
	for i := range g.instrs {
		left[i] = len(g.readers[i])
	}
	byRank := g.byRank()
	for k := len(byRank) - 1; k >= 0; k-- {
		i := byRank[k]
		switch {
		case g.gone[i] || g.scheduled[i]:
		case g.el[i] == nil:
			g.place(i, left)
		default:
			g.run(i, left)
		}
	}
}

// place puts an instruction before those that are scheduled, and the rooms
// before it that nothing writes to earlier.
func (g *grouper) place(i int, left []int) {
	g.scheduled[i] = true
	g.order = append(g.order, i)
	for _, from := range g.reads(i) {
		left[from]--
	}
	for _, from := range g.reads(i) {
		if left[from] == 0 && g.instrs[from].Step == Room && !g.scheduled[from] {
			g.place(from, left)
		}
	}
}

// run schedules an elementwise operation with those that it is connected with.
func (g *grouper) run(first int, left []int) {
	r := newRun(g, first)
	ready := map[int]bool{}
	member := first
	var rooms []int
	for ; member >= 0; member = g.latest(ready) {
		if len(r.members) == gpu.FusedSteps || len(r.members) > 0 && !r.fits(member) {
			continue
		}
		g.scheduled[member] = true
		r.take(member)
		for _, from := range g.reads(member) {
			if left[from]--; left[from] == 0 && g.instrs[from].Step == Room {
				rooms = append(rooms, from)
			}
		}
		for _, i := range r.near(member) {
			if left[i] == 0 && !g.scheduled[i] && !g.gone[i] && r.fits(i) {
				ready[i] = true
			}
		}
	}
	g.emit(r.members)
	for _, room := range rooms {
		if !g.scheduled[room] {
			g.place(room, left)
		}
	}
}

// latest takes the last one of a set, or -1.
func (g *grouper) latest(ready map[int]bool) int {
	last := -1
	for i := range ready {
		if g.scheduled[i] {
			delete(ready, i)
		} else if last < 0 || g.rank[i] > g.rank[last] || g.rank[i] == g.rank[last] && i > last {
			last = i
		}
	}
	delete(ready, last)
	return last
}

// A run is elementwise operations of one size, from the last one on.
type run struct {
	g       *grouper
	members []int
	n       int // elements
	columns int
}

func newRun(g *grouper, first int) *run { return &run{g: g, n: g.sizeOf(first)} }

// sizeOf returns how many elements an element makes.
func (g *grouper) sizeOf(i int) int {
	return g.instrs[i].Shape.TotalSize()
}

// fits reports whether an operation may join.
func (r *run) fits(i int) bool {
	e := r.g.el[i]
	return e != nil && r.g.sizeOf(i) == r.n && r.g.instrs[i].Dtype == r.g.instrs[r.members[0]].Dtype &&
		(e.columns == 0 || r.columns == 0 || e.columns == r.columns)
}

func (r *run) take(i int) {
	r.members = append(r.members, i)
	if c := r.g.el[i].columns; c != 0 {
		r.columns = c
	}
}

// near returns the operations that a member is connected with: what it reads,
// and what reads or writes the same tensors.
func (r *run) near(member int) (all []int) {
	for _, from := range r.g.reads(member) {
		if r.g.instrs[from].Scalar {
			continue
		}
		all = append(append(all, from), r.g.readers[from]...)
	}
	return all
}
