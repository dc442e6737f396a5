package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// functionsOf are the functions of Apply, written otherwise.
var functionsOf = map[nn.Function]func(float64) float64{
	nn.Sin: math.Sin, nn.Cos: math.Cos, nn.Ceil: math.Ceil, nn.Floor: math.Floor, nn.Log1p: math.Log1p, nn.Expm1: math.Expm1,
	nn.Softplus: func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) },
	nn.Logistic: func(x float64) float64 { return 0.5 + 0.5*math.Tanh(x/2) },
}

func TestApply(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for f, of := range functionsOf {
			for _, dt := range floats {
				for _, n := range []int{0, 1, 5, 1000} {
					x, y := e.From(random(e.Rand, dt, n)), must(e.Empty(dt, n))
					want := e.As64(x)
					for i, v := range want {
						want[i] = of(v)
						if v <= -1 && f == nn.Log1p {
							want[i] = math.Log1p(v) // NaN or -Inf
						}
					}
					require.NoError(t, nn.Apply(e.Engine, f, x, y), f)
					e.RequireNear(want, y, f.String())
					require.NoError(t, nn.Apply(e.Engine, f, x, x), f)
					e.RequireNear(want, x, f.String()+" in place")
					e.FreeAll(x, y)
				}
			}
		}
	})
}

func TestApplyToSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	want := map[nn.Function][]float64{ // of Inf, -Inf, NaN, 800, -800
		nn.Sin: {nan, nan, nan, math.Sin(800), -math.Sin(800)}, nn.Cos: {nan, nan, nan, math.Cos(800), math.Cos(800)},
		nn.Ceil: {inf, -inf, nan, 800, -800}, nn.Floor: {inf, -inf, nan, 800, -800}, nn.Log1p: {inf, nan, nan, math.Log1p(800), nan},
		nn.Expm1: {inf, -1, nan, inf, -1}, nn.Softplus: {inf, 0, nan, 800, 0}, nn.Logistic: {1, 0, nan, 1, 0},
	}
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithBacking([]float64{inf, -inf, nan, 800, -800})))
		y := must(e.Empty(tensor.Float64, 5))
		for f, ws := range want {
			require.NoError(t, nn.Apply(e.Engine, f, x, y))
			for i, got := range e.As64(y) {
				if w := ws[i]; math.IsNaN(w) || math.IsInf(w, 0) {
					require.True(t, math.IsNaN(w) && math.IsNaN(got) || w == got, "%v %d: %v", f, i, got)
				} else {
					require.InDelta(t, w, got, 1e-12, "%v %d", f, i)
				}
			}
		}
		e.FreeAll(x, y)
	})
}

func TestConvert(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		f := e.From(tensor.New(tensor.WithBacking([]float64{2.9, -2.9, 0, math.NaN(), math.Inf(1), math.Inf(-1), 1e30, -1e30})))
		i, back := must(e.Empty(tensor.Int, 8)), must(e.Empty(tensor.Float64, 8))
		require.NoError(t, nn.Convert(e.Engine, f, i))
		least := math.MinInt64
		require.Equal(t, []int{2, -2, 0, least, least, least, least, least}, e.Host(i).Data())
		require.NoError(t, nn.Convert(e.Engine, i, back))
		require.Equal(t, []float64{2, -2, 0, -0x1p63, -0x1p63, -0x1p63, -0x1p63, -0x1p63}, e.As64(back))
		single := must(e.Empty(tensor.Float32, 8))
		require.NoError(t, nn.Convert(e.Engine, i, single))
		require.Equal(t, []float64{2, -2, 0, -0x1p63, -0x1p63, -0x1p63, -0x1p63, -0x1p63}, e.As64(single))
		require.NoError(t, nn.Convert(e.Engine, single, i))
		require.Equal(t, []int{2, -2, 0, least, least, least, least, least}, e.Host(i).Data())
		e.FreeAll(f, i, back, single)
	})
}

func TestDiagFlat(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, n := range []int{0, 1, 2, 7} {
				x, y := e.From(random(e.Rand, dt, n)), must(e.Empty(dt, n, n))
				want := make([]float64, n*n)
				for i, v := range e.As64(x) {
					want[i*(n+1)] = v
				}
				require.NoError(t, nn.DiagFlat(e.Engine, x, y))
				e.RequireNear(want, y, "diagonal")
				e.FreeAll(x, y)
			}
		}
	})
}

func TestFunctionErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y, i := e.From(random(e.Rand, tensor.Float64, 4)), must(e.Empty(tensor.Float64, 3)), e.From(random(e.Rand, tensor.Int, 4))
		head, tail := must(x.Slice(tensor.S(0, 3))), must(x.Slice(tensor.S(1, 4)))
		failures{
			"no function":     {nn.Apply(e.Engine, nn.Function(-1), x, x), cupool.ErrNotSupported},
			"of nothing":      {nn.Apply(e.Engine, nn.Sin, nil, x), cupool.ErrNotSupported},
			"another size":    {nn.Apply(e.Engine, nn.Sin, x, y), cupool.ErrSizeMismatch},
			"overlap":         {nn.Apply(e.Engine, nn.Sin, head, tail), cupool.ErrNotSupported},
			"ints":            {nn.Apply(e.Engine, nn.Sin, i, i), cupool.ErrNotSupported},
			"floats to both":  {nn.Convert(e.Engine, x, y), cupool.ErrNotSupported},
			"nothing to ints": {nn.Convert(e.Engine, nil, i), cupool.ErrNotSupported},
			"fewer":           {nn.Convert(e.Engine, i, y), cupool.ErrSizeMismatch},
			"no matrix":       {nn.DiagFlat(e.Engine, x, y), cupool.ErrSizeMismatch},
			"no diagonal":     {nn.DiagFlat(e.Engine, nil, y), cupool.ErrNotSupported},
			"no gradient":     {nn.SparsemaxBack(e.Engine, x, nil, x), cupool.ErrNotSupported},
			"gradient's size": {nn.SparsemaxBack(e.Engine, x, y, x), cupool.ErrSizeMismatch},
			"no input":        {nn.Sparsemax(e.Engine, nil, x), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, "unknown", nn.Function(-1).String())
		e.FreeAll(x, y, i)
	})
}
