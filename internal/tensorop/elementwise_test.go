package tensorop_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

var (
	numbers = []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Int, tensor.Int32, tensor.Uint8, tensor.Complex128}
	ordered = []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Int, tensor.Int32, tensor.Uint8}
)

type (
	binaryFunc func(a, b interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	unaryFunc  func(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
)

// layouts are the ways in which an operand of shape (3, 4) is made.
var layouts = map[string]struct {
	shape []int
	make  func(base *tensor.Dense) *tensor.Dense
}{
	"plain":      {[]int{3, 4}, func(b *tensor.Dense) *tensor.Dense { return b }},
	"transposed": {[]int{4, 3}, func(b *tensor.Dense) *tensor.Dense { must(0, b.T()); return b }},
	"columns":    {[]int{3, 6}, func(b *tensor.Dense) *tensor.Dense { return must(b.Slice(nil, tensor.S(1, 5))).(*tensor.Dense) }},
	"rows":       {[]int{5, 4}, func(b *tensor.Dense) *tensor.Dense { return must(b.Slice(tensor.S(1, 4))).(*tensor.Dense) }},
	"columnsT": {[]int{4, 5}, func(b *tensor.Dense) *tensor.Dense {
		v := must(b.Slice(nil, tensor.S(1, 4))).(*tensor.Dense)
		must(0, v.T())
		return v
	}},
	"masked": {[]int{3, 4}, func(b *tensor.Dense) *tensor.Dense {
		b.SetMask([]bool{false, true, false, false, true, false, false, false, false, false, false, true})
		return b
	}},
}

// layoutNames are in order, so that a seed makes the same tensors again.
var layoutNames = slices.Sorted(maps.Keys(layouts))

func binaryFuncs() (arith, cmp, between map[string]binaryFunc) {
	return map[string]binaryFunc{"Add": tensor.Add, "Sub": tensor.Sub, "Mul": tensor.Mul, "Div": tensor.Div, "Pow": tensor.Pow, "Mod": tensor.Mod},
		map[string]binaryFunc{"Gt": tensor.Gt, "Gte": tensor.Gte, "Lt": tensor.Lt, "Lte": tensor.Lte, "ElEq": tensor.ElEq, "ElNe": tensor.ElNe},
		map[string]binaryFunc{"MinBetween": tensor.MinBetween, "MaxBetween": tensor.MaxBetween}
}

var unaryFuncs = map[string]unaryFunc{
	"Neg": tensor.Neg, "Inv": tensor.Inv, "Square": tensor.Square, "Cube": tensor.Cube, "Exp": tensor.Exp, "Tanh": tensor.Tanh,
	"Log": tensor.Log, "Log2": tensor.Log2, "Log10": tensor.Log10, "Sqrt": tensor.Sqrt, "Cbrt": tensor.Cbrt,
	"InvSqrt": tensor.InvSqrt, "Sign": tensor.Sign, "Abs": tensor.Abs,
	"Clamp": func(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.Clamp(a, value(a.Dtype(), -1), value(a.Dtype(), 2), opts...)
	},
	"Apply": func(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		if a.Dtype() == tensor.Float32 {
			return a.Apply(func(x float32) float32 { return 2*x + 1 }, opts...)
		}
		return a.Apply(func(x float64) float64 { return 2*x + 1 }, opts...)
	},
}

// variant is a way to say where the result goes; dst is a tensor for it.
type variant struct {
	name string
	opts func(dst *tensor.Dense) []tensor.FuncOpt
}

var (
	safe    = variant{"safe", func(*tensor.Dense) []tensor.FuncOpt { return nil }}
	same    = variant{"same type", func(*tensor.Dense) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.AsSameType()} }}
	inPlace = variant{"unsafe", func(*tensor.Dense) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.UseUnsafe()} }}
	reuse   = variant{"reuse", func(d *tensor.Dense) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithReuse(d)} }}
	incr    = variant{"incr", func(d *tensor.Dense) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithIncr(d)} }}
)

