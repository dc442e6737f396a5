package gorgoniavm_test

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// Mathematics of random graphs that take more than a function of one or two elements.

// compareAll is a comparison of tensors whose result is of bools, which nothing computes with.
func (b *builder) compareAll() {
	a := b.pick()
	c := b.like(a.shape)
	f := comparisons[b.N(len(comparisons))]
	t := b.node(fmt.Sprintf("%s(%s, %s), bools", f.name, a.name, c.name), []string{f.name}, []*term{a, c}, a.shape, func() (*G.Node, error) { return f.make(a.n, c.n, false) }, each2(f.f))
	if t != nil {
		t.bools, t.sides = true, pairs
	}
}

var comparisons = []struct {
	name string
	make func(a, b *G.Node, same bool) (*G.Node, error)
	f    func(x, y float64) float64
}{
	{"Gt", G.Gt, func(x, y float64) float64 { return truth(x > y) }}, {"Gte", G.Gte, func(x, y float64) float64 { return truth(x >= y) }},
	{"Lt", G.Lt, func(x, y float64) float64 { return truth(x < y) }}, {"Lte", G.Lte, func(x, y float64) float64 { return truth(x <= y) }},
	{"Eq", G.Eq, func(x, y float64) float64 { return truth(x == y) }}, {"Ne", G.Ne, func(x, y float64) float64 { return truth(x != y) }},
}

// power is a power, by a constant or by elements.
func (b *builder) power() {
	a := b.pick()
	if b.ofSoftMax(a) {
		return // its gradient has the logarithm
	}
	if b.N(2) == 0 {
		c := b.like(a.shape)
		b.node(fmt.Sprintf("Pow(%s, %s)", a.name, c.name), []string{"Pow"}, []*term{a, c}, a.shape, func() (*G.Node, error) { return G.Pow(a.n, c.n) }, each2(math.Pow))
		return
	}
	by := []float64{2, 3, -1, 0.5, 0, 1, 1.5, -2}[b.N(8)]
	b.node(fmt.Sprintf("Pow(%s, %v)", a.name, by), []string{"Pow"}, []*term{a}, a.shape, func() (*G.Node, error) { return G.Pow(a.n, G.NewConstant(enginetest.Value(b.dt, by))) },
		each(func(x float64) float64 { return math.Pow(x, by) }))
}

// between is the smaller or the larger of each two elements.
func (b *builder) between() {
	a := b.pick()
	if len(a.shape) == 0 {
		return // Gorgonia has none of numbers
	}
	c := b.like(a.shape)
	name, f, least := "MinBetween", G.MinBetween, b.N(2) == 0
	if !least {
		name, f = "MaxBetween", G.MaxBetween
	}
	b.node(fmt.Sprintf("%s(%s, %s)", name, a.name, c.name), []string{"between"}, []*term{a, c}, a.shape, func() (*G.Node, error) { return f(a.n, c.n) }, each2(func(x, y float64) float64 {
		if least && y < x || !least && y > x {
			return y
		}
		return x
	}))
}

// both is an operation whose operands are both repeated along axes.
func (b *builder) both() {
	a := b.pick()
	if len(a.shape) < 2 || len(a.shape) > 4 {
		return
	}
	other, shape := slices.Clone(a.shape), slices.Clone(a.shape)
	var left, right []byte
	for d, n := range a.shape {
		switch {
		case n == 1:
			other[d] = 1 + b.N(3)
			if shape[d] = other[d]; shape[d] > 1 {
				left = append(left, byte(d))
			}
		case b.N(2) == 0:
			other[d] = 1
			right = append(right, byte(d))
		}
	}
	if len(left)+len(right) == 0 {
		return
	}
	c := b.like(other)
	f := broadcasts[b.N(len(broadcasts))]
	if f.name == "BroadcastPow" && b.ofSoftMax(a) {
		return
	}
	auto := b.N(2) == 0
	text, make := fmt.Sprintf("%s(%s, %s, %v, %v)", f.name, a.name, c.name, left, right), func() (*G.Node, error) { return f.make(a.n, c.n, left, right) }
	if auto {
		text, make = fmt.Sprintf("Auto(%s, %s, %s)", f.name, a.name, c.name), func() (*G.Node, error) { return G.Auto(f.make, a.n, c.n) }
	}
	compares(b.node(text, []string{f.name}, []*term{a, c}, shape, make, repeats(a.shape, other, shape, f.f)), f.name, repeatedPairs(a.shape, other, shape))
}

// make64 returns numbers for a shape.
func make64(shape []int) []float64 { return make([]float64, tensor.Shape(shape).TotalSize()) }

// within returns the place of a tensor whose axes of one element are repeated.
func within(shape, at []int) []int {
	r := slices.Clone(at)
	for d, n := range shape {
		if n == 1 {
			r[d] = 0
		}
	}
	return r
}

