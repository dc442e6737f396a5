package main

import (
	"math"
	"math/rand/v2"

	"github.com/cupool/cupool"
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

// forward runs a batch x through the network, one sample a row. It returns
// the input of every layer, as backward needs it, and, last, the output, one
// row of logits a sample. All but x itself are new.
func (m *mlp) forward(x tensor.Tensor) []tensor.Tensor {
	acts := []tensor.Tensor{x}
	one := ones(m.eng, m.dt, x.Shape()[0], 1)
	for i, l := range m.layers {
		// tensor adds no row to all rows of a matrix, so the bias is the
		// weight of an input that is always 1.
		z := must(tensor.MatMul(acts[i], l.w.value))
		bias := must(tensor.MatMul(one, l.b.value))
		z = must(tensor.Add(z, bias, tensor.UseUnsafe()))
		if i < len(m.layers)-1 {
			z = must(tensor.MaxBetween(z, scalar(m.dt, 0))) // ReLU
		}
		acts = append(acts, z)
	}
	return acts
}

// backward sets the gradients of all parameters, from what forward returned
// and the gradient of the loss by the logits, d, which it overwrites.
func (m *mlp) backward(acts []tensor.Tensor, d tensor.Tensor) {
	one := ones(m.eng, m.dt, 1, d.Shape()[0])
	for i := len(m.layers) - 1; i >= 0; i-- {
		l := m.layers[i]
		must(matMulTA(acts[i], d, tensor.WithReuse(l.w.grad)))
		must(tensor.MatMul(one, d, tensor.WithReuse(l.b.grad)))
		if i == 0 {
			return
		}
		// Through the weights, then through the ReLU, whose slope is 1 where
		// it let the signal pass, else 0.
		d = must(matMulTB(d, l.w.value))
		slope := must(tensor.Gt(acts[i], scalar(m.dt, 0), tensor.AsSameType()))
		d = must(tensor.Mul(d, slope, tensor.UseUnsafe()))
	}
}

// crossEntropy compares logits with the labels y, one-hot, row by row. It
// returns y∘log(softmax(logits)), whose sum is minus the loss of the batch,
// and the gradient of the mean loss by the logits.
func crossEntropy(logits, y tensor.Tensor) (logLikelihood, d tensor.Tensor) {
	dt, n := logits.Dtype(), logits.Shape()[0]
	logp := must(tensor.LogSoftMax(logits, 1))
	logLikelihood = must(tensor.Mul(y, logp))
	d = must(tensor.Sub(must(tensor.Exp(logp)), y, tensor.UseUnsafe()))
	d = must(tensor.Mul(d, scalar(dt, 1/float64(n)), tensor.UseUnsafe()))
	return logLikelihood, d
}

// tensors are all that the network keeps.
func (m *mlp) tensors() []tensor.Tensor {
	var ts []tensor.Tensor
	for _, p := range m.params() {
		ts = append(ts, p.value, p.grad)
	}
	return ts
}
