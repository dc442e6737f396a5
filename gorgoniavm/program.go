package gorgoniavm

import (
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// program is a graph in the order in which it runs.
type program struct {
	instrs   []instr
	uses     []int32 // how often each instruction's result is read
	training []gorgonia.TrainModeOp
	targets  []*gorgonia.Node // whose gradients are bound
	late     int              // the first of the instructions that come last (order.scalarsLast)
}

// instr computes a node. Its result is in the slot of its own number.
type instr struct {
	node  *gorgonia.Node
	kind  nodeKind
	op    gorgonia.Op // nil: an input
	name  string      // the operation's type
	run   kernel
	in    []int // the slots it reads
	dead  []int // of those, the ones that nobody reads after it, once each
	out   int
	shape tensor.Shape
	dt    tensor.Dtype // of no type: a statement

	axes      []int // of operations along axes
	otherAxes []int // of the second operand
	outer     bool  // an outer product

	fused bool  // it computes what other instructions did too (fuse.go)
	parts []int // slots that it fills beside its own; -1: none

	fixed  bool // a number that is the same in every run
	losses bool // its value is sumOfLogs of what it leaves on the device

	scalar  bool
	late    bool
	inPlace int              // the argument that the result may overwrite, or -1
	keep    bool             // the node has the value after RunAll
	watch   bool             // its value is logged
	derivOf []*gorgonia.Node // the nodes to whose gradients the result is added
}

// nodeKind says what computes a node.
type nodeKind int

const (
	operation nodeKind = iota
	variable           // the program gives it a value
	constant
	statement // Read or Set
)

func kindOf(op gorgonia.Op) nodeKind {
	switch opName(op) {
	case "input":
		return variable
	case "gorgonia.constantScalar", "gorgonia.constantTensor":
		return constant
	case opLet, opRead:
		return statement
	}
	return operation
}

// compile works out all that does not change between runs.
func compile(g *gorgonia.ExprGraph, c *config, onDevice bool) (*program, error) {
	o, err := order(g, c)
	if err != nil {
		return nil, err
	}
	p := &program{instrs: make([]instr, len(o.nodes))}
	slot := make(map[*gorgonia.Node]int, len(o.nodes))
	bound := make(map[*gorgonia.Node]bool)
	for i, n := range o.nodes {
		slot[n] = i
		in := &p.instrs[i]
		*in = instr{node: n, op: n.Op(), out: i, inPlace: -1}
		in.describe()
		for _, child := range o.children[n] {
			in.in = append(in.in, slot[child])
		}
		if t, ok := in.op.(gorgonia.TrainModeOp); ok {
			p.training = append(p.training, t)
		}
		p.bind(in, c, bound)
		in.keep, in.late = c.keeps(in, o.read[n]), o.late[n]
		in.watch = c.log != nil && c.watching(n)
	}
	if onDevice && c.log == nil && !c.watchNaN && !c.watchInf {
		p.instrs = fuse(p.instrs)
	}
	if p.late = slices.IndexFunc(p.instrs, func(in instr) bool { return in.late }); p.late < 0 {
		p.late = len(p.instrs)
	}
	p.findFixed()
	p.countUses()
	p.findLastUses()
	return p, nil
}

// findFixed notes which numbers are computed of nothing but constants.
func (p *program) findFixed() {
	for i := range p.instrs {
		in := &p.instrs[i]
		in.fixed = in.kind == operation && in.scalar && (in.fused || in.name == "gorgonia.elemBinOp") && len(in.derivOf) == 0 &&
			!slices.ContainsFunc(in.in, func(from int) bool { return p.instrs[from].kind != constant && !p.instrs[from].fixed })
	}
}

// countUses notes how often results are read, gradients at the end once more.
func (p *program) countUses() {
	p.uses = make([]int32, len(p.instrs))
	for i := range p.instrs {
		for _, from := range p.instrs[i].in {
			p.uses[from]++
		}
		if len(p.instrs[i].derivOf) > 0 {
			p.uses[i]++
		}
	}
}

// describe fills in what depends on the node alone.
func (in *instr) describe() {
	in.kind = kindOf(in.op)
	in.name, in.run = kernelOf(in.op)
	if in.kind == statement {
		return
	}
	in.shape = in.node.Shape()
	in.dt = in.node.Dtype()
	in.scalar = in.node.IsScalar()
	switch in.name {
	case "gorgonia.sumOp", "*gorgonia.maxOp", "*gorgonia.repeatOp", "*gorgonia.sliceOp":
		in.axes = intsOf(in.op, "along")
	case "gorgonia.transposeOp":
		in.axes = intsOf(in.op, "pattern")
	case "gorgonia.tensordotOp":
		in.axes, in.otherAxes = intsOf(in.op, "aAxes"), intsOf(in.op, "bAxes")
	case "gorgonia.linAlgBinOp":
		in.outer = field(in.op, "āBinaryOperator").Uint() == outerProduct
	}
}

// outerProduct is what a linAlgBinOp has for an operator when it is one.
const outerProduct = 3

// bind notes the nodes whose gradient the instruction computes, if they are
// to have it.
func (p *program) bind(in *instr, c *config, bound map[*gorgonia.Node]bool) {
	if !c.bind {
		return
	}
	for _, of := range in.node.DerivOf() {
		if len(c.bindOnly) == 0 && !of.IsVar() || len(c.bindOnly) > 0 && !c.bindOnly.Contains(of) {
			continue
		}
		in.derivOf = append(in.derivOf, of)
		if !bound[of] {
			bound[of] = true
			p.targets = append(p.targets, of)
		}
	}
}

// findLastUses notes which slots end with which instruction, and which
// instructions may overwrite one of them.
func (p *program) findLastUses() {
	left := slices.Clone(p.uses)
	for i := range p.instrs {
		in := &p.instrs[i]
		for _, from := range in.in {
			if left[from]--; left[from] == 0 {
				in.dead = append(in.dead, from)
			}
		}
		if a, ok := overwritable(in.op, in.name); ok && !in.fused && a < len(in.in) {
			from := &p.instrs[in.in[a]]
			if slices.Contains(in.dead, in.in[a]) && !in.scalar && !from.scalar && from.dt == in.dt && from.shape.Eq(in.shape) {
				in.inPlace = a
			}
		}
	}
}

// keeps reports whether a node has its value after RunAll: if that was asked
// for, if it is a scalar, and if no other node reads it, as a gradient that is
// not bound.
func (c *config) keeps(in *instr, read bool) bool {
	switch {
	case in.kind != operation:
		return false
	case c.keepAll || in.scalar || c.keep.Contains(in.node) || c.bindOnly.Contains(in.node):
		return true
	case len(in.derivOf) > 0:
		return false
	}
	return !read || slices.ContainsFunc(in.node.DerivOf(), (*gorgonia.Node).IsVar)
}

// setTraining puts the operations that know of it in a mode. Batch
// normalization forgets what it learned whenever it is told to train.
func (p *program) setTraining(on bool) error {
	for _, t := range p.training {
		if err := t.SetTraining(on); err != nil {
			return err
		}
	}
	return nil
}

// Gorgonia's operations have no exported types and fields. This package knows
// them by name, as of gorgonia v0.9.18; one with another name would run as one
// of a program's own (foreign.go).
const (
	opLet  = "gorgonia.letOp"
	opRead = "gorgonia.readOp"
)

// field returns a field of an operation.
func field(op gorgonia.Op, name string) reflect.Value {
	return reflect.Indirect(reflect.ValueOf(op)).FieldByName(name)
}

// intsOf returns a field that is an int or a slice of them.
func intsOf(op gorgonia.Op, name string) []int {
	f := field(op, name)
	if f.CanInt() {
		return []int{int(f.Int())}
	}
	is := make([]int, f.Len())
	for i := range is {
		is[i] = int(f.Index(i).Int())
	}
	return is
}

func opName(op gorgonia.Op) string {
	if op == nil {
		return "input"
	}
	return reflect.TypeOf(op).String()
}

func isStatement(n *gorgonia.Node) bool { return kindOf(n.Op()) == statement }
