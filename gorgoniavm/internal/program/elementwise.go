package program

import "gorgonia.org/tensor"

// An element is an elementwise operation that may become a step of a fused one.
type element struct {
	op      string // of gpu.FusedStep
	args    []arg  // one or two
	to      []View // parts of rooms where the result is written too
	columns int    // the length of the operands' rows; 0: any
}

// arg is a scalar or a part of a tensor.
type arg struct {
	View
	scalar bool
}

// The operations, by what gorgonia calls them.
var (
	binaryOps = map[string]string{
		"+ false": "Add", "- false": "Sub", "⊙ false": "Mul", "÷ false": "Div", "^ false": "Pow",
		"> true": "Gt", ">= true": "Gte", "< true": "Lt", "<= true": "Lte", "== true": "ElEq", "!= true": "ElNe",
	}
	unaryOps = map[string]string{
		"abs": "Abs", "sign": "Sign", "exp": "Exp", "ln": "Log", "log2": "Log2", "neg": "Neg", "square": "Square", "sqrt": "Sqrt",
		"inv": "Inv", "invSqrt": "InvSqrt", "cube": "Cube", "tanh": "Tanh", "sigmoid": "Sigmoid", "sin": "Sin", "cos": "Cos",
		"ceil": "Ceil", "floor": "Floor", "log1p": "Log1p", "expm1": "Expm1", "softplus": "Softplus",
	}
)

const copyOp = "Copy"

// elements finds the elementwise operations. A slice of one that only slices
// read is one, of slices of its operands (sink).
func (g *grouper) elements() {
	for i := range g.instrs {
		if g.el[i] == nil && !g.gone[i] {
			g.el[i] = g.elementOf(i)
		}
		if g.el[i] != nil && len(g.el[i].to) == 0 && g.onlySliced(i) {
			g.sink(i, g.el[i])
		}
	}
}

func (g *grouper) elementOf(i int) *element {
	op, ok := g.opOf(i)
	if !ok {
		return nil
	}
	e := &element{op: op}
	for _, from := range g.instrs[i].In {
		a, ok := g.argOf(from, i)
		if !ok || !e.reads(a) {
			return nil
		}
	}
	return e
}

// reads adds an operand. false: it has rows of other lengths than the operands
// before.
func (e *element) reads(a arg) bool {
	e.args = append(e.args, a)
	return a.scalar || fitColumns(&e.columns, a.View)
}

// writes adds a part of a room, as reads does.
func (e *element) writes(v View) bool {
	columns := e.columns
	if !fitColumns(&columns, v) {
		return false
	}
	e.columns, e.to = columns, append(e.to, v)
	return true
}

// fitColumns sets the length of rows, 0 for any, to that of v if v has gaps.
func fitColumns(columns *int, v View) bool {
	switch {
	case v.dense() || v.Columns == *columns:
		return true
	case *columns == 0:
		*columns = v.Columns
		return true
	}
	return false
}

// opOf returns the operation of an instruction for tensors of floats.
func (g *grouper) opOf(i int) (op string, ok bool) {
	in := &g.instrs[i]
	if in.Late || in.Scalar || in.Kind != Operation || in.Shape.TotalSize() == 0 || in.Dtype != tensor.Float32 && in.Dtype != tensor.Float64 {
		return "", false
	}
	switch {
	case in.Step == Scale:
		return "Mul", true
	case in.Step == Rectify:
		return "Rectify", true
	case in.Step == RectifyBack:
		return "RectifyBack", true
	case in.Fused():
	case in.Name == "gorgonia.elemBinOp":
		op, ok = binaryOps[in.Op.String()]
	case in.Name == "gorgonia.elemUnaryOp":
		op, ok = unaryOps[in.Op.String()]
	}
	return op, ok
}

// argOf returns an operand of an elementwise operation: a scalar that the
// program knows without waiting, or a tensor of as many elements.
func (g *grouper) argOf(slot, reader int) (arg, bool) {
	from, to := &g.instrs[slot], &g.instrs[reader]
	if from.Scalar {
		return arg{View: View{Slot: slot}, scalar: true}, g.isNumber(slot, g.numbers)
	}
	n := to.Shape.TotalSize()
	return arg{View: g.seen(all(slot, n))}, from.Dtype == to.Dtype && from.Shape.TotalSize() == n
}

// seen returns what a part of a tensor is a part of, past slices and other
// shapes.
func (g *grouper) seen(v View) View {
	for {
		in := &g.instrs[v.Slot]
		if g.el[v.Slot] != nil || in.Fused() || len(in.In) == 0 || g.instrs[in.In[0]].Scalar || in.Scalar {
			return v
		}
		w, ok := View{}, false
		switch in.Name {
		case "gorgonia.reshapeOp":
			w, ok = all(in.In[0], in.Shape.TotalSize()), true
		case "*gorgonia.sliceOp":
			if w, ok = cutOf(in.Op, in.Axes[0], g.instrs[in.In[0]].Shape); ok {
				w.Slot = in.In[0]
			}
		}
		if ok {
			w, ok = v.of(w)
		}
		if !ok {
			return v
		}
		v = w
	}
}

// onlySliced reports whether slices alone read a result, also by way of other
// shapes.
func (g *grouper) onlySliced(i int) bool {
	for _, r := range g.readers[i] {
		switch in := &g.instrs[r]; {
		case in.Name == "*gorgonia.sliceOp" && !in.Fused() && !in.Scalar && g.el[r] == nil:
		case in.Name == "gorgonia.reshapeOp" && !in.Fused() && !in.Scalar && g.onlySliced(r):
		default:
			return false
		}
	}
	return g.hidden(i) && len(g.readers[i]) > 0
}

// sink makes elements of the slices of an element.
func (g *grouper) sink(i int, e *element) {
	sunk := make(map[int]*element)
	for _, s := range g.slicesOf(i) {
		part := g.seen(all(s, g.instrs[s].Shape.TotalSize())) // el[i] ends it
		if part.Slot != i {
			return
		}
		of := &element{op: e.op}
		for _, a := range e.args {
			if !a.scalar {
				v, ok := part.of(a.View)
				if !ok {
					return
				}
				a.View = v
			}
			if !of.reads(a) {
				return
			}
		}
		sunk[s] = of
	}
	for s, of := range sunk {
		g.el[s] = of
	}
}

// slicesOf returns the slices that read a result, also by way of other shapes.
func (g *grouper) slicesOf(i int) (all []int) {
	for _, r := range g.readers[i] {
		if g.instrs[r].Name == "gorgonia.reshapeOp" {
			all = append(all, g.slicesOf(r)...)
		} else {
			all = append(all, r)
		}
	}
	return all
}
