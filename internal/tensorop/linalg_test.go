package tensorop_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

func TestBatchMatMul(t *testing.T) { both(t, checkBatchMatMul) }

func checkBatchMatMul(t *testing.T, e *bench) {
	for _, dt := range floats {
		for _, s := range [][4]int{{1, 1, 1, 1}, {3, 2, 4, 5}, {2, 1, 7, 3}, {5, 3, 1, 1}, {4, 33, 31, 2}} {
			n, rows, inner, cols := s[0], s[1], s[2], s[3]
			a, b := e.From(random(e.Rand, dt, n, rows, inner)), e.From(random(e.Rand, dt, n, inner, cols))
			bT := transposed(e.From(random(e.Rand, dt, n, cols, inner)), 0, 2, 1)
			for _, right := range []*tensor.Dense{b, bT} {
				c := must(e.Empty(dt, n, rows, cols))
				require.NoError(t, e.BatchMatMul(a, right, c))
				e.RequireNear(productsOf(e.As64(a), e.As64(right), n, rows, inner, cols), c, fmt.Sprint(dt, s))
				e.FreeAll(c)
			}
			e.FreeAll(a, b, bT)
		}
		x, y := e.From(random(e.Rand, dt, 2, 3, 4)), e.From(random(e.Rand, dt, 3, 4))
		require.ErrorIs(t, e.BatchMatMul(x, x, x), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.BatchMatMul(x, y, x), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.BatchMatMul(x, nil, x), cupool.ErrSizeMismatch)
		e.FreeAll(x, y)
	}
	if e.GPU {
		require.Zero(t, e.Stats().Fallbacks)
	}
}

// TestProductsOfTransposedRows: the host multiplies a row or column that is marked as transposed as StdEng does,
// which adds up in an order of its own then.
func TestProductsOfTransposedRows(t *testing.T) {
	e := newBench(t, false)
	inexact := func(shape ...int) *tensor.Dense {
		d := tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float64))
		for i := range d.Float64s() {
			d.Set(i, e.Rand.Float64())
		}
		return d
	}
	for _, s := range [][2][]int{{{33, 20}, {1, 20}}, {{1, 20}, {33, 20}}, {{20, 1}, {33, 1}}} {
		a, b := inexact(s[0]...), inexact(s[1]...)
		x, y := e.From(a), e.From(b)
		want, got := must(tensor.MatMul(a, transposed(b))), must(tensor.MatMul(x, transposed(y)))
		require.Equal(t, want.Data(), got.Data(), "%v by the transposed %v", s[0], s[1])
		e.FreeAll(x, y, got)
	}
}

// TestDotWithMatrices: StdEng marks the matrix that a vector is multiplied by as transposed, and takes the mark
// away from one that had it. Products by an engine are that engine's.
func TestDotWithMatrices(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		other := newBench(t, false)
		own, others := e.Scope(), other.Scope()
		plain := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
		turned := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 4, 2, 5, 3, 6}))
		columns := hostTensor(tensor.Float64, []float64{1, 4, 2, 5, 3, 6}, []int{2, 3}, tensor.AsFortran(nil))
		wide := tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float64{0, 0, 0, 1, 2, 3, 4, 5, 6}))
		m23 := []float64{1, 2, 3, 4, 5, 6}
		for name, m := range map[string]*tensor.Dense{
			"plain": e.From(plain), "transposed": transposed(e.From(turned)), "columns": e.From(columns), "rows": view(e.From(wide), tensor.S(1, 3)),
			"of the host": plain, "of the host, transposed": transposed(turned.Clone().(*tensor.Dense)), "of another engine": transposed(other.From(turned)),
		} {
			all := e.Scope()
			two, three := e.From(tensor.New(tensor.WithBacking([]float64{1, 10}))), e.From(tensor.New(tensor.WithBacking([]float64{1, 10, 100})))
			square := e.From(tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float64{1, 0, 0, 0, 1, 0, 1, 0, 1})))
			for what, c := range map[string]struct {
				x, y  *tensor.Dense
				shape tensor.Shape
				want  []float64
			}{
				"vector times matrix":   {two, m, tensor.Shape{3}, []float64{41, 52, 63}},
				"matrix times vector":   {m, three, tensor.Shape{2}, []float64{321, 654}},
				"matrix times matrix":   {m, square, tensor.Shape{2, 3}, []float64{4, 2, 3, 10, 5, 6}},
				"one row times matrix":  {must(e.FromHost(tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float64{1, 10})))), m, tensor.Shape{3}, []float64{41, 52, 63}},
				"vector of the host":    {tensor.New(tensor.WithBacking([]float64{1, 10})), m, tensor.Shape{3}, []float64{41, 52, 63}},
				"matrix times one row":  {m, must(e.FromHost(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]float64{1, 10, 100})))), tensor.Shape{2}, []float64{321, 654}},
				"matrix times a column": {m, must(e.FromHost(tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float64{1, 10, 100})))), tensor.Shape{2}, []float64{321, 654}},
			} {
				what = name + ", " + what
				ones := e.From(tensor.New(tensor.WithBacking(slices.Repeat([]float64{1}, len(c.want)))))
				require.NoError(t, ones.Reshape(c.shape.Clone()...))
				live := e.Live()
				r, err := e.Dot(c.x, c.y)
				require.NoError(t, err, what)
				require.Equal(t, c.shape, r.Shape(), what)
				require.Equal(t, c.want, e.As64(r), what)
				require.Same(t, e.Engine, cupool.EngineOf(r), what)
				require.Same(t, ones, must(e.Dot(c.x, c.y, tensor.WithIncr(ones))), what)
				for i, v := range e.As64(ones) {
					require.Equal(t, c.want[i]+1, v, what)
				}
				require.NoError(t, ones.Reshape(1, len(c.want)))
				require.Same(t, ones, must(e.Dot(c.x, c.y, tensor.WithReuse(ones))), what)
				require.Equal(t, c.shape, ones.Shape(), what)
				require.Equal(t, c.want, e.As64(ones), what)
				require.Equal(t, live+1, e.Live(), what)
				require.Equal(t, tensor.Shape{2, 3}, m.Shape(), what)
				require.Equal(t, m23, must(elementsAt(e.Host(m))), what)
			}
			_, err := e.Dot(three, m)
			require.Error(t, err, name)
			require.NoError(t, all.Close())
		}
		require.NoError(t, errors.Join(own.Close(), others.Close()))
	})
}

