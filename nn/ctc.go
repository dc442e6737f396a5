package nn

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Transcripts are the targets of a CTCLoss for a batch of sequences. All tensors are
// of tensor.Int. A sample with a length or class out of range has a loss and
// gradients of NaN. A target of class 0 is not refused, as PyTorch does not refuse
// one: the sample's loss and gradients are numbers then, and not those of any
// transcript.
type Transcripts struct {
	// Targets has the classes of each sample, from 1, as class 0 is the blank: a row
	// for each sample, or a vector in which they lie one after the other.
	Targets tensor.Tensor
	// Lengths has the number of frames of each sample, at least 1, and TargetLengths
	// that of its targets.
	Lengths, TargetLengths tensor.Tensor
}

// CTCLoss sets loss, of one element, to the sum of the samples' losses
// (connectionist temporal classification, Graves and others, ICML 2006). With mean it
// is the mean over samples of the loss divided by the number of targets. logProbs,
// of frames × samples × classes, has logarithms of probabilities. It takes work space
// from the pool.
func CTCLoss(e *cupool.Engine, logProbs tensor.Tensor, t Transcripts, loss tensor.Tensor, mean bool) error {
	const op = "CTCLoss"
	defer operand.KeepAlive(logProbs, t.Targets, t.Lengths, t.TargetLengths, loss)
	s, err := fitTranscripts(e, op, logProbs, t, want{t: loss, n: 1})
	if err != nil {
		return err
	}
	if ok, err := ctcLossOnGPU(tensorop.Of(e).GPU(), op, s, logProbs, t, loss, mean); ok {
		return err
	}
	return onHost(e, op, logProbs, t.with(logProbs), []tensor.Tensor{loss}, ctcLossOnHost[float32](s, mean), ctcLossOnHost[float64](s, mean))
}

func ctcLossOnHost[T layers.Float](s ctcSize, mean bool) hostStep {
	return func(in, out []*tensor.Dense) { operand.Slice[T](out[0])[0] = layers.CTCLoss(hostCTC[T](s, in), mean) }
}

// CTCLossBack sets dx, of the size of logProbs, to scale times the gradient of the sum
// of the samples' losses by what logProbs is the LogSoftMax of. It is 0 in frames
// behind a sample's length. It takes work space from the pool. dx overlaps no other
// tensor.
func CTCLossBack(e *cupool.Engine, logProbs tensor.Tensor, t Transcripts, dx tensor.Tensor, scale float64) error {
	const op = "CTCLossBack"
	defer operand.KeepAlive(logProbs, t.Targets, t.Lengths, t.TargetLengths, dx)
	n := 0
	if !operand.IsNil(logProbs) {
		n = logProbs.Shape().TotalSize()
	}
	s, err := fitTranscripts(e, op, logProbs, t, want{t: dx, n: n})
	if err == nil {
		err = fitApart(op, []tensor.Tensor{dx}, logProbs)
	}
	if err != nil {
		return err
	}
	if ok, err := ctcLossBackOnGPU(tensorop.Of(e).GPU(), op, s, logProbs, t, dx, scale); ok {
		return err
	}
	return onHost(e, op, logProbs, t.with(logProbs), []tensor.Tensor{dx}, ctcBackOnHost[float32](s, scale), ctcBackOnHost[float64](s, scale))
}

func ctcBackOnHost[T layers.Float](s ctcSize, scale float64) hostStep {
	return func(in, out []*tensor.Dense) { layers.CTCLossBack(hostCTC[T](s, in), operand.Slice[T](out[0]), scale) }
}

// ctcSize has the sizes of a CTCLoss.
type ctcSize struct {
	frames, samples, classes int
	count, width             int // of targets: all, and a row's; width 0: one after the other
}

// places returns how many numbers alpha and beta have each: for every frame those of
// all targets, and of the blanks around them.
func (s *ctcSize) places() int64 { return int64(s.frames) * int64(2*s.count+s.samples) }

func (t Transcripts) with(logProbs tensor.Tensor) []tensor.Tensor {
	return []tensor.Tensor{logProbs, t.Targets, t.Lengths, t.TargetLengths}
}

