package gorgoniavm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// A term is a node of a random graph, with what the model computes for it.
type term struct {
	id    int
	name  string
	n     *G.Node
	shape []int
	in    []*term
	from  []bool // the terms that it depends on
	f     func(v [][]float64) []float64
	seed  int
	tags  []string
	bools bool // nothing computes with it

	// The numbers that a comparison, or a step of a function, has for an element; nil: it is neither.
	sides func(in [][]float64, i int) (x, y float64)

	// Near values v of the terms, the function that has what Gorgonia takes for the slope of f; nil: f has.
	slope func(in, v [][]float64) []float64
}

// builder makes a random graph.
type builder struct {
	*testkit.Choices
	g      *G.ExprGraph
	dt     tensor.Dtype
	terms  []*term
	inputs []*term
	total  *term // the cost
	text   strings.Builder
	wild   bool // inputs have NaN, infinities and zeros
	over   bool // Gorgonia makes no sense of the graph
	eval   bool // the graph is evaluated, not trained
	norms  []*batchNorm
	drawn  []*term             // random ones
	seen   map[*term][]float64 // what a machine has drawn
	near   [][]float64         // the values by which slopes are computed
}

func newBuilder(c *testkit.Choices) *builder {
	b := &builder{Choices: c, g: G.NewGraph(), dt: enginetest.Floats[c.N(2)]}
	b.wild, b.eval = c.Chance(5), c.Chance(4)
	b.say("// %v", b.dt)
	return b
}

func (b *builder) say(format string, args ...any) { fmt.Fprintf(&b.text, format+"\n", args...) }

func (b *builder) shape() []int {
	s := make([]int, []int{2, 2, 2, 1, 3, 4, 2, 0}[b.N(8)])
	for i := range s {
		s[i] = []int{1, 2, 3, 4, 5, 1}[b.N(6)]
	}
	return s
}

// input adds an input.
func (b *builder) input(shape []int) *term {
	t := &term{shape: shape, seed: b.N(256)}
	t.name = fmt.Sprintf("x%d", len(b.inputs))
	if len(shape) == 0 {
		t.n = G.NewScalar(b.g, b.dt, G.WithName(t.name))
	} else {
		t.n = G.NewTensor(b.g, b.dt, len(shape), G.WithShape(shape...), G.WithName(t.name))
	}
	b.inputs = append(b.inputs, t)
	b.add(t)
	b.say("%s := input %v, seed %d", t.name, shape, t.seed)
	return t
}

// numbers are an input's values in a run.
func (b *builder) numbers(t *term, run int) []float64 {
	rng := rand.New(rand.NewPCG(uint64(t.seed), uint64(run)))
	values := make([]float64, tensor.Shape(t.shape).TotalSize())
	for i := range values {
		values[i] = float64(rng.IntN(4001)-1900) / 1024
		if b.wild && rng.IntN(6) == 0 {
			values[i] = enginetest.Special[rng.IntN(len(enginetest.Special))]
		}
	}
	return values
}

func (b *builder) add(t *term, in ...*term) {
	t.id, t.in = len(b.terms), in
	t.from = make([]bool, t.id+1)
	t.from[t.id] = true
	for _, p := range in {
		for i, is := range p.from {
			t.from[i] = t.from[i] || is
		}
	}
	b.terms = append(b.terms, t)
}

// node adds what an operation makes of terms. Where Gorgonia says otherwise, the
// program is over.
func (b *builder) node(text string, tags []string, in []*term, shape []int, make func() (*G.Node, error), f func(in [][]float64) []float64) *term {
	var n *G.Node
	before := len(b.g.AllNodes())
	err := testkit.Caught(func() (err error) { n, err = make(); return err })
	if err != nil {
		if len(b.g.AllNodes()) != before {
			b.over = true // half of an operation is in the graph
		}
		return nil
	}
	if n == nil {
		b.over = true
		return nil
	}
	for _, t := range b.terms { // Gorgonia has it already
		if t.n == n {
			return t
		}
	}
	if !slices.Equal([]int(n.Shape()), shape) {
		if n.Shape().TotalSize() != tensor.Shape(shape).TotalSize() {
			b.over = true
			return nil
		}
		shape = slices.Clone([]int(n.Shape()))
	}
	t := &term{name: fmt.Sprintf("v%d", len(b.terms)), n: n, shape: shape, tags: tags}
	t.f = func(v [][]float64) []float64 { return f(operandsOf(t, v)) }
	b.add(t, in...)
	b.say("%s := %s // %v", t.name, text, shape)
	return t
}

