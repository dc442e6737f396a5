package nn

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// A channel's elements are divided among blocks until there are normBlocks of
// them, or chunks are of normChunk elements.
const (
	normBlocks = 512
	normChunk  = 1024
)

// normArgs returns the arguments of kernels, or false for tensors that are not in
// device memory and for too many elements.
func normArgs(g *gpu.Ops, n *layers.Norm, t normTensors, s BatchStats) (a kernels.NormArgs, ok bool) {
	elements := n.Batch * n.Plane
	a = kernels.NormArgs{Batch: int64(n.Batch), Channels: int64(n.Channels), Plane: int64(n.Plane), Momentum: n.Momentum, Epsilon: n.Epsilon, Activation: int64(n.Activation)}
	if n.Training {
		a.Training = 1
	}
	chunks := min(max(normBlocks/n.Channels, 1), kernels.NormChunks)
	chunk := max((elements+chunks-1)/chunks, normChunk)
	a.Chunk, a.Chunks = int64(min(chunk, elements)), int64((elements+chunk-1)/chunk)
	to := []*uint64{&a.X, &a.Y, &a.DY, &a.Scale, &a.Bias, &a.DX, &a.DScale, &a.DBias, &a.Mean, &a.Inverse, &a.RunningMean, &a.RunningVariance}
	from := append([]tensor.Tensor{t.x, t.y, t.dy, t.scale, t.bias, t.dx, t.dscale, t.dbias}, s.all()...)
	return a, n.Channels*elements <= math.MaxInt32 && g.Addresses(to, from...)
}

func normOnGPU(g *gpu.Ops, op string, n *layers.Norm, t normTensors, s BatchStats) (bool, error) {
	a, ok := normArgs(g, n, t, s)
	switch {
	case !ok:
		return false, nil
	case !n.Training:
		return true, launchNorm(g, op, kernels.NormApply, isDouble(t.x), &a)
	}
	return true, inParts(g, op, kernels.NormMoments, kernels.NormApply, isDouble(t.x), &a)
}

func normBackOnGPU(g *gpu.Ops, op string, n *layers.Norm, t normTensors, s BatchStats) (bool, error) {
	a, ok := normArgs(g, n, t, s)
	if !ok {
		return false, nil
	}
	return true, inParts(g, op, kernels.NormSums, kernels.NormBack, isDouble(t.x), &a)
}

// inParts launches two kernels, the second of which reads what the first one has
// left for each chunk.
func inParts(g *gpu.Ops, op string, first, second kernels.Kernel, double bool, a *kernels.NormArgs) error {
	return g.WithScratch(op, 2*gpu.ElementSize(double)*a.Channels*a.Chunks, func(at uint64) error {
		a.Parts = at
		if err := launchNorm(g, op, first, double, a); err != nil {
			return err
		}
		return launchNorm(g, op, second, double, a)
	})
}

func launchNorm(g *gpu.Ops, op string, k kernels.Kernel, double bool, a *kernels.NormArgs) error {
	block := min(gpu.Block, (int(a.Chunk)+gpu.Warp-1)/gpu.Warp*gpu.Warp)
	return g.Launch(op, kernels.Launch{Kernel: k.Of(double), X: gpu.Blocks(int(a.Channels*a.Chunks), 1), Y: 1, Block: block, Args: unsafe.Pointer(a)})
}
