package main

import (
	"math"
	"slices"

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

// sgd is stochastic gradient descent with momentum 0.9:
//
//	v ← 0.9·v + g
//	w ← w − lr·v
type sgd struct {
	m        *mlp
	velocity []tensor.Tensor
}

func (o *sgd) step(lr float64) {
	const momentum = 0.9
	s := func(v float64) any { return scalar(o.m.dt, v) }
	for i, p := range o.m.params() {
		v := o.velocity[i]
		must(tensor.Mul(v, s(momentum), tensor.UseUnsafe()))
		must(tensor.Add(v, p.grad, tensor.UseUnsafe()))
		must(tensor.Mul(v, s(-lr), tensor.WithIncr(p.value)))
	}
}

func (o *sgd) tensors() []tensor.Tensor { return o.velocity }

// adam is Adam (Kingma and Ba) with its usual constants:
//
//	m ← β₁·m + (1−β₁)·g
//	v ← β₂·v + (1−β₂)·g²
//	w ← w − lr·m̂/(√v̂ + ε)   m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ)
type adam struct {
	m              *mlp
	mean, variance []tensor.Tensor
	t              int
}

func (o *adam) step(lr float64) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	s := func(v float64) any { return scalar(o.m.dt, v) }
	o.t++
	// The corrections of both moments, moved into the step and ε.
	c1 := 1 - math.Pow(beta1, float64(o.t))
	c2 := math.Sqrt(1 - math.Pow(beta2, float64(o.t)))
	for i, p := range o.m.params() {
		m, v := o.mean[i], o.variance[i]
		must(tensor.Mul(m, s(beta1), tensor.UseUnsafe()))
		must(tensor.Mul(p.grad, s(1-beta1), tensor.WithIncr(m)))
		must(tensor.Mul(v, s(beta2), tensor.UseUnsafe()))
		must(tensor.Mul(must(tensor.Square(p.grad)), s(1-beta2), tensor.WithIncr(v)))

		root := must(tensor.Add(must(tensor.Sqrt(v)), s(epsilon*c2), tensor.UseUnsafe()))
		must(tensor.Mul(must(tensor.Div(m, root)), s(-lr*c2/c1), tensor.WithIncr(p.value)))
	}
}

func (o *adam) tensors() []tensor.Tensor { return slices.Concat(o.mean, o.variance) }
