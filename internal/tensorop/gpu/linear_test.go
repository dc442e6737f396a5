package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
)

// TestLinearOf says which products the kernel Linear makes.
func TestLinearOf(t *testing.T) {
	type product = cublas.Product
	for name, c := range map[string]struct {
		change func(p *product)
		want   bool
		lies   int64
	}{
		"plain":          {func(*product) {}, true, kernels.Neither},
		"of float64":     {func(p *product) { p.Double = true }, false, 0},
		"a batch of one": {func(p *product) { p.Batch = 1 }, true, kernels.Neither},
		"a transposed":   {func(p *product) { p.A.Transposed, p.A.Stride = true, p.A.Rows }, true, kernels.Left},
		"b transposed":   {func(p *product) { p.B.Transposed, p.B.Stride = true, p.B.Rows }, true, kernels.Right},
		"both transposed": {func(p *product) {
			p.A.Transposed, p.A.Stride, p.B.Transposed, p.B.Stride = true, p.A.Rows, true, p.B.Rows
		}, false, 0},
		"a batch":      {func(p *product) { p.Batch = 2 }, false, 0},
		"scaled":       {func(p *product) { p.Alpha = 2 }, false, 0},
		"a sum":        {func(p *product) { p.Beta = 1 }, false, 0},
		"TF32":         {func(p *product) { p.TF32 = true }, false, 0},
		"a with gaps":  {func(p *product) { p.A.Stride++ }, false, 0},
		"b with gaps":  {func(p *product) { p.B.Transposed, p.B.Stride = true, p.B.Rows+1 }, false, 0},
		"c with gaps":  {func(p *product) { p.C.Stride++ }, false, 0},
		"no columns":   {func(p *product) { p.B.Cols, p.B.Stride, p.C.Cols, p.C.Stride = 0, 0, 0, 0 }, false, 0},
		"many columns": {func(p *product) { p.B.Cols, p.B.Stride, p.C.Cols, p.C.Stride = 1<<20, 1<<20, 1<<20, 1<<20 }, false, 0},
		"depth":        {func(p *product) { p.A.Cols, p.A.Stride, p.B.Rows = smallDepth, smallDepth, smallDepth }, true, kernels.Neither},
		"too deep":     {func(p *product) { p.A.Cols, p.A.Stride, p.B.Rows = smallDepth+1, smallDepth+1, smallDepth+1 }, false, 0},
		"many rows of one": {func(p *product) {
			p.A.Rows, p.A.Cols, p.A.Stride, p.B.Rows, p.B.Cols, p.B.Stride = 4096, 1024, 1024, 1024, 1, 1
			p.C.Rows, p.C.Cols, p.C.Stride = 4096, 1, 1
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := product{A: cublas.Matrix{P: 1, Rows: 5, Cols: 7, Stride: 7}, B: cublas.Matrix{P: 2, Rows: 7, Cols: 9, Stride: 9},
				C: cublas.Matrix{P: 3, Rows: 5, Cols: 9, Stride: 9}, Alpha: 1}
			c.change(&p)
			l, ok := linearOf(&p)
			require.Equal(t, c.want, ok)
			if ok {
				require.EqualValues(t, []uint64{1, 2, 3}, []uint64{l.A, l.B, l.C})
				require.EqualValues(t, []int64{p.C.Rows, p.C.Cols, p.A.Cols, c.lies}, []int64{l.M, l.N, l.K, l.Transposed})
				require.Positive(t, l.Blocks)
			}
		})
	}
}

// TestLinearTile requires the tile and the blocks that a GPU takes the least time for.
func TestLinearTile(t *testing.T) {
	for _, c := range []struct{ m, n, k, tile, blocks int64 }{
		{512, 512, 512, 32, 128},
		{64, 1024, 256, 16, 128},
		{100, 300, 784, 8, 130},
		{64, 256, 1024, 4, 128},
		{10, 10, 10, 4, 2},
		{66, 256, 1024, 8, 72}, // 144 of tile 4 would not be at work at once
	} {
		p := kernels.Product{M: c.m, N: c.n, K: c.k}
		require.True(t, LinearTile(&p, false))
		require.Equal(t, []int64{c.tile, c.blocks}, []int64{p.Tile, p.Blocks}, c)
	}
}