// TestInnerOfMoreAxes: the product is that of all elements, as StdEng's is.
func TestInnerOfMoreAxes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{6}, {2, 3}, {1, 2, 3}, {6, 1, 1}} {
			x := e.From(hostTensor(tensor.Float64, []float64{1, 2, 3, 4, 5, 6}, shape))
			require.Equal(t, 91.0, must(e.Inner(x, x)), "%v", shape)
			e.FreeAll(x)
		}
	})
}

// TestDotReshapes: a tensor to reuse gets the result's shape, also where both are of one axis that
// is longer than 1.
func TestDotReshapes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y, dst := e.From(random(e.Rand, tensor.Float64, 1, 3, 1)), e.From(random(e.Rand, tensor.Float64, 1)), e.From(random(e.Rand, tensor.Float64, 3))
		require.Same(t, dst, must(e.Dot(x, y, tensor.WithReuse(dst))))
		require.Equal(t, tensor.Shape{1, 3}, dst.Shape())
		e.FreeAll(x, y, dst)
	})
}

// TestDotOfAnyAxes: StdEng panics for some tensors of four axes and sums of one term, and forgets WithIncr, and WithReuse of vectors.
func TestDotOfAnyAxes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, c := range [][2][]int{
			{{4}, {4}}, {{2, 3, 4}, {4, 2}}, {{2, 3, 4}, {4}}, {{4}, {2, 4, 3}}, {{3, 4}, {2, 4, 3}}, {{2, 3, 4}, {2, 4, 3}},
			{{2, 3, 2, 4}, {4, 3}}, {{2, 3, 2, 4}, {2, 4, 3}}, {{2, 2, 3, 4}, {2, 3, 4, 2}}, {{4, 1, 1}, {1}}, {{2, 3, 1}, {1, 4}}, {{3, 1}, {2, 1, 3}}, {{1}, {3, 1, 2}}, {{2, 1, 2, 1, 4}, {4, 2}},
		} {
			all := e.Scope()
			a, b := random(e.Rand, tensor.Float64, c[0]...), random(e.Rand, tensor.Float64, c[1]...)
			want := contracted(c[0], c[1], []int{len(c[0]) - 1}, []int{max(len(c[1])-2, 0)}, floatsOf(a), floatsOf(b))
			x, y, dst := e.From(a), e.From(b), e.From(random(e.Rand, tensor.Float64, want.shape...))
			sum := add(e.As64(dst), want)
			e.RequireNear(want.values, must(e.Dot(x, y)), fmt.Sprint(c))
			require.Same(t, dst, must(e.Dot(x, y, tensor.WithIncr(dst))), "%v, incr", c)
			e.RequireNear(sum.values, dst, fmt.Sprint(c, ", incr"))
			require.Same(t, dst, must(e.Dot(x, y, tensor.WithReuse(dst))), "%v, reuse", c)
			e.RequireNear(want.values, dst, fmt.Sprint(c, ", reuse"))
			require.True(t, slices.Equal(want.shape, dst.Shape()), "%v: %v", c, dst.Shape())
			for _, opt := range []tensor.FuncOpt{tensor.WithIncr(must(e.Empty(tensor.Float64, 7))), tensor.WithReuse(must(e.Empty(tensor.Float64, 7)))} {
				_, err := e.Dot(x, y, opt)
				require.Error(t, err, "%v, of another size", c)
			}
			require.NoError(t, all.Close())
		}
	})
}

