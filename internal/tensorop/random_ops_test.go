package tensorop_test

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
)

// step makes one choice of what a program does.
func (x *expression) step() error {
	steps := []func() error{
		x.binary, x.binary, x.binary, x.scalar, x.scalar, x.unary, x.unary,
		x.slice, x.slice, x.transpose, x.transpose, x.reshape, x.copies,
		x.reduce, x.reduce, x.arg, x.product, x.product, x.soft, x.join, x.repeat, x.fill, x.byIndices,
		x.apply, x.fma, x.norm, x.dots, x.outer, x.diag, x.softBack, x.softInto, x.repeatInto, x.argAll, x.selectBack, x.masked,
	}
	return steps[x.N(len(steps))]()
}

var binaryModel = map[string]func(a, b float64) float64{
	"Add": func(a, b float64) float64 { return a + b }, "Sub": func(a, b float64) float64 { return a - b },
	"Mul": func(a, b float64) float64 { return a * b }, "Div": func(a, b float64) float64 { return a / b },
	"Pow": math.Pow, "Mod": math.Mod,
	"Gt": holds(func(a, b float64) bool { return a > b }), "Gte": holds(func(a, b float64) bool { return a >= b }),
	"Lt": holds(func(a, b float64) bool { return a < b }), "Lte": holds(func(a, b float64) bool { return a <= b }),
	"ElEq": holds(func(a, b float64) bool { return a == b }), "ElNe": holds(func(a, b float64) bool { return a != b }),
	"MinBetween": func(a, b float64) float64 { return pick(b < a, b, a) },
	"MaxBetween": func(a, b float64) float64 { return pick(b > a, b, a) },
}

func holds(f func(a, b float64) bool) func(a, b float64) float64 {
	return func(a, b float64) float64 { return pick(f(a, b), 1.0, 0) }
}

var binaryNames = []string{"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Gt", "Gte", "Lt", "Lte", "ElEq", "ElNe", "MinBetween", "MaxBetween"}

func binaryOf(name string) (f binaryFunc, compares bool) {
	arith, cmps, between := binaryFuncs()
	if f, ok := cmps[name]; ok {
		return f, true
	}
	if f, ok := arith[name]; ok {
		return f, false
	}
	return between[name], false
}

// where is where a result goes.
type where struct {
	dst  *variable
	incr bool
	text string
	opts func(w int) []tensor.FuncOpt
}

// output chooses where the result of an operation on operands goes. Writing to what
// is read goes wrong unless it is done element by element, so that is left out.
func (x *expression) output(shape []int, unsafeTo *variable, incr bool, in ...*variable) where {
	way := x.N(6)
	switch {
	case way == 1 && unsafeTo != nil && inOrder(unsafeTo, in):
		return where{unsafeTo, false, ", UseUnsafe", func(int) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.UseUnsafe()} }}
	case way == 2 || way == 3 && incr:
		dst := x.like(shape)
		if inOrder(dst, in) {
			if way == 2 {
				return where{dst, false, ", WithReuse " + dst.name, func(w int) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithReuse(dst.in[w])} }}
			}
			return where{dst, true, ", WithIncr " + dst.name, func(w int) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithIncr(dst.in[w])} }}
		}
	}
	return where{nil, false, "", func(int) []tensor.FuncOpt { return nil }}
}

// inOrder reports whether dst shares no elements with operands but in the same places.
func inOrder(dst *variable, in []*variable) bool {
	if len(dst.at) == 1 && dst.cut {
		return false // StdEng writes to the gaps, too
	}
	for _, v := range in {
		if v.buf != dst.buf || slices.Equal(v.at, dst.at) {
			continue
		}
		for _, p := range v.at {
			if slices.Contains(dst.at, p) {
				return false
			}
		}
	}
	return true
}

func each2(f func(a, b float64) float64) func(w int, in [][]float64) []float64 {
	return func(_ int, in [][]float64) []float64 {
		r := make([]float64, len(in[0]))
		for i := range r {
			r[i] = f(in[0][i], in[1][i])
		}
		return r
	}
}

// binaryName chooses an operation of two.
func (x *expression) binaryName() string {
	for {
		if name := binaryNames[x.N(len(binaryNames))]; isFloat(x.dt) || name != "Pow" && name != "Mod" {
			return name
		}
	}
}

