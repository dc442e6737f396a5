package main

import (
	_ "embed"
	"fmt"
	"math"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// recurrent is a layer over sequences, and what is known of it at a step.
type recurrent struct {
	batch, units int
	wh           *node
	h, c         *node // nil: zeros, before the first step
}

// buildRNN makes a layer of units that see a character a step, and one on top of
// it for each step. The weights of all gates are one matrix, as are the inputs of
// all steps.
func buildRNN(o *options, b *builder) *node {
	r := &recurrent{batch: o.Batch, units: o.Hidden[0]}
	gates, step := 4, r.lstm
	if o.cell == "gru" {
		gates, step = 3, r.gru
	}
	rows, width := o.steps*o.Batch, len(alphabet)
	x := b.input(rows, width)
	sigma := math.Sqrt(1 / float64(r.units))
	wx := b.weight("wx", b.normal(sigma), width, gates*r.units)
	bias := b.weight("b", b.normal(0), 1, gates*r.units)
	r.wh = b.weight("wh", b.normal(sigma), r.units, gates*r.units)
	z := must(gorgonia.Reshape(affine(x, wx, bias), tensor.Shape{o.steps, o.Batch, gates * r.units}))
	var hs gorgonia.Nodes
	for t := range o.steps {
		zt := must(gorgonia.Slice(z, gorgonia.S(t)))
		step(must(gorgonia.Reshape(zt, tensor.Shape{o.Batch, gates * r.units})))
		hs = append(hs, must(gorgonia.Reshape(r.h, tensor.Shape{1, o.Batch, r.units})))
	}
	h := hs[0]
	if len(hs) > 1 {
		h = must(gorgonia.Concat(0, hs...))
	}
	wo := b.weight("wo", b.normal(sigma), r.units, width)
	bo := b.weight("bo", b.normal(0), 1, width)
	return affine(must(gorgonia.Reshape(h, tensor.Shape{rows, r.units})), wo, bo)
}

// lstm is a step of long short-term memory.
func (r *recurrent) lstm(z *node) {
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
func (r *recurrent) gru(z *node) {
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

func sigmoid(x *node) *node { return must(gorgonia.Sigmoid(x)) }

// gates returns a function for the parts of a matrix that belong to each gate.
// They are slices along an axis of their own, as Gorgonia would take slices
// that differ by 256 columns for the same one.
func (r *recurrent) gates(z *node, n int) func(k int) *node {
	z = must(gorgonia.Reshape(z, tensor.Shape{r.batch, n, r.units}))
	return func(k int) *node {
		gate := must(gorgonia.Slice(z, nil, gorgonia.S(k)))
		return must(gorgonia.Reshape(gate, tensor.Shape{r.batch, r.units})) // also of one sample, or one unit
	}
}

// opticks are the first propositions of Newton's Opticks, in its fourth edition
// of 1730, whose copyright has run out.
//
//go:embed opticks.txt
var opticks string

// alphabet has the characters that are told from each other. The last one stands
// for all others.
const alphabet = "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:-'()?#"

// openText has a network learn from the first nine tenths of the text and tests
// it with the rest.
func openText(o *options) (train, test samples, err error) {
	var at []int // places in the alphabet
	for _, r := range opticks {
		i := strings.IndexRune(alphabet, r)
		if i < 0 {
			i = len(alphabet) - 1
		}
		at = append(at, i)
	}
	part := len(at) * 9 / 10
	train, test = sequences(at[:part], o.steps), sequences(at[part:], o.steps)
	if o.TrainSamples > 0 {
		train.n = min(train.n, o.TrainSamples)
	}
	if o.TestSamples > 0 {
		test.n = min(test.n, o.TestSamples)
	}
	if train.n < o.Batch || test.n == 0 {
		return train, test, fmt.Errorf("the text has %d samples of %d characters to learn from, too few for a batch of %d", train.n, o.steps, o.Batch)
	}
	return train, test, nil
}

// sequences are stretches of a text: a sample has the characters of one, and what
// follows each. A batch has the first characters of all its samples, then the
// second ones, and so on.
func sequences(text []int, steps int) samples {
	return samples{
		n:    max(0, len(text)-1) / steps,
		rows: steps,
		batch: func(order []int, size int) (x, y []float32) {
			n := size * steps * len(alphabet)
			x, y = make([]float32, n), make([]float32, n)
			for i, sample := range order {
				for t := range steps {
					row := (t*size + i) * len(alphabet)
					x[row+text[sample*steps+t]], y[row+text[sample*steps+t+1]] = 1, 1
				}
			}
			return x, y
		},
	}
}
