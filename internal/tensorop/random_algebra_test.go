package tensorop_test

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
)

// Further steps of random expressions.

// apply is Apply of a function.
func (x *expression) apply() error {
	a := x.pick()
	if !isFloat(x.dt) {
		return nil
	}
	to := x.output(a.shape, a, true, a)
	return x.run(&call{
		text: fmt.Sprintf("Apply(%s%s)", a.name, to.text), in: []*variable{a}, dst: to.dst, incr: to.incr, tags: []string{"Apply"},
		do: func(w int) (tensor.Tensor, error) { return unaryFuncs["Apply"](a.in[w], to.opts(w)...) },
		want: func(_ int, in [][]float64) result {
			r := result{a.shape, make([]float64, len(in[0])), make([]float64, len(in[0]))}
			for i, v := range in[0] {
				r.values[i], r.scale[i] = 2*v+1, math.Abs(2*v)+1
			}
			return r
		},
	})
}

// fma adds a product to a tensor.
func (x *expression) fma() error {
	a := x.pick()
	b, y := x.like(a.shape), x.like(a.shape)
	s, scalar := x.number(), x.N(2) == 0
	c := &call{text: fmt.Sprintf("FMA(%s, %s, %s)", a.name, b.name, y.name), in: []*variable{a, b}, dst: y, incr: true, tags: []string{"Mul", "fma"}}
	if scalar {
		c.text, c.in = fmt.Sprintf("FMA(%s, %v, %s)", a.name, s, y.name), c.in[:1]
	}
	if !inOrder(y, c.in) {
		return nil
	}
	c.do = func(w int) (tensor.Tensor, error) {
		if scalar {
			return tensor.FMA(a.in[w], value(x.dt, s), y.in[w])
		}
		return tensor.FMA(a.in[w], b.in[w], y.in[w])
	}
	c.want = func(_ int, in [][]float64) result {
		r := result{shape: a.shape}
		for i, v := range in[0] {
			if scalar {
				r.values = append(r.values, v*s)
			} else {
				r.values = append(r.values, v*in[1][i])
			}
		}
		return r
	}
	return x.run(c)
}

// norm is the norm of all elements, or along an axis.
func (x *expression) norm() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	if len(v.shape) > 1 && x.Chance(3) {
		return x.matrixNorm(v)
	}
	ord, name := tensor.UnorderedNorm(), "unordered"
	by, axes := indices(len(v.shape)), []int(nil)
	if x.N(3) > 0 {
		axes = []int{x.N(len(v.shape))}
		by = axes
		switch x.N(4) {
		case 0:
			ord, name = tensor.Norm(1), "1"
		case 1:
			ord, name = tensor.Norm(2), "2"
		case 2:
			ord, name = tensor.InfNorm(), "inf"
		case 3:
			ord, name = tensor.NegInfNorm(), "-inf"
		}
	}
	left, groups := along(v.shape, by)
	return x.run(&call{
		text: fmt.Sprintf("Norm(%s, %s, %v)", v.name, name, axes), in: []*variable{v}, eps: 40, tags: []string{"Norm"},
		do: func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				return dense(b.Norm(v.in[w], ord, axes...))
			}
			return dense(v.in[w].Norm(ord, axes...))
		},
		want: func(_ int, in [][]float64) result {
			r := result{shape: left}
			for _, g := range groups {
				n := math.Abs(in[0][g[0]])
				for i, p := range g {
					e := math.Abs(in[0][p])
					switch {
					case name == "inf":
						n = pick(e > n || math.IsNaN(e), e, n)
					case name == "-inf":
						n = pick(e < n || math.IsNaN(e), e, n)
					case name == "1":
						n = pick(i == 0, e, n+e)
					default:
						n = pick(i == 0, e*e, n+e*e)
					}
				}
				if name == "2" || name == "unordered" {
					n = math.Sqrt(n)
				}
				r.values = append(r.values, n)
			}
			return r
		},
	})
}