// reduceAll is ReduceAdd of several terms.
func (b *builder) reduceAll() {
	a := b.pick()
	parts, names := []*term{a}, a.name
	for range 1 + b.N(3) {
		p := b.like(a.shape)
		parts, names = append(parts, p), names+", "+p.name
	}
	var ns G.Nodes
	for _, p := range parts {
		ns = append(ns, p.n)
	}
	b.node("ReduceAdd("+names+")", nil, parts, a.shape, func() (*G.Node, error) { return G.ReduceAdd(ns) }, func(in [][]float64) []float64 {
		r := slices.Clone(in[0])
		for _, more := range in[1:] {
			for i, x := range more {
				r[i] += x
			}
		}
		return r
	})
}

// vectors is a product of vectors, or of a vector and a matrix.
func (b *builder) vectors() {
	a := b.pick()
	if len(a.shape) != 1 {
		return
	}
	n := a.shape[0]
	if b.N(2) == 0 {
		c := b.like([]int{n})
		b.node(fmt.Sprintf("Mul(%s, %s)", a.name, c.name), []string{"product"}, []*term{a, c}, nil, func() (*G.Node, error) { return G.Mul(a.n, c.n) },
			func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, 1, n, 1) })
		return
	}
	columns := 1 + b.N(4)
	c := b.like([]int{n, columns})
	b.node(fmt.Sprintf("Mul(%s, %s)", a.name, c.name), []string{"product"}, []*term{a, c}, []int{columns}, func() (*G.Node, error) { return G.Mul(a.n, c.n) },
		func(in [][]float64) []float64 { return matrixProducts(in[0], in[1], 1, 1, n, columns) })
}

// contraction is a Tensordot along any pairs of axes.
func (b *builder) contraction() {
	x, y := b.pick(), b.pick()
	var as, bs []int
	for i, n := range x.shape {
		for j, m := range y.shape {
			if n == m && !slices.Contains(as, i) && !slices.Contains(bs, j) && b.N(2) == 0 {
				as, bs = append(as, i), append(bs, j)
			}
		}
	}
	if len(as) == 0 {
		return
	}
	var keepX, keepY, shape, inner []int
	for i, n := range x.shape {
		if !slices.Contains(as, i) {
			keepX, shape = append(keepX, i), append(shape, n)
		}
	}
	for j, n := range y.shape {
		if !slices.Contains(bs, j) {
			keepY, shape = append(keepY, j), append(shape, n)
		}
	}
	for _, i := range as {
		inner = append(inner, x.shape[i])
	}
	b.node(fmt.Sprintf("Tensordot(%v, %v, %s, %s)", as, bs, x.name, y.name), []string{"product"}, []*term{x, y}, shape, func() (*G.Node, error) {
		return G.Tensordot(slices.Clone(as), slices.Clone(bs), x.n, y.n)
	}, func(in [][]float64) []float64 {
		r := make64(shape)
		testkit.Coordinates(shape, func(i int, at []int) {
			atX, atY := make([]int, len(x.shape)), make([]int, len(y.shape))
			for k, d := range keepX {
				atX[d] = at[k]
			}
			for k, d := range keepY {
				atY[d] = at[len(keepX)+k]
			}
			testkit.Coordinates(inner, func(_ int, at []int) {
				for k := range at {
					atX[as[k]], atY[bs[k]] = at[k], at[k]
				}
				r[i] += in[0][testkit.PlaceOf(x.shape, atX)] * in[1][testkit.PlaceOf(y.shape, atY)]
			})
		})
		return r
	})
}

// stride is a slice with a step that leaves no rest.
func (b *builder) stride() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	axis := b.N(len(a.shape))
	step := 2 + b.N(2)
	if a.shape[axis] < 2*step {
		a = b.like(slices.Repeat([]int{4 + b.N(3)}, len(a.shape)))
	}
	count := 2 + b.N(max(a.shape[axis]/step-1, 1))
	if count*step > a.shape[axis] {
		return
	}
	from := b.N(a.shape[axis] - count*step + 1)
	ss := make([]tensor.Slice, axis+1)
	ss[axis] = G.S(from, from+count*step, step)
	shape := slices.Clone(a.shape)
	shape[axis] = count
	b.node(fmt.Sprintf("Slice(%s, axis %d, S(%d, %d, %d))", a.name, axis, from, from+count*step, step), []string{"Slice"}, []*term{a}, shape, func() (*G.Node, error) { return G.Slice(a.n, ss...) }, func(in [][]float64) []float64 {
		r := make64(shape)
		testkit.Coordinates(shape, func(i int, at []int) {
			at = slices.Clone(at)
			at[axis] = from + at[axis]*step
			r[i] = in[0][testkit.PlaceOf(a.shape, at)]
		})
		return r
	})
}

