package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// resnetNet is a small residual network.
func resnetNet() *net {
	return &net{
		name:     "resnet",
		about:    "a residual network of 13 convolutions with batch normalization, and two on shortcuts",
		samples:  "images",
		batch:    64,
		fixed:    []string{"hidden", "cell", "steps"},
		describe: func(*options) string { return "a residual network of stages of 16, 32 and 64 channels" },
		open:     openImages,
		build: func(o *options, rng *rand.Rand, from *network) (*network, error) {
			return newResnet(o.Batch, rng, from)
		},
	}
}

// newResnet makes a convolution of 16 channels and three stages of two blocks,
// each with twice the channels and half the height and width of the one before,
// then the mean over the image and a layer.
func newResnet(batch int, rng *rand.Rand, from *network) (n *network, err error) {
	defer catch(&err)
	n = &network{g: gorgonia.NewGraph()}
	n.x = gorgonia.NewTensor(n.g, tensor.Float32, 4, gorgonia.WithShape(batch, 1, side, side), gorgonia.WithName("x"))
	l := &layers{network: n, rng: rng, from: from}
	channels := 16
	h := must(gorgonia.Rectify(l.normalized(n.x, channels, 3, 1)))
	for stage := range 3 {
		h = l.block(h, channels<<stage, 1+min(stage, 1))
		h = l.block(h, channels<<stage, 1)
	}
	shape := h.Shape()
	c, size := shape[1], shape[2]*shape[3]
	sum := must(gorgonia.Sum(must(gorgonia.Reshape(h, tensor.Shape{batch, c, size})), 2))
	mean := must(gorgonia.Mul(must(gorgonia.Reshape(sum, tensor.Shape{batch, c})), gorgonia.NewConstant(1/float32(size))))
	w := l.gaussian("w", math.Sqrt(1/float64(c)), c, classes)
	b := l.filled("b", 0, 1, classes)
	return n, n.finish(must(gorgonia.BroadcastAdd(must(gorgonia.Mul(mean, w)), b, nil, []byte{0})), from == nil)
}

// layers makes the layers of a network of images.
type layers struct {
	*network
	rng  *rand.Rand
	from *network
}

// block is a residual block: two normalized convolutions of 3 × 3, the first one
// with a stride, added to their input. Where the shapes differ, a normalized
// convolution of 1 × 1 makes the input fit.
func (l *layers) block(x *gorgonia.Node, channels, stride int) *gorgonia.Node {
	h := must(gorgonia.Rectify(l.normalized(x, channels, 3, stride)))
	h = l.normalized(h, channels, 3, 1)
	if stride > 1 || x.Shape()[1] != channels {
		x = l.normalized(x, channels, 1, stride)
	}
	return must(gorgonia.Rectify(must(gorgonia.Add(h, x))))
}

// normalized is a convolution without bias and its batch normalization.
func (l *layers) normalized(x *gorgonia.Node, channels, kernel, stride int) *gorgonia.Node {
	i, in := len(l.norms), x.Shape()[1]
	w := l.gaussian(fmt.Sprint("conv", i), math.Sqrt(2/float64(in*kernel*kernel)), channels, in, kernel, kernel)
	pad := (kernel - 1) / 2
	h := must(gorgonia.Conv2d(x, w, tensor.Shape{kernel, kernel}, []int{pad, pad}, []int{stride, stride}, []int{1, 1}))
	return l.batchNorm(h, l.filled(fmt.Sprint("scale", i), 1, 1, channels, 1, 1), l.filled(fmt.Sprint("shift", i), 0, 1, channels, 1, 1))
}

// batchNorm normalizes each channel. In training, a tenth of its running
// statistics is what the last batch had.
func (l *layers) batchNorm(x, scale, shift *gorgonia.Node) *gorgonia.Node {
	y, _, _, op, err := gorgonia.BatchNorm(x, scale, shift, 0.1, 1e-5)
	l.norms = append(l.norms, op)
	return must(y, err)
}

// gaussian adds a weight of normally distributed numbers.
func (l *layers) gaussian(name string, sigma float64, shape ...int) *gorgonia.Node {
	return l.weight(name, l.from, func() *tensor.Dense { return normal(l.rng, sigma, shape...) })
}

// filled adds a weight of equal numbers.
func (l *layers) filled(name string, value float32, shape ...int) *gorgonia.Node {
	return l.weight(name, l.from, func() *tensor.Dense {
		t := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
		for i := range t.Float32s() {
			t.Float32s()[i] = value
		}
		return t
	})
}
