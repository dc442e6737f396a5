package main

import (
	"math"
	"math/rand/v2"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
	"gorgonia.org/tensor"
)

// A param is a tensor that is learned, with the gradient of the loss.
type param struct {
	value, grad *tensor.Dense
}

// A layer is x·w + b.
type layer struct {
	w param // inputs × outputs
	b param // 1 × outputs
}

// An mlp is a multi-layer perceptron: layers with a ReLU between each two.
type mlp struct {
	eng    *cupool.Engine
	dt     tensor.Dtype
	layers []layer
}

// newMLP makes a network whose layers have the given widths, the first being
// that of the input. Weights are drawn from a normal distribution of variance
// 2/inputs (He et al.), which keeps the signal's size through ReLUs.
func newMLP(eng *cupool.Engine, dt tensor.Dtype, rng *rand.Rand, widths ...int) *mlp {
	m := &mlp{eng: eng, dt: dt}
	for i, in := range widths[:len(widths)-1] {
		out := widths[i+1]
		sigma := math.Sqrt(2 / float64(in))
		weights := make([]float64, in*out)
		for j := range weights {
			weights[j] = sigma * rng.NormFloat64()
		}
		m.layers = append(m.layers, layer{
			w: param{uploadAs(eng, dt, weights, in, out), zeros(eng, dt, in, out)},
			b: param{zeros(eng, dt, 1, out), zeros(eng, dt, 1, out)},
		})
	}
	return m
}

// params lists what an optimizer has to update.
func (m *mlp) params() []param {
	var ps []param
	for _, l := range m.layers {
		ps = append(ps, l.w, l.b)
	}
	return ps
}

// activation is what a layer applies to its output.
func (m *mlp) activation(layer int) nn.Activation {
	if layer == len(m.layers)-1 {
		return nn.NoActivation
	}
	return nn.ReLU
}

// forward runs a batch x through the network, one sample a row. It returns
// the input of every layer, as backward needs it, and, last, the output, one
// row of logits a sample. All but x itself are new.
func (m *mlp) forward(x tensor.Tensor) []tensor.Tensor {
	acts := []tensor.Tensor{x}
	for i, l := range m.layers {
		if i == 1 { // the first layer's parameters were not updated in a Fork
			check(m.eng.Join())
		}
		z := must(m.eng.Empty(m.dt, x.Shape()[0], l.w.value.Shape()[1]))
		check(nn.Linear(m.eng, acts[i], l.w.value, l.b.value, z, m.activation(i)))
		acts = append(acts, z)
	}
	return acts
}

// backward sets the gradients of all parameters, from what forward returned
// and the gradient of the loss by the logits. It calls ready for each layer, from
// the last to the first, once the engine's stream has the work that sets its
// gradients.
func (m *mlp) backward(acts []tensor.Tensor, logits tensor.Tensor, ready func(layer int) error) {
	d := logits // the gradient by a layer's output, before its activation
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := m.layers[i]
		var in tensor.Tensor // the same of the layer before; the first has none
		act := nn.NoActivation
		if i > 0 {
			in, act = must(m.eng.Empty(m.dt, acts[i].Shape()...)), m.activation(i-1)
		}
		check(nn.LinearBack(m.eng, acts[i], l.w.value, d, in, l.w.grad, l.b.grad, act))
		check(ready(i))
		d = in
	}
}

// backwardForked is backward for steps that are captured, with the update of
// each layer's parameters. What the next layer back and the next step's first
// layer do not wait for is forked: all of it but the first layer's. forward
// joins.
func (m *mlp) backwardForked(acts []tensor.Tensor, logits tensor.Tensor, update func(layer int) error) {
	d := logits
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := m.layers[i]
		weights := func() error {
			return nn.LinearBack(m.eng, acts[i], l.w.value, d, nil, l.w.grad, l.b.grad, nn.NoActivation)
		}
		if i == 0 {
			check(weights())
			check(update(i))
			return
		}
		check(m.eng.Fork(weights))
		in := must(m.eng.Empty(m.dt, acts[i].Shape()...))
		check(nn.LinearBack(m.eng, acts[i], l.w.value, d, in, nil, nil, m.activation(i-1)))
		check(m.eng.Fork(func() error { return update(i) })) // after in, which is made from the weights
		d = in
	}
}

// crossEntropy compares logits with the classes y, row by row. It adds their
// losses to loss, one a row, and returns the gradient of the mean loss by the
// logits.
func (m *mlp) crossEntropy(logits, y, loss tensor.Tensor) (d tensor.Tensor) {
	d = must(m.eng.Empty(m.dt, logits.Shape()...))
	check(nn.CrossEntropy(m.eng, logits, y, loss, d))
	return d
}

// tensors are all that the network keeps.
func (m *mlp) tensors() []tensor.Tensor {
	var ts []tensor.Tensor
	for _, p := range m.params() {
		ts = append(ts, p.value, p.grad)
	}
	return ts
}