// TestProductsOverOperands writes products over what they read, which StdEng overwrites too early.
func TestProductsOverOperands(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		swap := e.From(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{0, 1, 1, 0})))
		for name, c := range map[string]struct {
			f    func(m, v *tensor.Dense) error
			m, v []float64 // what m = (1, 2; 3, 4) and v = (1, 2, 3, 4) are then
		}{
			"MatMul over a":       {func(m, _ *tensor.Dense) error { return e.MatMul(m, swap, m) }, []float64{2, 1, 4, 3}, []float64{1, 2, 3, 4}},
			"MatMul over b":       {func(m, _ *tensor.Dense) error { return e.MatMul(swap, m, m) }, []float64{3, 4, 1, 2}, []float64{1, 2, 3, 4}},
			"MatMul over a and b": {func(m, _ *tensor.Dense) error { return e.MatMul(m, m, m) }, []float64{7, 10, 15, 22}, []float64{1, 2, 3, 4}},
			"MatVecMul over b": {func(_, v *tensor.Dense) error {
				return e.MatVecMul(swap, view(v, tensor.S(0, 2)), view(v, tensor.S(0, 2)))
			}, []float64{1, 2, 3, 4}, []float64{2, 1, 3, 4}},
			"MatVecMul over half b": {func(_, v *tensor.Dense) error {
				return e.MatVecMul(swap, view(v, tensor.S(0, 2)), view(v, tensor.S(1, 3)))
			}, []float64{1, 2, 3, 4}, []float64{1, 2, 1, 4}},
			"MatVecMul over a's row":  {func(m, v *tensor.Dense) error { return e.MatVecMul(m, view(v, tensor.S(0, 2)), view(m, tensor.S(0))) }, []float64{5, 11, 3, 4}, []float64{1, 2, 3, 4}},
			"Outer over a's and b's":  {func(m, _ *tensor.Dense) error { return e.Outer(view(m, tensor.S(1)), view(m, tensor.S(0)), m) }, []float64{4, 8, 7, 12}, []float64{1, 2, 3, 4}},
			"MatMul with a for reuse": {func(m, _ *tensor.Dense) error { _, err := tensor.MatMul(m, swap, tensor.WithReuse(m)); return err }, []float64{2, 1, 4, 3}, []float64{1, 2, 3, 4}},
		} {
			m := e.From(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
			v := e.From(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4})))
			require.NoError(t, c.f(m, v), name)
			require.Equal(t, c.m, e.As64(m), name)
			require.Equal(t, c.v, e.As64(v), name)
			e.FreeAll(m, v)
		}
		e.FreeAll(swap)
	})
}

// TestGPUTF32: products are exact to float32 unless TF32 is asked for.
func TestGPUTF32(t *testing.T) {
	for _, c := range []struct {
		opts  []cupool.EngineOption
		bound float64
	}{{nil, 1e-6}, {[]cupool.EngineOption{cupool.WithTF32()}, 2e-3}} {
		e := newGPU(t, c.opts...)
		a, b := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(64, 96)), tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(96, 80))
		for _, m := range []*tensor.Dense{a, b} {
			xs := m.Data().([]float32)
			for i := range xs {
				xs[i] = e.Rand.Float32()
			}
		}
		x, y := e.From(a), e.From(b)
		got := must(tensor.MatMul(x, y))
		e.RequireClose(floatsOf(must(tensor.MatMul(a, b)).(*tensor.Dense)), e.As64(got), c.bound, "product")
		e.FreeAll(x, y, got)
	}
}

// noBLAS is a GPU of a computer without cuBLAS.
type noBLAS struct {
	cuda.Driver
	gpu.Device
}

func (noBLAS) Multiply(*cublas.Product, cupool.StreamHandle, cupool.StreamHandle) error {
	return fmt.Errorf("no products: %w: %w", cupool.ErrNotSupported, cublas.ErrMissing)
}

// newWithoutBLAS returns an engine on it, and what its pool logs.
func newWithoutBLAS(t *testing.T) (*bench, *bytes.Buffer) {
	d, err := cuda.Open(0)
	gputest.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	log := new(bytes.Buffer)
	c, err := cupool.New(cupool.Config{Driver: noBLAS{d, d.(gpu.Device)}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(), "leaks") })
	e, err := cupool.NewEngine(enginetest.Poisoned{Pool: c})
	require.NoError(t, err)
	enginetest.NeedKernels(t, e)
	return &bench{&enginetest.Bench{Engine: e, Pool: c, T: t, Rand: testkit.Rand(t), Far: true, GPU: true}}, log
}

