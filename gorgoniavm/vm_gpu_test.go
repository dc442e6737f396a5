//go:build gpu

package gorgoniavm_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// newGPUMeter is newMeter on a GPU with kernels.
func newGPUMeter(t testing.TB) (*cupool.Engine, *meter) {
	t.Helper()
	d, err := cupool.Open("cuda:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return newMeterOn(t, d)
}

// Every model trains on a GPU to what it trains to on the CPU, as far as
// float32 goes, and steps hold on to nothing.
func TestModelsOnGPU(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		t.Run(name, func(t *testing.T) {
			gpuRig(t) // or skips
			m := models[name]()
			want := m.tape(t, 3)
			e, a := newGPUMeter(t)
			vm := open(t, m, e)
			got := m.train(t, e, vm, 3)
			for i := range want.Costs {
				near(t, want.Costs[i], got.Costs[i])
				for w := range want.Gradients[i] {
					near(t, want.Gradients[i][w], got.Gradients[i][w])
				}
			}
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			assert.Equal(t, live, a.live)
			t.Logf("on the CPU: %v", vm.Fallbacks())
		})
	}
}

// near compares numbers that are given by their bits.
func near(t *testing.T, want, got any) {
	t.Helper()
	if w, ok := want.(uint32); ok {
		want, got = []uint32{w}, []uint32{got.(uint32)}
	}
	w, g := want.([]uint32), got.([]uint32)
	require.Len(t, g, len(w))
	largest := 1e-3
	for i := range w {
		largest = max(largest, math.Abs(float64(math.Float32frombits(w[i]))))
	}
	for i := range w {
		require.InDelta(t, math.Float32frombits(w[i]), math.Float32frombits(g[i]), 1e-4*largest)
	}
}
