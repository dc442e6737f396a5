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
	"sgd":  func(m *mlp) optimizer { return &sgd{m, moments(m)} },
	"adam": func(m *mlp) optimizer { return &adam{m: m, mean: moments(m), variance: moments(m)} },
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
	m        *mlp
	velocity []tensor.Tensor
}

func (o *sgd) step(lr float64) {
	check(o.m.eng.SGDStep(cupool.SGD{LearningRate: lr, Momentum: 0.9}, remembering(o.m, o.velocity, nil)...))
}

func (o *sgd) tensors() []tensor.Tensor { return o.velocity }

// adam is Adam with its usual constants.
type adam struct {
	m              *mlp
	mean, variance []tensor.Tensor
	t              int
}

func (o *adam) step(lr float64) {
	o.t++
	c := cupool.Adam{LearningRate: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	check(o.m.eng.AdamStep(c, o.t, remembering(o.m, o.mean, o.variance)...))
}

func (o *adam) tensors() []tensor.Tensor { return slices.Concat(o.mean, o.variance) }
