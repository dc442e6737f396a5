package tensorop_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// What StdEng gets wrong without an error, the engines get right on every device.

// TestResultsOverOperands writes results of all elementwise operations over what they
// read, and adds them to it.
func TestResultsOverOperands(t *testing.T) {
	xs, ys := []float64{1, 0, -3, 2, 5, -0.5}, []float64{2, 1, -4, 2, 0.5, 8}
	overA := func(_, a, _ *tensor.Dense) *tensor.Dense { return a }
	overB := func(_, _, b *tensor.Dense) *tensor.Dense { return b }
	over := func(s tensor.Slice) func(x, _, _ *tensor.Dense) *tensor.Dense {
		return func(x, _, _ *tensor.Dense) *tensor.Dense { return view(x, s) }
	}
	unsafe := func(tensor.Tensor) tensor.FuncOpt { return tensor.UseUnsafe() }
	half, otherHalf := tensor.S(0, 6), tensor.S(6, 12)
	hows := map[string]struct {
		a, b tensor.Slice
		dst  func(x, a, b *tensor.Dense) *tensor.Dense
		opt  func(dst tensor.Tensor) tensor.FuncOpt
	}{
		"reuse a":                       {half, otherHalf, overA, tensor.WithReuse},
		"reuse b":                       {half, otherHalf, overB, tensor.WithReuse},
		"unsafe":                        {half, otherHalf, overA, unsafe},
		"reuse what is between a and b": {half, otherHalf, over(tensor.S(3, 9)), tensor.WithReuse},
		"reuse every other one":         {half, otherHalf, over(tensor.S(0, 12, 2)), tensor.WithReuse},
		"incr a":                        {half, otherHalf, overA, tensor.WithIncr},
		"incr b":                        {half, otherHalf, overB, tensor.WithIncr},
		"incr one":                      {tensor.S(1, 2), tensor.S(7, 8), over(tensor.S(3, 4)), tensor.WithIncr},
	}
	both(t, func(t *testing.T, e *bench) {
		for _, name := range binaryNames {
			f, compares := binaryOf(name)
			for how, h := range hows {
				for _, dt := range floats {
					incr := how[:4] == "incr"
					if compares && incr || name == "Pow" && dt == tensor.Float32 {
						continue
					}
					x := e.From(hostTensor(dt, append(slices.Clone(xs), ys...), []int{12}))
					a, b := view(x, h.a), view(x, h.b)
					dst := h.dst(x, a, b)
					opt := h.opt(dst)
					as, bs, want := e.As64(a), e.As64(b), e.As64(dst)
					for i := range want {
						r := binaryModel[name](as[i], bs[i])
						if incr {
							r += want[i]
						}
						want[i] = r
					}
					opts := []tensor.FuncOpt{opt}
					if compares {
						opts = append(opts, tensor.AsSameType())
					}
					what := fmt.Sprintf("%s of %v, %s", name, dt, how)
					r, err := f(a, b, opts...)
					require.NoError(t, err, what)
					require.Same(t, dst, r, what)
					e.RequireClose(want, e.As64(dst), 1e-6, what)
					e.FreeAll(x)
				}
			}
		}
	})
}

// TestOneElementOfMany computes with a slice of one element that says it has a step, and
// whose memory is that of two: StdEng writes to both.
func TestOneElementOfMany(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		x := e.From(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4})))
		one := view(x, tensor.S(1, 3, 2))
		require.Equal(t, uintptr(16), one.MemSize())
		for name, r := range map[string]tensor.Tensor{
			"scalar first": must(tensor.Add(5.0, one)), "scalar last": must(tensor.Add(one, 5.0)), "itself": must(tensor.Add(one, e.From(tensor.New(tensor.FromScalar(5.0))))),
		} {
			require.Equal(t, []float64{7}, e.As64(r), name)
			require.Equal(t, []float64{1, 2, 3, 4}, e.As64(x), name)
		}
		for name, opt := range map[string]tensor.FuncOpt{"unsafe": tensor.UseUnsafe(), "reuse": tensor.WithReuse(one)} {
			_, err := tensor.Sub(9.0, one, opt) // 7 and then 2
			require.NoError(t, err, name)
		}
		require.Equal(t, []float64{1, 2, 3, 4}, e.As64(x))
		require.NoError(t, all.Close())
	})
}

