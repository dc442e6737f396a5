package program

import (
	"slices"

	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// Group is several elementwise operations as one program. Slots in its views
// are places in Instr.In, and in those of Outputs that are no room, places in
// Instr.Parts, or -1 for the instruction's own result.
type Group struct {
	N, Columns int
	Inputs     []View
	Scalars    []int // places in Instr.In
	Steps      []int64
	Outputs    []Output
}

// Output is where a result goes.
type Output struct {
	View
	Room bool
	Reg  int
}

// emit puts the members of a run, which come from its end, into the schedule in
// as few groups as the kernel allows.
func (g *grouper) emit(members []int) {
	if b := g.build(members); b != nil {
		b.emit()
		return
	}
	half := len(members) / 2
	g.emit(members[:half])
	g.emit(members[half:])
}

// builder makes a group.
type builder struct {
	g       *grouper
	members []int // in order
	in      map[int]bool
	group   Group
	slots   []int // what the group reads
	regs    map[int]int
	inputs  map[View]int
	scalars map[int]int
	parts   []int
	leader  int // the member whose instruction computes the group
}

// build returns a group of the members, or nil if they are too many.
func (g *grouper) build(fromEnd []int) *builder {
	b := &builder{g: g, members: slices.Clone(fromEnd), in: make(map[int]bool), regs: make(map[int]int),
		inputs: make(map[View]int), scalars: make(map[int]int)}
	slices.Reverse(b.members)
	b.group.N = g.sizeOf(b.members[0])
	for _, i := range b.members {
		b.in[i] = true
		if c := g.el[i].columns; c != 0 {
			b.group.Columns = c
		}
	}
	if b.group.Columns == 0 {
		b.group.Columns = b.group.N
	}
	b.operands()
	b.outputs()
	gr := &b.group
	if len(gr.Inputs) > gpu.FusedInputs || len(gr.Scalars) > gpu.FusedScalars || len(b.members) > gpu.FusedSteps || len(gr.Outputs) > gpu.FusedOutputs {
		return nil
	}
	b.steps()
	return b
}

// operands notes what the group reads of others.
func (b *builder) operands() {
	for _, i := range b.members {
		for _, a := range b.g.el[i].args {
			if b.in[a.Slot] {
				continue
			}
			if _, ok := b.scalars[a.Slot]; a.scalar && !ok {
				b.scalars[a.Slot] = len(b.scalars)
				b.group.Scalars = append(b.group.Scalars, b.slot(a.Slot))
			} else if _, ok := b.inputs[a.View]; !a.scalar && !ok {
				b.inputs[a.View] = len(b.inputs)
				v := a.View
				v.Slot = b.slot(a.Slot)
				b.group.Inputs = append(b.group.Inputs, v)
			}
		}
	}
}

// slot returns the place of a slot among those that the group reads.
func (b *builder) slot(s int) int {
	if at := slices.Index(b.slots, s); at >= 0 {
		return at
	}
	b.slots = append(b.slots, s)
	return len(b.slots) - 1
}

// outputs finds the results that others read. The last of them, or the last
// member, leads.
func (b *builder) outputs() {
	b.leader = b.members[len(b.members)-1]
	var own []int
	for k, i := range b.members {
		reg := len(b.inputs) + len(b.scalars) + k
		if b.isRead(i) {
			own = append(own, i)
			b.group.Outputs = append(b.group.Outputs, Output{View: all(len(own)-1, b.group.N), Reg: reg})
			b.leader = i
		}
		for _, v := range b.g.el[i].to {
			v.Slot = b.slot(v.Slot)
			b.group.Outputs = append(b.group.Outputs, Output{View: v, Room: true, Reg: reg})
		}
	}
	if len(own) == 0 {
		return
	}
	b.parts = own[:len(own)-1]
	for k := range b.group.Outputs {
		if o := &b.group.Outputs[k]; !o.Room && o.Slot == len(own)-1 {
			o.Slot = -1
		}
	}
}

// isRead reports whether something outside of the group needs a result.
func (b *builder) isRead(i int) bool {
	return !b.g.hidden(i) || slices.ContainsFunc(b.g.readers[i], func(r int) bool {
		return !b.in[r] && !(b.g.instrs[r].Step == Whole && b.g.writes(i) && !slices.Contains(b.g.instrs[r].In, i))
	})
}

// steps writes the program.
func (b *builder) steps() {
	first := len(b.inputs) + len(b.scalars)
	for k, i := range b.members {
		b.regs[i] = first + k
		e := b.g.el[i]
		var r [2]int
		for j, a := range e.args {
			r[j] = b.reg(a)
		}
		b.group.Steps = append(b.group.Steps, gpu.FusedStep(e.op, r[0], r[1]))
	}
}

func (b *builder) reg(a arg) int {
	switch {
	case a.scalar:
		return len(b.inputs) + b.scalars[a.Slot]
	case b.in[a.Slot]:
		return b.regs[a.Slot]
	}
	return b.inputs[a.View]
}

// emit puts the group into the schedule.
func (b *builder) emit() {
	g := b.g
	if b.isPlain() {
		g.order = append(g.order, b.members[0])
		return
	}
	in := &g.instrs[b.leader]
	in.replace(Elementwise, b.slots...)
	in.Group, in.Parts = &b.group, b.parts
	for _, i := range b.members {
		switch {
		case i == b.leader:
		case slices.Contains(b.parts, i):
			g.instrs[i].replace(PartOf, b.leader)
			g.order = append(g.order, i)
		default:
			g.gone[i] = true
		}
		for _, w := range g.before[i] {
			if !slices.Contains(g.instrs[w].In, b.leader) {
				g.instrs[w].In = append(g.instrs[w].In, b.leader)
			}
		}
	}
	g.order = append(g.order, b.leader)
}

// isPlain reports whether the group is one operation that its own kernel
// computes as well.
func (b *builder) isPlain() bool {
	if len(b.members) > 1 {
		return false
	}
	i := b.members[0]
	in, e := &b.g.instrs[i], b.g.el[i]
	if len(e.to) > 0 || in.Name != "gorgonia.elemBinOp" && in.Name != "gorgonia.elemUnaryOp" || len(in.In) != len(e.args) {
		return false
	}
	for k, a := range e.args {
		if a.Slot != in.In[k] {
			return false
		}
	}
	return true
}
