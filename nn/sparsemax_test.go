package nn_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/nn"
)

// sparsemaxOf is the algorithm of the paper, which sorts.
func sparsemaxOf(row []float64) []float64 {
	sorted := slices.Clone(row)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	sum, tau := 0.0, 0.0
	for k, v := range sorted {
		if sum += v; 1+float64(k+1)*v > sum {
			tau = (sum - 1) / float64(k+1)
		}
	}
	y := make([]float64, len(row))
	for i, v := range row {
		y[i] = max(v-tau, 0)
	}
	return y
}

func TestSparsemax(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, s := range [][]int{{1, 1}, {1, 7}, {5, 3}, {3, 100}, {2, 3, 40}, {9}, {3, 0}, {0, 3}} {
				e.checkSparsemax(dt, s)
			}
		}
	})
}

func (e *bench) checkSparsemax(dt tensor.Dtype, shape []int) {
	what := fmt.Sprint(dt, shape)
	cols := shape[len(shape)-1]
	x, y := e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...))
	dy, dx := e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...))
	g := e.As64(dy)
	var want, wantDX []float64
	for rest := e.As64(x); len(rest) > 0; rest, g = rest[cols:], g[cols:] {
		row := sparsemaxOf(rest[:cols])
		want = append(want, row...)
		sum, n := 0.0, 0.0
		for i, v := range row {
			if v > 0 {
				sum, n = sum+g[i], n+1
			}
		}
		for i, v := range row {
			if v > 0 {
				wantDX = append(wantDX, g[i]-sum/n)
			} else {
				wantDX = append(wantDX, 0)
			}
		}
	}
	require.NoError(e.T, nn.Sparsemax(e.Engine, x, y), what)
	e.RequireNear(append([]float64{}, want...), y, what)
	require.NoError(e.T, nn.SparsemaxBack(e.Engine, y, dy, dx), what)
	e.RequireNear(append([]float64{}, wantDX...), dx, what)
	require.NoError(e.T, nn.Sparsemax(e.Engine, x, x), what)
	e.RequireNear(append([]float64{}, want...), x, what+" in place")
	e.FreeAll(x, y, dy, dx)
}

// What is masked by -Inf has no probability; a row with NaN or +Inf is NaN.
func TestSparsemaxOfSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(4, 3), tensor.WithBacking([]float64{-inf, 2, 2, nan, 1, 2, inf, 0, 1, -inf, -inf, -inf})))
		require.NoError(t, nn.Sparsemax(e.Engine, x, x))
		got := e.As64(x)
		require.Equal(t, []float64{0, 0.5, 0.5}, got[:3])
		for _, v := range got[3:9] {
			require.True(t, math.IsNaN(v), "%v", got)
		}
		require.Equal(t, []float64{0, 0, 0}, got[9:])
		e.FreeAll(x)
	})
}
