package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/philox"
	"github.com/cupool/cupool/nn"
)

func TestDropout(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, n := range []int{0, 1, 3, 4, 5, 1000} {
				for _, drop := range []float64{0, 0.25, 0.6, 1} {
					e.checkDropout(dt, n, drop)
				}
			}
		}
	})
}

// checkDropout compares with package philox, forth and back, and in place.
func (e *bench) checkDropout(dt tensor.Dtype, n int, drop float64) {
	what := fmt.Sprint(dt, n, drop)
	s := nn.Seed{Seed: e.Rand.Uint64(), Stream: e.Rand.Uint64()}
	x, y := e.From(random(e.Rand, dt, n)), must(e.Empty(dt, n))
	in, want := e.As64(x), make([]float64, n)
	philox.Dropout(want, in, 1-drop, 1/(1-drop), s.Stream, s.Seed)
	require.NoError(e.T, nn.Dropout(e.Engine, x, y, drop, s), what)
	e.RequireNear(want, y, what)
	require.NoError(e.T, nn.DropoutBack(e.Engine, x, y, drop, s), what)
	e.RequireNear(want, y, what+" back")
	philox.Dropout(want, in, 1-drop, -3, s.Stream, s.Seed)
	require.NoError(e.T, nn.ScaledDropoutBack(e.Engine, x, x, drop, -3, s), what)
	e.RequireNear(want, x, what+" in place")
	e.FreeAll(x, y)
}

// TestDropoutOfAPart drops elements of a tensor that begins between quads.
func TestDropoutOfAPart(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y := e.From(random(e.Rand, tensor.Float32, 3, 5)), must(e.Empty(tensor.Float32, 5))
		row := must(x.Slice(tensor.S(1))).(*tensor.Dense)
		want, s := make([]float64, 5), nn.Seed{Seed: e.Rand.Uint64()}
		philox.Dropout(want, e.As64(x)[5:10], 0.5, 2, s.Stream, s.Seed)
		require.NoError(t, nn.Dropout(e.Engine, row, y, 0.5, s))
		e.RequireNear(want, y, "a row")
		e.FreeAll(x, y)
	})
}

// TestDropoutRate: as many elements are dropped as should be, and the mean stays.
func TestDropoutRate(t *testing.T) {
	const n = 20_000
	both(t, func(t *testing.T, e *bench) {
		for _, drop := range []float64{0.1, 0.5, 0.9} {
			x, y := e.From(tensor.Ones(tensor.Float32, n)), must(e.Empty(tensor.Float32, n))
			require.NoError(t, nn.Dropout(e.Engine, x, y, drop, nn.Seed{Seed: e.Rand.Uint64()}))
			zeros, sum := 0, 0.0
			for _, v := range e.As64(y) {
				sum += v
				if v == 0 {
					zeros++
				}
			}
			six := 6 * math.Sqrt(drop*(1-drop)/n) // standard deviations
			require.InDelta(t, drop, float64(zeros)/n, six)
			require.InDelta(t, 1, sum/n, six/(1-drop)+1e-5)
			e.FreeAll(x, y)
		}
	})
}

// What is dropped is 0, whatever it was; what is kept stays a NaN or an infinity.
func TestDropoutOfNaN(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithBacking([]float64{math.NaN(), math.Inf(1), math.Inf(-1)})))
		y := must(e.Empty(tensor.Float64, 3))
		require.NoError(t, nn.Dropout(e.Engine, x, y, 1, nn.Seed{}))
		require.Equal(t, []float64{0, 0, 0}, e.As64(y))
		require.NoError(t, nn.Dropout(e.Engine, x, y, 0, nn.Seed{}))
		kept := e.As64(y)
		require.True(t, math.IsNaN(kept[0]))
		require.Equal(t, []float64{math.Inf(1), math.Inf(-1)}, kept[1:])
		e.FreeAll(x, y)
	})
}

