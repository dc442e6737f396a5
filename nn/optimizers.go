package nn

import (
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

// SGD is stochastic gradient descent.
type SGD struct {
	LearningRate float64
	Momentum     float64 // 0: none
	WeightDecay  float64 // 0: none

	// Rate, unless it is nil, has the learning rate in place of LearningRate. It
	// has one element of the parameters' type, which is read when the step runs.
	// So a Graph, which keeps the LearningRate of its capture, can go on with
	// another rate.
	Rate tensor.Tensor
}

// Param is a tensor that is learned, with its gradient and its moments. All have
// one size, and the moments are zero at first.
type Param struct {
	Value, Grad tensor.Tensor
	Momentum    tensor.Tensor // SGD: nil without momentum. Adam: the first moment
	Second      tensor.Tensor // Adam: the second moment
}

// Step moves parameters against their gradients:
//
//	m ← Momentum·m + gradient + WeightDecay·value
//	value ← value − LearningRate·m
//
// Without a Momentum tensor in the Param, m is not kept for the next step.
func (o SGD) Step(e *cupool.Engine, params ...Param) error {
	defer operand.KeepAlive(params...)
	defer operand.KeepAlive(o.Rate)
	const op = "SGD.Step"
	if err := fitParams(e, op, params, 1, true, o.Rate, nil); err != nil {
		return err
	}
	if ok, err := sgdStepOnGPU(tensorop.Of(e).GPU(), o, params); ok {
		return err
	}
	return stepOnHost(e, op, params, 1, o.Rate, nil, sgdOnHost[float32](o), sgdOnHost[float64](o))
}

func sgdOnHost[T layers.Float](o SGD) hostStep {
	return func(in, out []*tensor.Dense) {
		layers.SGD(operand.Slice[T](out[0]), operand.Slice[T](in[0]), operand.Slice[T](out[1]), scalar(in[1], o.LearningRate), o.Momentum, o.WeightDecay)
	}
}

// Adam is the optimizer of Kingma and Ba (2015), with decoupled weight decay
// (Loshchilov and Hutter, 2019). Its usual constants: Beta1 0.9, Beta2 0.999,
// Epsilon 1e-8.
type Adam struct {
	LearningRate          float64
	Beta1, Beta2, Epsilon float64
	WeightDecay           float64 // 0: none

	// Rate, unless it is nil, has the learning rate in place of LearningRate.
	// StepNumber, unless it is nil, has the number of the step, from 1, in place
	// of the argument of Step. Both have one element of the parameters' type,
	// which is read when the step runs. The moments are corrected by the number of
	// the step, so a Graph needs a StepNumber, and the program adds 1 to it for
	// each step.
	Rate, StepNumber tensor.Tensor
}

// Step moves parameters against their gradients. step is the number of the step,
// from 1.
func (o Adam) Step(e *cupool.Engine, step int, params ...Param) error {
	defer operand.KeepAlive(params...)
	defer operand.KeepAlive(o.Rate, o.StepNumber)
	const op = "Adam.Step"
	if err := fitParams(e, op, params, 2, false, o.Rate, o.StepNumber); err != nil {
		return err
	}
	if step < 1 && operand.IsNil(o.StepNumber) {
		return unsupported(op, "step %d, steps count from 1", step)
	}
	if ok, err := adamStepOnGPU(tensorop.Of(e).GPU(), o, step, params); ok {
		return err
	}
	return stepOnHost(e, op, params, 2, o.Rate, o.StepNumber, adamOnHost[float32](o, step), adamOnHost[float64](o, step))
}

func adamOnHost[T layers.Float](o Adam, step int) hostStep {
	return func(in, out []*tensor.Dense) {
		a := layers.AdamOptions{LR: scalar(in[1], o.LearningRate), Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, Decay: o.WeightDecay}
		n := scalar(in[2], float64(step))
		layers.Adam(operand.Slice[T](out[0]), operand.Slice[T](in[0]), operand.Slice[T](out[1]), operand.Slice[T](out[2]), n, a)
	}
}

// RMSProp is the optimizer of Hinton's lecture 6, with decoupled weight decay. Its
// usual constants: Rho 0.9 to 0.999, Epsilon 1e-8.
type RMSProp struct {
	LearningRate float64
	Rho, Epsilon float64
	WeightDecay  float64 // 0: none
	Clip         float64 // clamps gradients to [-Clip, Clip] in a step, not in the mean of their squares. 0: not

	// Rate, unless it is nil, has the learning rate in place of LearningRate. It
	// has one element of the parameters' type, which is read when the step runs.
	Rate tensor.Tensor
}

// Step moves parameters against their gradients. The Momentum of a Param has v:
//
//	v ← Rho·v + (1−Rho)·gradient²
//	value ← value − LearningRate·clamp(gradient)/√(v+Epsilon) − WeightDecay·value
func (o RMSProp) Step(e *cupool.Engine, params ...Param) error {
	defer operand.KeepAlive(params...)
	defer operand.KeepAlive(o.Rate)
	const op = "RMSProp.Step"
	if err := fitParams(e, op, params, 1, false, o.Rate, nil); err != nil {
		return err
	}
	if ok, err := rmsPropStepOnGPU(tensorop.Of(e).GPU(), o, params); ok {
		return err
	}
	return stepOnHost(e, op, params, 1, o.Rate, nil, rmsPropOnHost[float32](o), rmsPropOnHost[float64](o))
}

func rmsPropOnHost[T layers.Float](o RMSProp) hostStep {
	return func(in, out []*tensor.Dense) {
		r := layers.RMSPropOptions{LR: scalar(in[1], o.LearningRate), Rho: o.Rho, Epsilon: o.Epsilon, Decay: o.WeightDecay, Clip: o.Clip}
		layers.RMSProp(operand.Slice[T](out[0]), operand.Slice[T](in[0]), operand.Slice[T](out[1]), r)
	}
}

// stepOnHost moves parameters with so many moments one after the other.
func stepOnHost(e *cupool.Engine, op string, params []Param, moments int, rate, number tensor.Tensor, single, double hostStep) error {
	for _, p := range params {
		out := []tensor.Tensor{p.Value, p.Momentum, p.Second}[:1+moments]
		if err := onHost(e, op, p.Value, []tensor.Tensor{p.Grad, rate, number}, out, single, double); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns the one element of a host tensor, or otherwise for nil.
func scalar(d *tensor.Dense, otherwise float64) float64 {
	switch {
	case d == nil:
		return otherwise
	case isDouble(d):
		return operand.Slice[float64](d)[0]
	}
	return float64(operand.Slice[float32](d)[0])
}

// fitParams is fit for parameters, their gradients and so many moments, and for the
// rate and the number of the step.
func fitParams(e *cupool.Engine, op string, params []Param, moments int, optional bool, rate, number tensor.Tensor) error {
	if e == nil || e.Allocator() == nil {
		return unsupported(op, "there is no engine")
	}
	for _, p := range params {
		if operand.IsNil(p.Value) || operand.IsNil(p.Grad) {
			return unsupported(op, "a parameter without a value or gradient")
		}
		n := p.Value.Shape().TotalSize()
		ws := append(make([]want, 0, 6), want{t: p.Value, n: n}, want{t: p.Grad, n: n}, want{rate, 1, true}, want{number, 1, true}) // no Go memory
		for _, t := range []tensor.Tensor{p.Momentum, p.Second}[:moments] {
			if operand.IsNil(t) && !optional {
				return unsupported(op, "a parameter without its moments, %d", moments)
			}
			ws = append(ws, want{t, n, true})
		}
		if err := fit(e, op, p.Value.Dtype(), ws...); err != nil {
			return err
		}
	}
	return nil
}

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