// part is one of the parts of Unconcat.
func (b *builder) part() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	axis := b.N(len(a.shape))
	n := 1 + b.N(a.shape[axis])
	if a.shape[axis]%n != 0 || slices.Contains(a.shape, 1) {
		return // Gorgonia slices along other axes where those of one element go
	}
	k := b.N(n)
	size := a.shape[axis] / n
	shape := slices.Clone(a.shape)
	if shape[axis] = size; size == 1 {
		shape = slices.Delete(shape, axis, axis+1)
	}
	b.node(fmt.Sprintf("Unconcat(%s, %d, %d)[%d]", a.name, axis, n, k), []string{"Slice"}, []*term{a}, shape, func() (*G.Node, error) {
		parts, err := G.Unconcat(a.n, axis, n)
		if err != nil {
			return nil, err
		}
		return parts[k], nil
	}, func(in [][]float64) []float64 {
		var r []float64
		testkit.Coordinates(a.shape, func(i int, at []int) {
			if at[axis]/size == k {
				r = append(r, in[0][i])
			}
		})
		return r
	})
}

// element is one element, as a number.
func (b *builder) element() {
	a := b.pick()
	if len(a.shape) == 0 {
		return
	}
	at := make([]int, len(a.shape))
	for d, n := range a.shape {
		at[d] = b.N(n)
	}
	isConstant(b.node(fmt.Sprintf("At(%s, %v)", a.name, at), []string{"At"}, []*term{a}, nil, func() (*G.Node, error) { return G.At(a.n, at...) },
		func(in [][]float64) []float64 { return []float64{in[0][testkit.PlaceOf(a.shape, at)]} }))
}

// isConstant marks a term as one that has no gradient in Gorgonia.
func isConstant(t *term) {
	if t != nil {
		t.slope = func(_, at [][]float64) []float64 { return slices.Clone(at[t.id]) }
	}
}

// diagonal is a matrix with elements on its diagonal.
func (b *builder) diagonal() {
	a := b.pick()
	n := tensor.Shape(a.shape).TotalSize()
	if len(a.shape) == 0 || n > 12 {
		return
	}
	isConstant(b.node(fmt.Sprintf("DiagFlat(%s)", a.name), []string{"DiagFlat"}, []*term{a}, []int{n, n}, func() (*G.Node, error) { return G.DiagFlat(a.n) }, func(in [][]float64) []float64 {
		r := make([]float64, n*n)
		for i, x := range in[0] {
			r[i*n+i] = x
		}
		return r
	}))
}

// truncated goes by way of ints.
func (b *builder) truncated() {
	a := b.pick()
	if len(a.shape) == 0 || b.wild {
		return
	}
	t := b.node(fmt.Sprintf("ConvType(%s) to ints and back", a.name), []string{"Trunc", noGradient}, []*term{a}, a.shape, func() (*G.Node, error) {
		is, err := G.ConvType(a.n, b.dt, tensor.Int)
		if err != nil {
			return nil, err
		}
		return G.ConvType(is, tensor.Int, b.dt)
	}, each(math.Trunc))
	if t != nil {
		t.sides = func(in [][]float64, i int) (x, y float64) { return in[0][i], math.Round(in[0][i]) }
	}
}

// entropy is BinaryXent of probabilities.
func (b *builder) entropy() {
	a := b.pick()
	c := b.like(a.shape)
	probability := func(t *term) *term {
		return b.node(fmt.Sprintf("Sigmoid(%s)", t.name), []string{"Sigmoid"}, []*term{t}, t.shape, func() (*G.Node, error) { return G.Sigmoid(t.n) }, each(sigmoid))
	}
	p, q := probability(a), probability(c)
	if p == nil || q == nil {
		return
	}
	b.node(fmt.Sprintf("BinaryXent(%s, %s)", p.name, q.name), []string{"entropy"}, []*term{p, q}, a.shape, func() (*G.Node, error) { return G.BinaryXent(p.n, q.n) },
		each2(func(x, y float64) float64 { return -(y*math.Log(x) + (1-y)*math.Log(1-x)) }))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// logSumExp is Gorgonia's of a vector, which adds the maximum within the logarithm.
func (b *builder) logSumExp() {
	a := b.pick()
	if len(a.shape) != 1 {
		return
	}
	b.node(fmt.Sprintf("LogSumExp(%s, 0)", a.name), []string{"Max", "Log", "norm"}, []*term{a}, nil, func() (*G.Node, error) { return G.LogSumExp(a.n, 0) }, func(in [][]float64) []float64 {
		most, sum := math.Inf(-1), 0.0
		for _, x := range in[0] {
			if x > most || math.IsNaN(x) {
				most = x
			}
		}
		for _, x := range in[0] {
			sum += math.Exp(x - most)
		}
		return []float64{math.Log(sum + most)}
	})
}
