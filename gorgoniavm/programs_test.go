package gorgoniavm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// An example does with a machine what one of Gorgonia's examples does, on little
// data, and returns what it would print. bench/programs.sh runs the examples
// themselves.
type example func(t *testing.T, e *cupool.Engine, machine maker) []float64

// A maker makes a machine that computes outputs of a graph.
type maker func(t *testing.T, e *cupool.Engine, g *G.ExprGraph, outputs G.Nodes) programVM

// programVM is what the examples call of a tape machine.
type programVM interface {
	G.VM
	Let(n *G.Node, be any) error
	Set(a, b *G.Node) error
}

var programs = map[string]example{
	"logisticregression":  logisticRegression,
	"stacked_autoencoder": stackedAutoencoder,
	"charRNN":             characters,
	"tiny-yolo-v3":        detection,
}

func withTape(t *testing.T, _ *cupool.Engine, g *G.ExprGraph, outputs G.Nodes) programVM {
	prog, places, err := G.CompileFunction(g, g.ExactSubgraphRoots(outputs...).Inputs(), outputs)
	require.NoError(t, err)
	return G.NewTapeMachine(g, G.WithPrecompiled(prog, places))
}

func (d device) withVM(t *testing.T, e *cupool.Engine, g *G.ExprGraph, outputs G.Nodes) programVM {
	return d.vm(t, g.ExactSubgraphRoots(outputs...), e)
}

// TestPrograms: the machines give programs the same numbers.
func TestPrograms(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for name, run := range programs {
			t.Run(name, func(t *testing.T) {
				e, _ := d.open(t)
				require.InDeltaSlice(t, run(t, nil, withTape), run(t, e, d.withVM), 1e-4)
			})
		}
	})
}

// random makes a tensor of numbers that a seed gives.
func random[F float32 | float64](seed uint64, scale F, shape ...int) *tensor.Dense {
	rng := rand.New(rand.NewPCG(seed, 0))
	numbers := make([]F, tensor.Shape(shape).TotalSize())
	for i := range numbers {
		numbers[i] = scale * F(rng.NormFloat64())
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(numbers))
}

// logisticRegression binds the weights that the graph computes to the weights.
func logisticRegression(t *testing.T, e *cupool.Engine, machine maker) (losses []float64) {
	const n, features = 40, 5
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithShape(n, features), G.WithName("x"), G.WithValue(random[float64](1, 1, n, features)))
	y := G.NewVector(g, tensor.Float64, G.WithShape(n), G.WithName("y"), G.WithInit(G.Ones()))
	w := G.NewVector(g, tensor.Float64, G.WithShape(features), G.WithName("w"))
	b := G.NewScalar(g, tensor.Float64, G.WithName("b"))
	prob := G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Mul(x, w)), b))))
	loss := G.Must(G.Neg(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.Log(prob))))))))
	grads, err := G.Grad(G.Must(G.Add(loss, G.Must(G.Mul(G.NewConstant(0.01), G.Must(G.Sum(G.Must(G.Square(w)))))))), w, b)
	require.NoError(t, err)
	rate := G.NewConstant(0.1)
	nextW, nextB := G.Must(G.Sub(w, G.Must(G.Mul(rate, grads[0])))), G.Must(G.Sub(b, G.Must(G.Mul(rate, grads[1]))))
	var read G.Value
	m := machine(t, e, g, G.Nodes{nextW, nextB, G.Read(loss, &read)})
	require.NoError(t, m.Let(w, random[float64](2, 1, features)))
	require.NoError(t, m.Let(b, 0.0))
	for range 6 {
		m.Reset()
		require.NoError(t, m.RunAll())
		require.NoError(t, m.Set(w, nextW))
		require.NoError(t, m.Set(b, nextB))
		losses = append(losses, read.Data().(float64))
	}
	require.NoError(t, m.Close())
	return losses
}

// stackedAutoencoder trains layers one after the other, each with a machine of
// its own, in a graph that grows.
func stackedAutoencoder(t *testing.T, e *cupool.Engine, machine maker) (losses []float64) {
	const batch = 3
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithShape(batch, 8), G.WithName("x"))
	images := random[float64](1, 0.5, 4*batch, 8)
	h, in := x, 8
	for layer, out := range []int{6, 4} {
		w := G.NewMatrix(g, tensor.Float64, G.WithShape(in, out), G.WithName(fmt.Sprint("w", layer)), G.WithValue(random[float64](2, 0.3, in, out)))
		b := G.NewMatrix(g, tensor.Float64, G.WithShape(batch, out), G.WithName(fmt.Sprint("b", layer)), G.WithInit(G.Zeroes()))
		hidden := G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Mul(h, w)), b))))
		back := G.Must(G.Sigmoid(G.Must(G.Mul(hidden, G.Must(G.Transpose(w))))))
		cost := G.Must(G.Mean(G.Must(G.BinaryXent(back, h))))
		grads, err := G.Grad(cost, w, b)
		require.NoError(t, err)
		var read G.Value
		m := machine(t, e, g, append(grads, G.Read(cost, &read)))
		for i := range 4 {
			rows, err := images.Slice(G.S(i*batch, (i+1)*batch))
			require.NoError(t, err)
			require.NoError(t, G.Let(x, rows))
			require.NoError(t, m.RunAll())
			require.NoError(t, G.NewVanillaSolver(G.WithLearnRate(0.1)).Step([]G.ValueGrad{w, b}))
			m.Reset()
			losses = append(losses, read.Data().(float64))
		}
		require.NoError(t, m.Close())
		h, in = hidden, out
	}
	return losses
}