// TestDifferences holds rows of docs/gorgonia.md that are StdEng's on every device.
func TestDifferences(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		x := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
		d := must(tensor.Diag(x))
		require.Equal(t, tensor.Shape{2, 3}, d.Shape())
		require.Equal(t, []float64{1, 5, 0, 0, 0, 0}, e.As64(d))
		column, row := must(x.SafeT()), x
		require.NoError(t, errors.Join(column.Reshape(6, 1), row.Reshape(1, 6)))
		dot := must(tensor.Dot(column, row))
		require.True(t, dot.Shape().IsScalar())
		require.Equal(t, []float64{1 + 8 + 6 + 20 + 15 + 36}, e.As64(dot)) // of 1, 4, 2, 5, 3, 6 and 1 to 6

		base, by := []float32{1.7, 0.3}, []float32{20.3, -12.7}
		stock := floatsOf(must(tensor.Pow(tensor.New(tensor.WithBacking(base)), tensor.New(tensor.WithBacking(by)))).(*tensor.Dense))
		power := e.As64(must(tensor.Pow(e.From(tensor.New(tensor.WithBacking(base))), e.From(tensor.New(tensor.WithBacking(by))))))
		for i, v := range power {
			exact := math.Pow(float64(base[i]), float64(by[i]))
			require.Greater(t, math.Abs(stock[i]/exact-1), 2e-7)
			require.True(t, e.GPU && math.Abs(v/exact-1) < 4e-7 || !e.GPU && v == stock[i], "Pow of float32: %v, want %v", v, exact)
		}

		masked := tensor.New(tensor.WithBacking([]float64{1, 2, 3}, []bool{false, true, false}))
		before := e.Stats().Fallbacks
		sum := e.Host(must(tensor.Add(e.From(masked), 1.0)))
		want := must(tensor.Add(masked, 1.0)).(*tensor.Dense)
		require.Equal(t, want.Data(), sum.Data())
		require.Equal(t, want.Mask(), sum.Mask())
		require.Equal(t, e.Far, e.Stats().Fallbacks > before)

		for _, ints := range [][]int{{6, 4}, {6}} {
			zeros := make([]int, len(ints))
			q, err := tensor.Div(e.From(tensor.New(tensor.WithBacking(ints))), e.From(tensor.New(tensor.WithBacking(zeros))))
			require.True(t, err != nil || len(ints) == 1 && number(e.Host(q).Get(0)) == 0, "%v by 0", ints)
		}
		require.NoError(t, all.Close())
	})
}

// TestMapInto: StdEng maps the elements of the tensor that it is told to reuse, or to add to.
func TestMapInto(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		for name, cut := range map[string]tensor.Slice{"all": tensor.S(0, 4), "one": tensor.S(1, 2), "half": tensor.S(0, 4, 2)} {
			x := view(e.From(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4}))), cut)
			y := view(e.From(tensor.New(tensor.WithBacking([]float64{10, 20, 30, 40}))), cut)
			xs, ys := e.As64(x), e.As64(y)
			double := func(v float64) float64 { return 2 * v }
			for i, v := range xs {
				xs[i], ys[i] = 2*v, ys[i]+2*v
			}
			require.Same(t, y, must(x.Apply(double, tensor.WithIncr(y))), name)
			require.Equal(t, ys, e.As64(y), name)
			require.Same(t, y, must(x.Apply(double, tensor.WithReuse(y))), name)
			require.Equal(t, xs, e.As64(y), name)
			require.Same(t, x, must(x.Apply(double, tensor.UseUnsafe())), name)
			require.Equal(t, xs, e.As64(x), name)
		}
		require.NoError(t, all.Close())
	})
}

