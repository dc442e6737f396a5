package nn

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// TestConvTiles requires of every tile, with sums split or not, what the CPU
// computes. plan and divide choose some of them for large convolutions alone.
func TestConvTiles(t *testing.T) {
	e, near := enginetest.NewGPU(t), enginetest.New(t, false)
	c := Conv{Kernel: [2]int{3, 2}, Pad: [2]int{1, 1}, Stride: [2]int{2, 1}}.whole()
	oh, ow := c.Out(9, 8)
	for _, dt := range enginetest.Floats {
		want, at := twins(near, e, dt, map[string][]int{"x": {3, 7, 9, 8}, "w": {37, 7, 3, 2}, "z": {3, 37, oh, ow},
			"y": {3, 37, oh, ow}, "dx": {3, 7, 9, 8}, "dw": {37, 7, 3, 2}, "db": {37}})
		s, err := convolution(near.Engine, "test", want["x"], want["w"], c)
		require.NoError(t, err)
		require.NoError(t, Conv2d(near.Engine, want["x"], want["w"], nil, want["y"], c, NoActivation))
		require.NoError(t, Conv2dBack(near.Engine, want["x"], want["w"], want["z"], want["dx"], want["dw"], want["db"], c, NoActivation))
		check := func(name, what string) {
			e.RequireNear(near.As64(want[name]), at[name], fmt.Sprint(dt, name, what))
			require.NoError(t, e.Memset(at[name], enginetest.Value(dt, 77)))
		}
		checkGathers(t, e, &s, at, check)
		checkWeights(t, e, &s, at, check)
		for name := range at {
			near.FreeAll(want[name])
			e.FreeAll(at[name])
		}
	}
}

// twins returns random tensors of some shapes, the same ones on two engines.
func twins(near, e *enginetest.Bench, dt tensor.Dtype, shapes map[string][]int) (want, at map[string]*tensor.Dense) {
	want, at = map[string]*tensor.Dense{}, map[string]*tensor.Dense{}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		h := enginetest.Random(e.Rand, dt, shapes[name]...)
		want[name], at[name] = near.From(h), e.From(h)
	}
	return want, at
}

// checkGathers goes forth and back with each tile of ConvGather.
func checkGathers(t *testing.T, e *enginetest.Bench, s *convSize, at map[string]*tensor.Dense, check func(name, what string)) {
	g, double := tensorop.Of(e.Engine).GPU(), isDouble(at["x"])
	there := forward(s)
	back, parts := backward(s)
	whole := []kernels.ConvPart{{High: int64(s.Out[0]), Wide: int64(s.Out[1]), TapsY: int64(s.Taps[0]), TapsX: int64(s.Taps[1]), FirstY: -int64(s.Pad[0]), FirstX: -int64(s.Pad[1])}}
	require.True(t, g.Addresses([]*uint64{&there.Src, &there.W, &there.Dst}, at["x"], at["w"], at["y"]))
	require.True(t, g.Addresses([]*uint64{&back.Src, &back.W, &back.Dst}, at["z"], at["w"], at["dx"]))
	for tile := range kernels.ConvTiles(double) {
		for splits := int64(1); splits <= 3; splits++ {
			for _, a := range []*kernels.ConvArgs{&there, &back} {
				a.Batch, a.Tile, a.Splits, a.Size = int64(s.n), int64(tile), splits, int64(s.n)*a.Rows*a.DstPlane
			}
			what := fmt.Sprint(" tile ", tile, " splits ", splits)
			require.NoError(t, gatherPlanned(g, "test", there, whole, double))
			check("y", what)
			require.NoError(t, gatherPlanned(g, "test", back, parts, double))
			check("dx", what)
		}
	}
}

// checkWeights makes the gradients by the weights with each tile of ConvWeights.
func checkWeights(t *testing.T, e *enginetest.Bench, s *convSize, at map[string]*tensor.Dense, check func(name, what string)) {
	g, double := tensorop.Of(e.Engine).GPU(), isDouble(at["x"])
	a := kernels.ConvWeightsArgs{Batch: int64(s.n), Rows: int64(s.out), ConvWindow: windowOf(s), Taps: int64(s.Products()), Columns: int64(s.Products()) + 1}
	sum := kernels.ConvSumArgs{Rows: a.Rows, Taps: a.Taps, Columns: a.Columns}
	require.True(t, g.Addresses([]*uint64{&a.X, &a.DZ, &sum.DW, &sum.DB}, at["x"], at["z"], at["dw"], at["db"]))
	for tile, sizes := range kernels.ConvWeightsTiles(double) {
		a.Tile, a.Span = int64(tile), 2*sizes.Chunk
		sum.Parts = upTo(int64(s.n*s.Pixels()), a.Span)
		require.NoError(t, g.WithScratch("test", sum.Parts*sum.Rows*sum.Columns*gpu.ElementSize(double), func(p uint64) error {
			a.Sums, sum.Sums = p, p
			require.NoError(t, partialSums(g, "test", s.n, a, double))
			return addUp(g, "test", sum, double)
		}))
		check("dw", fmt.Sprint(" tile ", tile))
		check("db", fmt.Sprint(" tile ", tile))
	}
}
