package main

import (
	"math"
	"math/rand/v2"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// A layer is x·w + b. Its parameters are tensors with their gradients, and with
// what the optimizer remembers of them.
type layer struct{ w, b nn.Param }

// A network is a multi-layer perceptron: layers with a ReLU between each two.
type network struct {
	eng    *cupool.Engine
	layers []layer
	params []nn.Param // of all layers
	adam   bool       // or else SGD with momentum
}

// newNetwork makes a network whose layers have the given widths, the first being
// that of the input. Weights are drawn from a normal distribution of variance
// 2/inputs (He et al.), which keeps the signal's size through ReLUs.
func newNetwork(eng *cupool.Engine, rng *rand.Rand, adam bool, widths []int) (*network, error) {
	n := &network{eng: eng, adam: adam}
	for i, in := range widths[:len(widths)-1] {
		out := widths[i+1]
		sigma := math.Sqrt(2 / float64(in))
		weights := make([]float32, in*out)
		for j := range weights {
			weights[j] = float32(sigma * rng.NormFloat64())
		}
		w, err := n.param(weights, in, out)
		if err != nil {
			return nil, err
		}
		b, err := n.param(make([]float32, out), 1, out)
		if err != nil {
			return nil, err
		}
		n.layers = append(n.layers, layer{w, b})
		n.params = append(n.params, w, b)
	}
	return n, nil
}

// param makes a parameter with values.
func (n *network) param(values []float32, shape ...int) (p nn.Param, err error) {
	if p.Value, err = n.eng.FromHost(tensor.New(tensor.WithBacking(values), tensor.WithShape(shape...))); err != nil {
		return p, err
	}
	zeros := []*tensor.Tensor{&p.Grad, &p.Momentum}
	if n.adam {
		zeros = append(zeros, &p.Second)
	}
	for _, t := range zeros {
		if *t, err = newZeros(n.eng, shape...); err != nil {
			return p, err
		}
	}
	return p, nil
}

func newZeros(eng *cupool.Engine, shape ...int) (*tensor.Dense, error) {
	t, err := eng.Empty(tensor.Float32, shape...)
	if err != nil {
		return nil, err
	}
	return t, eng.Zero(t)
}

// activation is what a layer applies to its output.
func (n *network) activation(layer int) nn.Activation {
	if layer == len(n.layers)-1 {
		return nn.NoActivation
	}
	return nn.ReLU
}

// forward runs a batch x through the network, one sample a row. It returns the
// input of every layer, as backward needs it, and, last, the output, one row of
// logits a sample. All but x itself are new.
func (n *network) forward(x tensor.Tensor) ([]tensor.Tensor, error) {
	acts := []tensor.Tensor{x}
	for i, l := range n.layers {
		z, err := n.eng.Empty(tensor.Float32, x.Shape()[0], l.w.Value.Shape()[1])
		if err != nil {
			return nil, err
		}
		if err := nn.Linear(n.eng, acts[i], l.w.Value, l.b.Value, z, n.activation(i)); err != nil {
			return nil, err
		}
		acts = append(acts, z)
	}
	return acts, nil
}

// backward sets the gradients of all parameters, from what forward returned and
// the gradient of the loss by the logits. It calls ready for each layer, from the
// last to the first, once the engine's stream has the work that sets its
// gradients.
func (n *network) backward(acts []tensor.Tensor, logits tensor.Tensor, ready func(layer int) error) error {
	d := logits // the gradient by a layer's output, before its activation
	for i := len(n.layers) - 1; i >= 0; i-- {
		l := n.layers[i]
		var in tensor.Tensor // the same of the layer before; the first has none
		act := nn.NoActivation
		if i > 0 {
			t, err := n.eng.Empty(tensor.Float32, acts[i].Shape()...)
			if err != nil {
				return err
			}
			in, act = t, n.activation(i-1)
		}
		if err := nn.LinearBack(n.eng, acts[i], l.w.Value, d, in, l.w.Grad, l.b.Grad, act); err != nil {
			return err
		}
		if err := ready(i); err != nil {
			return err
		}
		d = in
	}
	return nil
}

// A turn is a step of the training, as optimizers take it.
type turn struct {
	number int     // from 1
	rate   float64 // the learning rate

	// In a graph both are read from tensors, as its steps are taken again and
	// again.
	numberAt, rateAt tensor.Tensor
}

// update moves the parameters against their gradients.
func (n *network) update(at turn) error {
	if n.adam {
		method := nn.Adam{LearningRate: at.rate, Rate: at.rateAt, StepNumber: at.numberAt, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
		return method.Step(n.eng, at.number, n.params...)
	}
	return nn.SGD{LearningRate: at.rate, Rate: at.rateAt, Momentum: 0.9}.Step(n.eng, n.params...)
}
