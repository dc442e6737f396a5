package layers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShape(t *testing.T) {
	w := []float64{2, -2, 0}
	g := []float64{1, 1, 1}
	Shape(g, w, Shaping{Scale: 1})
	require.Equal(t, []float64{1, 1, 1}, g)
	Shape(g, w, Shaping{L1: 0.5, L2: 0.25, Scale: 2})
	require.Equal(t, []float64{4, 0, 2}, g, "(1 + 0.5·sign + 0.25·w) · 2")
	Shape(g, w, Shaping{Scale: -1, Clip: 3})
	require.Equal(t, []float64{-3, 0, -2}, g)
}

// TestSolvers follows formulas by hand over two steps.
func TestSolvers(t *testing.T) {
	w, v := []float64{1}, []float64{0}
	Nesterov(w, []float64{2}, v, 0.1, 0.5, 0.5) // v = 2
	require.InDelta(t, 1-0.1*3, w[0], 1e-12)
	Nesterov(w, []float64{2}, v, 0.2, 0.25, 0.5) // v = 2.5
	require.InDelta(t, 0.7-0.2*3.25, w[0], 1e-12)

	w, v = []float64{1}, []float64{0}
	o := RMSPropOptions{LR: 0.1, Rho: 0.75, Decay: 0.5, Clip: 1}
	RMSProp(w, []float64{4}, v, o) // v = 4, clamped to 1
	require.InDelta(t, 1-0.1/2-0.5, w[0], 1e-12)
	RMSProp(w, []float64{0}, v, o)
	require.Equal(t, 3.0, v[0])
	require.InDelta(t, 0.225, w[0], 1e-12)
}
