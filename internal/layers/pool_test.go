package layers

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// poolings have windows that overlap, that leave elements out, and that are of
// padding alone.
var poolings = []Pooling{
	{Planes: 2, H: 4, W: 6, OH: 2, OW: 3, Size: [2]int{2, 2}, Stride: [2]int{2, 2}},
	{Planes: 1, H: 5, W: 4, OH: 3, OW: 2, Size: [2]int{3, 3}, Stride: [2]int{2, 2}, Pad: [2]int{1, 1}},
	{Planes: 1, H: 3, W: 5, OH: 1, OW: 2, Size: [2]int{2, 1}, Stride: [2]int{1, 4}},
	{Planes: 1, H: 2, W: 2, OH: 3, OW: 4, Size: [2]int{1, 2}, Stride: [2]int{2, 1}, Pad: [2]int{2, 1}},
}

func TestMaxPool(t *testing.T) {
	p := poolings[1]
	p.H, p.W, p.OH, p.OW = 2, 3, 1, 2
	low := -math.MaxFloat32
	for _, c := range []struct{ x, y, dx []float64 }{
		{[]float64{1, 5, 2, 4, 3, 6}, []float64{5, 6}, []float64{0, 1, 0, 0, 0, 2}},
		{[]float64{3, 3, 3, 3, 3, 3}, []float64{3, 3}, []float64{1, 2, 0, 0, 0, 0}}, // the first of equal ones
		{[]float64{math.NaN(), 1, math.NaN(), 0, 0, 2}, []float64{1, 2}, []float64{0, 1, 0, 0, 0, 2}},
		{[]float64{math.NaN(), math.NaN(), math.Inf(1), math.Inf(-1), math.NaN(), 7}, []float64{-math.MaxFloat64, math.Inf(1)}, []float64{0, 0, 2, 0, 0, 0}},
	} {
		y, dx := make([]float64, 2), make([]float64, 6)
		MaxPool(&p, c.x, y)
		MaxPoolBack(&p, c.x, []float64{1, 2}, dx)
		require.Equal(t, c.y, y)
		require.Equal(t, c.dx, dx)
	}
	y := []float32{0, 0}
	MaxPool(&p, []float32{float32(math.Inf(-1)), float32(math.Inf(-1)), 0, float32(math.Inf(-1)), float32(math.Inf(-1)), 0}, y)
	require.Equal(t, []float32{float32(low), 0}, y)
}

// TestPoolBack compares gradients with differences.
func TestPoolBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range poolings {
		for _, divisor := range []float64{0, 3} {
			p.Divisor = divisor
			x, dy := randoms(r, p.Planes*p.H*p.W), randoms(r, p.Planes*p.OH*p.OW)
			y, dx := make([]float64, len(dy)), make([]float64, len(x))
			MaxPoolBack(&p, x, dy, dx)
			low := 0.
			for i, want := range slopes(x, func() float64 {
				MaxPool(&p, x, y)
				sum := 0.
				for i, v := range y {
					if v > -math.MaxFloat64 {
						sum += v * dy[i]
					} else {
						low++
					}
				}
				return sum
			}) {
				require.InDelta(t, want, dx[i], 1e-6, "%+v", p)
			}
			require.Equal(t, p.Pad[0] > 1, low > 0)

			AvgPoolBack(&p, dy, dx)
			for i, want := range slopes(x, func() float64 {
				AvgPool(&p, x, y)
				return dot(y, dy)
			}) {
				require.InDelta(t, want, dx[i], 1e-6, "%+v", p)
			}
		}
	}
}

// TestAvgPoolSmear follows Gorgonia by hand: elements of the padded window (0, 0)
// are averaged before (0, 1) reads them.
func TestAvgPoolSmear(t *testing.T) {
	p := Pooling{Planes: 1, H: 1, W: 3, OH: 1, OW: 2, Size: [2]int{1, 2}, Stride: [2]int{1, 1}, Pad: [2]int{0, 1}, Divisor: 3}
	dx := make([]float64, 3)
	AvgPoolSmear(&p, []float64{9, 18}, dx) // 9, 18, 0
	require.Equal(t, []float64{3, 7, 7. / 3}, dx)
}
