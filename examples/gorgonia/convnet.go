package main

import (
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// convnetNet is Gorgonia's example, with its optimizer and its learning rate.
func convnetNet() *net {
	return &net{
		name:      "convnet",
		about:     "Gorgonia's example with its optimizer, RMSProp, and its learning rate",
		samples:   "images",
		optimizer: "rmsprop",
		lr:        0.001,
		fixed:     []string{"hidden", "optimizer", "cell", "steps"},
		describe:  func(*options) string { return "Gorgonia's convolutional network" },
		open:      openImages,
		build: func(o *options, rng *rand.Rand, from *network) (*network, error) {
			return newConvnet(o.Batch, rng, from)
		},
	}
}

// newConvnet makes the network of gorgonia.org/gorgonia/examples/convnet, for
// float32: three convolutions with pooling and two layers, with dropout
// between them. A network to test has no dropout, and takes the values of the
// weights of another one.
func newConvnet(batch int, rng *rand.Rand, from *network) (n *network, err error) {
	defer catch(&err)
	n = &network{g: gorgonia.NewGraph()}
	n.x = gorgonia.NewTensor(n.g, tensor.Float32, 4, gorgonia.WithShape(batch, 1, side, side), gorgonia.WithName("x"))
	h := n.x
	for i, channels := range [][2]int{{1, 32}, {32, 64}, {64, 128}} {
		w := n.weight(string(rune('0'+i)), from, func() *tensor.Dense { return glorot(rng, channels[1], channels[0], 3, 3) })
		h = must(gorgonia.Conv2d(h, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
		h = must(gorgonia.MaxPool2D(must(gorgonia.Rectify(h)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		if i < 2 {
			h = dropout(h, 0.2, from)
		}
	}
	const last = 128 * 3 * 3
	h = dropout(must(gorgonia.Reshape(h, tensor.Shape{batch, last})), 0.2, from)
	w3 := n.weight("w3", from, func() *tensor.Dense { return glorot(rng, last, 625) })
	h = dropout(must(gorgonia.Rectify(must(gorgonia.Mul(h, w3)))), 0.55, from)
	w4 := n.weight("w4", from, func() *tensor.Dense { return glorot(rng, 625, classes) })
	return n, n.finish(must(gorgonia.Mul(h, w4)), from == nil)
}

// dropout drops a part of the values of a network that is trained.
func dropout(h *gorgonia.Node, part float64, from *network) *gorgonia.Node {
	if from != nil {
		return h
	}
	return must(gorgonia.Dropout(h, part))
}

// glorot makes a weight as gorgonia.GlorotN(1) does, of random numbers of ours.
func glorot(rng *rand.Rand, shape ...int) *tensor.Dense {
	field := 1
	for _, d := range shape[2:] {
		field *= d
	}
	return normal(rng, math.Sqrt(2/float64((shape[0]+shape[1])*field)), shape...)
}
