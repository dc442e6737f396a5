package gpu

import (
	"math"
	"unsafe"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
)

// Small products, which the kernel Linear computes: its launch takes 4 µs of the
// processor, where a product of cuBLAS takes 8 to 16.

// mostLinearBlocks bounds the products that the kernel Linear computes, in blocks of
// the largest tile. cuBLAS has faster kernels for larger ones.
const mostLinearBlocks = 256

// Bounds of the products of float32 that Linear computes in place of cuBLAS. Within them
// it takes the GPU about as long.
const (
	smallWork  = 1 << 25 // multiplications of all blocks
	smallDepth = 1 << 10 // K, which a block goes through in turn
)

// fullBlocks is a number of blocks of Linear that keeps a GPU busy.
const fullBlocks = 128

// LinearTile divides a product among blocks. It returns false for a product that is too
// large for Linear. Small tiles keep more of a GPU busy, and large ones read
// memory less often.
func LinearTile(p *kernels.Product, double bool) bool {
	if p.M*p.N*p.K == 0 || max(p.M*p.N, p.M*p.K, p.K*p.N) > math.MaxInt32/2 || LinearBlocks(p, 64, double) > mostLinearBlocks {
		return false
	}
	for _, tile := range LinearTiles(double) {
		blocks := LinearBlocks(p, tile, double)
		if tile == 4 && blocks > fullBlocks { // the larger blocks are all at work at once, and these would not be
			break
		}
		if p.Tile, p.Blocks = tile, blocks; blocks >= fullBlocks {
			break
		}
	}
	return true
}

// LinearTiles returns the sizes of Linear's tiles, largest first.
func LinearTiles(double bool) []int64 {
	tiles := []int64{64, 32, 16, 8, 4}
	if double {
		tiles = tiles[:2]
	}
	return tiles
}

// LinearBlocks returns how many blocks a product takes with a tile. The sums are
// one more row.
func LinearBlocks(p *kernels.Product, tile int64, double bool) int64 {
	rows, cols := kernels.LinearTile(tile, double)
	m := p.M
	if p.Sums != 0 {
		m++
	}
	return (m + rows - 1) / rows * ((p.N + cols - 1) / cols)
}

// LaunchLinear launches Linear for one or two products. The product whose
// blocks take longer begins first.
func (g *Ops) LaunchLinear(op string, double bool, ps ...kernels.Product) error {
	var args kernels.LinearArgs
	if copy(args.P[:], ps) == 0 {
		return nil
	}
	if blockWork(&args.P[1], double) > blockWork(&args.P[0], double) {
		args.P[0], args.P[1] = args.P[1], args.P[0]
	}
	return g.Launch(op, kernels.Launch{Kernel: kernels.Linear.Of(double), X: int(args.P[0].Blocks + args.P[1].Blocks), Y: 1,
		Block: kernels.LinearThreads, Args: unsafe.Pointer(&args)})
}

// blockWork returns the number of multiplications of a product's block, 0 for no
// product.
func blockWork(p *kernels.Product, double bool) int64 {
	rows, cols := kernels.LinearTile(p.Tile, double)
	return rows * cols * p.K
}

// linearOf returns a product as Linear makes it; false where cuBLAS is to compute it.
func linearOf(p *cublas.Product) (l kernels.Product, ok bool) {
	if p.Double || p.TF32 || p.Batch > 1 || p.Alpha != 1 || p.Beta != 0 || p.A.Transposed && p.B.Transposed || gaps(&p.A) || gaps(&p.B) || gaps(&p.C) {
		return l, false
	}
	l = kernels.Product{C: uint64(p.C.P), A: uint64(p.A.P), B: uint64(p.B.P), M: p.C.Rows, N: p.C.Cols, K: p.A.Cols}
	switch {
	case p.A.Transposed:
		l.Transposed = kernels.Left
	case p.B.Transposed:
		l.Transposed = kernels.Right
	}
	ok = l.K <= smallDepth && LinearTile(&l, false) && l.Blocks*blockWork(&l, false) <= smallWork
	return l, ok
}

// gaps reports whether something lies between the rows of a matrix.
func gaps(m *cublas.Matrix) bool {
	if m.Transposed {
		return m.Stride != m.Rows
	}
	return m.Stride != m.Cols
}
