package nn

import (
	"math"
	"unsafe"

	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// The steps of optimizers on a GPU.

// paramAddresses are the addresses of a parameter's tensors, 0 for nil.
type paramAddresses struct{ value, grad, momentum, second uint64 }

// addressesOf returns the addresses of all parameters, or false if one of them is
// not in device memory.
func addressesOf(g *gpu.Ops, params []Param) ([]paramAddresses, bool) {
	at := make([]paramAddresses, len(params))
	for i, p := range params {
		to := &at[i]
		if !g.Addresses([]*uint64{&to.value, &to.grad, &to.momentum, &to.second}, p.Value, p.Grad, p.Momentum, p.Second) {
			return nil, false
		}
	}
	return at, g != nil
}

// batches calls f for the parameters [from, to) of one launch, which have one
// type, with the number of elements of the largest.
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

func sgdStepOnGPU(g *gpu.Ops, o SGD, params []Param) (bool, error) {
	args := kernels.SGDArgs{LR: o.LearningRate, Momentum: o.Momentum, Decay: o.WeightDecay}
	at, ok := addressesOf(g, params)
	if !ok || !g.Addresses([]*uint64{&args.RateAt}, o.Rate) {
		return false, nil
	}
	return true, batches(params, func(from, to int, double bool, largest int) error {
		args := args
		for i, p := range params[from:to] {
			a, k := at[from+i], &args.P[i]
			k.W, k.G, k.V, k.N = a.value, a.grad, a.momentum, int64(p.Value.Shape().TotalSize())
		}
		l := kernels.Launch{Kernel: kernels.SGD.Of(double), X: gpu.Blocks(largest, 4*gpu.Block), Y: to - from, Block: gpu.Block, Args: unsafe.Pointer(&args)}
		return g.Launch("SGD.Step", l)
	})
}

func adamStepOnGPU(g *gpu.Ops, o Adam, step int, params []Param) (bool, error) {
	args := kernels.AdamArgs{LR: o.LearningRate, Step: float64(step), Beta1: o.Beta1, Beta2: o.Beta2,
		Log1: math.Log(o.Beta1), Log2: math.Log(o.Beta2), Epsilon: o.Epsilon, Decay: o.WeightDecay}
	at, ok := addressesOf(g, params)
	if !ok || !g.Addresses([]*uint64{&args.RateAt, &args.StepAt}, o.Rate, o.StepNumber) {
		return false, nil
	}
	return true, batches(params, func(from, to int, double bool, largest int) error {
		args := args
		for i, p := range params[from:to] {
			a, k := at[from+i], &args.P[i]
			k.W, k.G, k.M, k.V, k.N = a.value, a.grad, a.momentum, a.second, int64(p.Value.Shape().TotalSize())
		}
		l := kernels.Launch{Kernel: kernels.Adam.Of(double), X: gpu.Blocks(largest, gpu.Block), Y: to - from, Block: gpu.Block, Args: unsafe.Pointer(&args)}
		return g.Launch("Adam.Step", l)
	})
}

func rmsPropStepOnGPU(g *gpu.Ops, o RMSProp, params []Param) (bool, error) {
	args := kernels.RMSPropArgs{LR: o.LearningRate, Rho: o.Rho, Epsilon: o.Epsilon, Decay: o.WeightDecay, Clip: o.Clip}
	at, ok := addressesOf(g, params)
	if !ok || !g.Addresses([]*uint64{&args.RateAt}, o.Rate) {
		return false, nil
	}
	return true, batches(params, func(from, to int, double bool, largest int) error {
		args := args
		for i, p := range params[from:to] {
			a, k := at[from+i], &args.P[i]
			k.W, k.G, k.V, k.N = a.value, a.grad, a.momentum, int64(p.Value.Shape().TotalSize())
		}
		l := kernels.Launch{Kernel: kernels.RMSProp.Of(double), X: gpu.Blocks(largest, 4*gpu.Block), Y: to - from, Block: gpu.Block, Args: unsafe.Pointer(&args)}
		return g.Launch("RMSProp.Step", l)
	})
}
