package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/mnist"
)

// The sizes of MNIST, which networks of images are made for.
const (
	side    = 28
	pixels  = side * side
	classes = mnist.Classes
)

type node = gorgonia.Node

// A network is a graph from a batch of samples, x, to the logarithms of the
// probabilities of classes, in rows. One to train has the loss as well, with its
// gradients by the weights; y are the classes that are wanted, one 1 in each row.
type network struct {
	g       *gorgonia.ExprGraph
	x, y    *node
	out     *node
	loss    *node // nil: not to train
	weights gorgonia.Nodes
	norms   []*gorgonia.BatchNormOp
}

// newNetwork makes the network that -net names: to train, or to test one that is
// trained, with its weights.
func newNetwork(o *options, rng *rand.Rand, trained *network) (n *network, err error) {
	defer catch(&err)
	b := &builder{&network{g: gorgonia.NewGraph()}, rng, trained}
	logits := nets[o.net].build(o, b)
	b.out = must(gorgonia.LogSoftMax(logits))
	if trained != nil {
		return b.network, nil
	}
	shape := b.out.Shape().Clone()
	b.y = gorgonia.NewMatrix(b.g, tensor.Float32, gorgonia.WithShape(shape...), gorgonia.WithName("y"))
	mean := must(gorgonia.Mean(must(gorgonia.HadamardProd(b.y, b.out)))) // of all rows and classes
	b.loss = must(gorgonia.Mul(mean, gorgonia.NewConstant(float32(-shape[1]))))
	_, err = gorgonia.Grad(b.loss, b.weights...)
	return b.network, err
}

// learned gives the batch normalizations the running statistics of the network
// that is trained. Weights are the same tensors in both.
func (n *network) learned(trained *network) error {
	for i, op := range n.norms {
		if err := op.SetStats(trained.norms[i].Stats()); err != nil {
			return err
		}
	}
	return nil
}

// A builder builds a network.
type builder struct {
	*network
	rng     *rand.Rand
	trained *network // nil: the network is to be trained
}

// input adds x.
func (b *builder) input(shape ...int) *node {
	b.x = gorgonia.NewTensor(b.g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName("x"))
	return b.x
}