// TestReductionsAlongAnyAxes: StdEng reduces other elements along an axis with two before it and one
// behind it.
func TestReductionsAlongAnyAxes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{2, 3, 5, 3}, {2, 1, 3, 2}, {1, 2, 2, 3, 2}} {
			h := random(e.Rand, tensor.Float64, shape...)
			x, hs := e.From(h), floatsOf(h)
			for set := 1; set < 1<<len(shape); set++ {
				var axes []int
				for a := range shape {
					if set>>a&1 == 1 {
						axes = append(axes, a)
					}
				}
				_, groups := along(shape, axes)
				sums, most := make([]float64, len(groups)), make([]float64, len(groups))
				for i, g := range groups {
					most[i] = math.Inf(-1)
					for _, p := range g {
						sums[i], most[i] = sums[i]+hs[p], max(most[i], hs[p])
					}
				}
				sum, largest := must(tensor.Sum(x, slices.Clone(axes)...)), must(x.Max(slices.Clone(axes)...))
				e.RequireNear(sums, sum, fmt.Sprint("Sum of ", shape, " along ", axes))
				e.RequireNear(most, largest, fmt.Sprint("Max of ", shape, " along ", axes))
				e.FreeAll(sum, largest)
				if len(axes) == 1 {
					norm := must(e.Norm(x, tensor.InfNorm(), axes[0]))
					folded := must(x.Reduce(func(x, y float64) float64 { return x + y }, axes[0], 0.0))
					for i, g := range groups {
						most[i] = 0
						for _, p := range g {
							most[i] = max(most[i], math.Abs(hs[p]))
						}
					}
					e.RequireNear(most, norm, fmt.Sprint("Norm of ", shape, " along ", axes))
					e.RequireNear(sums, folded, fmt.Sprint("Reduce of ", shape, " along ", axes))
					e.FreeAll(norm, folded)
				}
			}
			e.FreeAll(x)
		}
	})
}

// TestAxesStayAsTheyAre: StdEng sorts the axes that it is given, which are the program's.
func TestAxesStayAsTheyAre(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, m := e.From(random(e.Rand, tensor.Float64, 2, 3, 2)), e.From(random(e.Rand, tensor.Float64, 2, 3))
		for name, f := range map[string]func(axes ...int) (tensor.Tensor, error){
			"Sum":  func(axes ...int) (tensor.Tensor, error) { return e.Sum(x, axes...) },
			"Max":  func(axes ...int) (tensor.Tensor, error) { return e.Max(x, axes...) },
			"Min":  func(axes ...int) (tensor.Tensor, error) { return e.Min(x, axes...) },
			"Norm": func(axes ...int) (tensor.Tensor, error) { return e.Norm(m, tensor.FrobeniusNorm(), axes...) },
		} {
			axes := []int{1, 0}
			r, err := f(axes...)
			require.NoError(t, err, name)
			require.Equal(t, []int{1, 0}, axes, name)
			e.FreeAll(r)
		}
		e.FreeAll(x, m)
	})
}

// TestNormsOfMatrices: StdEng reduces other elements where there are axes around the two, and fails where norms go
// by singular values. A GPU computes all others itself.
func TestNormsOfMatrices(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		shape := []int{2, 3, 4, 2}
		h := random(e.Rand, tensor.Float64, shape...)
		columns := e.From(tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...), tensor.AsFortran(nil)))
		require.NoError(t, e.Copy(columns, h))
		for layout, x := range map[string]*tensor.Dense{"rows": e.From(h), "columns": columns} {
			for rows := range shape {
				for cols := range shape {
					if rows == cols {
						continue
					}
					_, groups := along(shape, []int{rows, cols})
					for name, ord := range map[string]tensor.NormOrder{"1": tensor.Norm(1), "-1": tensor.Norm(-1), "2": tensor.Norm(2), "-2": tensor.Norm(-2), "inf": tensor.InfNorm(), "-inf": tensor.NegInfNorm(), "Frobenius": tensor.FrobeniusNorm(), "unordered": tensor.UnorderedNorm()} {
						var want []float64
						for _, g := range groups { // in the order of the axes
							if rows > cols {
								turned := must(hostTensor(tensor.Float64, elementsOf(h, g), []int{shape[cols], shape[rows]}).SafeT())
								want = append(want, number(must(turned.Norm(ord, 0, 1)).Get(0)))
								continue
							}
							want = append(want, number(must(hostTensor(tensor.Float64, elementsOf(h, g), []int{shape[rows], shape[cols]}).Norm(ord, 0, 1)).Get(0)))
						}
						before := e.Stats().Fallbacks
						r := must(e.Norm(x, ord, rows, cols))
						e.RequireNear(want, r, fmt.Sprintf("norm %s along %d and %d, %s", name, rows, cols, layout))
						require.True(t, !e.GPU || e.Stats().Fallbacks == before || name == "2" || name == "-2", name)
						e.FreeAll(r)
					}
				}
			}
			e.FreeAll(x)
		}
	})
}

