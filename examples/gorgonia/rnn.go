package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rnnNet is a recurrent network that foretells the next character of a text.
func rnnNet() *net {
	return &net{
		name:      "rnn",
		about:     "a recurrent network of -cell units that foretells the next character of a text",
		samples:   "sequences",
		optimizer: "adam",
		lr:        0.005,
		batch:     32,
		fixed:     []string{"data", "shift", "shuffle-labels"},
		describe: func(o *options) string {
			return fmt.Sprintf("%v %s units over %d characters", o.Hidden, o.cell, o.steps)
		},
		open: openText,
		build: func(o *options, rng *rand.Rand, from *network) (*network, error) {
			return newRNN(o, rng, from)
		},
	}
}

// checkRNN checks the options that only a recurrent network has.
func (o *options) checkRNN() error {
	switch {
	case o.cell != "lstm" && o.cell != "gru":
		return fmt.Errorf("-cell is lstm or gru, not %q", o.cell)
	case o.steps < 1 || o.steps > 255: // Gorgonia takes slices that differ by 256 for the same one
		return fmt.Errorf("-steps is 1 to 255, not %d", o.steps)
	case len(o.Hidden) != 1:
		return errors.New("-net rnn has one -hidden layer")
	}
	return nil
}

// recurrent is a layer over sequences, and what is known of it at a step.
type recurrent struct {
	batch, units, steps int
	wh                  *gorgonia.Node
	h, c                *gorgonia.Node // nil: zeros, before the first step
}

// newRNN makes a layer of units that see a character a step, and one on top of it
// for each step. The weights of all gates are one matrix, as are the inputs of
// all steps.
func newRNN(o *options, rng *rand.Rand, from *network) (n *network, err error) {
	defer catch(&err)
	n = &network{g: gorgonia.NewGraph()}
	r := &recurrent{batch: o.Batch, units: o.Hidden[0], steps: o.steps}
	gates, step := 4, r.lstm
	if o.cell == "gru" {
		gates, step = 3, r.gru
	}
	rows, width := r.steps*r.batch, len(alphabet)
	n.x = gorgonia.NewMatrix(n.g, tensor.Float32, gorgonia.WithShape(rows, width), gorgonia.WithName("x"))
	sigma := math.Sqrt(1 / float64(r.units))
	wx := n.weight("wx", from, func() *tensor.Dense { return normal(rng, sigma, width, gates*r.units) })
	b := n.weight("b", from, func() *tensor.Dense { return normal(rng, 0, 1, gates*r.units) })
	r.wh = n.weight("wh", from, func() *tensor.Dense { return normal(rng, sigma, r.units, gates*r.units) })
	z := affine(n.x, wx, b)
	z = must(gorgonia.Reshape(z, tensor.Shape{r.steps, r.batch, gates * r.units}))
	var hs gorgonia.Nodes
	for t := range r.steps {
		zt := must(gorgonia.Slice(z, gorgonia.S(t)))
		step(must(gorgonia.Reshape(zt, tensor.Shape{r.batch, gates * r.units})))
		hs = append(hs, must(gorgonia.Reshape(r.h, tensor.Shape{1, r.batch, r.units})))
	}
	h := hs[0]
	if len(hs) > 1 {
		h = must(gorgonia.Concat(0, hs...))
	}
	wo := n.weight("wo", from, func() *tensor.Dense { return normal(rng, sigma, r.units, width) })
	bo := n.weight("bo", from, func() *tensor.Dense { return normal(rng, 0, 1, width) })
	h = must(gorgonia.Reshape(h, tensor.Shape{rows, r.units}))
	return n, n.finish(affine(h, wo, bo), from == nil)
}

// affine is x·w + b.
func affine(x, w, b *gorgonia.Node) *gorgonia.Node {
	return must(gorgonia.BroadcastAdd(must(gorgonia.Mul(x, w)), b, nil, []byte{0}))
}

// lstm is a step of long short-term memory.
func (r *recurrent) lstm(z *gorgonia.Node) {
	if r.h != nil {
		z = must(gorgonia.Add(z, must(gorgonia.Mul(r.h, r.wh))))
	}
	gate := r.gates(z, 4)
	c := must(gorgonia.HadamardProd(sigmoid(gate(0)), must(gorgonia.Tanh(gate(1)))))
	if r.c != nil {
		c = must(gorgonia.Add(must(gorgonia.HadamardProd(sigmoid(gate(2)), r.c)), c))
	}
	r.c = c
	r.h = must(gorgonia.HadamardProd(sigmoid(gate(3)), must(gorgonia.Tanh(c))))
}

// gru is a step of gated recurrent units.
func (r *recurrent) gru(z *gorgonia.Node) {
	x := r.gates(z, 3)
	if r.h == nil {
		update := sigmoid(must(gorgonia.Neg(x(0))))
		r.h = must(gorgonia.HadamardProd(update, must(gorgonia.Tanh(x(1)))))
		return
	}
	u := r.gates(must(gorgonia.Mul(r.h, r.wh)), 3)
	keep := sigmoid(must(gorgonia.Add(x(0), u(0))))
	reset := sigmoid(must(gorgonia.Add(x(2), u(2))))
	next := must(gorgonia.Tanh(must(gorgonia.Add(x(1), must(gorgonia.HadamardProd(reset, u(1)))))))
	change := must(gorgonia.HadamardProd(keep, must(gorgonia.Sub(r.h, next))))
	r.h = must(gorgonia.Add(next, change))
}

func sigmoid(x *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Sigmoid(x)) }

// gates returns a function for the parts of a matrix that belong to each gate.
// They are slices along an axis of their own, as Gorgonia would take slices
// that differ by 256 columns for the same one.
func (r *recurrent) gates(z *gorgonia.Node, n int) func(k int) *gorgonia.Node {
	z = must(gorgonia.Reshape(z, tensor.Shape{r.batch, n, r.units}))
	return func(k int) *gorgonia.Node {
		gate := must(gorgonia.Slice(z, nil, gorgonia.S(k)))
		return must(gorgonia.Reshape(gate, tensor.Shape{r.batch, r.units})) // also of one sample, or one unit
	}
}
