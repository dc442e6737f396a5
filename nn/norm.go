package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// BatchStats are what a batch norm knows of its channels. The tensors have an
// element for each channel.
//
// BatchNorm normalizes with the batch's own statistics, leaves them in Mean and
// Inverse, the mean and 1/sqrt(variance + Epsilon), and moves the running ones
// towards them: running = Momentum·batch's + (1-Momentum)·running, where the
// batch's variance is the unbiased one: NaN for a channel of a single element, as in
// Gorgonia. RunningMean and RunningVariance may be nil then. With Evaluate, it normalizes with the running ones and changes none;
// Mean and Inverse may be nil.
type BatchStats struct {
	Mean, Inverse, RunningMean, RunningVariance tensor.Tensor
	Momentum, Epsilon                           float64
	Evaluate                                    bool
}

// BatchNorm sets y to act((x - mean)/sqrt(variance + Epsilon)·scale + bias) with
// the mean and the biased variance of each channel (Ioffe and Szegedy, ICML 2015).
// x and y have the shape N×C or N×C×…, and scale and bias, which may be nil, an element for
// each of the C channels. An empty batch changes nothing. y must not overlap another tensor. On
// a GPU, training takes memory of the pool while it is submitted.
func BatchNorm(e *cupool.Engine, x, scale, bias, y tensor.Tensor, s BatchStats, act Activation) error {
	n, err := channels("BatchNorm", x)
	if err != nil {
		return err
	}
	return normalize(e, "BatchNorm", s.norm(n, act), normTensors{x: x, y: y, scale: scale, bias: bias}, s)
}

// BatchNormBack sets dx, dscale and dbias to the gradients of BatchNorm by x,
// scale and bias. y is the result of BatchNorm, which may be nil with
// NoActivation, and dy the gradient by it. s is what it was for BatchNorm, whose
// Mean and Inverse it has, or, with Evaluate, whose running statistics. dscale and
// dbias may be nil. None of the three may overlap another tensor. On a GPU, it takes
// memory of the pool while it is submitted.
func BatchNormBack(e *cupool.Engine, x, y, dy, scale, dx, dscale, dbias tensor.Tensor, s BatchStats, act Activation) error {
	n, err := channels("BatchNormBack", x)
	if err != nil {
		return err
	}
	return normalizeBack(e, "BatchNormBack", s.norm(n, act), normTensors{x: x, y: y, dy: dy, scale: scale, dx: dx, dscale: dscale, dbias: dbias}, s)
}

// GroupNorm sets y to (x - mean)/sqrt(variance + epsilon) with the mean and the
// biased variance of each group of neighbouring channels in each sample (Wu and He, ECCV 2018), and
// leaves these means, and 1/sqrt(variance + epsilon), in mean and inverse, which
// have groups elements for each sample. x and y have the shape N×C or N×C×…, and
// groups divides C. One group is the whole sample (layer norm), and C groups are the
// channels (instance norm). y must not overlap another tensor. On a GPU, it takes
// memory of the pool while it is submitted.
func GroupNorm(e *cupool.Engine, x, y, mean, inverse tensor.Tensor, groups int, epsilon float64) error {
	n, err := grouped("GroupNorm", x, groups)
	if err != nil {
		return err
	}
	s := BatchStats{Mean: mean, Inverse: inverse, Epsilon: epsilon}
	return normalize(e, "GroupNorm", s.norm(n, NoActivation), normTensors{x: x, y: y}, s)
}

// GroupNormBack sets dx to the gradient of GroupNorm by x. dy is the gradient by
// y, and mean and inverse are as GroupNorm left them. dx must not overlap another
// tensor. On a GPU, it takes memory of the pool while it is submitted.
func GroupNormBack(e *cupool.Engine, x, dy, dx, mean, inverse tensor.Tensor, groups int) error {
	n, err := grouped("GroupNormBack", x, groups)
	if err != nil {
		return err
	}
	s := BatchStats{Mean: mean, Inverse: inverse}
	return normalizeBack(e, "GroupNormBack", s.norm(n, NoActivation), normTensors{x: x, dy: dy, dx: dx}, s)
}

// normTensors are the tensors of a normalization but for its statistics.
type normTensors struct{ x, y, dy, scale, bias, dx, dscale, dbias tensor.Tensor }

// channels returns the channels of x.
func channels(op string, x tensor.Tensor) (n layers.Norm, err error) {
	if operand.IsNil(x) || x.Dims() < 2 {
		return n, unsupported(op, "a tensor of shape N×C or N×C×… is needed")
	}
	s := x.Shape()
	n.Batch, n.Channels, n.Plane = s[0], s[1], 1
	for _, d := range s[2:] {
		n.Plane *= d
	}
	return n, nil
}

// grouped returns the groups of x as the channels of a batch of one.
func grouped(op string, x tensor.Tensor, groups int) (layers.Norm, error) {
	n, err := channels(op, x)
	if err == nil && (groups < 1 || n.Channels%groups != 0) {
		err = fail(op, fmt.Errorf("%d groups of %d channels: %w", groups, n.Channels, cupool.ErrSizeMismatch))
	}
	if err != nil {
		return n, err
	}
	return layers.Norm{Batch: 1, Channels: n.Batch * groups, Plane: n.Channels / groups * n.Plane}, nil
}

