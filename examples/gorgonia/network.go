package main

import (
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A network is a graph from a batch of samples, x, to the logarithms of the
// probabilities of classes, in rows. One to train has the loss as well, with its
// gradients by the weights; y are the classes that are wanted, one 1 in each
// row.
type network struct {
	g       *gorgonia.ExprGraph
	x, y    *gorgonia.Node
	out     *gorgonia.Node
	loss    *gorgonia.Node // nil: not to train
	weights gorgonia.Nodes
	norms   []*gorgonia.BatchNormOp
}

// learned gives the batch normalizations the running statistics of another
// network's, which is trained. Weights are the same tensors in both.
func (n *network) learned(from *network) error {
	for i, op := range n.norms {
		if err := op.SetStats(from.norms[i].Stats()); err != nil {
			return err
		}
	}
	return nil
}

// finish adds the loss, the mean of the cross entropy over the rows, and its
// gradients.
func (n *network) finish(logits *gorgonia.Node, training bool) (err error) {
	defer catch(&err)
	n.out = must(gorgonia.LogSoftMax(logits))
	if !training {
		return nil
	}
	shape := n.out.Shape().Clone()
	n.y = gorgonia.NewMatrix(n.g, tensor.Float32, gorgonia.WithShape(shape...), gorgonia.WithName("y"))
	mean := must(gorgonia.Mean(must(gorgonia.HadamardProd(n.y, n.out)))) // of all rows and classes
	n.loss = must(gorgonia.Mul(mean, gorgonia.NewConstant(float32(-shape[1]))))
	_, err = gorgonia.Grad(n.loss, n.weights...)
	return err
}

// weight adds a weight with a new value, or with that of the same weight of
// another network.
func (n *network) weight(name string, from *network, value func() *tensor.Dense) *gorgonia.Node {
	var v gorgonia.Value
	if from == nil {
		v = value()
	} else {
		v = from.weights[len(n.weights)].Value()
	}
	shape := v.Shape().Clone()
	w := gorgonia.NewTensor(n.g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
	n.weights = append(n.weights, w)
	return w
}

// normal makes a tensor of normally distributed numbers.
func normal(rng *rand.Rand, sigma float64, shape ...int) *tensor.Dense {
	t := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	for i := range t.Float32s() {
		t.Float32s()[i] = float32(sigma * rng.NormFloat64())
	}
	return t
}

// must is a node that could be made.
func must(n *gorgonia.Node, err error) *gorgonia.Node {
	if err != nil {
		panic(failure{err})
	}
	return n
}

// A failure is what must panics with.
type failure struct{ error }

// catch sets *err to what must panicked with. Any other panic is a bug and goes
// on.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.error
	default:
		panic(p)
	}
}