// TestEngineElementwise compares every elementwise operation with StdEng's:
// layouts × options × types, tensor with tensor and with scalars.
func TestEngineElementwise(t *testing.T) {
	arith, cmp, between := binaryFuncs()
	for _, g := range []struct {
		fs       map[string]binaryFunc
		types    []tensor.Dtype
		variants []variant
	}{
		{arith, numbers, []variant{safe, inPlace, reuse, incr}},
		{cmp, ordered, []variant{safe, same, inPlace}},
		{between, ordered, []variant{safe, reuse}},
	} {
		for name, f := range g.fs {
			t.Run(name, func(t *testing.T) {
				both(t, func(t *testing.T, e *bench) {
					for _, dt := range g.types {
						if e.GPU && name == "Pow" && dt == tensor.Float32 {
							continue // tensor's own, in float32, has its ways with zeros and infinities
						}
						for _, v := range g.variants {
							others := special
							if name == "Div" || name == "Mod" && !isFloat(dt) {
								others = noZeros // by which StdEng divides in several ways; see TestDivide
							}
							e.binaryCases(others, f, dt, v)
						}
					}
				})
			})
		}
	}
	for name, f := range unaryFuncs {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, e *bench) {
				for _, dt := range floats {
					for _, v := range []variant{safe, inPlace, reuse, incr} {
						if name == "Apply" && (v.name == "reuse" || v.name == "incr") {
							continue // see TestMapInto
						}
						for _, l := range layoutNames {
							e.compare(fmt.Sprint(dt, v.name, l), dt, [][]int{layouts[l].shape, {3, 4}}, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
								return f(layouts[l].make(in[0]), v.opts(in[1])...)
							})
						}
						e.compare(fmt.Sprint(dt, v.name, "one"), dt, [][]int{{1}, {1}}, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
							return f(in[0], v.opts(in[1])...)
						})
					}
				}
			})
		})
	}
}

func (e *bench) binaryCases(others []float64, f binaryFunc, dt tensor.Dtype, v variant) {
	for _, l := range layoutNames {
		for _, r := range layoutNames {
			if one := testkit.Choose(4, 8); (dt != tensor.Float64 || !testkit.Long()) && e.Rand.IntN(one) > 0 {
				continue // a sample will do
			}
			shapes := [][]int{layouts[l].shape, layouts[r].shape, {3, 4}}
			e.compareOn(others, fmt.Sprint(dt, v.name, l, r), dt, shapes, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
				return f(layouts[l].make(in[0]), layouts[r].make(in[1]), v.opts(in[2])...)
			})
		}
		shapes := [][]int{layouts[l].shape, {}, {3, 4}}
		e.compareOn(others, fmt.Sprint(dt, v.name, l, "scalar"), dt, shapes, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
			return f(layouts[l].make(in[0]), value(dt, 2), v.opts(in[2])...)
		})
		e.compareOn(others, fmt.Sprint(dt, v.name, "scalar", l), dt, shapes, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
			return f(value(dt, 2), layouts[l].make(in[0]), v.opts(in[2])...)
		})
		if v.name != "unsafe" { // StdEng would write to the scalar
			e.compareOn(others, fmt.Sprint(dt, v.name, l, "scalar tensor"), dt, shapes, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
				return f(layouts[l].make(in[0]), in[1], v.opts(in[2])...)
			})
		}
	}
	for _, shape := range [][]int{{1}, {1, 1}, {0, 3}, {7}, {1, 5}, {5, 1}, {33, 31}} {
		e.compareOn(others, fmt.Sprint(dt, v.name, shape), dt, [][]int{shape, shape, shape}, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
			return f(in[0], in[1], v.opts(in[2])...)
		})
	}
	e.compareOn(others, "mismatch", dt, [][]int{{3, 4}, {4, 3}, {3, 4}}, false, func(in []*tensor.Dense) (tensor.Tensor, error) {
		return f(in[0], in[1], v.opts(in[2])...)
	})
}

// outcome is what an operation did.
type outcome struct {
	result tensor.Tensor
	err    error
	panic  any
}

func attempt(f func(in []*tensor.Dense) (tensor.Tensor, error), in []*tensor.Dense) (o outcome) {
	defer func() { o.panic = recover() }()
	o.result, o.err = f(in)
	if d, ok := o.result.(*tensor.Dense); ok && d == nil {
		o.result = nil
	}
	return o
}

// compare calls f with random tensors of StdEng and with the same in the
// pool. Results and operands must be the same afterwards, the result must be
// the engine's and in its pool, and after they are freed nothing may be left,
// unless f is known to lose temporaries.
func (e *bench) compare(name string, dt tensor.Dtype, shapes [][]int, lossy bool, f func(in []*tensor.Dense) (tensor.Tensor, error)) {
	e.T.Helper()
	e.compareOn(special, name, dt, shapes, lossy, f)
}