// elementsOf returns those of a tensor in row-major order at places.
func elementsOf(d *tensor.Dense, places []int) (r []float64) {
	all := floatsOf(d)
	for _, p := range places {
		r = append(r, all[p])
	}
	return r
}

// TestReduceInto: StdEng reuses no tensor but one of the operand's size.
func TestReduceInto(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{2, 3, 5, 3}, {2, 2, 1, 3}, {4}} {
			h := random(e.Rand, tensor.Float64, shape...)
			x, hs := e.From(h), floatsOf(h)
			for axis := range shape {
				left, groups := along(shape, []int{axis})
				want := make([]float64, len(groups))
				for i, g := range groups {
					for _, p := range g {
						want[i] += hs[p]
					}
				}
				dst := must(e.Empty(tensor.Float64, len(want)))
				r := must(e.Reduce(func(x, y float64) float64 { return x + y }, x, axis, 0.0, tensor.WithReuse(dst)))
				require.Same(t, dst, r)
				require.True(t, dst.Shape().Eq(tensor.Shape(left)), "%v along %d", shape, axis)
				e.RequireNear(want, dst, fmt.Sprint("Reduce of ", shape, " along ", axis))
				_, err := e.Reduce(func(x, y float64) float64 { return x + y }, x, axis, 0.0, tensor.WithIncr(dst))
				require.ErrorIs(t, err, cupool.ErrNotSupported)
				e.FreeAll(dst)
			}
			e.FreeAll(x)
		}
	})
}

// TestSelectsAlongAnyAxis: StdEng selects other elements along any axis but the first, and a view of a tensor
// of one element.
func TestSelectsAlongAnyAxis(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		testSelects(t, e, []int{3, 4, 2}, []int{1, 0, 1})
		testSelects(t, e, []int{1, 1}, []int{0, 0, 0})
	})
}

// testSelects selects along each axis.
func testSelects(t *testing.T, e *bench, shape, from []int) {
	h := random(e.Rand, tensor.Float32, shape...)
	x, hs := e.From(h), floatsOf(h)
	for axis := range 2 * len(shape) {
		at := e.From(tensor.New(tensor.WithBacking(slices.Clone(from))))
		if axis >= len(shape) { // a matrix of one row is a vector, too
			axis -= len(shape)
			require.NoError(t, at.Reshape(1, len(from)))
		}
		selects := slices.Clone(shape)
		selects[axis] = len(from)
		want := selected(shape, selects, axis, from, hs).values
		for _, dst := range []*tensor.Dense{nil, must(e.Empty(tensor.Float32, selects...))} {
			var opts []tensor.FuncOpt
			if dst != nil {
				opts = append(opts, tensor.WithReuse(dst))
			}
			r := must(tensor.ByIndices(x, at, axis, opts...))
			require.Equal(t, want, e.As64(r), "axis %d", axis)
			require.Equal(t, tensor.Shape(selects), r.Shape())
			e.FreeAll(r)
		}
		g := random(e.Rand, tensor.Float32, selects...)
		gs, back := floatsOf(g), make([]float64, len(hs))
		testkit.Coordinates(selects, func(i int, c []int) {
			c = slices.Clone(c)
			c[axis] = from[c[axis]]
			back[testkit.PlaceOf(shape, c)] += gs[i]
		})
		pooled := e.From(g)
		r := must(tensor.ByIndicesB(x, pooled, at, axis))
		e.RequireNear(back, r, fmt.Sprint("gradient along ", axis))
		e.FreeAll(at, pooled, r)
	}
	e.FreeAll(x)
}