func (x *expression) binary() error {
	a := x.pick()
	b := x.like(a.shape)
	name := x.binaryName()
	f, compares := binaryOf(name)
	var more []tensor.FuncOpt
	kind := ""
	text := fmt.Sprintf("%s(%s, %s", name, a.name, b.name)
	to := where{opts: func(int) []tensor.FuncOpt { return nil }}
	if compares && x.Chance(3) {
		kind = "bool"
	} else {
		if compares {
			more = append(more, tensor.AsSameType())
			text += ", AsSameType"
		}
		to = x.output(a.shape, a, !compares, a, b)
	}
	return x.run(&call{
		text: text + to.text + ")", in: []*variable{a, b}, dst: to.dst, incr: to.incr, kind: kind,
		eps: pick(name == "Pow", 50.0, 0), tags: []string{name, "binary"},
		do: func(w int) (tensor.Tensor, error) {
			return f(a.in[w], b.in[w], append(to.opts(w), more...)...)
		},
		want: func(w int, in [][]float64) result {
			r := each2(binaryModel[name])(w, in)
			return result{a.shape, r, powers(name, r)}
		},
	})
}

// powers returns how large the numbers are that powers were rounded among, which Go multiplies
// up from many; nil: they are none.
func powers(name string, r []float64) (scale []float64) {
	if name != "Pow" {
		return nil
	}
	for _, v := range r {
		size := math.Abs(v)
		if size > 0 {
			size *= 1 + math.Abs(math.Log(size))/16
		}
		scale = append(scale, size)
	}
	return scale
}

func (x *expression) scalar() error {
	a := x.pick()
	name := x.binaryName()
	f, compares := binaryOf(name)
	var more []tensor.FuncOpt
	kind := ""
	s, left := x.number(), x.N(2) == 0
	text := fmt.Sprintf("%s(%s, %v", name, a.name, s)
	if !left {
		text = fmt.Sprintf("%s(%v, %s", name, s, a.name)
	}
	to := where{opts: func(int) []tensor.FuncOpt { return nil }}
	if compares && x.Chance(3) {
		kind = "bool"
	} else {
		if compares {
			more = append(more, tensor.AsSameType())
			text += ", AsSameType"
		}
		to = x.output(a.shape, a, !compares, a)
	}
	return x.run(&call{
		text: text + to.text + ")", in: []*variable{a}, dst: to.dst, incr: to.incr, kind: kind,
		eps: pick(name == "Pow", 50.0, 0), tags: []string{name, "scalar", pick(s == 0, "zero", "")},
		do: func(w int) (tensor.Tensor, error) {
			opts := append(to.opts(w), more...)
			if left {
				return f(a.in[w], value(x.dt, s), opts...)
			}
			return f(value(x.dt, s), a.in[w], opts...)
		},
		want: func(_ int, in [][]float64) result {
			r := make([]float64, len(in[0]))
			for i, v := range in[0] {
				if left || name == "MinBetween" || name == "MaxBetween" {
					r[i] = binaryModel[name](v, s)
				} else {
					r[i] = binaryModel[name](s, v)
				}
			}
			return result{a.shape, r, powers(name, r)}
		},
	})
}

var unaryModel = map[string]func(float64) float64{
	"Neg": func(v float64) float64 { return -v }, "Inv": func(v float64) float64 { return 1 / v },
	"Square": func(v float64) float64 { return v * v }, "Cube": func(v float64) float64 { return v * v * v },
	"Exp": math.Exp, "Tanh": math.Tanh, "Log": logarithm, "Log2": math.Log2, "Log10": func(v float64) float64 { return logarithm(v) / math.Ln10 }, "Sqrt": math.Sqrt,
	"Cbrt": math.Cbrt, "InvSqrt": func(v float64) float64 { return 1 / math.Sqrt(v) }, "Abs": math.Abs,
	"Sign":  func(v float64) float64 { return pick(v < 0, -1, pick(v > 0, 1, v)) },
	"Clamp": func(v float64) float64 { return pick(v < -1, -1, pick(v > 2, 2, v)) },
}

// logarithm is right for subnormal numbers, too, for which math.Log of amd64 is not.
func logarithm(v float64) float64 {
	if v > 0 && v < 0x1p-1022 {
		return math.Log(v*0x1p60) - 60*math.Ln2
	}
	return math.Log(v)
}

var unaryNames = []string{"Neg", "Inv", "Square", "Cube", "Exp", "Tanh", "Log", "Log2", "Log10", "Sqrt", "Cbrt", "InvSqrt", "Abs", "Sign", "Clamp"}

