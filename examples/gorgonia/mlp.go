package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mlpNet is the perceptron of examples/mlp, from the same random numbers.
func mlpNet() *net {
	widths := func(o *options) []int { return o.Hidden.Layers(pixels, classes) }
	return &net{
		name:     "mlp",
		about:    "the perceptron of examples/mlp",
		samples:  "images",
		fixed:    []string{"cell", "steps"},
		describe: func(o *options) string { return fmt.Sprint("layers ", widths(o)) },
		open:     openImages,
		build: func(o *options, rng *rand.Rand, from *network) (*network, error) {
			return newMLP(o.Batch, widths(o), rng, from)
		},
	}
}

// newMLP makes a multi-layer perceptron with layers of the given widths and a
// ReLU between each two. Without random numbers it takes the values of another
// network's weights.
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