func (s *BatchStats) norm(n layers.Norm, act Activation) *layers.Norm {
	n.Momentum, n.Epsilon, n.Training, n.Activation = s.Momentum, s.Epsilon, !s.Evaluate, layers.Activation(act)
	return &n
}

// fit checks the statistics.
func (s *BatchStats) fit(e *cupool.Engine, op string, n *layers.Norm, dt tensor.Dtype) error {
	if operand.IsNil(s.RunningMean) != operand.IsNil(s.RunningVariance) {
		return unsupported(op, "one running statistic without the other")
	}
	return fit(e, op, dt, want{s.Mean, n.Channels, s.Evaluate}, want{s.Inverse, n.Channels, s.Evaluate},
		want{s.RunningMean, n.Channels, !s.Evaluate}, want{s.RunningVariance, n.Channels, !s.Evaluate})
}

func (s *BatchStats) all() []tensor.Tensor {
	return []tensor.Tensor{s.Mean, s.Inverse, s.RunningMean, s.RunningVariance}
}

func normalize(e *cupool.Engine, op string, n *layers.Norm, t normTensors, s BatchStats) error {
	defer operand.KeepAlive(append(s.all(), t.x, t.y, t.scale, t.bias)...)
	size := n.Batch * n.Channels * n.Plane
	err := cmp.Or(Activation(n.Activation).fit(op), fit(e, op, t.x.Dtype(), want{t: t.x, n: size}, want{t: t.y, n: size}, want{t.scale, n.Channels, true}, want{t.bias, n.Channels, true}))
	if err == nil {
		err = s.fit(e, op, n, t.x.Dtype())
	}
	outputs := []tensor.Tensor{t.y}
	if n.Training {
		outputs = append(outputs, s.all()...)
	}
	if err == nil {
		err = fitApart(op, outputs, t.x, t.scale, t.bias)
	}
	if err != nil || size == 0 {
		return err
	}
	if ok, err := normOnGPU(tensorop.Of(e).GPU(), op, n, t, s); ok {
		return err
	}
	return onHost(e, op, t.x, []tensor.Tensor{t.x, t.scale, t.bias}, append(s.all(), t.y), normOnHost[float32](n), normOnHost[float64](n))
}

func normOnHost[T layers.Float](n *layers.Norm) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.BatchNorm(n, operand.Slice[T](in[0]), operand.Slice[T](in[1]), operand.Slice[T](in[2]), operand.Slice[T](out[4]), statsOf[T](out))
	}
}

// statsOf returns the statistics among host tensors.
func statsOf[T layers.Float](ts []*tensor.Dense) layers.NormStats[T] {
	return layers.NormStats[T]{Mean: operand.Slice[T](ts[0]), Inverse: operand.Slice[T](ts[1]), RunningMean: operand.Slice[T](ts[2]), RunningVariance: operand.Slice[T](ts[3])}
}

func normalizeBack(e *cupool.Engine, op string, n *layers.Norm, t normTensors, s BatchStats) error {
	defer operand.KeepAlive(append(s.all(), t.x, t.y, t.dy, t.scale, t.dx, t.dscale, t.dbias)...)
	size := n.Batch * n.Channels * n.Plane
	err := cmp.Or(Activation(n.Activation).fit(op), fit(e, op, t.x.Dtype(), want{t: t.x, n: size}, want{t.y, size, n.Activation == layers.None}, want{t: t.dy, n: size}, want{t: t.dx, n: size},
		want{t.scale, n.Channels, true}, want{t.dscale, n.Channels, true}, want{t.dbias, n.Channels, true}))
	if err == nil {
		err = s.fit(e, op, n, t.x.Dtype())
	}
	if err == nil {
		err = fitApart(op, []tensor.Tensor{t.dx, t.dscale, t.dbias}, append(s.all(), t.x, t.y, t.dy, t.scale)...)
	}
	switch {
	case err != nil:
		return err
	case size == 0:
		return fail(op, errors.Join(e.Zero(t.dscale), e.Zero(t.dbias)))
	}
	if ok, err := normBackOnGPU(tensorop.Of(e).GPU(), op, n, t, s); ok {
		return err
	}
	return onHost(e, op, t.x, append(s.all(), t.x, t.y, t.dy, t.scale), []tensor.Tensor{t.dx, t.dscale, t.dbias}, normBackOnHost[float32](n), normBackOnHost[float64](n))
}

func normBackOnHost[T layers.Float](n *layers.Norm) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.BatchNormBack(n, operand.Slice[T](in[4]), operand.Slice[T](in[5]), operand.Slice[T](in[6]), operand.Slice[T](in[7]),
			operand.Slice[T](out[0]), operand.Slice[T](out[1]), operand.Slice[T](out[2]), statsOf[T](in))
	}
}

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