// characters learns sequences of several lengths, with a graph and a machine for
// each, and weights that go from one graph to the next.
func characters(t *testing.T, e *cupool.Engine, machine maker) (losses []float64) {
	const letters, units = 7, 5
	shapes := []tensor.Shape{{units, letters}, {units, units}, {letters, units}}
	var values []G.Value
	for i, s := range shapes {
		values = append(values, random[float32](uint64(i), 0.4, s...))
	}
	for _, word := range [][]int{{1, 2, 3}, {4, 5}, {1, 2, 3, 4, 5, 6}, {2, 3}} {
		g := G.NewGraph()
		var weights G.Nodes
		for i, v := range values {
			weights = append(weights, G.NodeFromAny(g, v, G.WithName(fmt.Sprint("w", i))))
		}
		cost := spell(g, weights, word, units)
		grads, err := G.Grad(cost, weights...)
		require.NoError(t, err)
		var read G.Value
		m := machine(t, e, g, append(grads, G.Read(cost, &read)))
		require.NoError(t, m.RunAll())
		require.NoError(t, G.NewVanillaSolver(G.WithLearnRate(0.1)).Step(G.NodesToValueGrads(weights)))
		losses = append(losses, float64(read.Data().(float32)))
		require.NoError(t, m.Close())
		for i := range values {
			values[i] = weights[i].Value()
		}
	}
	return losses
}

// spell is the cost of predicting each letter of a word of the one before.
func spell(g *G.ExprGraph, weights G.Nodes, word []int, units int) (cost *G.Node) {
	embedding := G.Must(G.Transpose(weights[0]))
	h := G.NewVector(g, tensor.Float32, G.WithShape(units), G.WithName("h"), G.WithInit(G.Zeroes()))
	for i := range len(word) - 1 {
		in := G.Must(G.Slice(embedding, G.S(word[i])))
		h = G.Must(G.Tanh(G.Must(G.Add(in, G.Must(G.Mul(weights[1], h))))))
		logits := G.Must(G.Mul(weights[2], h))
		loss := G.Must(G.Slice(G.Must(G.Neg(G.Must(G.Log(G.Must(G.SoftMax(logits)))))), G.S(word[i+1])))
		if cost == nil {
			cost = loss
		} else {
			cost = G.Must(G.Add(cost, loss))
		}
	}
	return cost
}

// detection finds boxes: the operations of the small YOLO network.
func detection(t *testing.T, e *cupool.Engine, machine maker) (found []float64) {
	g := G.NewGraph()
	input := func(name string, seed uint64, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float32, 4, G.WithShape(shape...), G.WithName(name), G.WithValue(random[float32](seed, 0.5, shape...)))
	}
	conv := func(x *G.Node, seed uint64, out, size int) *G.Node {
		w := input(fmt.Sprint("w", seed), seed, out, x.Shape()[1], size, size)
		pad := []int{(size - 1) / 2, (size - 1) / 2}
		return G.Must(G.LeakyRelu(G.Must(G.Conv2d(x, w, tensor.Shape{size, size}, pad, []int{1, 1}, []int{1, 1})), 0.1))
	}
	wide := conv(input("image", 1, 1, 3, 8, 8), 2, 4, 3)
	narrow := conv(G.Must(G.MaxPool2D(wide, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})), 3, 4, 3)
	both := G.Must(G.Concat(1, G.Must(G.Upsample2D(narrow, 2)), wide))
	boxes := G.Must(G.YOLOv3(conv(both, 4, 2*(5+3), 1), []float32{2, 3, 4, 5}, []int{0, 1}, 32, 3, 0.5))
	var read G.Value
	m := machine(t, e, g, G.Nodes{G.Read(boxes, &read)})
	require.NoError(t, m.RunAll())
	for _, v := range read.Data().([]float32) {
		found = append(found, float64(v))
	}
	require.NoError(t, m.Close())
	return found
}
