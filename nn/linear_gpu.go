package nn

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// linearBlocks bounds the products that the kernel Linear computes, in blocks of
// the largest tile. cuBLAS has faster kernels for larger ones.
const linearBlocks = 256

// fullBlocks is a number of blocks of Linear that keeps a GPU busy.
const fullBlocks = 128

// linearOnGPU is Linear in one launch.
func linearOnGPU(g *gpu.Ops, l layerSize, x, w, bias, y tensor.Tensor, act Activation) (bool, error) {
	p := kernels.Product{Activation: int64(act), Transposed: kernels.Neither, M: int64(l.rows), N: int64(l.out), K: int64(l.in)}
	if !g.Addresses([]*uint64{&p.A, &p.B, &p.Bias, &p.C}, x, w, bias, y) || !tile(&p, isDouble(x)) {
		return false, nil
	}
	return true, launchProducts(g, "Linear", isDouble(x), p)
}

// linearBackOnGPU is LinearBack in one launch.
func linearBackOnGPU(g *gpu.Ops, l layerSize, x, w, dz, dx, dw, db tensor.Tensor, act Activation) (bool, error) {
	var ps []kernels.Product
	if !operand.IsNil(dw) {
		p := kernels.Product{Transposed: kernels.Left, M: int64(l.in), N: int64(l.out), K: int64(l.rows)}
		if !g.Addresses([]*uint64{&p.A, &p.B, &p.C, &p.Sums}, x, dz, dw, db) || !tile(&p, isDouble(x)) {
			return false, nil
		}
		ps = append(ps, p)
	}
	if !operand.IsNil(dx) {
		p := kernels.Product{Activation: int64(act), Transposed: kernels.Right, M: int64(l.rows), N: int64(l.in), K: int64(l.out)}
		if !g.Addresses([]*uint64{&p.A, &p.B, &p.C, &p.Y}, dz, w, dx, x) || !tile(&p, isDouble(x)) {
			return false, nil
		}
		ps = append(ps, p)
	}
	return g != nil, launchProducts(g, "LinearBack", isDouble(x), ps...)
}

// tile divides a product among blocks. It returns false for a product that is too
// large for Linear. Small tiles keep more of a GPU busy, and large ones read
// memory less often.
func tile(p *kernels.Product, double bool) bool {
	if p.M*p.N*p.K == 0 || max(p.M*p.N, p.M*p.K, p.K*p.N) > math.MaxInt32/2 || blocksOf(p, 64, double) > linearBlocks {
		return false
	}
	for _, p.Tile = range linearTiles(double) {
		if p.Blocks = blocksOf(p, p.Tile, double); p.Blocks >= fullBlocks {
			break
		}
	}
	return true
}

// linearTiles returns the sizes of Linear's tiles, largest first.
func linearTiles(double bool) []int64 {
	tiles := []int64{64, 32, 16, 8}
	if double {
		tiles = tiles[:2]
	}
	return tiles
}

// blocksOf returns how many blocks a product takes with a tile. The sums are
// one more row.
func blocksOf(p *kernels.Product, tile int64, double bool) int64 {
	rows, cols := kernels.LinearTile(tile, double)
	m := p.M
	if p.Sums != 0 {
		m++
	}
	return (m + rows - 1) / rows * ((p.N + cols - 1) / cols)
}

// launchProducts launches Linear for one or two products. The product whose
// blocks take longer begins first.
func launchProducts(g *gpu.Ops, op string, double bool, ps ...kernels.Product) error {
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
