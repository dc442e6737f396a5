package program

import (
	"cmp"
	"maps"
	"slices"

	"gorgonia.org/tensor"
)

// Gorgonia makes the gradient of a tensor that is sliced of one tensor of zeros
// for each slice, with the slice's gradient in it, and adds them all up. It makes
// a concatenation by copies. Where what makes the parts can write to where they
// belong, neither takes an operation: a room is memory for the result that the
// parts are written to.

// part is a tensor and where in a room it belongs.
type part struct {
	slot int
	at   View
}

// bypass has slices of all of a tensor, which gorgonia makes for a nil among
// others, and their gradients read past.
func (g *grouper) bypass() {
	for i := range g.instrs {
		in := &g.instrs[i]
		arg := map[string]int{"*gorgonia.sliceOp": 1, "gorgonia.sliceIncrOp": 2}[in.Name] - 1
		if arg < 0 || in.Fused() || !isAll(in.Op) || g.instrs[in.In[arg]].Scalar || !slices.Equal(g.instrs[in.In[arg]].Shape, in.Shape) {
			continue
		}
		for _, r := range g.readers[i] {
			for k, from := range g.instrs[r].In {
				if from == i {
					g.instrs[r].In[k] = in.In[arg]
					g.readers[in.In[arg]] = append(g.readers[in.In[arg]], r)
				}
			}
		}
		if g.hidden(i) && len(g.readers[i]) > 0 {
			g.remove(i)
		}
		g.readers[i] = nil
	}
}

// rooms finds tensors that are put together of parts.
func (g *grouper) rooms() {
	for i := len(g.instrs) - 1; i >= 0; i-- {
		if parts, zero, inside := g.partsOf(i); len(parts) > 1 {
			g.remove(inside...)
			g.room(i, parts, zero)
		}
	}
	for _, i := range g.wholes {
		g.fill(i)
	}
}

// partsOf returns what a tensor is put together of, whether there are gaps
// between, and the instructions that did so.
func (g *grouper) partsOf(i int) (parts []part, zero bool, inside []int) {
	in := &g.instrs[i]
	switch {
	case g.gone[i] || in.Fused() || in.Late || in.Scalar || in.Dtype != tensor.Float32 && in.Dtype != tensor.Float64 || in.Shape.TotalSize() == 0:
	case in.Name == "gorgonia.concatOp":
		return g.concatenated(i), false, nil
	case g.is(i, "gorgonia.elemBinOp", addOp):
		return g.sliceSum(i)
	}
	return nil, false, nil
}

// concatenated returns the parts of a concatenation.
func (g *grouper) concatenated(i int) (parts []part) {
	in := &g.instrs[i]
	axis, from := int(Field(in.Op, "axis").Int()), 0
	if axis < 0 || axis >= len(in.Shape) {
		return nil
	}
	inner := product(in.Shape[axis+1:])
	for _, slot := range in.In {
		p := &g.instrs[slot]
		if p.Scalar || p.Dtype != in.Dtype || len(p.Shape) != len(in.Shape) {
			return nil
		}
		at := View{Offset: from * inner, Rows: product(in.Shape[:axis]), Columns: p.Shape[axis] * inner, Stride: in.Shape[axis] * inner}
		if at.size() != p.Shape.TotalSize() || at.size() == 0 {
			return nil
		}
		parts = append(parts, part{slot, at})
		from += p.Shape[axis]
	}
	if from != in.Shape[axis] {
		return nil
	}
	return parts
}

// sliceSum returns the parts of a sum of gradients of slices that have no
// elements in common.
func (g *grouper) sliceSum(i int) (parts []part, zero bool, inside []int) {
	leaves, adds := g.summands(i)
	covered := 0
	for _, leaf := range leaves {
		in := &g.instrs[leaf]
		if in.Name != "gorgonia.sliceIncrOp" || g.instrs[in.In[1]].Scalar {
			return nil, false, nil
		}
		at, ok := cutOf(in.Op, int(Field(in.Op, "along").Int()), in.Shape)
		if !ok || at.size() != g.instrs[in.In[1]].Shape.TotalSize() || at.Stride != firstOf(parts, at).Stride {
			return nil, false, nil
		}
		parts = append(parts, part{in.In[1], at})
		covered += at.size()
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.at.Offset, b.at.Offset) })
	for k := 1; k < len(parts); k++ {
		if before := parts[k-1].at; parts[k].at.Offset < before.Offset+before.Columns {
			return nil, false, nil
		}
	}
	return parts, covered < g.instrs[i].Shape.TotalSize(), append(adds, leaves...)
}