// weight adds a weight with values, or with those of the same weight of the
// network that is trained.
func (b *builder) weight(name string, value func() float64, shape ...int) *node {
	var v gorgonia.Value
	if b.trained != nil {
		v = b.trained.weights[len(b.weights)].Value()
	} else {
		t := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
		for i := range t.Float32s() {
			t.Float32s()[i] = float32(value())
		}
		v = t
	}
	w := gorgonia.NewTensor(b.g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
	b.weights = append(b.weights, w)
	return w
}

// normal draws normally distributed numbers, and equal gives equal ones.
func (b *builder) normal(sigma float64) func() float64 {
	return func() float64 { return sigma * b.rng.NormFloat64() }
}

func equal(value float64) func() float64 { return func() float64 { return value } }

// affine is x·w + b.
func affine(x, w, b *node) *node {
	return must(gorgonia.BroadcastAdd(must(gorgonia.Mul(x, w)), b, nil, []byte{0}))
}

// buildMLP makes the multi-layer perceptron of examples/mlp, with a ReLU between
// each two layers.
func buildMLP(o *options, b *builder) *node {
	widths := o.Hidden.Layers(pixels, classes)
	h := b.input(o.Batch, widths[0])
	for i, in := range widths[:len(widths)-1] {
		if i > 0 {
			h = must(gorgonia.Rectify(h))
		}
		w := b.weight(fmt.Sprint("w", i), b.normal(math.Sqrt(2/float64(in))), in, widths[i+1])
		h = affine(h, w, b.weight(fmt.Sprint("b", i), equal(0), 1, widths[i+1]))
	}
	return h
}

// buildConvnet makes the network of gorgonia.org/gorgonia/examples/convnet, for
// float32: three convolutions with pooling and two layers, with dropout between
// them while it is trained.
func buildConvnet(o *options, b *builder) *node {
	dropout := func(h *node, part float64) *node {
		if b.trained != nil {
			return h
		}
		return must(gorgonia.Dropout(h, part))
	}
	glorot := func(in, out, field int) func() float64 { return b.normal(math.Sqrt(2 / float64((in+out)*field))) }
	h := b.input(o.Batch, 1, side, side)
	for i, channels := range [][2]int{{1, 32}, {32, 64}, {64, 128}} {
		in, out := channels[0], channels[1]
		h = b.conv(h, b.weight(fmt.Sprint(i), glorot(in, out, 9), out, in, 3, 3), 1, 1)
		h = must(gorgonia.MaxPool2D(must(gorgonia.Rectify(h)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		if i < 2 {
			h = dropout(h, 0.2)
		}
	}
	const last = 128 * 3 * 3
	h = dropout(must(gorgonia.Reshape(h, tensor.Shape{o.Batch, last})), 0.2)
	w3 := b.weight("w3", glorot(last, 625, 1), last, 625)
	h = dropout(must(gorgonia.Rectify(must(gorgonia.Mul(h, w3)))), 0.55)
	return must(gorgonia.Mul(h, b.weight("w4", glorot(625, classes, 1), 625, classes)))
}

// conv is a convolution.
func (b *builder) conv(x, w *node, pad, stride int) *node {
	return must(gorgonia.Conv2d(x, w, w.Shape()[2:], []int{pad, pad}, []int{stride, stride}, []int{1, 1}))
}

// buildResnet makes a convolution of 16 channels and three stages of two blocks,
// each stage with twice the channels and half the height and width of the one
// before, then the mean over the image and a layer.
func buildResnet(o *options, b *builder) *node {
	channels := 16
	h := must(gorgonia.Rectify(b.normalized(b.input(o.Batch, 1, side, side), channels, 3, 1)))
	for stage := range 3 {
		h = b.block(h, channels<<stage, 1+min(stage, 1))
		h = b.block(h, channels<<stage, 1)
	}
	shape := h.Shape()
	c, size := shape[1], shape[2]*shape[3]
	sum := must(gorgonia.Sum(must(gorgonia.Reshape(h, tensor.Shape{o.Batch, c, size})), 2))
	mean := must(gorgonia.Mul(must(gorgonia.Reshape(sum, tensor.Shape{o.Batch, c})), gorgonia.NewConstant(1/float32(size))))
	w := b.weight("w", b.normal(math.Sqrt(1/float64(c))), c, classes)
	return affine(mean, w, b.weight("b", equal(0), 1, classes))
}

// block is a residual block: two normalized convolutions of 3 × 3, the first one
// with a stride, added to their input. Where the shapes differ, a normalized
// convolution of 1 × 1 makes the input fit.
func (b *builder) block(x *node, channels, stride int) *node {
	h := must(gorgonia.Rectify(b.normalized(x, channels, 3, stride)))
	h = b.normalized(h, channels, 3, 1)
	if stride > 1 || x.Shape()[1] != channels {
		x = b.normalized(x, channels, 1, stride)
	}
	return must(gorgonia.Rectify(must(gorgonia.Add(h, x))))
}

// normalized is a convolution without bias and its batch normalization. In
// training, a tenth of the running statistics is what the last batch had.
func (b *builder) normalized(x *node, channels, kernel, stride int) *node {
	i, in := len(b.norms), x.Shape()[1]
	w := b.weight(fmt.Sprint("conv", i), b.normal(math.Sqrt(2/float64(in*kernel*kernel))), channels, in, kernel, kernel)
	h := b.conv(x, w, (kernel-1)/2, stride)
	scale := b.weight(fmt.Sprint("scale", i), equal(1), 1, channels, 1, 1)
	shift := b.weight(fmt.Sprint("shift", i), equal(0), 1, channels, 1, 1)
	y, _, _, op, err := gorgonia.BatchNorm(h, scale, shift, 0.1, 1e-5)
	b.norms = append(b.norms, op)
	return must(y, err)
}

// A failure is what must panics with, so that a graph reads as a formula.
type failure struct{ error }

// must is a node that could be made.
func must(n *node, err error) *node {
	if err != nil {
		panic(failure{err})
	}
	return n
}

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
