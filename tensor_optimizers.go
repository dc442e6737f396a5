package cupool

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
)

// The steps of optimizers. Their tensors are those of the other fused steps
// (tensor_layers.go).

// SGD is stochastic gradient descent.
type SGD struct {
	LearningRate float64
	Momentum     float64 // 0: none
	WeightDecay  float64 // 0: none

	// Rate, unless it is nil, has the learning rate in place of LearningRate:
	// one element of the parameters' type, read when the step runs. So a Graph,
	// in which LearningRate stays what it was, goes on with another rate.
	Rate tensor.Tensor
}

// Param is a tensor that is learned, with its gradient and what the optimizer
// remembers of it: all of one size, of zeros at first.
type Param struct {
	Value, Grad tensor.Tensor
	Momentum    tensor.Tensor // SGD: nil without momentum. Adam: the first moment
	Second      tensor.Tensor // Adam: the second moment
}

// SGDStep moves parameters against their gradients:
//
//	m ← Momentum·m + gradient + WeightDecay·value
//	value ← value − LearningRate·m
//
// Where a Param has no Momentum, m is not remembered.
func (e *Engine) SGDStep(o SGD, params ...Param) error {
	defer keepAlive(params...)
	defer keepAlive(o.Rate)
	const op = "SGDStep"
	for _, p := range params {
		if err := e.fitParam(op, p, p.Momentum); err != nil {
			return err
		}
		if err := e.fit(op, p.Value.Dtype(), want{o.Rate, 1, true}); err != nil {
			return err
		}
	}
	if ok, err := e.gpu.sgdStep(o, params); ok {
		return err
	}
	for _, p := range params {
		err := e.onHost(op, []tensor.Tensor{p.Grad, o.Rate}, []tensor.Tensor{p.Value, p.Momentum}, func(in, out []*tensor.Dense) {
			rate := scalar(in[1], o.LearningRate)
			if isDouble(p.Value) {
				layers.SGD(slice[float64](out[0]), slice[float64](in[0]), slice[float64](out[1]), rate, o.Momentum, o.WeightDecay)
			} else {
				layers.SGD(slice[float32](out[0]), slice[float32](in[0]), slice[float32](out[1]), rate, o.Momentum, o.WeightDecay)
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

	// Rate and Step, unless they are nil, have the learning rate in place of
	// LearningRate, and the number of the step, from 1, in place of AdamStep's: one
	// element of the parameters' type, read when the step runs. A Graph needs a
	// Step, to which something adds 1 for each step, as the moments are corrected
	// by that number.
	Rate, Step tensor.Tensor
}

// AdamStep moves parameters, step being the number of the step, from 1.
func (e *Engine) AdamStep(o Adam, step int, params ...Param) error {
	defer keepAlive(params...)
	defer keepAlive(o.Rate, o.Step)
	const op = "AdamStep"
	for _, p := range params {
		if err := e.fitParam(op, p, p.Momentum, p.Second); err != nil {
			return err
		}
		if isNil(p.Momentum) || isNil(p.Second) {
			return engineError(op, fmt.Errorf("a parameter without both moments: %w", ErrNotSupported))
		}
		if err := e.fit(op, p.Value.Dtype(), want{o.Rate, 1, true}, want{o.Step, 1, true}); err != nil {
			return err
		}
	}
	if step < 1 && isNil(o.Step) {
		return engineError(op, fmt.Errorf("step %d, steps count from 1: %w", step, ErrNotSupported))
	}
	if ok, err := e.gpu.adamStep(o, step, params); ok {
		return err
	}
	for _, p := range params {
		if err := e.adamOnHost(op, o, step, p); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) adamOnHost(op string, o Adam, step int, p Param) error {
	return e.onHost(op, []tensor.Tensor{p.Grad, o.Rate, o.Step}, []tensor.Tensor{p.Value, p.Momentum, p.Second}, func(in, out []*tensor.Dense) {
		a := layers.AdamOptions{LR: scalar(in[1], o.LearningRate), Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, Decay: o.WeightDecay}
		n := int(scalar(in[2], float64(step)))
		if isDouble(p.Value) {
			layers.Adam(slice[float64](out[0]), slice[float64](in[0]), slice[float64](out[1]), slice[float64](out[2]), n, a)
		} else {
			layers.Adam(slice[float32](out[0]), slice[float32](in[0]), slice[float32](out[1]), slice[float32](out[2]), n, a)
		}
	})
}

// scalar returns the one element of a host tensor, or, where there is none,
// otherwise.
func scalar(d *tensor.Dense, otherwise float64) float64 {
	switch {
	case d == nil:
		return otherwise
	case isDouble(d):
		return slice[float64](d)[0]
	}
	return float64(slice[float32](d)[0])
}
