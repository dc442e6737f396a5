package tensorop_test

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
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

// newGPU returns an engine that computes on a GPU, or skips.
func newGPU(t *testing.T, opts ...cupool.EngineOption) *bench {
	return &bench{enginetest.NewGPU(t, opts...)}
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