// TestGPUWithoutBLAS: without cuBLAS a kernel of cupool's own multiplies, and the log
// says so once.
func TestGPUWithoutBLAS(t *testing.T) {
	e, log := newWithoutBLAS(t)
	require.Empty(t, log.String())
	t.Run("batches", func(t *testing.T) { checkBatchMatMul(t, e) })
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log)
	require.Contains(t, log.String(), "slower")
	require.Contains(t, log.String(), cublas.ErrMissing.Error())

	for _, dt := range floats {
		for _, s := range [][2]int{{1, 1}, {3, 40}, {16, 16}, {33, 17}} {
			a, x, y := e.From(random(e.Rand, dt, s[0], s[1])), e.From(random(e.Rand, dt, s[1])), e.From(random(e.Rand, dt, s[0]))
			for name, f := range map[string]func(a, x, y *tensor.Dense) (tensor.Tensor, error){
				"MatVecMul": func(a, x, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.MatVecMul(a, x) },
				"Outer":     func(_, x, y *tensor.Dense) (tensor.Tensor, error) { return tensor.Outer(y, x) },
				"Dot":       func(_, x, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Dot(x, x) },
			} {
				got := must(f(a, x, y)).(*tensor.Dense)
				want := must(f(e.Host(a), e.Host(x), e.Host(y))).(*tensor.Dense)
				e.RequireNear(floatsOf(want), got, fmt.Sprint(name, dt, s))
				e.FreeAll(got)
			}
			e.FreeAll(a, x, y)
		}
	}
	require.Zero(t, e.Stats().Fallbacks)

	compared := 0
	for range 60 {
		if e.checkShape("MatMul", shapeOps["MatMul"], floats[e.Rand.IntN(len(floats))]) {
			compared++
		}
	}
	require.Greater(t, compared, 10)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "once")
}

// Products of transposes are those of tensors that are marked as transposed, to
// the bit; what does not fit is not served.
func TestGPUProductsOfTransposes(t *testing.T) {
	e := newGPU(t)
	shape := func(transposed bool, rows, cols int) (int, int) {
		if transposed {
			return cols, rows
		}
		return rows, cols
	}
	for _, dt := range floats {
		for _, s := range [][3]int{{1, 1, 1}, {1, 5, 3}, {4, 1, 3}, {4, 5, 1}, {4, 5, 3}} {
			for _, transposed := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
				var operands, marked [2]*tensor.Dense
				for i, is := range transposed {
					rows, cols := shape(is, s[i], s[i+1])
					operands[i] = e.From(random(e.Rand, dt, rows, cols))
					if marked[i] = operands[i]; is {
						marked[i] = enginetest.Transposed(operands[i].ShallowClone())
					}
				}
				want, got := must(e.Empty(dt, s[0], s[2])), must(e.Empty(dt, s[0], s[2]))
				require.NoError(t, e.MatMul(marked[0], marked[1], want))
				ok, err := tensorop.Of(e.Engine).GPU().MatMul(operands[0], operands[1], got, transposed[0], transposed[1])
				require.NoError(t, err)
				require.True(t, ok)
				e.RequireSame(e.Host(want), got, fmt.Sprint(dt, s, transposed))
				e.FreeAll(operands[0], operands[1], want, got)
			}
		}
	}
	a, b, c := must(e.Empty(tensor.Float32, 2, 3)), must(e.Empty(tensor.Float32, 2, 3)), must(e.Empty(tensor.Float32, 3))
	for _, ts := range [][3]*tensor.Dense{{a, b, a}, {a, a, b}, {a, c, b}} {
		ok, err := tensorop.Of(e.Engine).GPU().MatMul(ts[0], ts[1], ts[2], false, false)
		require.NoError(t, err)
		require.False(t, ok)
	}
	e.FreeAll(a, b, c)
	require.Zero(t, e.Stats().Fallbacks)
}

// A clone of a view has the view's gaps, and is no view.
func TestBatchMatMulOfClonedView(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		wide := e.From(tensor.New(tensor.WithShape(3, 2, 2, 1), tensor.WithBacking([]float64{2, 3, 0, 0, 5, 7, 0, 0, 11, 13, 0, 0})))
		clone := view(wide, nil, tensor.S(0)).Clone().(*tensor.Dense)
		factors := e.From(tensor.New(tensor.WithShape(3, 1, 1), tensor.WithBacking([]float64{1, 10, 100})))
		r := e.From(tensor.New(tensor.WithShape(3, 2, 1), tensor.WithBacking(make([]float64, 6))))
		require.NoError(t, e.BatchMatMul(clone, factors, r))
		require.Equal(t, []float64{2, 3, 50, 70, 1100, 1300}, e.As64(r))
		e.FreeAll(wide, clone, factors, r)
	})
}