// evaluate computes the model. With k > 0 each number is off by a little.
func (b *builder) evaluate(input func(i int) []float64, k int) [][]float64 {
	eps := 3e-16
	if b.dt == tensor.Float32 {
		eps = 1.2e-7
	}
	rng := rand.New(rand.NewPCG(uint64(k), 2))
	var v [][]float64
	for _, t := range b.terms {
		var r []float64
		if t.f == nil {
			r = input(slices.Index(b.inputs, t))
		} else {
			operands, size := v, 1.0
			if k > 0 && slices.Contains(t.tags, "norm") { // differences of its operands
				operands = slices.Clone(v)
				for _, p := range t.in {
					most := 0.0
					for _, x := range v[p.id] {
						most = max(most, math.Abs(x))
					}
					size = max(size, 8*most)
					operands[p.id] = slices.Clone(v[p.id])
					for i := range operands[p.id] {
						operands[p.id][i] += most * eps * (2*rng.Float64() - 1)
					}
				}
			}
			r = t.f(operands)
			if b.near != nil && t.slope != nil {
				r = t.slope(v, b.near)
			}
			for i, x := range r {
				if b.dt == tensor.Float32 && math.Abs(x) > math.MaxFloat32 {
					r[i] = math.Inf(int(math.Copysign(1, x)))
				}
			}
			if k > 0 {
				b.ties(t, v, r, 16*eps, k)
				for i := range r {
					r[i] *= 1 + eps*(2*rng.Float64()-1)
					if slices.Contains(t.tags, "soft") || slices.Contains(t.tags, "norm") { // a difference of larger numbers
						r[i] += size * eps * (2*rng.Float64() - 1)
					}
				}
			}
		}
		v = append(v, r)
	}
	return v
}

// ties lets a step of a function, at what is the same but for rounding, go either way.
func (b *builder) ties(t *term, v [][]float64, r []float64, eps float64, k int) {
	if t.sides == nil || !computed(t) || len(t.in) == 2 && t.in[0] == t.in[1] {
		return
	}
	in := operandsOf(t, v)
	for i := range r {
		if x, y := t.sides(in, i); math.Abs(x-y) <= eps*(1+math.Abs(x)) {
			r[i] += float64(k%3 - 1)
		}
	}
}

// operandsOf returns the values of a term's operands.
func operandsOf(t *term, v [][]float64) (in [][]float64) {
	for _, p := range t.in {
		in = append(in, v[p.id])
	}
	return in
}

// pairs are the sides of a comparison of two, of which one may be a scalar.
func pairs(in [][]float64, i int) (x, y float64) {
	return in[0][min(i, len(in[0])-1)], in[1][min(i, len(in[1])-1)]
}

// compares marks a term of an operation as a comparison, or a function with steps.
func compares(t *term, name string, sides func(in [][]float64, i int) (x, y float64)) {
	if t != nil && slices.Contains([]string{"Gt", "Gte", "Lt", "Lte", "Eq", "Ne"}, strings.TrimPrefix(name, "Broadcast")) {
		t.sides = sides
	}
}

// steps are the functions of one number that have steps, with the number nearest to a step.
var steps = map[string]func(x float64) float64{"Sign": func(float64) float64 { return 0 }, "Ceil": math.Round, "Floor": math.Round}

func (b *builder) pick() *term {
	i := 0
	if n := len(b.terms); n > 4 && b.N(2) == 0 {
		i = n - 1 - b.N(4)
	} else {
		i = b.N(n)
	}
	for b.terms[i].bools {
		i--
	}
	return b.terms[i]
}

// like returns a term of a shape, an old one or a new input.
func (b *builder) like(shape []int) *term {
	var found []*term
	for _, t := range b.terms {
		if slices.Equal(t.shape, shape) && !t.bools {
			found = append(found, t)
		}
	}
	if len(found) > 0 && (len(b.inputs) >= 7 || !b.Chance(4)) {
		return found[len(found)-1-b.N(min(len(found), 4))]
	}
	return b.input(shape)
}

