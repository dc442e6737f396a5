// Package program works out how a graph of gorgonia's is run: which nodes have
// to be computed and in which order, when the last reader of a value is done,
// which results may overwrite an operand, and which groups of operations one
// fused step can take the place of. It runs nothing and holds no memory.
package program

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Wants is what a program wants of a graph.
type Wants struct {
	Bind     bool           // gradients are added to those of the nodes they belong to
	BindOnly gorgonia.Nodes // with Bind: those of these nodes; none: those of all inputs
	Grads    gorgonia.Nodes // nodes whose gradients are wanted, and not bound
	Keep     gorgonia.Nodes // nodes whose values are wanted after a run
	KeepAll  bool           // all values are wanted after a run
	Fuse     bool           // operations may be fused where nothing above asks for what lies between
	Group    bool           // with Fuse: elementwise operations too
}

// Compile works out all that does not change between runs. It fails with
// gorgonia's error for a graph that cannot be sorted.
func Compile(g *gorgonia.ExprGraph, w *Wants) (*Program, error) {
	o, err := order(g, w)
	if err != nil {
		return nil, err
	}
	p := &Program{Instrs: make([]Instr, len(o.nodes))}
	slot := make(map[*gorgonia.Node]int, len(o.nodes))
	bound := make(map[*gorgonia.Node]bool)
	for i, n := range o.nodes {
		slot[n] = i
		in := &p.Instrs[i]
		*in = Instr{Node: n, Op: n.Op(), Out: i, InPlace: -1}
		in.describe()
		for _, child := range o.children[n] {
			in.In = append(in.In, slot[child])
		}
		p.correct(in)
		if t, ok := in.Op.(gorgonia.TrainModeOp); ok {
			p.training = append(p.training, t)
		}
		p.bind(in, w, bound)
		in.Keep, in.Late = w.keeps(in, o.read[n]), o.late[n]
	}
	if w.Fuse {
		p.Instrs = fuse(p.Instrs)
		if w.Group {
			p.noteCuts()
			p.Instrs = group(p.Instrs)
		}
	}
	if p.Late = slices.IndexFunc(p.Instrs, func(in Instr) bool { return in.Late }); p.Late < 0 {
		p.Late = len(p.Instrs)
	}
	p.findFixed()
	p.countUses()
	p.findLastUses()
	return p, nil
}

// cut is a slice that groups were made with.
type cut struct {
	of interface{ IsSlice() tensor.Slice }
	at Cut
}

// Cut is a slice: where it begins and ends, and its steps. The zero value is all.
type Cut [3]int

// CutOf returns the slice of a sliceOp.
func CutOf(op interface{ IsSlice() tensor.Slice }) (c Cut) {
	if s := op.IsSlice(); s != nil {
		c = Cut{s.Start(), s.End(), s.Step()}
	}
	return c
}

func (p *Program) noteCuts() {
	for i := range p.Instrs {
		if op, ok := p.Instrs[i].Op.(interface{ IsSlice() tensor.Slice }); ok && p.Instrs[i].Name == "*gorgonia.sliceOp" {
			p.cuts = append(p.cuts, cut{op, CutOf(op)})
		}
	}
}

// Recut reports whether groups were made with slices that have changed
// (gorgonia.UnsafeLet).
func (p *Program) Recut() bool {
	return slices.ContainsFunc(p.cuts, func(c cut) bool { return CutOf(c.of) != c.at })
}

// findFixed notes the numbers that depend on constants alone.
func (p *Program) findFixed() {
	for i := range p.Instrs {
		in := &p.Instrs[i]
		in.Fixed = in.Kind == Operation && in.Scalar && (in.Fused() || in.Name == "gorgonia.elemBinOp") && len(in.DerivOf) == 0 &&
			!slices.ContainsFunc(in.In, func(from int) bool { return p.Instrs[from].Kind != Constant && !p.Instrs[from].Fixed })
	}
}

// countUses notes how often each result is read. A bound gradient is read once
// more, at the end of the run.
func (p *Program) countUses() {
	p.Uses = make([]int32, len(p.Instrs))
	for i := range p.Instrs {
		for _, from := range p.Instrs[i].In {
			p.Uses[from]++
		}
		if len(p.Instrs[i].DerivOf) > 0 {
			p.Uses[i]++
		}
	}
}

// bind notes the nodes to whose bound gradients the result is added.
func (p *Program) bind(in *Instr, w *Wants, bound map[*gorgonia.Node]bool) {
	if !w.Bind {
		return
	}
	for _, of := range in.Node.DerivOf() {
		if len(w.BindOnly) == 0 && !of.IsVar() || len(w.BindOnly) > 0 && !w.BindOnly.Contains(of) {
			continue
		}
		in.DerivOf = append(in.DerivOf, of)
		if !bound[of] {
			bound[of] = true
			p.Targets = append(p.Targets, of)
		}
	}
}

// findLastUses notes for each instruction which slots it is the last to read,
// and whether its result may overwrite one of them.
func (p *Program) findLastUses() {
	left := slices.Clone(p.Uses)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		for _, from := range in.In {
			if left[from]--; left[from] == 0 {
				in.Dead = append(in.Dead, from)
			}
		}
		if a, ok := overwritable(in.Op, in.Name); ok && !in.Fused() && a < len(in.In) {
			from := &p.Instrs[in.In[a]]
			if slices.Contains(in.Dead, in.In[a]) && !in.Scalar && !from.Scalar && from.Dtype == in.Dtype && from.Shape.Eq(in.Shape) {
				in.InPlace = a
			}
		}
	}
}

// keeps reports whether a node has its value after a run. It has if the program
// wants that, if it is a scalar, and if no other node reads it. A gradient that
// is bound has its value in the node that it belongs to.
func (w *Wants) keeps(in *Instr, read bool) bool {
	switch {
	case in.Kind != Operation:
		return false
	case w.KeepAll || in.Scalar || w.Keep.Contains(in.Node) || w.BindOnly.Contains(in.Node):
		return true
	case len(in.DerivOf) > 0:
		return false
	}
	return !read || slices.ContainsFunc(in.Node.DerivOf(), (*gorgonia.Node).IsVar)
}

// SetTraining puts the operations that know of it in a mode. Batch
// normalization forgets what it learned whenever it is told to train.
func (p *Program) SetTraining(on bool) error {
	for _, t := range p.training {
		if err := t.SetTraining(on); err != nil {
			return err
		}
	}
	return nil
}