func (x *expression) unary() error {
	a := x.pick()
	name := unaryNames[x.N(len(unaryNames))]
	if !isFloat(x.dt) && !slices.Contains([]string{"Neg", "Square", "Cube", "Abs", "Sign", "Clamp"}, name) {
		return nil
	}
	to := x.output(a.shape, a, true, a)
	return x.run(&call{
		text: fmt.Sprintf("%s(%s%s)", name, a.name, to.text), in: []*variable{a}, dst: to.dst, incr: to.incr,
		// The functions of float32 take the last bit of an argument for up to 88 of the exponential's.
		eps: pick(name == "Exp", 100.0, 8), tags: []string{name, "unary"},
		do: func(w int) (tensor.Tensor, error) { return unaryFuncs[name](a.in[w], to.opts(w)...) },
		want: func(_ int, in [][]float64) result {
			r := result{a.shape, make([]float64, len(in[0])), make([]float64, len(in[0]))}
			for i, v := range in[0] {
				r.values[i] = unaryModel[name](v)
				r.scale[i] = math.Abs(r.values[i])
				if name == "Log2" || name == "Log10" {
					r.scale[i]++ // Go and StdEng add the exponent to the logarithm of a fraction of ½ to 1
				}
			}
			return r
		},
	})
}

// view adds a variable over the elements of v that places name, if all worlds make
// it, or puts it in v's place.
func (x *expression) view(text string, v *variable, places []int, do func(w int) (*tensor.Dense, error), moved, cut bool) error {
	fmt.Fprintf(&x.text, "%s\n", text)
	n := &variable{buf: v.buf, moved: moved, cut: cut || v.cut, gaps: v.gaps, columns: v.columns}
	for _, p := range places {
		n.at = append(n.at, v.at[p])
	}
	var failed error
	for w := range x.worlds {
		var d *tensor.Dense
		err := testkit.Caught(func() (err error) { d, err = do(w); return err })
		if w == 0 {
			failed = err
		}
		if err == nil && failed != nil && w > 0 {
			x.over = true // it has no gaps, where StdEng's has
			return nil
		}
		if (err == nil) != (failed == nil) {
			return fmt.Errorf("%s: %s fails with %v, StdEng with %w", text, x.worlds[w].name, err, failed)
		}
		if err == nil {
			n.in = append(n.in, d)
			if w == 0 {
				n.shape = slices.Clone([]int(d.Shape()))
			} else if !slices.Equal(n.shape, []int(d.Shape())) {
				return fmt.Errorf("%s: %s has shape %v, StdEng %v", text, x.worlds[w].name, d.Shape(), n.shape)
			}
		}
	}
	if failed != nil {
		return nil
	}
	if tensor.Shape(n.shape).TotalSize() != len(n.at) {
		return fmt.Errorf("%s: the model has %d elements, StdEng the shape %v", text, len(n.at), n.shape)
	}
	x.add(n)
	fmt.Fprintf(&x.text, "  // is %s\n", n.name)
	return x.check(text)
}

// slice makes a view. How long tensor makes the axes is StdEng's choice.
func (x *expression) slice() error {
	v := x.pick()
	if len(v.shape) == 0 || len(v.at) == 0 || v.gaps { // which have other shapes on a GPU
		return nil
	}
	if v.narrow() {
		return nil
	}
	var ss []tensor.Slice
	ranges := make([][]int, len(v.shape))
	text := v.name + ".Slice("
	for a, n := range v.shape {
		ranges[a] = indices(n)
		if a > 0 && len(ss) < a { // no more slices
			continue
		}
		switch x.N(5) {
		case 0, 1:
			ss = append(ss, nil)
			text += "nil, "
		case 2:
			from := x.N(n)
			ss = append(ss, tensor.S(from))
			ranges[a] = ranges[a][from : from+1]
			text += fmt.Sprintf("S(%d), ", from)
		case 3:
			from := x.N(n)
			to := from + 1 + x.N(n-from)
			step := 1 + x.N(3)
			ss = append(ss, tensor.S(from, to, step))
			count := (to - from) / step
			if (to-from)%step > 0 && a > 0 {
				count++ // not along the first axis
			}
			count = max(count, 1)
			var r []int
			for i := range count {
				r = append(r, from+i*step)
			}
			ranges[a] = r
			text += fmt.Sprintf("S(%d, %d, %d), ", from, to, step)
		}
	}
	var places []int
	sub := make([]int, len(ranges))
	for a := range ranges {
		sub[a] = len(ranges[a])
	}
	testkit.Coordinates(sub, func(_ int, at []int) {
		from := make([]int, len(at))
		for a := range at {
			from[a] = ranges[a][at[a]]
		}
		places = append(places, testkit.PlaceOf(v.shape, from))
	})
	return x.view(text+")", v, places, func(w int) (*tensor.Dense, error) {
		d, err := v.in[w].Slice(ss...)
		if err != nil {
			return nil, err
		}
		return d.(*tensor.Dense), nil
	}, v.moved, true)
}

