package layers

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBatchNorm follows the formulas by hand.
func TestBatchNorm(t *testing.T) {
	n := Norm{Batch: 2, Channels: 2, Plane: 2, Momentum: 0.25, Training: true}
	s := NormStats[float64]{Mean: make([]float64, 2), Inverse: make([]float64, 2), RunningMean: []float64{4, 0}, RunningVariance: []float64{0, 1}}
	y := make([]float64, 8)
	BatchNorm(&n, []float64{1, 3, 0, 0, 1, 3, 4, 4}, []float64{1, 2}, []float64{0, 10}, y, s)
	require.Equal(t, []float64{-1, 1, 8, 8, -1, 1, 12, 12}, y)
	require.Equal(t, []float64{2, 2}, s.Mean)
	require.Equal(t, []float64{1, 0.5}, s.Inverse)
	require.Equal(t, []float64{3.5, 0.5}, s.RunningMean)
	require.InDeltaSlice(t, []float64{1. / 3, 0.25*16./3 + 0.75}, s.RunningVariance, 1e-15, "the unbiased one")

	n.Training = false
	n.Epsilon = 3
	BatchNorm(&n, []float64{1, 3, 0, 0, 1, 3, 4, 4}, nil, nil, y, NormStats[float64]{RunningMean: []float64{1, 0}, RunningVariance: []float64{1, 6}})
	require.InDeltaSlice(t, []float64{0, 1, 0, 0, 0, 1, 4. / 3, 4. / 3}, y, 1e-15)
}

// TestBatchNormBack compares gradients with differences.
func TestBatchNormBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, act := range []Activation{None, Tanh} {
		for _, training := range []bool{true, false} {
			n := Norm{Batch: 3, Channels: 2, Plane: 4, Epsilon: 0.1, Training: training, Activation: act}
			x, dy, scale, bias := randoms(r, 24), randoms(r, 24), randoms(r, 2), randoms(r, 2)
			s := NormStats[float64]{Mean: make([]float64, 2), Inverse: make([]float64, 2), RunningMean: randoms(r, 2), RunningVariance: []float64{1, 2}}
			still := s
			if training {
				still.RunningMean, still.RunningVariance = nil, nil
			}
			y := make([]float64, 24)
			cost := func() float64 {
				BatchNorm(&n, x, scale, bias, y, still)
				return dot(y, dy)
			}
			require.False(t, math.IsNaN(cost()))
			dx, dscale, dbias := make([]float64, 24), make([]float64, 2), make([]float64, 2)
			BatchNormBack(&n, x, y, dy, scale, dx, dscale, dbias, still)
			require.InDeltaSlice(t, slopes(x, cost), dx, 1e-6)
			require.InDeltaSlice(t, slopes(scale, cost), dscale, 1e-6)
			require.InDeltaSlice(t, slopes(bias, cost), dbias, 1e-6)
		}
	}
}