// addCost adds a term to the cost.
func (b *builder) addCost(t *term) {
	if b.over {
		return
	}
	c := t
	if len(t.shape) > 0 {
		squares := b.node("Square("+t.name+")", nil, []*term{t}, t.shape, func() (*G.Node, error) { return G.Square(t.n) }, each(func(x float64) float64 { return x * x }))
		if squares == nil {
			b.over = true
			return
		}
		c = b.node("Mean("+squares.name+")", []string{"all"}, []*term{squares}, nil, func() (*G.Node, error) { return G.Mean(squares.n) }, func(in [][]float64) []float64 {
			return []float64{sumOf(in[0]) / float64(len(in[0]))}
		})
	}
	if b.total != nil && c != nil {
		was := b.total
		c2 := c
		c = b.node(fmt.Sprintf("Add(%s, %s)", was.name, c.name), nil, []*term{was, c2}, nil, func() (*G.Node, error) { return G.Add(was.n, c2.n) }, each2(func(x, y float64) float64 { return x + y }))
	}
	if c == nil {
		b.over = true
		return
	}
	b.total = c
}

func sumOf(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

func each(f func(x float64) float64) func(in [][]float64) []float64 {
	return func(in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		for i, x := range in[0] {
			r[i] = f(x)
		}
		return r
	}
}

// each2 is each of two, of which one may be a scalar.
func each2(f func(x, y float64) float64) func(in [][]float64) []float64 {
	return func(in [][]float64) []float64 {
		r := make([]float64, max(len(in[0]), len(in[1])))
		for i := range r {
			r[i] = f(in[0][min(i, len(in[0])-1)], in[1][min(i, len(in[1])-1)])
		}
		return r
	}
}

type function struct {
	name string
	make func(*G.Node) (*G.Node, error)
	f    func(x float64) float64
}

var functionsOfOne = []function{
	{"Tanh", G.Tanh, math.Tanh}, {"Sigmoid", G.Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
	{"Neg", G.Neg, func(x float64) float64 { return -x }}, {"Square", G.Square, func(x float64) float64 { return x * x }},
	{"Cube", G.Cube, func(x float64) float64 { return x * x * x }}, {"Exp", G.Exp, math.Exp}, {"Abs", G.Abs, math.Abs},
	{"Sin", G.Sin, math.Sin}, {"Cos", G.Cos, math.Cos}, {"Expm1", G.Expm1, math.Expm1}, {"Softplus", G.Softplus, func(x float64) float64 { return math.Log1p(math.Exp(x)) }},
	{"Rectify", G.Rectify, func(x float64) float64 { return x * truth(x > 0) }},
	{"Inverse", G.Inverse, func(x float64) float64 { return 1 / x }}, {"Sqrt", G.Sqrt, math.Sqrt}, {"Log", G.Log, math.Log}, {"Log1p", G.Log1p, math.Log1p},
	{"Ceil", G.Ceil, math.Ceil}, {"Floor", G.Floor, math.Floor}, {"Log2", G.Log2, math.Log2}, {"InverseSqrt", G.InverseSqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }},
	{"Mish", G.Mish, func(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) }},
	{"LeakyRelu", func(n *G.Node) (*G.Node, error) { return G.LeakyRelu(n, 0.1) }, func(x float64) float64 { return x*truth(x >= 0) + x*truth(x < 0)*0.1 }},
	{"Ravel", G.Ravel, func(x float64) float64 { return x }},
	{"Sign", G.Sign, func(x float64) float64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return x
	}},
}

type function2 struct {
	name string
	make func(a, b *G.Node) (*G.Node, error)
	f    func(x, y float64) float64
}