// axes chooses an order of a variable's axes, and returns the places and the shape of its
// elements in that.
func (x *expression) axes(v *variable) (axes, places, shape []int) {
	axes = indices(len(v.shape))
	for i := len(axes) - 1; i > 0; i-- {
		j := x.N(i + 1)
		axes[i], axes[j] = axes[j], axes[i]
	}
	shape = make([]int, len(axes))
	for i, a := range axes {
		shape[i] = v.shape[a]
	}
	testkit.Coordinates(shape, func(_ int, at []int) {
		from := make([]int, len(at))
		for i, a := range axes {
			from[a] = at[i]
		}
		places = append(places, testkit.PlaceOf(v.shape, from))
	})
	return axes, places, shape
}

func (x *expression) transpose() error {
	v := x.pick()
	if len(v.shape) < 2 || v.narrow() {
		return nil
	}
	axes, places, shape := x.axes(v)
	switch x.N(4) {
	case 0: // T of a clone that shares the memory
		if v.moved {
			return nil
		}
		return x.view(fmt.Sprintf("%s.ShallowClone().T(%v)", v.name, axes), v, places, func(w int) (*tensor.Dense, error) {
			d := v.in[w].ShallowClone()
			return d, d.T(slices.Clone(axes)...) // tensor keeps the slice, and recycles it
		}, true, false)
	case 1: // Transpose moves the elements
		if !v.moved || !v.whole() {
			return nil
		}
		text := v.name + ".Transpose()"
		fmt.Fprintf(&x.text, "%s\n", text)
		at := indices(len(v.at))
		if v.columns {
			at = columnMajor(v.shape)
		}
		for w := range x.worlds {
			values := v.values(w)
			if err := v.in[w].Transpose(); err != nil {
				return fmt.Errorf("%s: %s: %w", text, x.worlds[w].name, err)
			}
			for i, p := range at {
				v.buf.data[w][p] = values[i]
			}
		}
		v.at, v.moved = at, false
		return x.check(text)
	}
	if !v.whole() || v.gaps {
		return nil // tensor copies the elements up to the first gap, and asks no engine
	}
	return x.run(&call{
		text: fmt.Sprintf("%s.SafeT(%v)", v.name, axes), in: []*variable{v}, tags: []string{"SafeT"},
		do: func(w int) (tensor.Tensor, error) { return v.in[w].SafeT(slices.Clone(axes)...) },
		want: func(_ int, in [][]float64) result {
			r := make([]float64, len(places))
			for i, p := range places {
				r[i] = in[0][p]
			}
			return result{shape, r, nil}
		},
	})
}

// reshape gives a tensor without gaps another shape in place, by way of a clone that
// shares the memory.
func (x *expression) reshape() error {
	v := x.pick()
	if !v.plain() || v.moved || v.columns {
		return nil
	}
	for w := range x.worlds {
		if v.in[w].DataOrder().IsNotContiguous() || v.in[w].DataOrder().IsColMajor() {
			return nil // an error, where no operation with reuse has had StdEng forget that it is a view, or another order of elements
		}
	}
	var shape []int
	for rest := len(v.at); rest > 1; {
		n := 1 + x.N(rest)
		for rest%n != 0 {
			n--
		}
		if n == 1 && len(shape) > 2 {
			n = rest
		}
		shape = append(shape, n)
		rest /= n
	}
	if x.Chance(3) || len(shape) == 0 {
		shape = append(shape, 1)
	}
	return x.view(fmt.Sprintf("%s.ShallowClone().Reshape(%v)", v.name, shape), v, indices(len(v.at)), func(w int) (*tensor.Dense, error) {
		d := v.in[w].ShallowClone()
		return d, d.Reshape(shape...)
	}, false, false)
}

// copies are ways to another tensor with the same elements.
func (x *expression) copies() error {
	v := x.pick()
	c := &call{in: []*variable{v}, tags: []string{"copies"}, want: func(_ int, in [][]float64) result { return result{v.shape, in[0], nil} }}
	switch x.N(4) {
	case 0:
		c.text = fmt.Sprintf("Materialize(%s)", v.name)
		for w := range x.worlds {
			if !v.in[w].IsMaterializable() {
				return nil // it would be the same tensor there
			}
		}
		c.do = func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				return b.Materialize(v.in[w])
			}
			return v.in[w].Materialize(), nil
		}
	case 1:
		c.text = fmt.Sprintf("%s.Clone()", v.name)
		c.do = func(w int) (tensor.Tensor, error) { return v.in[w].Clone().(tensor.Tensor), nil }
	case 2:
		c.text = fmt.Sprintf("FromHost(ToHost(%s))", v.name)
		c.do = func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				h, err := b.ToHost(v.in[w])
				if err != nil {
					return nil, err
				}
				return b.FromHost(h)
			}
			return v.in[w].Clone().(tensor.Tensor), nil
		}
	default:
		dst := x.like(v.shape)
		if !inOrder(dst, []*variable{v}) {
			return nil
		}
		c.text, c.dst = fmt.Sprintf("Copy(%s, %s)", dst.name, v.name), dst
		c.do = func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				return dst.in[w], b.Copy(dst.in[w], v.in[w])
			}
			return dst.in[w], tensor.Copy(dst.in[w], v.in[w])
		}
	}
	return x.run(c)
}

