package nn

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop"
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
	for _, p := range params {
		if err := fitParam(e, op, p, p.Momentum); err != nil {
			return err
		}
		if err := fit(e, op, p.Value.Dtype(), want{o.Rate, 1, true}); err != nil {
			return err
		}
	}
	if ok, err := sgdStepOnGPU(tensorop.Of(e).GPU(), o, params); ok {
		return err
	}
	for _, p := range params {
		err := tensorop.Of(e).InPlace(op, []tensor.Tensor{p.Grad, o.Rate}, []tensor.Tensor{p.Value, p.Momentum}, func(in, out []*tensor.Dense) {
			rate := scalar(in[1], o.LearningRate)
			if isDouble(p.Value) {
				layers.SGD(operand.Slice[float64](out[0]), operand.Slice[float64](in[0]), operand.Slice[float64](out[1]), rate, o.Momentum, o.WeightDecay)
			} else {
				layers.SGD(operand.Slice[float32](out[0]), operand.Slice[float32](in[0]), operand.Slice[float32](out[1]), rate, o.Momentum, o.WeightDecay)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
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
	for _, p := range params {
		if err := fitParam(e, op, p, p.Momentum, p.Second); err != nil {
			return err
		}
		if operand.IsNil(p.Momentum) || operand.IsNil(p.Second) {
			return fail(op, fmt.Errorf("a parameter without both moments: %w", cupool.ErrNotSupported))
		}
		if err := fit(e, op, p.Value.Dtype(), want{o.Rate, 1, true}, want{o.StepNumber, 1, true}); err != nil {
			return err
		}
	}
	if step < 1 && operand.IsNil(o.StepNumber) {
		return fail(op, fmt.Errorf("step %d, steps count from 1: %w", step, cupool.ErrNotSupported))
	}
	if ok, err := adamStepOnGPU(tensorop.Of(e).GPU(), o, step, params); ok {
		return err
	}
	for _, p := range params {
		if err := adamOnHost(e, op, o, step, p); err != nil {
			return err
		}
	}
	return nil
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
	for _, p := range params {
		if err := fitParam(e, op, p, p.Momentum); err != nil {
			return err
		}
		if operand.IsNil(p.Momentum) {
			return fail(op, fmt.Errorf("a parameter without a Momentum: %w", cupool.ErrNotSupported))
		}
		if err := fit(e, op, p.Value.Dtype(), want{o.Rate, 1, true}); err != nil {
			return err
		}
	}
	if ok, err := rmsPropStepOnGPU(tensorop.Of(e).GPU(), o, params); ok {
		return err
	}
	for _, p := range params {
		if err := rmsPropOnHost(e, op, o, p); err != nil {
			return err
		}
	}
	return nil
}

func rmsPropOnHost(e *cupool.Engine, op string, o RMSProp, p Param) error {
	return tensorop.Of(e).InPlace(op, []tensor.Tensor{p.Grad, o.Rate}, []tensor.Tensor{p.Value, p.Momentum}, func(in, out []*tensor.Dense) {
		r := layers.RMSPropOptions{LR: scalar(in[1], o.LearningRate), Rho: o.Rho, Epsilon: o.Epsilon, Decay: o.WeightDecay, Clip: o.Clip}
		if isDouble(p.Value) {
			layers.RMSProp(operand.Slice[float64](out[0]), operand.Slice[float64](in[0]), operand.Slice[float64](out[1]), r)
		} else {
			layers.RMSProp(operand.Slice[float32](out[0]), operand.Slice[float32](in[0]), operand.Slice[float32](out[1]), r)
		}
	})
}

func adamOnHost(e *cupool.Engine, op string, o Adam, step int, p Param) error {
	return tensorop.Of(e).InPlace(op, []tensor.Tensor{p.Grad, o.Rate, o.StepNumber}, []tensor.Tensor{p.Value, p.Momentum, p.Second}, func(in, out []*tensor.Dense) {
		a := layers.AdamOptions{LR: scalar(in[1], o.LearningRate), Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, Decay: o.WeightDecay}
		n := int(scalar(in[2], float64(step)))
		if isDouble(p.Value) {
			layers.Adam(operand.Slice[float64](out[0]), operand.Slice[float64](in[0]), operand.Slice[float64](out[1]), operand.Slice[float64](out[2]), n, a)
		} else {
			layers.Adam(operand.Slice[float32](out[0]), operand.Slice[float32](in[0]), operand.Slice[float32](out[1]), operand.Slice[float32](out[2]), n, a)
		}
	})
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

// fitParam is fit for a parameter, its gradient and its moments.
func fitParam(e *cupool.Engine, op string, p Param, more ...tensor.Tensor) error {
	if operand.IsNil(p.Value) || operand.IsNil(p.Grad) {
		return fail(op, fmt.Errorf("a parameter without a value or gradient: %w", cupool.ErrNotSupported))
	}
	n := p.Value.Shape().TotalSize()
	ws := append(make([]want, 0, 4), want{t: p.Value, n: n}, want{t: p.Grad, n: n}) // no Go memory
	for _, t := range more {
		ws = append(ws, want{t, n, true})
	}
	return fit(e, op, p.Value.Dtype(), ws...)
}