// firstOf returns where the first part belongs, or at if it is to be the first.
func firstOf(parts []part, at View) View {
	if len(parts) == 0 {
		return at
	}
	return parts[0].at
}

// summands returns what a sum adds up, and the sums inside it.
func (f *fuser) summands(i int) (leaves, adds []int) {
	for _, from := range f.instrs[i].In {
		switch {
		case !f.onlyFor(from, i):
			return nil, nil // which something else reads too
		case f.is(from, "gorgonia.elemBinOp", addOp):
			l, a := f.summands(from)
			if l == nil {
				return nil, nil
			}
			leaves, adds = append(leaves, l...), append(append(adds, a...), from)
		default:
			leaves = append(leaves, from)
		}
	}
	return leaves, adds
}

// room makes room for a tensor.
func (g *grouper) room(i int, parts []part, zero bool) {
	in := g.instrs[i]
	for _, from := range in.In {
		g.stopReading(from, i)
	}
	room := g.add(Instr{Node: in.Node, Kind: Operation, Op: in.Op, Name: "room", Step: Room, Shape: in.Shape, Dtype: in.Dtype, InPlace: -1, Zero: zero}, -1)
	g.instrs[i].replace(Whole, room)
	g.readers[room] = append(g.readers[room], i)
	for k := range parts {
		parts[k].at.Slot = room
	}
	g.parts[i] = parts
	g.wholes = append(g.wholes, i)
}

// fill has the parts of a room written. A part that is a room of its own lies in
// this one. Others are copied, by what makes them if that is an elementwise
// operation (attach).
func (g *grouper) fill(whole int) {
	for _, p := range g.parts[whole] {
		if from := g.seen(all(p.slot, p.at.size())); p.at.dense() && from.Offset == 0 && from.size() == g.instrs[from.Slot].Shape.TotalSize() {
			g.placed[from.Slot] = append(g.placed[from.Slot], part{whole, p.at})
		}
		if inner := g.roomOf(p); inner >= 0 {
			g.instrs[inner].In, g.instrs[inner].Offset = []int{p.at.Slot}, p.at.Offset
			g.readers[p.at.Slot] = append(g.readers[p.at.Slot], inner)
			g.wait(whole, g.readers[inner][0])
			continue
		}
		in := &g.instrs[whole]
		c := g.add(Instr{Node: in.Node, Kind: Operation, Op: in.Op, Name: "copy", Shape: g.instrs[p.slot].Shape, Dtype: in.Dtype, InPlace: -1, In: []int{p.slot}, Step: Elementwise}, 2*whole-1)
		g.readers[p.slot] = append(g.readers[p.slot], c)
		g.copies[c] = p.at
		g.wait(whole, c)
	}
}

// roomOf returns the room of a part that is put together of parts and may lie
// in another room, or -1.
func (g *grouper) roomOf(p part) int {
	from := g.seen(all(p.slot, p.at.size()))
	if in := &g.instrs[from.Slot]; in.Step != Whole || !p.at.dense() || from.Offset != 0 || from.size() != in.Shape.TotalSize() || len(g.instrs[in.In[0]].In) > 0 {
		return -1
	}
	return g.instrs[from.Slot].In[0]
}

// wait has a whole come after what writes a part of it.
func (g *grouper) wait(whole, writer int) {
	g.after[whole] = append(g.after[whole], writer)
	g.before[writer] = append(g.before[writer], whole)
}

// copied makes elements of the copies to rooms, or has the elements that make
// the parts write there.
func (g *grouper) copied() {
	for _, c := range slices.Sorted(maps.Keys(g.copies)) {
		at := g.copies[c]
		from := g.seen(all(g.instrs[c].In[0], at.size()))
		if e := g.el[from.Slot]; e != nil && from.size() == g.instrs[from.Slot].Shape.TotalSize() && from.dense() && e.writes(at) {
			g.attach(c, from.Slot)
			continue
		}
		e := &element{op: copyOp}
		if !e.reads(arg{View: from}) || !e.writes(at) {
			e = &element{op: copyOp, args: []arg{{View: all(g.instrs[c].In[0], at.size())}}}
			e.writes(at)
		}
		g.el[c] = e
	}
}

// attach has an element do the work of a copy.
func (g *grouper) attach(c, by int) {
	g.remove(c)
	for _, w := range g.before[c] {
		k := slices.Index(g.after[w], c)
		g.after[w][k] = by
		g.before[by] = append(g.before[by], w)
	}
	g.before[c] = nil
}
