package nn

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// poolKernels are by poolKind.
var poolKernels = [...]kernels.Kernel{kernels.MaxPool, kernels.MaxPoolBack, kernels.AvgPool, kernels.AvgPoolBack, kernels.AvgPoolSmear}

func poolOnGPU(g *gpu.Ops, op string, kind poolKind, p *layers.Pooling, x, y, dx, dy tensor.Tensor) (bool, error) {
	args := kernels.PoolArgs{Planes: int64(p.Planes), H: int64(p.H), W: int64(p.W), OH: int64(p.OH), OW: int64(p.OW), Divisor: p.Divisor, Activation: int64(p.Activation)}
	for d := range args.Size {
		args.Size[d], args.Pad[d], args.Stride[d] = int64(p.Size[d]), int64(p.Pad[d]), int64(p.Stride[d])
		if max(p.Pad[d], p.Stride[d], p.Size[d]) > math.MaxInt32/4 { // the kernels divide places by strides in 32 bits
			return false, nil
		}
	}
	if max(p.H, p.W) > math.MaxInt32/4 || !g.Addresses([]*uint64{&args.X, &args.Y, &args.DX, &args.DY}, x, y, dx, dy) {
		return false, nil
	}
	n, t := p.Planes*p.OH*p.OW, y
	if !operand.IsNil(dx) {
		n, t = p.Planes*p.H*p.W, dx
	}
	if kind == avgPoolSmear {
		n = p.Planes
	}
	return true, g.Each(op, poolKernels[kind].Of(isDouble(t)), n, unsafe.Pointer(&args))
}