// compareOn is compare with given other values in floats, or noZeros.
func (e *bench) compareOn(others []float64, name string, dt tensor.Dtype, shapes [][]int, lossy bool, f func(in []*tensor.Dense) (tensor.Tensor, error)) {
	e.T.Helper()
	without := others != nil && len(others) == 0
	live := e.Live()
	var want, got []*tensor.Dense
	for _, s := range shapes {
		w := randomOf(e.Rand, dt, others, s)
		if without {
			withoutZeros(w)
		}
		want = append(want, w)
		got = append(got, e.From(w))
	}
	bases := append([]*tensor.Dense(nil), got...)
	for i, d := range got {
		bases[i] = d.ShallowClone()
	}
	w := attempt(f, want)
	sc := e.Scope()
	g := attempt(f, got)
	if g.result != nil {
		require.NoError(e.T, sc.Keep(g.result))
	}
	if !lossy {
		require.LessOrEqual(e.T, e.Live(), live+int64(len(shapes))+1, "%s: temporaries are left", name)
	}
	require.NoError(e.T, sc.Close())

	if w.panic == nil { // else the engine may do better
		require.Nil(e.T, g.panic, name)
		require.Equal(e.T, w.err == nil, g.err == nil, "%s: want error %v, got %v", name, w.err, g.err)
	}
	if w.panic == nil && w.err == nil && w.result != nil {
		e.RequireSame(w.result, g.result, name)
		require.Same(e.T, e.Engine, cupool.EngineOf(g.result), name)
		if g.result.MemSize() > 0 {
			require.True(e.T, e.Owns(g.result), "%s: the result is not in the pool", name)
		}
	}
	if w.panic == nil && w.err == nil {
		for i := range want {
			if want[i].MemSize() == dt.Size() {
				continue // with one element StdEng may write to operands that it should only read
			}
			e.RequireSame(want[i], got[i], name+": operand")
		}
	}
	if d, ok := g.result.(*tensor.Dense); ok && d != nil && d.MemSize() > 0 {
		own := true
		for _, b := range bases {
			if b.MemSize() > 0 && d.Uintptr() >= b.Uintptr() && d.Uintptr() < b.Uintptr()+b.MemSize() {
				own = false
			}
		}
		if own {
			e.FreeAll(d)
		}
	}
	for _, b := range bases {
		e.FreeAll(b)
	}
	require.Equal(e.T, live, e.Live(), "%s: blocks are left", name)
}

// noZeros has compareOn replace zeros, too.
var noZeros = []float64{}

func withoutZeros(d *tensor.Dense) {
	for i := range d.Shape().TotalSize() {
		if reflect.ValueOf(d.Get(i)).IsZero() {
			d.Set(i, value(d.Dtype(), 1))
		}
	}
}

// lateAllocator hands out memory that its stream has yet to write, as memory is
// that another goroutine has just freed.
type lateAllocator struct{ *cupool.Pool }

func (a lateAllocator) Alloc(n int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := a.Pool.Alloc(n, s)
	if err == nil && n > 0 {
		err = errors.Join(s.Launch(func() { time.Sleep(time.Millisecond) }), s.Memset(b.Ptr(), 0xFF, n))
	}
	return b, err
}

// Results are not computed before the memory is theirs.
func TestResultsWaitForTheirMemory(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	e, err := cupool.NewEngine(lateAllocator{c})
	require.NoError(t, err)
	all := e.Scope()
	x, err := e.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})))
	require.NoError(t, err)
	for name, op := range map[string]func() (tensor.Tensor, error){
		"binary": func() (tensor.Tensor, error) { return tensor.Add(x, x) },
		"scalar": func() (tensor.Tensor, error) { return tensor.Mul(x, float32(2)) },
		"unary":  func() (tensor.Tensor, error) { return e.Map(func(v float32) float32 { return 2 * v }, x) },
		"repeat": func() (tensor.Tensor, error) { return tensor.Repeat(must(tensor.Add(x, x)), 0, 1) },
	} {
		y, err := op()
		require.NoError(t, err, name)
		require.Equal(t, []float32{2, 4, 6, 8}, must(e.ToHost(y)).Data(), name)
	}
	require.NoError(t, all.Close())
	require.NoError(t, c.Close())
}