// matrixNorm is the norm of matrices, which two of the axes make.
func (x *expression) matrixNorm(v *variable) error {
	rows := x.N(len(v.shape))
	columns := (rows + 1 + x.N(len(v.shape)-1)) % len(v.shape)
	name := []string{"1", "-1", "inf", "-inf", "Frobenius"}[x.N(5)]
	ord := map[string]tensor.NormOrder{"1": tensor.Norm(1), "-1": tensor.Norm(-1), "inf": tensor.InfNorm(), "-inf": tensor.NegInfNorm(), "Frobenius": tensor.FrobeniusNorm()}[name]
	left, groups := along(v.shape, []int{rows, columns})
	by := pick(name == "inf" || name == "-inf", rows, columns)
	return x.run(&call{
		text: fmt.Sprintf("Norm(%s, %s, [%d %d])", v.name, name, rows, columns), in: []*variable{v}, eps: 40, tags: []string{"Norm", "matrix"},
		do: func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				return dense(b.Norm(v.in[w], ord, rows, columns))
			}
			return dense(v.in[w].Norm(ord, rows, columns))
		},
		want: func(_ int, in [][]float64) result {
			r := result{shape: left}
			places := make([][]int, len(in[0]))
			testkit.Coordinates(v.shape, func(i int, at []int) { places[i] = slices.Clone(at) })
			for _, g := range groups {
				sums, squares := make([]float64, v.shape[by]), 0.0
				for _, p := range g {
					sums[places[p][by]] += math.Abs(in[0][p])
					squares += in[0][p] * in[0][p]
				}
				n := sums[0]
				for _, s := range sums[1:] {
					if least := name[0] == '-'; least && s < n || !least && s > n || math.IsNaN(s) {
						n = s
					}
				}
				r.values = append(r.values, pick(name == "Frobenius", math.Sqrt(squares), n))
			}
			return r
		},
	})
}

// number0 is a value of a type as a tensor, for steps that return a Go value.
func number0(dt tensor.Dtype, v interface{}, err error) (tensor.Tensor, error) {
	if err != nil {
		return nil, err
	}
	return hostTensor(dt, []float64{number(v)}, nil), nil
}

// dots are Dot, Inner and Trace.
func (x *expression) dots() error {
	a := x.pick()
	c := &call{eps: 20}
	switch x.N(3) {
	case 0:
		if len(a.shape) != 2 {
			return nil
		}
		c.text, c.in, c.kind, c.tags = fmt.Sprintf("Trace(%s)", a.name), []*variable{a}, "value", []string{"Trace"}
		c.do = func(w int) (tensor.Tensor, error) {
			v, err := a.in[w].Trace()
			return number0(x.dt, v, err)
		}
		c.want = func(_ int, in [][]float64) result {
			r := result{nil, []float64{0}, []float64{0}}
			for i := range min(a.shape[0], a.shape[1]) {
				v := in[0][i*a.shape[1]+i]
				r.values[0] += v
				r.scale[0] += math.Abs(v)
			}
			return r
		}
	case 1:
		if len(a.shape) != 1 {
			return nil
		}
		b := x.like(a.shape)
		c.text, c.in, c.kind, c.tags = fmt.Sprintf("Inner(%s, %s)", a.name, b.name), []*variable{a, b}, "value", []string{"Dot"}
		c.do = func(w int) (tensor.Tensor, error) {
			v, err := func() (interface{}, error) {
				if e := x.worlds[w].Bench; e != nil {
					return e.Inner(a.in[w], b.in[w]) // tensor refuses a vector with gaps beside one without
				}
				return a.in[w].Inner(b.in[w])
			}()
			return number0(x.dt, v, err)
		}
		c.want = func(_ int, in [][]float64) result {
			r := times(in[0], in[1], 1, len(in[0]), 1)
			r.shape = nil
			return r
		}
	default: // along the last axis of a and the last but one of b
		if len(a.shape) == 0 {
			return nil
		}
		k := a.shape[len(a.shape)-1]
		shape := []int{k}
		if x.N(2) == 0 {
			shape = []int{k, 1 + x.N(4)}
			if x.N(3) == 0 {
				shape = []int{1 + x.N(3), k, 1 + x.N(4)}
			}
		}
		b := x.like(shape)
		for _, s := range [][]int{a.shape, shape} {
			if tensor.Shape(s).IsVector() && len(s) > 1 || tensor.Shape(s).IsScalarEquiv() {
				return nil // tensor takes matrices of one row or column for vectors, and one element for a scalar
			}
		}
		at := max(len(shape)-2, 0)
		r := contracted(a.shape, shape, []int{len(a.shape) - 1}, []int{at}, make([]float64, tensor.Shape(a.shape).TotalSize()), make([]float64, tensor.Shape(shape).TotalSize()))
		to := x.output(r.shape, nil, true, a, b)
		c.text, c.in, c.dst, c.incr, c.tags = fmt.Sprintf("Dot(%s, %s%s)", a.name, b.name, to.text), []*variable{a, b}, to.dst, to.incr, []string{"Dot"}
		c.do = func(w int) (tensor.Tensor, error) { return tensor.Dot(a.in[w], b.in[w], to.opts(w)...) }
		c.want = func(_ int, in [][]float64) result {
			return contracted(a.shape, shape, []int{len(a.shape) - 1}, []int{at}, in[0], in[1])
		}
	}
	return x.run(c)
}