// fitTranscripts fails for tensors that do not fit, or have no elements but for
// targets.
func fitTranscripts(e *cupool.Engine, op string, logProbs tensor.Tensor, t Transcripts, out want) (s ctcSize, err error) {
	if operand.IsNil(logProbs) || logProbs.Dims() != 3 || logProbs.Shape().TotalSize() == 0 {
		return s, unsupported(op, "probabilities of frames × samples × classes are needed")
	}
	shape := logProbs.Shape()
	s = ctcSize{frames: shape[0], samples: shape[1], classes: shape[2]}
	if operand.IsNil(t.Targets) || t.Targets.Dims() > 2 {
		return s, unsupported(op, "targets are a vector or a matrix")
	}
	s.count = t.Targets.Shape().TotalSize()
	if t.Targets.Dims() == 2 {
		s.width = t.Targets.Shape()[1]
		s.count = s.width * s.samples
	}
	if err := fit(e, op, logProbs.Dtype(), want{t: logProbs, n: shape.TotalSize()}, out); err != nil {
		return s, err
	}
	return s, fitType(e, op, tensor.Int, want{t: t.Targets, n: s.count}, want{t: t.Lengths, n: s.samples}, want{t: t.TargetLengths, n: s.samples})
}

// hostCTC returns what is computed with on the CPU.
func hostCTC[T layers.Float](s ctcSize, in []*tensor.Dense) layers.CTC[T] {
	return layers.CTC[T]{LogProbs: operand.Slice[T](in[0]), Frames: s.frames, Samples: s.samples, Classes: s.classes, Width: s.width,
		Targets: operand.Slice[int](in[1]), Lengths: operand.Slice[int](in[2]), TargetLengths: operand.Slice[int](in[3])}
}

// ctcArgs returns the arguments that both steps have in common.
func ctcArgs(g *gpu.Ops, s ctcSize, logProbs tensor.Tensor, t Transcripts) (args kernels.CTCArgs, ok bool) {
	args = kernels.CTCArgs{Frames: int64(s.frames), Samples: int64(s.samples), Classes: int64(s.classes), Count: int64(s.count), Width: int64(s.width)}
	ok = g.Addresses([]*uint64{&args.X, &args.Lengths, &args.TargetLengths}, logProbs, t.Lengths, t.TargetLengths) &&
		(s.count == 0 || g.Addresses([]*uint64{&args.Targets}, t.Targets))
	return args, ok
}

func ctcLossOnGPU(g *gpu.Ops, op string, s ctcSize, logProbs tensor.Tensor, t Transcripts, loss tensor.Tensor, mean bool) (bool, error) {
	args, ok := ctcArgs(g, s, logProbs, t)
	total := kernels.CTCTotalArgs{TargetLengths: args.TargetLengths, Samples: args.Samples}
	if !ok || !g.Addresses([]*uint64{&total.Loss}, loss) {
		return false, nil
	}
	if mean {
		total.Mean = 1
	}
	size := int64(logProbs.Dtype().Size())
	return true, g.WithScratch(op, (s.places()+args.Samples)*size, func(at uint64) error {
		args.Alpha = at
		args.Losses = at + uint64(s.places()*size)
		total.Losses = args.Losses
		if err := launchCTC(g, op, &args, isDouble(logProbs)); err != nil {
			return err
		}
		return g.Each(op, kernels.CTCTotal.Of(isDouble(logProbs)), 1, unsafe.Pointer(&total))
	})
}

func ctcLossBackOnGPU(g *gpu.Ops, op string, s ctcSize, logProbs tensor.Tensor, t Transcripts, dx tensor.Tensor, scale float64) (bool, error) {
	args, ok := ctcArgs(g, s, logProbs, t)
	if !ok || !g.Addresses([]*uint64{&args.DX}, dx) {
		return false, nil
	}
	args.Scale = scale
	size := s.places() * int64(logProbs.Dtype().Size())
	return true, g.WithScratch(op, 2*size, func(at uint64) error {
		args.Alpha, args.Beta = at, at+uint64(size)
		return launchCTC(g, op, &args, isDouble(logProbs))
	})
}

func launchCTC(g *gpu.Ops, op string, args *kernels.CTCArgs, double bool) error {
	l := kernels.Launch{Kernel: kernels.CTC.Of(double), X: gpu.Blocks(int(args.Samples), 1), Y: 1, Block: gpu.Block, Args: unsafe.Pointer(args)}
	return g.Launch(op, l)
}