// TestGPUSpecialValues compares operations on NaN, infinities and zeros of
// both signs with Go's, in all pairs.
func TestGPUSpecialValues(t *testing.T) {
	e := newGPU(t)
	n := len(special)
	var xs, ys []float64
	for i := range n * n {
		xs, ys = append(xs, special[i/n]), append(ys, special[i%n])
	}
	x, y := e.From(vector(xs)), e.From(vector(ys))
	arith, cmps, between := binaryFuncs()
	for name, want := range map[string]func(x, y float64) float64{
		"Add": func(x, y float64) float64 { return x + y }, "Sub": func(x, y float64) float64 { return x - y },
		"Mul": func(x, y float64) float64 { return x * y }, "Div": func(x, y float64) float64 { return x / y },
		"Pow": math.Pow, "Mod": math.Mod,
	} {
		e.requireSpecial(name, xs, ys, want, must(arith[name](x, y)))
	}
	for name, holds := range map[string]func(x, y float64) bool{
		"Gt": func(x, y float64) bool { return x > y }, "Gte": func(x, y float64) bool { return x >= y },
		"Lt": func(x, y float64) bool { return x < y }, "Lte": func(x, y float64) bool { return x <= y },
		"ElEq": func(x, y float64) bool { return x == y }, "ElNe": func(x, y float64) bool { return x != y },
	} {
		want := func(x, y float64) float64 {
			if holds(x, y) {
				return 1
			}
			return 0
		}
		e.requireSpecial(name, xs, ys, want, must(cmps[name](x, y, tensor.AsSameType())))
	}
	e.requireSpecial("MinBetween", xs, ys, func(x, y float64) float64 { return pick(y < x, y, x) }, must(between["MinBetween"](x, y)))
	e.requireSpecial("MaxBetween", xs, ys, func(x, y float64) float64 { return pick(y > x, y, x) }, must(between["MaxBetween"](x, y)))
	for name, want := range map[string]func(float64) float64{
		"Neg": func(x float64) float64 { return -x }, "Inv": func(x float64) float64 { return 1 / x }, "Exp": math.Exp, "Tanh": math.Tanh,
		"Log": math.Log, "Log2": math.Log2, "Log10": math.Log10, "Sqrt": math.Sqrt, "Cbrt": math.Cbrt, "Abs": math.Abs,
		"Sign": func(x float64) float64 { return pick(x < 0, -1, pick(x > 0, 1, x)) },
	} {
		e.requireSpecial(name, xs, ys, func(x, _ float64) float64 { return want(x) }, must(unaryFuncs[name](x)))
	}
	e.FreeAll(x, y)
	require.Zero(t, e.Stats().Fallbacks)
}

func vector(xs []float64) *tensor.Dense {
	return tensor.New(tensor.WithShape(len(xs)), tensor.WithBacking(xs))
}

func pick[T cmp.Ordered](first bool, x, y T) T {
	if first {
		return x
	}
	return y
}

// requireSpecial requires r to be want of xs and ys, zeros' signs included, and
// frees it.
func (e *bench) requireSpecial(name string, xs, ys []float64, want func(x, y float64) float64, r tensor.Tensor) {
	e.T.Helper()
	for i, got := range e.As64(r) {
		w := want(xs[i], ys[i])
		if math.IsNaN(w) {
			require.True(e.T, math.IsNaN(got), "%s(%v, %v) = %v", name, xs[i], ys[i], got)
			continue
		}
		require.InDelta(e.T, 0, pick(w == got, 0, w-got), 1e-15, "%s(%v, %v) = %v", name, xs[i], ys[i], got)
		require.Equal(e.T, math.Signbit(w), math.Signbit(got), "%s(%v, %v) = %v", name, xs[i], ys[i], got)
	}
	e.FreeAll(r)
}

// TestGPURowBroadcast adds a vector to every row of a matrix, which StdEng does
// not.
func TestGPURowBroadcast(t *testing.T) {
	e := newGPU(t)
	x, row, column := e.From(random(e.Rand, tensor.Float32, 5, 7)), e.From(random(e.Rand, tensor.Float32, 7)), e.From(random(e.Rand, tensor.Float32, 7, 1))
	for _, v := range []*tensor.Dense{row, transposed(column)} {
		got := must(tensor.Mul(x, v))
		want := e.As64(x)
		vs := e.As64(v)
		for i := range want {
			want[i] *= vs[i%7]
		}
		e.RequireClose(want, e.As64(got), bounds[tensor.Float32], "rows")
		e.FreeAll(got)
	}
	short := e.From(random(e.Rand, tensor.Float32, 5))
	_, err := tensor.Add(x, short)
	require.Error(t, err)
	e.FreeAll(x, row, column, short)
}

