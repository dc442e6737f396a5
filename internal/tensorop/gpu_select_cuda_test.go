//go:build gpu

package tensorop_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// TestGPUSelectByIndicesB adds gradients of slices that were selected several times,
// and leaves those out that were selected by an index out of range.
func TestGPUSelectByIndicesB(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	for _, dt := range floats {
		for _, shape := range [][]int{{7}, {5, 3}, {3, 5}, {2, 3, 4}, {40, 70}} {
			for axis := range shape {
				e.checkSelectB(dt, shape, axis, 1) // package tensor makes a scalar of one index
				e.checkSelectB(dt, shape, axis, 1+e.Rand.IntN(100))
			}
		}
	}
	require.Zero(t, e.Stats().Fallbacks)
}

func (e *bench) checkSelectB(dt tensor.Dtype, shape []int, axis, picks int) {
	outer, inner := 1, 1
	for i, size := range shape {
		switch {
		case i < axis:
			outer *= size
		case i > axis:
			inner *= size
		}
	}
	at := make([]int, picks)
	for i := range at {
		at[i] = e.Rand.IntN(shape[axis]+2) - 1
	}
	picked := append([]int{}, shape...)
	picked[axis] = picks
	x, g, index := e.From(random(e.Rand, dt, shape...)), e.From(random(e.Rand, dt, picked...)), e.From(tensor.New(tensor.WithBacking(at)))
	want, gs := make([]float64, outer*shape[axis]*inner), e.As64(g)
	for o := range outer {
		for j, to := range at {
			for i := 0; i < inner && to >= 0 && to < shape[axis]; i++ {
				want[(o*shape[axis]+to)*inner+i] += gs[(o*picks+j)*inner+i]
			}
		}
	}
	dx := must(e.SelectByIndicesB(x, g, index, axis))
	e.RequireNear(want, dx, "gradient")
	e.FreeAll(x, g, index, dx)
}

// TestGPUContract compares with tensor's, along any axes.
func TestGPUContract(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	for _, c := range []struct {
		a, b         []int
		aAxes, bAxes []int
	}{
		{[]int{2, 3}, []int{3, 4}, []int{1}, []int{0}}, {[]int{2, 3}, []int{4, 2}, []int{0}, []int{1}}, {[]int{5}, []int{5}, []int{0}, []int{0}},
		{[]int{2, 3, 4}, []int{4, 3, 5}, []int{1, 2}, []int{1, 0}}, {[]int{2, 3, 4}, []int{3, 2, 4}, []int{0, 1, 2}, []int{1, 0, 2}},
		{[]int{3, 4}, []int{4}, []int{1}, []int{0}}, {[]int{4}, []int{3, 4}, []int{0}, []int{1}}, {[]int{1, 1}, []int{1, 1}, []int{1}, []int{0}},
	} {
		for _, dt := range floats {
			ha, hb := random(e.Rand, dt, c.a...), random(e.Rand, dt, c.b...)
			a, b := e.From(ha), e.From(hb)
			got := must(e.Contract(a, b, c.aAxes, c.bAxes))
			want := must(ha.TensorMul(hb, c.aAxes, c.bAxes))
			require.Equal(t, []int(want.Shape()), []int(got.Shape()))
			e.RequireNear(floatsOf(want), got, "contraction")
			e.FreeAll(a, b, got)
		}
	}
	require.Zero(t, e.Stats().Fallbacks)
}