func same2(f func(a, b *G.Node, same bool) (*G.Node, error)) func(a, b *G.Node) (*G.Node, error) {
	return func(a, b *G.Node) (*G.Node, error) { return f(a, b, true) }
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var functionsOfTwo = []function2{
	{"Add", G.Add, func(x, y float64) float64 { return x + y }}, {"Sub", G.Sub, func(x, y float64) float64 { return x - y }},
	{"HadamardProd", G.HadamardProd, func(x, y float64) float64 { return x * y }}, {"HadamardDiv", G.HadamardDiv, func(x, y float64) float64 { return x / y }},
	{"Gt", same2(G.Gt), func(x, y float64) float64 { return truth(x > y) }}, {"Gte", same2(G.Gte), func(x, y float64) float64 { return truth(x >= y) }},
	{"Lt", same2(G.Lt), func(x, y float64) float64 { return truth(x < y) }}, {"Lte", same2(G.Lte), func(x, y float64) float64 { return truth(x <= y) }},
	{"Eq", same2(G.Eq), func(x, y float64) float64 { return truth(x == y) }}, {"Ne", same2(G.Ne), func(x, y float64) float64 { return truth(x != y) }},
}

// step adds something.
func (b *builder) step() {
	steps := []func(){b.one, b.one, b.one, b.two, b.two, b.scalar, b.broadcast, b.broadcast, b.slice, b.slice, b.concat, b.concat,
		b.reshape, b.transpose, b.reduce, b.reduce, b.product, b.product, b.soft, b.byIndices, b.conv,
		b.outer, b.maxPool, b.averagePool, b.upsample, b.im2col, b.convWide, b.normalize, b.normalize, b.sparsemax, b.norm, b.keepDims, b.tensordot,
		b.compareAll, b.power, b.between, b.both, b.reduceAll, b.vectors, b.contraction, b.stride, b.part, b.element, b.diagonal, b.truncated, b.entropy, b.logSumExp,
		b.groupNorm, b.dropout, b.random, b.unevenPool, b.meanPool, b.alongLines}
	steps[b.N(len(steps))]()
}

// ofSoftMax reports whether a term depends on a SoftMax. Of its logarithm Gorgonia makes a
// LogSoftMax, for all who read the SoftMax.
func (b *builder) ofSoftMax(a *term) bool {
	return slices.ContainsFunc(b.terms, func(t *term) bool {
		return t.id < len(a.from) && a.from[t.id] && slices.Contains(t.tags, "soft")
	})
}

func (b *builder) one() {
	a := b.pick()
	f := functionsOfOne[b.N(len(functionsOfOne))]
	if f.name == "Log" && b.ofSoftMax(a) {
		return
	}
	if f.name == "Sign" && len(a.shape) == 0 {
		return // Gorgonia's Sign of a number 0 is 1 or -1
	}
	t := b.node(fmt.Sprintf("%s(%s)", f.name, a.name), []string{f.name}, []*term{a}, a.shape, func() (*G.Node, error) { return f.make(a.n) }, each(f.f))
	if near, ok := steps[f.name]; ok && t != nil {
		t.sides = func(in [][]float64, i int) (x, y float64) { return in[0][i], near(in[0][i]) }
	}
	slope := map[string]func(x, y float64) float64{
		"InverseSqrt": func(_, y float64) float64 { return -1 / (2 * y * y * y) }, // Gorgonia divides by what it should multiply with
		"Log2":        func(x, _ float64) float64 { return math.Ln2 / x },         // and multiplies with what it should divide by
	}[f.name]
	if t != nil && slope != nil {
		t.slope = func(v, at [][]float64) []float64 {
			r := slices.Clone(at[t.id])
			for i, y := range at[t.id] {
				x := at[a.id][i]
				r[i] += slope(x, y) * (v[a.id][i] - x)
			}
			return r
		}
	}
}

func (b *builder) two() {
	a := b.pick()
	c := b.like(a.shape)
	f := functionsOfTwo[b.N(len(functionsOfTwo))]
	compares(b.node(fmt.Sprintf("%s(%s, %s)", f.name, a.name, c.name), []string{f.name}, []*term{a, c}, a.shape, func() (*G.Node, error) { return f.make(a.n, c.n) }, each2(f.f)), f.name, pairs)
}

// scalar is an operation with a constant or a scalar term.
func (b *builder) scalar() {
	a := b.pick()
	f := functionsOfTwo[b.N(4)]
	left := b.N(2) == 0
	if x := float64(b.N(16)-7) / 4; b.N(2) == 0 {
		make := func() (*G.Node, error) {
			c := G.NewConstant(enginetest.Value(b.dt, x))
			if left {
				return f.make(c, a.n)
			}
			return f.make(a.n, c)
		}
		text := fmt.Sprintf("%s(%s, %v)", f.name, a.name, x)
		if left {
			text = fmt.Sprintf("%s(%v, %s)", f.name, x, a.name)
		}
		b.node(text, []string{f.name}, []*term{a}, a.shape, make, each(func(y float64) float64 {
			if left {
				return f.f(x, y)
			}
			return f.f(y, x)
		}))
		return
	}
	s := b.like(nil)
	if left {
		a, s = s, a
	}
	shape := a.shape
	if left {
		shape = s.shape
	}
	b.node(fmt.Sprintf("%s(%s, %s)", f.name, a.name, s.name), []string{f.name}, []*term{a, s}, shape, func() (*G.Node, error) { return f.make(a.n, s.n) }, each2(f.f))
}

var broadcasts = []struct {
	name string
	make func(a, b *G.Node, left, right []byte) (*G.Node, error)
	f    func(x, y float64) float64
}{
	{"BroadcastAdd", G.BroadcastAdd, func(x, y float64) float64 { return x + y }}, {"BroadcastSub", G.BroadcastSub, func(x, y float64) float64 { return x - y }},
	{"BroadcastHadamardProd", G.BroadcastHadamardProd, func(x, y float64) float64 { return x * y }}, {"BroadcastHadamardDiv", G.BroadcastHadamardDiv, func(x, y float64) float64 { return x / y }},
	{"BroadcastPow", G.BroadcastPow, math.Pow}, {"BroadcastGt", sameBroadcast(G.BroadcastGt), func(x, y float64) float64 { return truth(x > y) }},
	{"BroadcastGte", sameBroadcast(G.BroadcastGte), func(x, y float64) float64 { return truth(x >= y) }},
	{"BroadcastLt", sameBroadcast(G.BroadcastLt), func(x, y float64) float64 { return truth(x < y) }},
	{"BroadcastLte", sameBroadcast(G.BroadcastLte), func(x, y float64) float64 { return truth(x <= y) }},
	{"BroadcastEq", sameBroadcast(G.BroadcastEq), func(x, y float64) float64 { return truth(x == y) }},
	{"BroadcastNe", sameBroadcast(G.BroadcastNe), func(x, y float64) float64 { return truth(x != y) }},
}

func sameBroadcast(f func(a, b *G.Node, same bool, left, right []byte) (*G.Node, error)) func(a, b *G.Node, left, right []byte) (*G.Node, error) {
	return func(a, b *G.Node, left, right []byte) (*G.Node, error) { return f(a, b, true, left, right) }
}

func (b *builder) broadcast() {
	a := b.pick()
	if len(a.shape) < 2 || len(a.shape) > 4 {
		return
	}
	small := slices.Clone(a.shape)
	var axes []byte
	for d := range small {
		if b.N(2) == 0 {
			axes, small[d] = append(axes, byte(d)), 1
		}
	}
	if len(axes) == 0 || len(axes) == len(small) {
		axes, small = []byte{0}, slices.Clone(a.shape)
		small[0] = 1
	}
	p := b.like(small)
	f := broadcasts[b.N(len(broadcasts))]
	left := b.N(2) == 0
	x, y, lp, rp := a, p, []byte(nil), axes
	if left {
		x, y, lp, rp = p, a, axes, nil
	}
	if f.name == "BroadcastPow" && b.ofSoftMax(x) {
		return
	}
	t := b.node(fmt.Sprintf("%s(%s, %s, %v, %v)", f.name, x.name, y.name, lp, rp), []string{f.name}, []*term{x, y}, a.shape,
		func() (*G.Node, error) { return f.make(x.n, y.n, lp, rp) }, repeats(x.shape, y.shape, a.shape, f.f))
	compares(t, f.name, repeatedPairs(x.shape, y.shape, a.shape))
}

// repeats is each2 of tensors whose axes of one element are repeated.
func repeats(x, y, shape []int, f func(x, y float64) float64) func(in [][]float64) []float64 {
	pairs := repeatedPairs(x, y, shape)
	return func(in [][]float64) []float64 {
		r := make64(shape)
		for i := range r {
			r[i] = f(pairs(in, i))
		}
		return r
	}
}

// repeatedPairs is pairs of tensors whose axes of one element are repeated.
func repeatedPairs(x, y, shape []int) func(in [][]float64, i int) (float64, float64) {
	var xs, ys []int
	testkit.Coordinates(shape, func(_ int, at []int) {
		xs, ys = append(xs, testkit.PlaceOf(x, within(x, at))), append(ys, testkit.PlaceOf(y, within(y, at)))
	})
	return func(in [][]float64, i int) (float64, float64) { return in[0][xs[i]], in[1][ys[i]] }
}

func (b *builder) slice() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	var ss []tensor.Slice
	var shape, starts []int
	kept := make([]bool, len(a.shape))
	text := "Slice(" + a.name
	for d, n := range a.shape {
		starts, kept[d] = append(starts, 0), true
		if d > 0 && len(ss) < d {
			shape = append(shape, n)
			continue
		}
		switch b.N(4) {
		case 0:
			ss, shape = append(ss, nil), append(shape, n)
			text += ", nil"
		case 1:
			at := b.N(n)
			ss, starts[d], kept[d] = append(ss, G.S(at)), at, false
			text += fmt.Sprintf(", S(%d)", at)
		case 2:
			from := b.N(n)
			to := from + 1 + b.N(n-from)
			ss, starts[d] = append(ss, G.S(from, to)), from
			text += fmt.Sprintf(", S(%d, %d)", from, to)
			if to-from == 1 {
				kept[d] = false // Gorgonia drops the axis
			} else {
				shape = append(shape, to-from)
			}
		default:
			shape = append(shape, n)
		}
	}
	if len(ss) == 0 {
		return
	}
	b.node(text+")", []string{"Slice"}, []*term{a}, shape, func() (*G.Node, error) { return G.Slice(a.n, ss...) }, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(shape, func(i int, at []int) {
			from, k := slices.Clone(starts), 0
			for d := range from {
				if kept[d] {
					from[d] += at[k]
					k++
				}
			}
			r[i] = in[0][testkit.PlaceOf(a.shape, from)]
		})
		return r
	})
}

