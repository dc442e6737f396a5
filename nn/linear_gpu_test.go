package nn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// TestLinearTiles requires of every tile what the CPU computes. LinearTile chooses the
// larger ones for large products alone.
func TestLinearTiles(t *testing.T) {
	e, near := enginetest.NewGPU(t), enginetest.New(t, false)
	const rows, in, out = 70, 33, 67
	for _, dt := range enginetest.Floats {
		want, at := twins(near, e, dt, map[string][]int{"x": {rows, in}, "w": {in, out}, "b": {out}, "dz": {rows, out},
			"y": {rows, out}, "dx": {rows, in}, "dw": {in, out}, "db": {out}})
		require.NoError(t, Linear(near.Engine, want["x"], want["w"], want["b"], want["y"], ReLU))
		require.NoError(t, LinearBack(near.Engine, want["x"], want["w"], want["dz"], want["dx"], want["dw"], want["db"], ReLU))
		g, double := tensorop.Of(e.Engine).GPU(), isDouble(at["x"])
		forth := kernels.Product{Activation: int64(ReLU), Transposed: kernels.Neither, M: rows, N: out, K: in}
		left := kernels.Product{Transposed: kernels.Left, M: in, N: out, K: rows}
		right := kernels.Product{Activation: int64(ReLU), Transposed: kernels.Right, M: rows, N: in, K: out}
		require.True(t, g.Addresses([]*uint64{&forth.A, &forth.B, &forth.Bias, &forth.C}, at["x"], at["w"], at["b"], at["y"]))
		require.True(t, g.Addresses([]*uint64{&left.A, &left.B, &left.C, &left.Sums}, at["x"], at["dz"], at["dw"], at["db"]))
		require.True(t, g.Addresses([]*uint64{&right.A, &right.B, &right.C, &right.Y}, at["dz"], at["w"], at["dx"], at["x"]))
		for _, size := range gpu.LinearTiles(double) {
			for _, p := range []*kernels.Product{&forth, &left, &right} {
				p.Tile, p.Blocks = size, gpu.LinearBlocks(p, size, double)
			}
			require.NoError(t, g.LaunchLinear("test", double, forth))
			require.NoError(t, g.LaunchLinear("test", double, left, right))
			for _, name := range []string{"y", "dx", "dw", "db"} {
				e.RequireNear(near.As64(want[name]), at[name], fmt.Sprint(dt, " tile ", size, " ", name))
				require.NoError(t, e.Memset(at[name], enginetest.Value(dt, 77)))
			}
		}
		for name := range at {
			near.FreeAll(want[name])
			e.FreeAll(at[name])
		}
	}
}