// outer adds the product of vectors to a matrix.
func (x *expression) outer() error {
	a := x.pick()
	if len(a.shape) != 1 {
		return nil
	}
	b := x.like([]int{1 + x.N(4)})
	dst := x.like([]int{a.shape[0], b.shape[0]})
	if dst.buf == a.buf || dst.buf == b.buf || dst.cut || dst.gaps || !dst.plain() {
		return nil
	}
	return x.run(&call{
		text: fmt.Sprintf("Outer(%s, %s, %s)", a.name, b.name, dst.name), in: []*variable{a, b}, dst: dst, incr: true, tags: []string{"Outer"}, eps: 8,
		do: func(w int) (tensor.Tensor, error) {
			if e := x.worlds[w].Bench; e != nil {
				return dst.in[w], e.Outer(a.in[w], b.in[w], dst.in[w])
			}
			return dst.in[w], tensor.StdEng{}.Outer(a.in[w], b.in[w], dst.in[w])
		},
		want: func(_ int, in [][]float64) result { return times(in[0], in[1], len(in[0]), 1, len(in[1])) },
	})
}

// diag takes the diagonal of a matrix, which tensor puts before zeros in a tensor of its shape.
func (x *expression) diag() error {
	a := x.pick()
	if len(a.shape) != 2 {
		return nil
	}
	return x.run(&call{
		text: fmt.Sprintf("Diag(%s)", a.name), in: []*variable{a}, tags: []string{"Diag"},
		do: func(w int) (tensor.Tensor, error) { return tensor.Diag(a.in[w]) },
		want: func(_ int, in [][]float64) result {
			r := result{a.shape, make([]float64, len(in[0])), nil}
			for i := range min(a.shape[0], a.shape[1]) {
				r.values[i] = in[0][i*a.shape[1]+i]
			}
			return r
		},
	})
}