func (x *expression) fill() error {
	v := x.pick()
	if !inOrder(v, nil) {
		return nil
	}
	s := x.number()
	return x.run(&call{
		text: fmt.Sprintf("Memset(%s, %v)", v.name, s), in: []*variable{v}, dst: v, tags: []string{"Memset"},
		do: func(w int) (tensor.Tensor, error) {
			if b := x.worlds[w].Bench; b != nil {
				return v.in[w], b.Memset(v.in[w], value(x.dt, s))
			}
			return v.in[w], v.in[w].Memset(value(x.dt, s))
		},
		want: func(_ int, in [][]float64) result {
			return result{v.shape, slices.Repeat([]float64{s}, len(in[0])), nil}
		},
	})
}

// along returns what is left of a shape without axes, and for each place of it the
// places that are reduced to it.
func along(shape, axes []int) (left []int, groups [][]int) {
	var keep []int
	for a, n := range shape {
		if !slices.Contains(axes, a) {
			keep, left = append(keep, a), append(left, n)
		}
	}
	groups = make([][]int, tensor.Shape(left).TotalSize())
	testkit.Coordinates(shape, func(i int, at []int) {
		to := make([]int, len(keep))
		for k, a := range keep {
			to[k] = at[a]
		}
		p := testkit.PlaceOf(left, to)
		groups[p] = append(groups[p], i)
	})
	return left, groups
}

func (x *expression) reduce() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	var axes []int
	for a := range v.shape {
		if x.Chance(3) {
			axes = append(axes, a)
		}
	}
	by := axes
	if len(axes) == 0 {
		by = indices(len(v.shape))
	}
	left, groups := along(v.shape, by)
	name := []string{"Sum", "Sum", "Max", "Min"}[x.N(4)]
	return x.run(&call{
		text: fmt.Sprintf("%s(%s, %v)", name, v.name, axes), in: []*variable{v}, eps: 20, tags: []string{name, "reduce"}, axes: axes,
		do: func(w int) (tensor.Tensor, error) {
			switch name {
			case "Max":
				return dense(v.in[w].Max(axes...))
			case "Min":
				return dense(v.in[w].Min(axes...))
			}
			return tensor.Sum(v.in[w], axes...)
		},
		want: func(_ int, in [][]float64) result {
			r := result{left, nil, nil}
			for _, g := range groups {
				s, scale := in[0][g[0]], math.Abs(in[0][g[0]])
				for _, p := range g[1:] {
					e := in[0][p]
					switch name {
					case "Sum":
						s, scale = s+e, scale+math.Abs(e)
					case "Max":
						s = pick(e > s || math.IsNaN(e) && !math.IsNaN(s), e, s)
					case "Min":
						s = pick(e < s || math.IsNaN(e) && !math.IsNaN(s), e, s)
					}
				}
				r.values, r.scale = append(r.values, s), append(r.scale, scale)
			}
			return r
		},
	})
}

func (x *expression) arg() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	axis := x.N(len(v.shape))
	left, groups := along(v.shape, []int{axis})
	largest := x.N(2) == 0
	return x.run(&call{
		text: fmt.Sprintf("%s(%s, %d)", pick(largest, "Argmax", "Argmin"), v.name, axis), in: []*variable{v}, kind: "int", tags: []string{"arg"},
		do: func(w int) (tensor.Tensor, error) {
			if largest {
				return tensor.Argmax(v.in[w], axis)
			}
			return tensor.Argmin(v.in[w], axis)
		},
		want: func(_ int, in [][]float64) result {
			r := result{left, nil, nil}
			for _, g := range groups {
				r.values = append(r.values, float64(argOf(in[0], g, largest)))
			}
			return r
		},
	})
}

// argOf returns which of the places in a group has the largest or smallest element.
func argOf(in []float64, group []int, largest bool) (best int) {
	for k, p := range group {
		b, e := in[group[best]], in[p]
		if k > 0 && (math.IsNaN(e) || math.IsInf(e, pick(largest, 1, -1))) {
			return k // StdEng takes the first of these, unless it comes first of all
		}
		if largest && e > b || !largest && e < b {
			best = k
		}
	}
	return best
}