func (b *builder) concat() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	axis := b.N(len(a.shape))
	parts, shape := []*term{a}, slices.Clone(a.shape)
	text := fmt.Sprintf("Concat(%d, %s", axis, a.name)
	for range 1 + b.N(2) {
		s := slices.Clone(a.shape)
		if b.N(2) == 0 {
			s[axis] = 1 + b.N(3)
		}
		p := b.like(s)
		if b.Chance(4) {
			p = parts[0]
		}
		parts = append(parts, p)
		shape[axis] += p.shape[axis]
		text += ", " + p.name
	}
	var ns G.Nodes
	for _, p := range parts {
		ns = append(ns, p.n)
	}
	b.node(text+")", []string{"Concat"}, parts, shape, func() (*G.Node, error) { return G.Concat(axis, ns...) }, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		testkit.Coordinates(shape, func(i int, at []int) {
			at = slices.Clone(at)
			for k, p := range parts {
				if at[axis] < p.shape[axis] {
					r[i] = in[k][testkit.PlaceOf(p.shape, at)]
					break
				}
				at[axis] -= p.shape[axis]
			}
		})
		return r
	})
}

func (b *builder) reshape() {
	a := b.pick()
	var shape []int
	for rest := tensor.Shape(a.shape).TotalSize(); rest > 1; {
		n := 1 + b.N(rest)
		for rest%n != 0 {
			n--
		}
		if n == 1 && len(shape) > 2 {
			n = rest
		}
		shape = append(shape, n)
		rest /= n
	}
	if len(shape) == 0 {
		shape = []int{1}
	}
	b.node(fmt.Sprintf("Reshape(%s, %v)", a.name, shape), []string{"Reshape"}, []*term{a}, shape, func() (*G.Node, error) { return G.Reshape(a.n, shape) }, func(in [][]float64) []float64 {
		return slices.Clone(in[0])
	})
}

