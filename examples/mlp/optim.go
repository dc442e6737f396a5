package main

import (
	"slices"

	"github.com/cupool/cupool"
	"gorgonia.org/tensor"
)

// An optimizer moves parameters against their gradients.
type optimizer interface {
	// step updates all parameters, by the learning rate lr.
	step(lr float64)
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
func remembering(m *mlp, mean, variance []tensor.Tensor) []cupool.Param {
	var ps []cupool.Param
	for i, p := range m.params() {
		q := cupool.Param{Value: p.value, Grad: p.grad, Momentum: mean[i]}
		if variance != nil {
			q.Second = variance[i]
		}
		ps = append(ps, q)
	}
	return ps
}

// sgd is stochastic gradient descent with momentum 0.9.
type sgd struct {
	eng      *cupool.Engine
	velocity []tensor.Tensor
	params   []cupool.Param // with the velocity
}

func newSGD(m *mlp) *sgd {
	velocity := moments(m)
	return &sgd{m.eng, velocity, remembering(m, velocity, nil)}
}

func (o *sgd) step(lr float64) { check(o.update(lr, o.params)) }

// stepLayer is step for the parameters of one layer.
func (o *sgd) stepLayer(lr float64, layer int) error {
	return o.update(lr, o.params[2*layer:2*layer+2])
}

func (o *sgd) update(lr float64, params []cupool.Param) error {
	return o.eng.SGDStep(cupool.SGD{LearningRate: lr, Momentum: 0.9}, params...)
}

func (o *sgd) tensors() []tensor.Tensor { return o.velocity }

// adam is Adam with its usual constants.
type adam struct {
	eng            *cupool.Engine
	mean, variance []tensor.Tensor
	params         []cupool.Param // with both
	t              int
}

func newAdam(m *mlp) *adam {
	mean, variance := moments(m), moments(m)
	return &adam{eng: m.eng, mean: mean, variance: variance, params: remembering(m, mean, variance)}
}

func (o *adam) step(lr float64) {
	o.t++
	c := cupool.Adam{LearningRate: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	check(o.eng.AdamStep(c, o.t, o.params...))
}

func (o *adam) tensors() []tensor.Tensor { return slices.Concat(o.mean, o.variance) }