// TestScalarOfSeveral: a scalar is one element. StdEng takes tensors of more, and may overwrite them.
func TestScalarOfSeveral(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float64, 3))
		for _, n := range []int{0, 2, 3, 4} {
			s := e.From(tensor.New(tensor.WithShape(n), tensor.Of(tensor.Float64)))
			for name, f := range map[string]func(t tensor.Tensor, s interface{}, leftTensor bool, o ...tensor.FuncOpt) (tensor.Tensor, error){
				"Sub": e.SubScalar, "Gt": e.GtScalar, "MaxBetween": e.MaxBetweenScalar,
			} {
				for _, left := range []bool{true, false} {
					_, err := f(x, s, left)
					require.ErrorIs(t, err, cupool.ErrNotSupported, name)
				}
			}
			require.Subset(t, []float64{0}, e.As64(s), "nothing was written there")
			e.FreeAll(s)
		}
		e.FreeAll(x)
	})
}

// TestNoResultBesideAnError: an operation that fails returns no tensor, as StdEng does.
func TestNoResultBesideAnError(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y := e.From(random(e.Rand, tensor.Float64, 2, 3)), e.From(random(e.Rand, tensor.Float64, 3, 2))
		zeros, dst := e.From(tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Int))), e.From(random(e.Rand, tensor.Float64, 2, 3))
		freed := e.From(random(e.Rand, tensor.Float64, 2, 3))
		gone := freed.ShallowClone()
		e.FreeAll(freed)
		small := must(e.Pool.NewPool(cupool.PoolConfig{Limit: 1}))
		for what, f := range map[string]func(o ...tensor.FuncOpt) (tensor.Tensor, error){
			"other shapes": func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Add(x, y, o...) },
			"compared":     func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Gt(x, y, append(o, tensor.AsSameType())...) },
			"another type": func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.MulScalar(x, 3, true, o...) },
			"freed":        func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Sub(x, gone, o...) },
			"division":     func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Div(zeros, zeros, o...) },
			"SoftMax":      func(o ...tensor.FuncOpt) (tensor.Tensor, error) { return e.SoftMaxB(x, gone, 1, o...) },
			"no memory": func(o ...tensor.FuncOpt) (tensor.Tensor, error) {
				sc := must(e.ScopeIn(small))
				defer sc.Close()
				return e.Exp(must(x.Slice(nil, tensor.S(0, 2))))
			},
		} {
			for _, o := range [][]tensor.FuncOpt{nil, {tensor.UseUnsafe()}, {tensor.WithReuse(dst)}, {tensor.WithIncr(dst)}} {
				r, err := f(o...)
				require.Error(t, err, what)
				require.True(t, r == nil, what)
			}
		}
		require.NoError(t, small.Close())
		e.FreeAll(x, y, zeros, dst)
	})
}

// TestReuseOfAnotherShape: a tensor of as many elements gets the operand's shape, and the
// elements that a new result has, whatever the order of either.
func TestReuseOfAnotherShape(t *testing.T) {
	ops := map[string]func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error){
		"Add": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.Add(a, a, opts...)
		},
		"MulScalar": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.MulScalar(a, 3.0, true, opts...)
		},
		"GtScalar": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.GtScalar(a, 2.0, true, append(opts, tensor.AsSameType())...)
		},
		"Neg": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.Neg(a, opts...)
		},
		"Clamp": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.Clamp(a, 2.0, 4.0, opts...)
		},
		"Map": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.Map(func(x float64) float64 { return 2 * x }, a, opts...)
		},
		"SoftMax": func(e *bench, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
			return e.SoftMax(a, 1, opts...)
		},
	}
	order := map[string][]tensor.ConsOpt{"row-major": nil, "column-major": {tensor.AsFortran(nil)}}
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		for from, order1 := range order {
			a := must(e.FromHost(tensor.New(append([]tensor.ConsOpt{tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})}, order1...)...)))
			for to, order2 := range order {
				for name, f := range ops {
					what := name + " of " + from + " to " + to
					dst := must(e.FromHost(tensor.New(append([]tensor.ConsOpt{tensor.WithShape(2, 3), tensor.Of(tensor.Float64)}, order2...)...)))
					r, err := f(e, a, tensor.WithReuse(dst))
					require.NoError(t, err, what)
					require.Same(t, dst, r, what)
					require.Equal(t, tensor.Shape{3, 2}, dst.Shape(), what)
					require.InDeltaSlice(t, e.As64(must(f(e, a))), e.As64(dst), 1e-9, what)
				}
			}
		}
		require.NoError(t, all.Close())
	})
}