// times is the product of matrices.
func times(a, b []float64, rows, inner, cols int) result {
	r := result{[]int{rows, cols}, make([]float64, rows*cols), make([]float64, rows*cols)}
	for i := range rows {
		for j := range cols {
			for k := range inner {
				p := a[i*inner+k] * b[k*cols+j]
				r.values[i*cols+j] += p
				r.scale[i*cols+j] += math.Abs(p)
			}
		}
	}
	return r
}

func (x *expression) product() error {
	a := x.pick()
	c := &call{eps: 20}
	switch x.N(6) {
	case 0, 1: // matrices
		if len(a.shape) != 2 {
			return nil
		}
		m, k, n := a.shape[0], a.shape[1], 1+x.N(4)
		b := x.like([]int{k, n})
		to := x.output([]int{m, n}, nil, true, a, b)
		c.text, c.in, c.dst, c.incr, c.tags = fmt.Sprintf("MatMul(%s, %s%s)", a.name, b.name, to.text), []*variable{a, b}, to.dst, to.incr, []string{"MatMul"}
		c.do = func(w int) (tensor.Tensor, error) { return tensor.MatMul(a.in[w], b.in[w], to.opts(w)...) }
		c.want = func(_ int, in [][]float64) result { return times(in[0], in[1], m, k, n) }
	case 2: // a matrix and a vector
		if len(a.shape) != 2 {
			return nil
		}
		m, k := a.shape[0], a.shape[1]
		b := x.like([]int{k})
		to := x.output([]int{m}, nil, true, a, b)
		c.text, c.in, c.dst, c.incr, c.tags = fmt.Sprintf("MatVecMul(%s, %s%s)", a.name, b.name, to.text), []*variable{a, b}, to.dst, to.incr, []string{"MatVecMul"}
		c.do = func(w int) (tensor.Tensor, error) { return tensor.MatVecMul(a.in[w], b.in[w], to.opts(w)...) }
		c.want = func(_ int, in [][]float64) result {
			r := times(in[0], in[1], m, k, 1)
			r.shape = []int{m}
			return r
		}
	case 3: // vectors
		if len(a.shape) != 1 {
			return nil
		}
		b := x.like(x.shape())
		if len(b.shape) != 1 {
			return nil
		}
		m, n := a.shape[0], b.shape[0]
		c.text, c.in, c.tags = fmt.Sprintf("Outer(%s, %s)", a.name, b.name), []*variable{a, b}, []string{"Outer"}
		c.do = func(w int) (tensor.Tensor, error) { return tensor.Outer(a.in[w], b.in[w]) }
		c.want = func(_ int, in [][]float64) result { return times(in[0], in[1], m, 1, n) }
	case 4: // pairs of axes
		b := x.pick()
		var as, bs []int
		for i, n := range a.shape {
			for j, m := range b.shape {
				if n == m && !slices.Contains(as, i) && !slices.Contains(bs, j) && x.N(2) == 0 {
					as, bs = append(as, i), append(bs, j)
				}
			}
		}
		if len(as) == 0 {
			return nil
		}
		c.text, c.in, c.tags = fmt.Sprintf("Contract(%s, %s, %v, %v)", a.name, b.name, as, bs), []*variable{a, b}, []string{"Contract"}
		c.do = func(w int) (tensor.Tensor, error) {
			if e := x.worlds[w].Bench; e != nil {
				return dense(e.Contract(a.in[w], b.in[w], as, bs))
			}
			return dense(a.in[w].TensorMul(b.in[w], as, bs))
		}
		c.want = func(_ int, in [][]float64) result { return contracted(a.shape, b.shape, as, bs, in[0], in[1]) }
	default: // many matrices
		if len(a.shape) != 3 {
			return nil
		}
		many, m, k, n := a.shape[0], a.shape[1], a.shape[2], 1+x.N(4)
		b, dst := x.like([]int{many, k, n}), x.input([]int{many, m, n})
		c.text, c.in, c.dst, c.tags = fmt.Sprintf("BatchMatMul(%s, %s, %s)", a.name, b.name, dst.name), []*variable{a, b}, dst, []string{"BatchMatMul"}
		c.want = func(_ int, in [][]float64) result {
			r := result{shape: dst.shape}
			for i := range many {
				p := times(in[0][i*m*k:], in[1][i*k*n:], m, k, n)
				r.values, r.scale = append(r.values, p.values...), append(r.scale, p.scale...)
			}
			return r
		}
		c.do = func(w int) (tensor.Tensor, error) {
			if e := x.worlds[w].Bench; e != nil {
				return dst.in[w], e.BatchMatMul(a.in[w], b.in[w], dst.in[w])
			}
			p, q := a.values(w), b.values(w)
			var r []float64
			for i := range many { // StdEng has none
				one := must(tensor.MatMul(hostTensor(x.dt, p[i*m*k:(i+1)*m*k], []int{m, k}), hostTensor(x.dt, q[i*k*n:(i+1)*k*n], []int{k, n})))
				r = append(r, must(elementsAt(one.(*tensor.Dense)))...)
			}
			return dst.in[w], tensor.Copy(dst.in[w], hostTensor(x.dt, r, dst.shape))
		}
	}
	return x.run(c)
}