func (b *builder) transpose() {
	a := b.pick()
	if len(a.shape) < 2 {
		return
	}
	axes := make([]int, len(a.shape))
	for i := range axes {
		axes[i] = i
	}
	for i := len(axes) - 1; i > 0; i-- {
		j := b.N(i + 1)
		axes[i], axes[j] = axes[j], axes[i]
	}
	shape := make([]int, len(axes))
	for i, d := range axes {
		shape[i] = a.shape[d]
	}
	b.node(fmt.Sprintf("Transpose(%s, %v)", a.name, axes), []string{"Transpose"}, []*term{a}, shape, func() (*G.Node, error) { return G.Transpose(a.n, axes...) }, func(in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		testkit.Coordinates(shape, func(i int, at []int) {
			from := make([]int, len(at))
			for k, d := range axes {
				from[d] = at[k]
			}
			r[i] = in[0][testkit.PlaceOf(a.shape, from)]
		})
		return r
	})
}

func (b *builder) reduce() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	var axes, keep, shape []int
	for d := range a.shape {
		if b.N(2) == 0 {
			axes = append(axes, d)
		}
	}
	all := len(axes) == 0
	for d, n := range a.shape {
		if !all && !slices.Contains(axes, d) {
			keep, shape = append(keep, d), append(shape, n)
		}
	}
	name := []string{"Sum", "Mean", "Max"}[b.N(3)]
	f := map[string]func(*G.Node, ...int) (*G.Node, error){"Sum": G.Sum, "Mean": G.Mean, "Max": G.Max}[name]
	if !b.wild && name == "Max" && b.N(2) == 0 {
		name, f = "Sum", G.Sum
	}
	b.node(fmt.Sprintf("%s(%s, %v)", name, a.name, axes), []string{name}, []*term{a}, shape, func() (*G.Node, error) { return f(a.n, axes...) }, func(in [][]float64) []float64 {
		r := make([]float64, tensor.Shape(shape).TotalSize())
		count := make([]int, len(r))
		testkit.Coordinates(a.shape, func(i int, at []int) {
			to := make([]int, len(keep))
			for k, d := range keep {
				to[k] = at[d]
			}
			p := testkit.PlaceOf(shape, to)
			x := in[0][i]
			switch {
			case name != "Max":
				r[p] += x
			case count[p] == 0 || x > r[p] || math.IsNaN(x) && !math.IsNaN(r[p]):
				r[p] = x
			}
			count[p]++
		})
		if name == "Mean" {
			for p := range r {
				r[p] /= float64(count[p])
			}
		}
		return r
	})
}

