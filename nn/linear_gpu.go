package nn

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// linearOnGPU is Linear in one launch.
func linearOnGPU(g *gpu.Ops, l layerSize, x, w, bias, y tensor.Tensor, act Activation) (bool, error) {
	p := kernels.Product{Activation: int64(act), Transposed: kernels.Neither, M: int64(l.rows), N: int64(l.out), K: int64(l.in)}
	if !g.Addresses([]*uint64{&p.A, &p.B, &p.Bias, &p.C}, x, w, bias, y) || !gpu.LinearTile(&p, isDouble(x)) {
		return false, nil
	}
	return true, g.LaunchLinear("Linear", isDouble(x), p)
}

// linearBackOnGPU is LinearBack in one launch.
func linearBackOnGPU(g *gpu.Ops, l layerSize, x, w, dz, dx, dw, db tensor.Tensor, act Activation) (bool, error) {
	var ps []kernels.Product
	if !operand.IsNil(dw) {
		p := kernels.Product{Transposed: kernels.Left, M: int64(l.in), N: int64(l.out), K: int64(l.rows)}
		if !g.Addresses([]*uint64{&p.A, &p.B, &p.C, &p.Sums}, x, dz, dw, db) || !gpu.LinearTile(&p, isDouble(x)) {
			return false, nil
		}
		ps = append(ps, p)
	}
	if !operand.IsNil(dx) {
		p := kernels.Product{Activation: int64(act), Transposed: kernels.Right, M: int64(l.rows), N: int64(l.in), K: int64(l.out)}
		if !g.Addresses([]*uint64{&p.A, &p.B, &p.C, &p.Y}, dz, w, dx, x) || !gpu.LinearTile(&p, isDouble(x)) {
			return false, nil
		}
		ps = append(ps, p)
	}
	return g != nil, g.LaunchLinear("LinearBack", isDouble(x), ps...)
}