// contracted sums up products along pairs of axes.
func contracted(sa, sb, as, bs []int, a, b []float64) result {
	var keepA, keepB, shape, inner []int
	for i, n := range sa {
		if !slices.Contains(as, i) {
			keepA, shape = append(keepA, i), append(shape, n)
		}
	}
	for i, n := range sb {
		if !slices.Contains(bs, i) {
			keepB, shape = append(keepB, i), append(shape, n)
		}
	}
	for _, i := range as {
		inner = append(inner, sa[i])
	}
	n := tensor.Shape(shape).TotalSize()
	r := result{shape, make([]float64, n), make([]float64, n)}
	testkit.Coordinates(shape, func(i int, at []int) {
		testkit.Coordinates(inner, func(_ int, in []int) {
			atA, atB := make([]int, len(sa)), make([]int, len(sb))
			for k, axis := range keepA {
				atA[axis] = at[k]
			}
			for k, axis := range keepB {
				atB[axis] = at[len(keepA)+k]
			}
			for k := range in {
				atA[as[k]], atB[bs[k]] = in[k], in[k]
			}
			p := a[testkit.PlaceOf(sa, atA)] * b[testkit.PlaceOf(sb, atB)]
			r.values[i] += p
			r.scale[i] += math.Abs(p)
		})
	})
	return r
}

func (x *expression) soft() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	return x.run(x.softMax(v, x.N(len(v.shape)), x.N(2) == 0))
}

// softMax is SoftMax or LogSoftMax along an axis.
func (x *expression) softMax(v *variable, axis int, log bool) *call {
	name := pick(log, "LogSoftMax", "SoftMax")
	_, groups := along(v.shape, []int{axis})
	return &call{
		text: fmt.Sprintf("%s(%s, %d)", name, v.name, axis), in: []*variable{v}, eps: 40, tags: []string{"SoftMax"},
		do: func(w int) (tensor.Tensor, error) {
			if log {
				return tensor.LogSoftMax(v.in[w], axis)
			}
			return tensor.SoftMax(v.in[w], axis)
		},
		want: func(_ int, in [][]float64) result {
			r := result{v.shape, make([]float64, len(in[0])), make([]float64, len(in[0]))}
			for _, g := range groups {
				most, sum := math.Inf(-1), 0.0
				for _, p := range g {
					most = math.Max(most, in[0][p])
				}
				for _, p := range g {
					sum += math.Exp(in[0][p] - most)
				}
				for _, p := range g {
					if log {
						r.values[p] = in[0][p] - most - math.Log(sum)
						r.scale[p] = math.Abs(r.values[p]) + math.Abs(most) + 41
					} else {
						r.values[p] = math.Exp(in[0][p]-most) / sum
						r.scale[p] = math.Abs(r.values[p])*(41+math.Abs(in[0][p]-most)) + 1e-14 // StdEng subtracts up to 40 more
					}
				}
			}
			return r
		},
	}
}

// join is Concat or Stack.
func (x *expression) join() error {
	a := x.pick()
	if len(a.shape) == 0 {
		return nil
	}
	stacks := x.N(2) == 0
	axis := x.N(len(a.shape) + pick(stacks, 1, 0))
	parts := []*variable{a}
	names := a.name
	shape := slices.Clone(a.shape)
	for range 1 + x.N(2) {
		s := slices.Clone(a.shape)
		if !stacks {
			s[axis] = 1 + x.N(3)
			if x.N(2) == 0 {
				s[axis] = a.shape[axis]
			}
			shape[axis] += s[axis]
		}
		p := x.like(s)
		parts = append(parts, p)
		names += ", " + p.name
	}
	if stacks {
		shape = slices.Insert(shape, axis, len(parts))
	}
	return x.run(&call{
		text: fmt.Sprintf("%s(%d, %s)", pick(stacks, "Stack", "Concat"), axis, names), in: parts, tags: []string{pick(stacks, "Stack", "Concat")},
		do: func(w int) (tensor.Tensor, error) {
			var others []tensor.Tensor
			for _, p := range parts[1:] {
				others = append(others, p.in[w])
			}
			if stacks {
				return tensor.Stack(axis, a.in[w], others...)
			}
			return tensor.Concat(axis, a.in[w], others...)
		},
		want: func(_ int, in [][]float64) result {
			r := result{shape, make([]float64, tensor.Shape(shape).TotalSize()), nil}
			testkit.Coordinates(shape, func(i int, at []int) {
				if stacks {
					r.values[i] = in[at[axis]][testkit.PlaceOf(a.shape, slices.Delete(slices.Clone(at), axis, axis+1))]
					return
				}
				at = slices.Clone(at)
				for k, p := range parts {
					if at[axis] < p.shape[axis] {
						r.values[i] = in[k][testkit.PlaceOf(p.shape, at)]
						break
					}
					at[axis] -= p.shape[axis]
				}
			})
			return r
		},
	})
}

