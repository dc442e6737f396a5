package nn

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Seed selects random numbers. Each Stream of each Seed is a sequence of its own.
// Sequences are the same on every device but for rounding. They are those of Philox4x32-10
// (Salmon and others, SC 2011).
type Seed struct {
	Seed, Stream uint64

	// Draw, unless it is nil, has a number that is added to Stream. It is a tensor
	// of one tensor.Int, which is read when the step runs. So the launches of a
	// Graph, which keeps the Stream of its capture, can have numbers of their own:
	// a NextDraw in the Graph goes on to the next Stream.
	Draw tensor.Tensor
}

// NextDraw adds 1 to draw, a tensor of one tensor.Int (Seed.Draw).
func NextDraw(e *cupool.Engine, draw tensor.Tensor) error {
	defer operand.KeepAlive(draw)
	const op = "NextDraw"
	if err := fitType(e, op, tensor.Int, want{t: draw, n: 1}); err != nil {
		return err
	}
	if g, args := tensorop.Of(e).GPU(), (kernels.NextDrawArgs{}); g.Addresses([]*uint64{&args.Draw}, draw) {
		return g.Each(op, kernels.NextDraw, 1, unsafe.Pointer(&args))
	}
	return tensorop.Of(e).InPlace(op, nil, []tensor.Tensor{draw}, func(_, out []*tensor.Dense) { operand.Slice[int](out[0])[0]++ })
}

// fit fails for a Draw that is none.
func (s *Seed) fit(e *cupool.Engine, op string) error {
	return fitType(e, op, tensor.Int, want{s.Draw, 1, true})
}

// stream returns the stream of a step that runs on the CPU, given the Draw.
func (s *Seed) stream(draw *tensor.Dense) uint64 {
	if draw == nil {
		return s.Stream
	}
	return s.Stream + uint64(operand.Slice[int](draw)[0])
}

// Uniform fills t with random numbers in [lo, hi). Rounded to t's type, the largest
// of them may be hi: between 1 and 2 in float32, one number of 2²⁴.
func Uniform(e *cupool.Engine, t tensor.Tensor, lo, hi float64, s Seed) error {
	return random(e, "Uniform", t, false, lo, hi-lo, s)
}

// Normal fills t with normally distributed random numbers.
func Normal(e *cupool.Engine, t tensor.Tensor, mean, deviation float64, s Seed) error {
	return random(e, "Normal", t, true, mean, deviation, s)
}

// Binomial fills t with how many of so many trials hit, each with probability p. In
// float32, p counts in steps of 2⁻²⁴. It makes a random number for each trial of
// each element. It fails with ErrNotSupported unless p is in [0, 1] and trials are
// at least 1 and at most 2²⁴, up to which float32 has all counts.
func Binomial(e *cupool.Engine, t tensor.Tensor, trials int, p float64, s Seed) error {
	defer operand.KeepAlive(t, s.Draw)
	const op = "Binomial"
	if err := fitRandom(e, op, t, &s); err != nil {
		return err
	}
	if trials <= 0 || trials > mostTrials || !(p >= 0 && p <= 1) {
		return unsupported(op, "%d trials with probability %v, they are 1 to %d", trials, p, mostTrials)
	}
	if ok, err := binomialOnGPU(tensorop.Of(e).GPU(), op, t, trials, p, s); ok {
		return err
	}
	return onHost(e, op, t, []tensor.Tensor{s.Draw}, []tensor.Tensor{t}, binomialOnHost[float32](trials, p, s), binomialOnHost[float64](trials, p, s))
}

// mostTrials bounds the time that an element takes.
const mostTrials = 1 << 24

func binomialOnHost[T layers.Float](trials int, p float64, s Seed) hostStep {
	return func(in, out []*tensor.Dense) {
		philox.Binomial(operand.Slice[T](out[0]), trials, p, s.stream(in[0]), s.Seed)
	}
}

func random(e *cupool.Engine, op string, t tensor.Tensor, normal bool, p, q float64, s Seed) error {
	defer operand.KeepAlive(t, s.Draw)
	if err := fitRandom(e, op, t, &s); err != nil {
		return err
	}
	if ok, err := randomOnGPU(tensorop.Of(e).GPU(), op, t, normal, p, q, s); ok {
		return err
	}
	return onHost(e, op, t, []tensor.Tensor{s.Draw}, []tensor.Tensor{t}, randomOnHost[float32](normal, p, q, s), randomOnHost[float64](normal, p, q, s))
}

// fitRandom fails for tensors that cannot be filled.
func fitRandom(e *cupool.Engine, op string, t tensor.Tensor, s *Seed) error {
	if operand.IsNil(t) {
		return unsupported(op, "no tensor")
	}
	if err := fit(e, op, t.Dtype(), want{t: t, n: t.Shape().TotalSize()}); err != nil {
		return err
	}
	return s.fit(e, op)
}

func randomOnHost[T layers.Float](normal bool, p, q float64, s Seed) hostStep {
	fill := philox.Uniform[T]
	if normal {
		fill = philox.Normal[T]
	}
	return func(in, out []*tensor.Dense) { fill(operand.Slice[T](out[0]), p, q, s.stream(in[0]), s.Seed) }
}

func randomOnGPU(g *gpu.Ops, op string, t tensor.Tensor, normal bool, p, q float64, s Seed) (bool, error) {
	n := t.Shape().TotalSize()
	args := kernels.RandomArgs{Seed: s.Seed, Stream: s.Stream, P: p, Q: q, N: int64(n)}
	if !g.Addresses([]*uint64{&args.Dst, &args.DrawAt}, t, s.Draw) {
		return false, nil
	}
	if normal {
		args.Normal = 1
	}
	per := 16 / int(t.Dtype().Size()) // numbers a thread makes
	return true, g.Each(op, kernels.Random.Of(isDouble(t)), (n+per-1)/per, unsafe.Pointer(&args))
}

func binomialOnGPU(g *gpu.Ops, op string, t tensor.Tensor, trials int, p float64, s Seed) (bool, error) {
	n := t.Shape().TotalSize()
	args := kernels.BinomialArgs{Seed: s.Seed, Stream: s.Stream, P: p, Trials: int64(trials), N: int64(n)}
	if !g.Addresses([]*uint64{&args.Dst, &args.DrawAt}, t, s.Draw) {
		return false, nil
	}
	return true, g.Each(op, kernels.Binomial.Of(isDouble(t)), n, unsafe.Pointer(&args))
}