func TestBinomial(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, trials := range []int{1, 2, 4, 7, 40} {
			s := nn.Seed{Seed: e.Rand.Uint64(), Stream: e.Rand.Uint64()}
			d, f := must(e.Empty(tensor.Float64, 100)), must(e.Empty(tensor.Float32, 100))
			wantD, wantF := make([]float64, 100), make([]float32, 100)
			philox.Binomial(wantD, trials, 0.3, s.Stream, s.Seed)
			philox.Binomial(wantF, trials, 0.3, s.Stream, s.Seed)
			require.NoError(t, nn.Binomial(e.Engine, d, trials, 0.3, s))
			require.NoError(t, nn.Binomial(e.Engine, f, trials, 0.3, s))
			require.Equal(t, wantD, e.As64(d))
			require.Equal(t, widened(wantF), e.As64(f))
			e.FreeAll(d, f)
		}
	})
}

// TestDraw: a Draw is added to the stream, and NextDraw goes on to the next.
func TestDraw(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		draw := e.From(tensor.New(tensor.WithBacking([]int{5})))
		with, without := nn.Seed{Seed: 1, Stream: 2, Draw: draw}, nn.Seed{Seed: 1, Stream: 7}
		a, b := must(e.Empty(tensor.Float32, 9)), must(e.Empty(tensor.Float32, 9))
		for what, fill := range map[string]func(t tensor.Tensor, s nn.Seed) error{
			"uniform":  func(t tensor.Tensor, s nn.Seed) error { return nn.Uniform(e.Engine, t, 0, 1, s) },
			"normal":   func(t tensor.Tensor, s nn.Seed) error { return nn.Normal(e.Engine, t, 0, 1, s) },
			"binomial": func(t tensor.Tensor, s nn.Seed) error { return nn.Binomial(e.Engine, t, 100, 0.5, s) },
		} {
			require.NoError(t, fill(a, with), what)
			require.NoError(t, fill(b, without), what)
			require.Equal(t, e.As64(b), e.As64(a), what)
		}
		require.NoError(t, nn.Dropout(e.Engine, a, b, 0.5, with))
		require.NoError(t, nn.Dropout(e.Engine, a, a, 0.5, without))
		require.Equal(t, e.As64(a), e.As64(b), "dropout")
		require.NoError(t, nn.NextDraw(e.Engine, draw))
		require.Equal(t, 6, e.Host(draw).Data())
		e.FreeAll(draw, a, b)
	})
}

func TestDropoutErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y, i := e.From(random(e.Rand, tensor.Float64, 4)), must(e.Empty(tensor.Float64, 3)), e.From(random(e.Rand, tensor.Int, 4))
		part := must(x.Slice(tensor.S(1, 4))).(*tensor.Dense)
		s := nn.Seed{}
		failures{
			"nothing":        {nn.Dropout(e.Engine, nil, x, 0.5, s), cupool.ErrNotSupported},
			"to nothing":     {nn.Dropout(e.Engine, x, nil, 0.5, s), cupool.ErrNotSupported},
			"another size":   {nn.Dropout(e.Engine, x, y, 0.5, s), cupool.ErrSizeMismatch},
			"integers":       {nn.DropoutBack(e.Engine, i, i, 0.5, s), cupool.ErrNotSupported},
			"overlap":        {nn.Dropout(e.Engine, part, must(x.Slice(tensor.S(0, 3))), 0.5, s), cupool.ErrNotSupported},
			"too often":      {nn.Dropout(e.Engine, x, x, 1.5, s), cupool.ErrNotSupported},
			"how often":      {nn.ScaledDropoutBack(e.Engine, x, x, math.NaN(), 1, s), cupool.ErrNotSupported},
			"draw's type":    {nn.Dropout(e.Engine, x, x, 0.5, nn.Seed{Draw: x}), cupool.ErrNotSupported},
			"draw's size":    {nn.Uniform(e.Engine, x, 0, 1, nn.Seed{Draw: i}), cupool.ErrSizeMismatch},
			"next of many":   {nn.NextDraw(e.Engine, i), cupool.ErrSizeMismatch},
			"next of none":   {nn.NextDraw(e.Engine, nil), cupool.ErrNotSupported},
			"no trials":      {nn.Binomial(e.Engine, x, 0, 0.5, s), cupool.ErrNotSupported},
			"many trials":    {nn.Binomial(e.Engine, x, 1<<24+1, 0.5, s), cupool.ErrNotSupported},
			"no probability": {nn.Binomial(e.Engine, x, 3, -1, s), cupool.ErrNotSupported},
		}.require(t)
		e.FreeAll(x, y, i)
	})
}