// softBack is the gradient of SoftMax or LogSoftMax by its result and its gradient.
func (x *expression) softBack() error {
	y := x.pick()
	if len(y.shape) == 0 || !isFloat(x.dt) {
		return nil
	}
	g := x.like(y.shape)
	for _, v := range []*variable{y, g} {
		for w := range x.worlds {
			if slices.ContainsFunc(v.values(w), func(v float64) bool { return !(math.Abs(v) < 80) }) {
				return nil // whether zeros are multiplied with infinities depends on the type
			}
		}
	}
	axis := x.N(len(y.shape))
	log := x.N(2) == 0
	_, groups := along(y.shape, []int{axis})
	return x.run(&call{
		text: fmt.Sprintf("%s(%s, %s, %d)", pick(log, "LogSoftMaxB", "SoftMaxB"), y.name, g.name, axis), in: []*variable{y, g}, eps: 40, tags: []string{"SoftMaxB"},
		do: func(w int) (tensor.Tensor, error) {
			if log {
				return tensor.LogSoftMaxB(y.in[w], g.in[w], axis)
			}
			return tensor.SoftMaxB(y.in[w], g.in[w], axis)
		},
		want: func(_ int, in [][]float64) result {
			r := result{y.shape, make([]float64, len(in[0])), make([]float64, len(in[0]))}
			for _, group := range groups {
				sum, most := 0.0, 0.0
				for _, p := range group {
					v := pick(log, in[1][p], in[0][p]*in[1][p])
					sum, most = sum+v, most+math.Abs(v)
				}
				for _, p := range group {
					if log {
						r.values[p] = in[1][p] - math.Exp(in[0][p])*sum
						r.scale[p] = math.Abs(in[1][p]) + math.Exp(in[0][p])*most*(1+math.Abs(in[0][p]))
					} else {
						r.values[p] = (in[1][p] - sum) * in[0][p]
						r.scale[p] = (math.Abs(in[1][p]) + most) * math.Abs(in[0][p])
					}
				}
			}
			return r
		},
	})
}

// softInto is SoftMax into a tensor, which engines heed and StdEng does not.
func (x *expression) softInto() error {
	v := x.pick()
	if len(v.shape) == 0 || !isFloat(x.dt) {
		return nil
	}
	axis := x.N(len(v.shape))
	dst := v
	opts := func(int) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.UseUnsafe()} }
	how := "UseUnsafe"
	if x.N(2) == 0 {
		dst = x.like(v.shape)
		opts = func(w int) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithReuse(dst.in[w])} }
		how = "WithReuse " + dst.name
	}
	if !inOrder(dst, []*variable{v}) || dst.cut {
		return nil
	}
	c := x.softMax(v, axis, false)
	c.text, c.dst = fmt.Sprintf("SoftMax(%s, %d, %s)", v.name, axis, how), dst
	c.do = func(w int) (tensor.Tensor, error) {
		if x.worlds[w].Bench != nil {
			return tensor.SoftMax(v.in[w], axis, opts(w)...)
		}
		r, err := tensor.SoftMax(v.in[w], axis)
		if err != nil {
			return nil, err
		}
		return dst.in[w], tensor.Copy(dst.in[w], r)
	}
	return x.run(c)
}

// repeatInto is RepeatReuse.
func (x *expression) repeatInto() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	axis, n := x.N(len(v.shape)), 1+x.N(3)
	shape := slices.Clone(v.shape)
	shape[axis] *= n
	dst := x.like(shape)
	if dst.buf == v.buf || dst.cut || dst.gaps || !dst.plain() {
		return nil
	}
	var from []int
	for i := range v.shape[axis] {
		from = append(from, slices.Repeat([]int{i}, n)...)
	}
	return x.run(&call{
		text: fmt.Sprintf("RepeatReuse(%s, %s, %d, %d)", v.name, dst.name, axis, n), in: []*variable{v}, dst: dst, tags: []string{"Repeat"},
		do:   func(w int) (tensor.Tensor, error) { return tensor.RepeatReuse(v.in[w], dst.in[w], axis, n) },
		want: func(_ int, in [][]float64) result { return selected(v.shape, shape, axis, from, in[0]) },
	})
}