func (x *expression) repeat() error {
	v := x.pick()
	if len(v.shape) == 0 {
		return nil
	}
	axis := x.N(len(v.shape))
	counts := []int{1 + x.N(3)}
	each := slices.Repeat(counts, v.shape[axis])
	if x.Chance(3) {
		counts = nil
		for range v.shape[axis] {
			counts = append(counts, x.N(3))
		}
		counts[0]++
		each = counts
		if len(counts) == 1 {
			each = slices.Repeat(counts, v.shape[axis])
		}
	}
	shape := slices.Clone(v.shape)
	shape[axis] = 0
	var from []int
	for i, n := range each {
		shape[axis] += n
		from = append(from, slices.Repeat([]int{i}, n)...)
	}
	return x.run(&call{
		text: fmt.Sprintf("Repeat(%s, %d, %v)", v.name, axis, counts), in: []*variable{v}, tags: []string{"Repeat"},
		do:   func(w int) (tensor.Tensor, error) { return tensor.Repeat(v.in[w], axis, counts...) },
		want: func(_ int, in [][]float64) result { return selected(v.shape, shape, axis, from, in[0]) },
	})
}

// selected has the slices along an axis that from names.
func selected(old, shape []int, axis int, from []int, in []float64) result {
	r := result{shape, make([]float64, tensor.Shape(shape).TotalSize()), nil}
	testkit.Coordinates(shape, func(i int, at []int) {
		at = slices.Clone(at)
		at[axis] = from[at[axis]]
		r.values[i] = in[testkit.PlaceOf(old, at)]
	})
	return r
}

func (x *expression) byIndices() error {
	v := x.pick()
	if len(v.at) < 2 { // StdEng slices one element
		return nil
	}
	axis := x.N(len(v.shape))
	var from []int
	for range 1 + x.N(3) {
		from = append(from, x.N(v.shape[axis]))
	}
	shape := slices.Clone(v.shape)
	shape[axis] = len(from)
	return x.run(&call{
		text: fmt.Sprintf("ByIndices(%s, %v, %d)", v.name, from, axis), in: []*variable{v}, tags: []string{"ByIndices"}, axes: []int{axis},
		do: func(w int) (tensor.Tensor, error) {
			at := tensor.New(tensor.WithShape(len(from)), tensor.WithBacking(slices.Clone(from)))
			if b := x.worlds[w].Bench; b != nil {
				at = must(b.FromHost(at))
			}
			return tensor.ByIndices(v.in[w], at, axis)
		},
		want: func(_ int, in [][]float64) result { return selected(v.shape, shape, axis, from, in[0]) },
	})
}

// integersByZero is a division that fails, or not.
const integersByZero = "division of integers by zero"

// fault names an error of StdEng's that a step may meet, and "" for none.
func (x *expression) fault(c *call) string {
	has := func(tags ...string) bool {
		return slices.ContainsFunc(c.tags, func(t string) bool { return slices.Contains(tags, t) })
	}
	any := func(f func(v float64) bool) bool {
		for _, v := range c.in {
			for w := range x.worlds {
				if slices.ContainsFunc(v.values(w), f) {
					return true
				}
			}
		}
		return false
	}
	wild := any(func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	switch {
	case has("Max", "Min") && any(math.IsNaN):
		return "Max and Min of NaN"
	case has("Log", "Log10") && any(func(v float64) bool { return v > 0 && v < 0x1p-1022 }):
		return "logarithms of subnormal numbers"
	case has("Norm") && (wild || x.dt == tensor.Float32):
		return "norms go by powers and logarithms"
	case has("Div") && !isFloat(x.dt) && (has("zero") || any(func(v float64) bool { return v == 0 })):
		return integersByZero
	case has("Pow") && x.dt == tensor.Float32:
		return "Pow of float32"
	case has("MatMul", "MatVecMul", "Outer", "Contract", "BatchMatMul", "Dot") && wild:
		return "products with what is not finite leave out products by zero"
	case has("unary") && x.dt == tensor.Float32:
		return "functions of float32 are less exact"
	}
	return ""
}
