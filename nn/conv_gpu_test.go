package nn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// TestConvTiles requires of every tile, with sums split or not, what the CPU
// computes. plan and divide choose some of them for large convolutions alone.
func TestConvTiles(t *testing.T) {
	if enginetest.NewGPU == nil {
		t.Skip("no GPU")
	}
	e, near := enginetest.NewGPU(t), enginetest.New(t, false)
	c := Conv{Kernel: [2]int{3, 2}, Pad: [2]int{1, 1}, Stride: [2]int{2, 1}}.whole()
	oh, ow := c.Out(9, 8)
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		hosts := map[string]*tensor.Dense{"x": enginetest.Random(e.Rand, dt, 3, 7, 9, 8), "w": enginetest.Random(e.Rand, dt, 37, 7, 3, 2), "z": enginetest.Random(e.Rand, dt, 3, 37, oh, ow)}
		want, at := map[string]*tensor.Dense{}, map[string]*tensor.Dense{}
		for name, h := range hosts {
			want[name], at[name] = near.From(h), e.From(h)
		}
		s, err := convolution(near.Engine, "test", want["x"], want["w"], c)
		require.NoError(t, err)
		for _, name := range []string{"y", "dx", "dw", "db"} {
			like := map[string]tensor.Shape{"y": hosts["z"].Shape(), "dx": hosts["x"].Shape(), "dw": hosts["w"].Shape(), "db": {37}}[name]
			want[name], at[name] = enginetest.Must(near.Empty(dt, like...)), enginetest.Must(e.Empty(dt, like...))
		}
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
		require.NoError(t, g.WithScratch("test", sum.Parts*sum.Rows*sum.Columns*elementSize(double), func(p uint64) error {
			a.Sums, sum.Sums = p, p
			require.NoError(t, partialSums(g, "test", s.n, a, double))
			return addUp(g, "test", sum, double)
		}))
		check("dw", fmt.Sprint(" tile ", tile))
		check("db", fmt.Sprint(" tile ", tile))
	}
}
