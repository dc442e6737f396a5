package layers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func randoms(r *rand.Rand, n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = r.NormFloat64()
	}
	return xs
}

// slopes returns the derivative of f by each element of x, from differences.
func slopes(x []float64, f func() float64) []float64 {
	const h = 1e-5
	ds := make([]float64, len(x))
	for i, v := range x {
		x[i] = v + h
		up := f()
		x[i] = v - h
		ds[i] = (up - f()) / (2 * h)
		x[i] = v
	}
	return ds
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// TestBiasActivateBack compares the gradients with finite differences.
func TestBiasActivateBack(t *testing.T) {
	const rows, cols, seed = 4, 3, 1
	for _, act := range []Activation{None, ReLU, Sigmoid, Tanh, Rectify} {
		t.Run(fmt.Sprint(act), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			x, b, g := randoms(r, rows*cols), randoms(r, cols), randoms(r, rows*cols)
			forward := func() []float64 {
				y := append([]float64(nil), x...)
				BiasActivate(y, b, act)
				return y
			}
			loss := func() float64 { return dot(forward(), g) }
			dx, db := append([]float64(nil), g...), make([]float64, cols)
			BiasActivateBack(forward(), dx, db, cols, act)
			require.InDeltaSlice(t, slopes(x, loss), dx, 1e-8)
			require.InDeltaSlice(t, slopes(b, loss), db, 1e-8)
			BiasActivateBack(forward(), dx, nil, cols, act)
		})
	}
}

// TestCrossEntropy compares with the formula and with finite differences.
func TestCrossEntropy(t *testing.T) {
	const rows, cols, seed = 5, 4, 2
	r := rand.New(rand.NewPCG(seed, 0))
	x, weights := randoms(r, rows*cols), randoms(r, rows*cols)
	target := func(r, c int) float64 { return weights[r*cols+c] }
	losses := func() ([]float64, []float64) {
		loss, grad := make([]float64, rows), make([]float64, rows*cols)
		CrossEntropy(x, loss, grad, cols, 0.5, target)
		return loss, grad
	}
	loss, grad := losses()
	for r := range rows {
		var sum, want float64
		for c := range cols {
			sum += math.Exp(x[r*cols+c])
		}
		for c := range cols {
			want -= target(r, c) * (x[r*cols+c] - math.Log(sum))
		}
		require.InDelta(t, want, loss[r], 1e-12)
	}
	require.InDeltaSlice(t, slopes(x, func() (sum float64) {
		loss, _ := losses()
		for _, l := range loss {
			sum += 0.5 * l
		}
		return sum
	}), grad, 1e-8)
}

// TestOptimizers follows formulas by hand over two steps.
func TestOptimizers(t *testing.T) {
	w, v := []float64{1}, []float64{0}
	SGD(w, []float64{2}, v, 0.1, 0.9, 0.5) // d = 2.5
	SGD(w, []float64{2}, v, 0.1, 0.9, 0.5) // d = 2 + 0.375 + 2.25
	require.InDelta(t, 1-0.25-0.4625, w[0], 1e-12)
	w = []float64{1}
	SGD(w, []float64{2}, nil, 0.1, 0.9, 0)
	require.InDelta(t, 0.8, w[0], 1e-12)

	o := AdamOptions{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	w = []float64{1}
	m, v := []float64{0}, []float64{0}
	Adam(w, []float64{3}, m, v, 1, o)
	require.InDelta(t, 0.9, w[0], 1e-8, "the first step is as long as the learning rate")
	o.Decay = 0.5
	Adam(w, []float64{3}, m, v, 2, o)
	require.InDelta(t, 0.9*0.95-0.1, w[0], 1e-8)
}