// TestSoftMaxOfRowsFarApart: StdEng has the first element of all in the place of each row's.
func TestSoftMaxOfRowsFarApart(t *testing.T) {
	rows := [][]float64{{200, 1, 2}, {1000, 999, 0}, {-1000, -1000, -999}, {1, 0, math.Inf(-1)}, {math.Inf(-1), 300, 300}}
	var xs, soft, logs []float64
	for _, row := range rows {
		sum, most := 0.0, slices.Max(row)
		for _, v := range row {
			sum += math.Exp(v - most)
		}
		for _, v := range row {
			xs, soft, logs = append(xs, v), append(soft, math.Exp(v-most)/sum), append(logs, v-most-math.Log(sum))
		}
	}
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, shape := range [][]int{{5, 3}, {5, 1, 3}} {
				x := e.From(hostTensor(dt, xs, shape))
				for _, axis := range []int{-1, len(shape) - 1} {
					s, l := must(tensor.SoftMax(x, axis)), must(tensor.LogSoftMax(x, axis))
					e.RequireClose(soft, e.As64(s), 1e-6, "SoftMax")
					e.RequireClose(logs, e.As64(l), 1e-6, "LogSoftMax")
					e.FreeAll(s, l)
				}
				e.FreeAll(x)
			}
		}
	})
}

// TestGradientOfSoftMaxInAnyOrder: StdEng reads both operands in the order of memory.
func TestGradientOfSoftMaxInAnyOrder(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		of := func(opts ...tensor.ConsOpt) func() *tensor.Dense {
			return func() *tensor.Dense {
				return hostTensor(tensor.Float64, floatsOf(random(e.Rand, tensor.Float64, 12)), []int{3, 4}, opts...)
			}
		}
		rows, columns := of(), of(tensor.AsFortran(nil))
		for name, ts := range map[string][2]*tensor.Dense{"rows, columns": {rows(), columns()}, "columns, rows": {columns(), rows()}, "columns": {columns(), columns()}} {
			back := map[string]func(y, g tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error){"SoftMaxB": tensor.SoftMaxB, "LogSoftMaxB": tensor.LogSoftMaxB}
			for op, f := range back {
				for axis := range 2 {
					y, g := ts[0], ts[1]
					want := must(f(hostTensor(y.Dtype(), must(elementsAt(y)), y.Shape()), hostTensor(y.Dtype(), must(elementsAt(g)), y.Shape()), axis)).(*tensor.Dense)
					py, pg := e.From(y), e.From(g)
					what := fmt.Sprintf("%s of %s along %d", op, name, axis)
					e.RequireNear(floatsOf(want), must(f(py, pg, axis)), what)
					dst := must(e.Empty(tensor.Float64, 3, 4))
					require.Same(t, dst, must(f(py, pg, axis, tensor.WithReuse(dst))))
					e.RequireNear(floatsOf(want), dst, what+", reuse")
				}
			}
		}
		require.NoError(t, all.Close())
	})
}

// TestProductsInColumnMajorOrder: StdEng overwrites with an outer product what it is added to, and transposes the
// product of a column and a row.
func TestProductsInColumnMajorOrder(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, opts := range [][]tensor.ConsOpt{nil, {tensor.AsFortran(nil)}} {
			a, b := e.From(tensor.New(tensor.WithBacking([]float64{1, 2}))), e.From(tensor.New(tensor.WithBacking([]float64{3, 4, 5})))
			dst := e.From(hostTensor(tensor.Float64, []float64{10, 10, 10, 10, 10, 10}, []int{2, 3}, opts...))
			require.NoError(t, e.Outer(a, b, dst))
			require.Equal(t, []float64{13, 14, 15, 16, 18, 20}, must(elementsAt(e.Host(dst))))
			require.NoError(t, errors.Join(a.Reshape(2, 1), b.Reshape(1, 3)))
			require.Same(t, dst, must(tensor.MatMul(a, b, tensor.WithReuse(dst))))
			require.Equal(t, []float64{3, 4, 5, 6, 8, 10}, must(elementsAt(e.Host(dst))))
			e.FreeAll(a, b, dst)
		}
	})
}

// TestRepeatsOfRows: StdEng keeps one element of a row that is repeated once.
func TestRepeatsOfRows(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float64{1, 2, 3})))
		row := must(x.SafeT())
		r := must(tensor.Repeat(row, 0, 1))
		require.Equal(t, []float64{1, 2, 3}, e.As64(r))
		dst := must(e.Empty(tensor.Float64, 1, 3))
		require.Same(t, dst, must(tensor.RepeatReuse(row, dst, 0, 1)))
		require.Equal(t, []float64{1, 2, 3}, e.As64(dst))
		e.FreeAll(x, row, r, dst)
	})
}
