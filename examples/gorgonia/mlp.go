package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/mnist"
)

const classes = mnist.Classes

// A network is a graph from a batch of images, x, to the logarithms of the
// probabilities of classes. One to train has the loss as well, with its
// gradients by the weights; y are the classes that are wanted, one 1 in each
// row.
type network struct {
	g       *gorgonia.ExprGraph
	x, y    *gorgonia.Node
	out     *gorgonia.Node
	loss    *gorgonia.Node // nil: not to train
	weights gorgonia.Nodes
}

// finish adds the loss, the mean of the cross entropy over the batch, and its
// gradients.
func (n *network) finish(logits *gorgonia.Node, training bool) (err error) {
	defer catch(&err)
	n.out = must(gorgonia.LogSoftMax(logits))
	if !training {
		return nil
	}
	n.y = gorgonia.NewMatrix(n.g, tensor.Float32, gorgonia.WithShape(n.out.Shape().Clone()...), gorgonia.WithName("y"))
	mean := must(gorgonia.Mean(must(gorgonia.HadamardProd(n.y, n.out)))) // of all rows and classes
	n.loss = must(gorgonia.Mul(mean, gorgonia.NewConstant(float32(-classes))))
	_, err = gorgonia.Grad(n.loss, n.weights...)
	return err
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

// newMLP makes a multi-layer perceptron with layers of the given widths and a
// ReLU between each two: that of examples/mlp, from the same random numbers.
// Without them it takes the values of another network's weights.
func newMLP(batch int, widths []int, rng *rand.Rand, from *network) (n *network, err error) {
	defer catch(&err)
	n = &network{g: gorgonia.NewGraph()}
	n.x = gorgonia.NewMatrix(n.g, tensor.Float32, gorgonia.WithShape(batch, widths[0]), gorgonia.WithName("x"))
	h := n.x
	for i, in := range widths[:len(widths)-1] {
		w := n.weight(fmt.Sprint("w", i), from, func() *tensor.Dense { return normal(rng, math.Sqrt(2/float64(in)), in, widths[i+1]) })
		b := n.weight(fmt.Sprint("b", i), from, func() *tensor.Dense {
			return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, widths[i+1]))
		})
		if i > 0 {
			h = must(gorgonia.Rectify(h))
		}
		h = must(gorgonia.BroadcastAdd(must(gorgonia.Mul(h, w)), b, nil, []byte{0}))
	}
	return n, n.finish(h, from == nil)
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
