package main

import (
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
	"gorgonia.org/tensor"
)

// A turn is a step of the training, as optimizers take it.
type turn struct {
	number int     // from 1
	rate   float64 // the learning rate

	// In a graph both are read from tensors, as its steps are taken again and
	// again.
	numberAt, rateAt tensor.Tensor
}

// An optimizer moves parameters against their gradients.
type optimizer interface {
	// step updates all parameters.
	step(at turn)
	// stepLayer is step for the parameters of one layer.
	stepLayer(at turn, layer int) error
	// tensors are all that the optimizer keeps.
	tensors() []tensor.Tensor
}

// optimizers makes them by name.
var optimizers = map[string]func(*mlp) optimizer{
	"sgd":  func(m *mlp) optimizer { return newSGD(m) },
	"adam": func(m *mlp) optimizer { return newAdam(m) },
}

// moments makes a tensor of zeros for each parameter of m.
func moments(m *mlp) []tensor.Tensor {
	var ts []tensor.Tensor
	for _, p := range m.params() {
		ts = append(ts, zeros(m.eng, m.dt, p.value.Shape()...))
	}
	return ts
}

// remembering are a network's parameters with what optimizers remember of
// them.
func remembering(m *mlp, mean, variance []tensor.Tensor) []nn.Param {
	var ps []nn.Param
	for i, p := range m.params() {
		q := nn.Param{Value: p.value, Grad: p.grad, Momentum: mean[i]}
		if variance != nil {
			q.Second = variance[i]
		}
		ps = append(ps, q)
	}
	return ps
}

// ofLayer are a layer's parameters, of remembering's.
func ofLayer(params []nn.Param, layer int) []nn.Param { return params[2*layer : 2*layer+2] }

// sgd is stochastic gradient descent with momentum 0.9.
type sgd struct {
	eng      *cupool.Engine
	velocity []tensor.Tensor
	params   []nn.Param // with the velocity
}

func newSGD(m *mlp) *sgd {
	velocity := moments(m)
	return &sgd{m.eng, velocity, remembering(m, velocity, nil)}
}

func (o *sgd) step(at turn) { check(o.update(at, o.params)) }

func (o *sgd) stepLayer(at turn, layer int) error { return o.update(at, ofLayer(o.params, layer)) }

func (o *sgd) update(at turn, params []nn.Param) error {
	return nn.SGD{LearningRate: at.rate, Rate: at.rateAt, Momentum: 0.9}.Step(o.eng, params...)
}

func (o *sgd) tensors() []tensor.Tensor { return o.velocity }

// adam is Adam with its usual constants.
type adam struct {
	eng            *cupool.Engine
	mean, variance []tensor.Tensor
	params         []nn.Param // with both
}

func newAdam(m *mlp) *adam {
	mean, variance := moments(m), moments(m)
	return &adam{eng: m.eng, mean: mean, variance: variance, params: remembering(m, mean, variance)}
}

func (o *adam) step(at turn) { check(o.update(at, o.params)) }

func (o *adam) stepLayer(at turn, layer int) error { return o.update(at, ofLayer(o.params, layer)) }

func (o *adam) update(at turn, params []nn.Param) error {
	c := nn.Adam{LearningRate: at.rate, Rate: at.rateAt, StepNumber: at.numberAt, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	return c.Step(o.eng, at.number, params...)
}

func (o *adam) tensors() []tensor.Tensor { return slices.Concat(o.mean, o.variance) }