// matrixProducts multiplies many matrices.
func matrixProducts(a, b []float64, many, m, k, n int) []float64 {
	return enginetest.ProductsOf(a, b, many, m, k, n)
}

func (b *builder) product() {
	a := b.pick()
	switch b.N(6) {
	case 0, 1, 3:
		if len(a.shape) != 2 {
			return
		}
		m, k, n := a.shape[0], a.shape[1], 1+b.N(4)
		c := b.like([]int{k, n})
		b.node(fmt.Sprintf("Mul(%s, %s)", a.name, c.name), []string{"product"}, []*term{a, c}, []int{m, n}, func() (*G.Node, error) { return G.Mul(a.n, c.n) },
			func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, m, k, n) })
	case 2:
		if len(a.shape) != 2 {
			return
		}
		m, k := a.shape[0], a.shape[1]
		c := b.like([]int{k})
		b.node(fmt.Sprintf("Mul(%s, %s)", a.name, c.name), []string{"product"}, []*term{a, c}, []int{m}, func() (*G.Node, error) { return G.Mul(a.n, c.n) },
			func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, m, k, 1) })
	case 4:
		if len(a.shape) != 3 {
			a = b.like([]int{1 + b.N(2), 1 + b.N(3), 1 + b.N(3)})
		}
		many, m, k, n := a.shape[0], a.shape[1], a.shape[2], 1+b.N(4)
		c := b.like([]int{many, k, n})
		b.node(fmt.Sprintf("BatchedMatMul(%s, %s)", a.name, c.name), []string{"product"}, []*term{a, c}, []int{many, m, n}, func() (*G.Node, error) { return G.BatchedMatMul(a.n, c.n) },
			func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], many, m, k, n) })
	default: // a dense layer
		if len(a.shape) != 2 {
			return
		}
		m, k, n := a.shape[0], a.shape[1], 1+b.N(4)
		w, bias := b.like([]int{k, n}), b.like([]int{1, n})
		y := b.node(fmt.Sprintf("Mul(%s, %s)", a.name, w.name), []string{"product"}, []*term{a, w}, []int{m, n}, func() (*G.Node, error) { return G.Mul(a.n, w.n) },
			func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, m, k, n) })
		if y == nil {
			return
		}
		z := b.node(fmt.Sprintf("BroadcastAdd(%s, %s, nil, [0])", y.name, bias.name), []string{"BroadcastAdd"}, []*term{y, bias}, []int{m, n}, func() (*G.Node, error) { return G.BroadcastAdd(y.n, bias.n, nil, []byte{0}) },
			func(in [][]float64) []float64 {
				r := slices.Clone(in[0])
				for i := range r {
					r[i] += in[1][i%n]
				}
				return r
			})
		if z == nil || b.N(2) == 0 {
			return
		}
		f := functionsOfOne[11]
		b.node(fmt.Sprintf("%s(%s)", f.name, z.name), []string{f.name}, []*term{z}, z.shape, func() (*G.Node, error) { return f.make(z.n) }, each(f.f))
	}
}

func (b *builder) soft() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	axis := b.N(len(a.shape))
	log := b.N(2) == 0
	name, f := "SoftMax", G.SoftMax
	if log {
		name, f = "LogSoftMax", G.LogSoftMax
	}
	b.node(fmt.Sprintf("%s(%s, %d)", name, a.name, axis), []string{"soft"}, []*term{a}, a.shape, func() (*G.Node, error) { return f(a.n, axis) }, func(in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		inner := 1
		for _, n := range a.shape[axis+1:] {
			inner *= n
		}
		n := a.shape[axis]
		for row := range len(r) / n {
			first := row/inner*inner*n + row%inner
			most, sum := math.Inf(-1), 0.0
			for k := range n {
				most = math.Max(most, in[0][first+k*inner])
			}
			for k := range n {
				sum += math.Exp(in[0][first+k*inner] - most)
			}
			for k := range n {
				p := first + k*inner
				if log {
					r[p] = in[0][p] - most - math.Log(sum)
				} else {
					r[p] = math.Exp(in[0][p]-most) / sum
				}
			}
		}
		return r
	})
}

