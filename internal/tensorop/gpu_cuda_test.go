//go:build gpu

package tensorop_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

var (
	elements = enginetest.Elements
	isFloat  = enginetest.IsFloat
	floatsOf = enginetest.FloatsOf
	bounds   = enginetest.Bounds
)

// TestGPUSpecialValues compares operations on NaN, infinities and zeros of
// both signs with Go's, in all pairs.
func TestGPUSpecialValues(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
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

// TestGPUSeveralEngines computes on several streams at once.
func TestGPUSeveralEngines(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	want := random(e.Rand, tensor.Float64, 33, 33)
	product := must(tensor.MatMul(want, want))
	var group sync.WaitGroup
	errs := make(chan error, 4)
	for range cap(errs) {
		eng := must(cupool.NewEngine(e.Pool, cupool.WithStream(must(e.Pool.NewStream()))))
		group.Go(func() {
			for range 20 {
				errs <- productOn(eng, want, product)
			}
		})
	}
	go func() {
		group.Wait()
		close(errs)
	}()
	for err := range errs {
		require.NoError(t, err)
	}
}

// productOn fails where m times m is not product.
func productOn(eng *cupool.Engine, m, product tensor.Tensor) (err error) {
	sc := eng.Scope()
	defer func() { err = errors.Join(err, sc.Close()) }()
	x, err := eng.FromHost(m)
	if err != nil {
		return err
	}
	y, err := tensor.MatMul(x, x)
	if err != nil {
		return err
	}
	p, err := eng.FromHost(product)
	if err != nil {
		return err
	}
	if _, err = tensor.Sub(y, p, tensor.UseUnsafe()); err != nil {
		return err
	}
	h, err := eng.ToHost(y)
	if err != nil {
		return err
	}
	for _, diff := range floatsOf(h) {
		if !(math.Abs(diff) < 1e-9) {
			return fmt.Errorf("off by %v", diff)
		}
	}
	return nil
}

// TestGPUTF32: products are exact to float32 unless TF32 is asked for.
func TestGPUTF32(t *testing.T) {
	for _, c := range []struct {
		opts  []cupool.EngineOption
		bound float64
	}{{nil, 1e-6}, {[]cupool.EngineOption{cupool.WithTF32()}, 2e-3}} {
		e := &bench{enginetest.NewGPU(t, c.opts...)}
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
	e := &bench{enginetest.NewGPU(t)}
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

// TestGPUServes: what once had no kernel is computed on the device.
func TestGPUServes(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	x, y := e.From(random(e.Rand, tensor.Float32, 2, 3, 4)), e.From(random(e.Rand, tensor.Float32, 5, 4, 7))
	dot, each := must(tensor.Dot(x, y)), must(tensor.Repeat(x, 1, 2, 0, 3))
	require.Equal(t, tensor.Shape{2, 3, 5, 7}, dot.Shape())
	require.Equal(t, tensor.Shape{2, 5, 4}, each.Shape())
	require.Empty(t, e.Stats().ByOp)
	e.FreeAll(x, y, dot, each)
}
