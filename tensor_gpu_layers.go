package cupool

import (
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/kernels"
)

// The fused steps on a GPU. What they are called with fits.

// addresses fills in where tensors are, 0 for nil; false: not all of them are
// this engine's device memory.
func (g *gpu) addresses(to []*uint64, ts ...tensor.Tensor) bool {
	if g == nil {
		return false
	}
	for i, t := range ts {
		if isNil(t) {
			continue
		}
		v, ok := g.operandOf(t)
		if !ok {
			return false
		}
		*to[i] = v.address()
	}
	return true
}

func (g *gpu) biasActivate(x, bias tensor.Tensor, rows, cols int, act Activation) (bool, error) {
	args := kernels.BiasArgs{Activation: int64(act), Rows: int64(rows), Cols: int64(cols)}
	if !g.addresses([]*uint64{&args.A, &args.B}, x, bias) {
		return false, nil
	}
	args.Dst = args.A
	return true, g.each("BiasActivate", kernels.Bias.Of(isDouble(x)), rows*cols, unsafe.Pointer(&args))
}

func (g *gpu) biasActivateBack(y, dy, db tensor.Tensor, rows, cols int, act Activation) (bool, error) {
	args := kernels.BiasBackArgs{Activation: int64(act), Rows: int64(rows), Cols: int64(cols)}
	if !g.addresses([]*uint64{&args.Y, &args.DY, &args.DB}, y, dy, db) {
		return false, nil
	}
	args.DX = args.DY
	l := kernels.Launch{Kernel: kernels.BiasBack.Of(isDouble(y)), X: blocks(cols, gpuWarp), Y: 1, Block: gpuMaxBlock, Args: unsafe.Pointer(&args)}
	return true, g.launch("BiasActivateBack", l)
}

func (g *gpu) crossEntropy(op string, s lossSize, logits, target, loss, grad tensor.Tensor) (bool, error) {
	args := kernels.CrossEntropyArgs{Scale: s.scale, Rows: int64(s.rows), N: int64(s.cols)}
	if !g.addresses([]*uint64{&args.X, &args.Target, &args.Loss, &args.Grad}, logits, target, loss, grad) {
		return false, nil
	}
	if s.weights {
		args.Weights = 1
	}
	if s.mean {
		args.Incr = 1
	}
	return true, g.rows(op, kernels.CrossEntropy.Of(isDouble(logits)), s.rows, unsafe.Pointer(&args))
}

// paramAddresses are where a parameter's tensors are, 0 for nil.
type paramAddresses struct{ value, grad, momentum, second uint64 }

// addressesOf returns those of all parameters; false: not all of them are in
// device memory.
func (g *gpu) addressesOf(params []Param) ([]paramAddresses, bool) {
	at := make([]paramAddresses, len(params))
	for i, p := range params {
		to := &at[i]
		if !g.addresses([]*uint64{&to.value, &to.grad, &to.momentum, &to.second}, p.Value, p.Grad, p.Momentum, p.Second) {
			return nil, false
		}
	}
	return at, g != nil
}

// batches calls f for as many parameters of one type as a launch takes, [from,
// to), with the number of elements of the largest.
func batches(params []Param, f func(from, to int, double bool, largest int) error) error {
	for from := 0; from < len(params); {
		to, largest, double := from, 0, isDouble(params[from].Value)
		for to < len(params) && to-from < kernels.MaxParams && isDouble(params[to].Value) == double {
			largest = max(largest, params[to].Value.Shape().TotalSize())
			to++
		}
		if err := f(from, to, double, largest); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (g *gpu) sgdStep(o SGD, params []Param) (bool, error) {
	args := kernels.SGDArgs{LR: o.LearningRate, Momentum: o.Momentum, Decay: o.WeightDecay}
	at, ok := g.addressesOf(params)
	if !ok || !g.addresses([]*uint64{&args.RateAt}, o.Rate) {
		return false, nil
	}
	return true, batches(params, func(from, to int, double bool, largest int) error {
		args := args
		for i, p := range params[from:to] {
			a, k := at[from+i], &args.P[i]
			k.W, k.G, k.V, k.N = a.value, a.grad, a.momentum, int64(p.Value.Shape().TotalSize())
		}
		l := kernels.Launch{Kernel: kernels.SGD.Of(double), X: blocks(largest, 4*gpuBlock), Y: to - from, Block: gpuBlock, Args: unsafe.Pointer(&args)}
		return g.launch("SGDStep", l)
	})
}

func (g *gpu) adamStep(o Adam, step int, params []Param) (bool, error) {
	args := kernels.AdamArgs{LR: o.LearningRate, Step: float64(step), Beta1: o.Beta1, Beta2: o.Beta2,
		Log1: math.Log(o.Beta1), Log2: math.Log(o.Beta2), Epsilon: o.Epsilon, Decay: o.WeightDecay}
	at, ok := g.addressesOf(params)
	if !ok || !g.addresses([]*uint64{&args.RateAt, &args.StepAt}, o.Rate, o.Step) {
		return false, nil
	}
	return true, batches(params, func(from, to int, double bool, largest int) error {
		args := args
		for i, p := range params[from:to] {
			a, k := at[from+i], &args.P[i]
			k.W, k.G, k.M, k.V, k.N = a.value, a.grad, a.momentum, a.second, int64(p.Value.Shape().TotalSize())
		}
		l := kernels.Launch{Kernel: kernels.Adam.Of(double), X: blocks(largest, gpuBlock), Y: to - from, Block: gpuBlock, Args: unsafe.Pointer(&args)}
		return g.launch("AdamStep", l)
	})
}

func (g *gpu) random(op string, t tensor.Tensor, normal bool, p, q float64, s Seed) (bool, error) {
	n := t.Shape().TotalSize()
	args := kernels.RandomArgs{Seed: s.Seed, Stream: s.Stream, P: p, Q: q, N: int64(n)}
	if !g.addresses([]*uint64{&args.Dst}, t) {
		return false, nil
	}
	if normal {
		args.Normal = 1
	}
	per := 16 / int(t.Dtype().Size()) // numbers a thread makes
	return true, g.each(op, kernels.Random.Of(isDouble(t)), (n+per-1)/per, unsafe.Pointer(&args))
}