// argAll finds the place of the largest or smallest of all elements.
func (x *expression) argAll() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	largest := x.N(2) == 0
	return x.run(&call{
		text: fmt.Sprintf("%s(%s, all)", pick(largest, "Argmax", "Argmin"), v.name), in: []*variable{v}, kind: "int", tags: []string{"arg"},
		do: func(w int) (tensor.Tensor, error) {
			if largest {
				return dense(v.in[w].Argmax(tensor.AllAxes))
			}
			return dense(v.in[w].Argmin(tensor.AllAxes))
		},
		want: func(_ int, in [][]float64) result {
			return result{nil, []float64{float64(argOf(in[0], indices(len(in[0])), largest))}, nil}
		},
	})
}

// selectBack is ByIndicesB.
func (x *expression) selectBack() error {
	v := x.pick()
	if len(v.at) < 2 || !isFloat(x.dt) {
		return nil
	}
	axis := x.N(len(v.shape))
	var from []int
	for range 1 + x.N(3) {
		from = append(from, x.N(v.shape[axis]))
	}
	shape := slices.Clone(v.shape)
	shape[axis] = len(from)
	g := x.like(shape)
	return x.run(&call{
		text: fmt.Sprintf("ByIndicesB(%s, %s, %v, %d)", v.name, g.name, from, axis), in: []*variable{g}, tags: []string{"ByIndices"}, axes: []int{axis}, eps: 8,
		do: func(w int) (tensor.Tensor, error) {
			at := tensor.New(tensor.WithShape(len(from)), tensor.WithBacking(slices.Clone(from)))
			if b := x.worlds[w].Bench; b != nil {
				at = must(b.FromHost(at))
			}
			return tensor.ByIndicesB(v.in[w], g.in[w], at, axis)
		},
		want: func(_ int, in [][]float64) result {
			n := tensor.Shape(v.shape).TotalSize()
			r := result{v.shape, make([]float64, n), make([]float64, n)}
			testkit.Coordinates(shape, func(i int, at []int) {
				at = slices.Clone(at)
				at[axis] = from[at[axis]]
				p := testkit.PlaceOf(v.shape, at)
				r.values[p] += in[0][i]
				r.scale[p] += math.Abs(in[0][i])
			})
			return r
		},
	})
}

// masked computes with a clone that has a mask, and compares with StdEng alone.
func (x *expression) masked() error {
	v := x.pick()
	if len(v.shape) == 0 || len(v.at) < 2 || !v.plain() || v.moved || v.gaps || v.cut {
		return nil
	}
	for w := range x.worlds {
		if x.apart(v.values(w), v.values(0)) || v.in[w].DataOrder() != 0 {
			return nil
		}
	}
	seed, kind := x.N(8), x.N(4)
	text := fmt.Sprintf("%d of %s with a mask, seed %d", kind, v.name, seed)
	fmt.Fprintf(&x.text, "%s\n", text)
	var want []float64
	var mask []bool
	for w := range x.worlds {
		d := v.in[w].Clone().(*tensor.Dense)
		bits := make([]bool, len(v.at))
		for i := range bits {
			bits[i] = (i*7+seed)%3 == 0
		}
		d.SetMask(bits)
		r, err := func() (tensor.Tensor, error) {
			switch kind {
			case 0:
				return tensor.Add(d, value(x.dt, 2))
			case 1:
				return tensor.Mul(d, d)
			case 2:
				return tensor.Neg(d)
			}
			return tensor.Sum(d, 0)
		}()
		if w == 0 && err != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", text, x.worlds[w].name, err)
		}
		h := r.(*tensor.Dense)
		if b := x.worlds[w].Bench; b != nil {
			h = must(b.ToHost(h))
		}
		var values []float64
		for i := range h.Shape().TotalSize() {
			values = append(values, number(h.Get(i)))
		}
		if w == 0 {
			want, mask = values, slices.Clone(h.Mask())
			continue
		}
		if !slices.Equal(mask, h.Mask()) || len(want) != len(values) || x.apart(values, want) {
			return fmt.Errorf("%s: %s has %v masked %v, StdEng %v masked %v", text, x.worlds[w].name, values, h.Mask(), want, mask)
		}
	}
	return x.check(text)
}