func (b *builder) byIndices() {
	a := b.pick()
	if len(a.shape) < 2 {
		return
	}
	var at []int
	for range 2 + b.N(2) {
		at = append(at, b.N(a.shape[0]))
	}
	shape := slices.Clone(a.shape)
	shape[0] = len(at)
	b.node(fmt.Sprintf("ByIndices(%s, %v, 0)", a.name, at), []string{"ByIndices"}, []*term{a}, shape, func() (*G.Node, error) {
		is := G.NewVector(b.g, tensor.Int, G.WithShape(len(at)), G.WithName(fmt.Sprintf("at%d", len(b.terms))), G.WithValue(tensor.New(tensor.WithShape(len(at)), tensor.WithBacking(at))))
		return G.ByIndices(a.n, is, 0)
	}, func(in [][]float64) []float64 {
		row := len(in[0]) / a.shape[0]
		var r []float64
		for _, i := range at {
			r = append(r, in[0][i*row:(i+1)*row]...)
		}
		return r
	})
}

func (b *builder) conv() {
	a := b.pick()
	if len(a.shape) != 4 {
		return
	}
	k, pad, stride := 1+b.N(3), b.N(2), 1+b.N(2)
	w := window{[2]int{k, k}, [2]int{pad, pad}, [2]int{stride, stride}, [2]int{1, 1}}
	out := [2]int{(a.shape[2]+2*pad-k)/stride + 1, (a.shape[3]+2*pad-k)/stride + 1}
	if a.shape[2]+2*pad < k || a.shape[3]+2*pad < k {
		return
	}
	b.convolved(fmt.Sprintf("Conv2d(%s, %%s, %v)", a.name, w), a, w, out, func(filter *G.Node) (*G.Node, error) {
		return G.Conv2d(a.n, filter, tensor.Shape{k, k}, []int{pad, pad}, []int{stride, stride}, []int{1, 1})
	})
}

// computed reports whether an operand of a term is no input.
func computed(t *term) bool {
	return slices.ContainsFunc(t.in, func(p *term) bool { return len(p.in) > 0 })
}

// fault names an error of Gorgonia's or StdEng's that a term may have, on the host or on
// a GPU, and "" for none. v is the model's.
func (b *builder) fault(t *term, v [][]float64, host bool) string {
	for i, is := range t.from {
		if !is {
			continue
		}
		from := b.terms[i]
		among := func(f func(x float64) bool, in []*term) bool {
			return slices.ContainsFunc(in, func(p *term) bool { return slices.ContainsFunc(v[p.id], f) })
		}
		has := func(tags ...string) bool {
			return slices.ContainsFunc(from.tags, func(tag string) bool { return slices.Contains(tags, tag) })
		}
		wild := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
		switch {
		case has("Sqrt", "Log", "Log2", "InverseSqrt") && len(from.in[0].in) > 0 && among(func(x float64) bool { return math.Abs(x) < 1e-6 }, from.in):
			return "a result that is 0 but for rounding may be below 0"
		case has("entropy") && among(func(x float64) bool { return math.Abs(x) < 1e-6 || math.Abs(1-x) < 1e-6 }, from.in):
			return "a logarithm of 0 but for rounding"
		case has("HadamardDiv", "BroadcastHadamardDiv", "Inverse", "InverseSqrt", "Pow", "BroadcastPow") && computed(from) && among(func(x float64) bool { return x == 0 }, from.in):
			return "a zero that was computed may have the other sign"
		case has("Trunc") && among(func(x float64) bool { return !(math.Abs(x) < 1e9) }, from.in):
			return "numbers that are no ints"
		case has("Pow", "BroadcastPow") && host && b.dt == tensor.Float32:
			return "Pow of float32"
		case has("pool", "norm", "sparsemax") && among(wild, from.in):
			return "pooling, norms and Sparsemax of what is not finite"
		case has("Sigmoid", "Softplus") && (host || len(from.shape) == 0) && among(func(x float64) bool { return x > 15 }, from.in):
			return "Sigmoid of more than 16 is 1, and Softplus what it is of"
		case !host: // what is not a number is computed there by kernels
		case has("Max") && among(math.IsNaN, from.in):
			return "Max of NaN"
		case has("soft") && among(func(x float64) bool { return wild(x) || math.Abs(x) > 80 }, from.in):
			return "SoftMax of what is not finite, or far apart"
		case has("product", "conv") && among(wild, from.in):
			return "products with what is not finite leave out products by zero"
		case has("HadamardDiv", "BroadcastHadamardDiv") && among(func(x float64) bool { return x == 0 }, from.in):
			return "division by zero"
		}
	}
	return ""
}
