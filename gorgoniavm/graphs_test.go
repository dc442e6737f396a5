package gorgoniavm_test

import (
	"math/rand"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mlpSizes are the layers of the MNIST network.
var mlpSizes = []int{784, 512, 256, 10}

const mlpBatch = 128

// model is a graph that learns.
type model struct {
	g       *G.ExprGraph
	cost    *G.Node
	inputs  G.Nodes
	weights G.Nodes
}

// values returns random numbers, the same ones for a seed.
func values(seed int64, shape ...int) *tensor.Dense {
	r := rand.New(rand.NewSource(seed))
	data := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = float32(r.NormFloat64()) * 0.05
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// oneHot returns classes as rows.
func oneHot(seed int64, n, classes int) *tensor.Dense {
	r := rand.New(rand.NewSource(seed))
	data := make([]float32, n*classes)
	for i := range n {
		data[i*classes+r.Intn(classes)] = 1
	}
	return tensor.New(tensor.WithShape(n, classes), tensor.WithBacking(data))
}

// newMLP returns a network of layers with biases, with its gradients.
func newMLP(batch int, sizes ...int) *model {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(batch, sizes[0]), G.WithName("x"), G.WithValue(values(1, batch, sizes[0])))
	classes := sizes[len(sizes)-1]
	y := G.NewMatrix(g, tensor.Float32, G.WithShape(batch, classes), G.WithName("y"), G.WithValue(oneHot(2, batch, classes)))
	m := &model{g: g, inputs: G.Nodes{x, y}}
	h := x
	for i := 1; i < len(sizes); i++ {
		w := G.NewMatrix(g, tensor.Float32, G.WithShape(sizes[i-1], sizes[i]), G.WithName(name("w", i)), G.WithValue(values(int64(10*i), sizes[i-1], sizes[i])))
		b := G.NewMatrix(g, tensor.Float32, G.WithShape(1, sizes[i]), G.WithName(name("b", i)), G.WithValue(values(int64(10*i+1), 1, sizes[i])))
		m.weights = append(m.weights, w, b)
		h = G.Must(G.BroadcastAdd(G.Must(G.Mul(h, w)), b, nil, []byte{0}))
		if i < len(sizes)-1 {
			h = G.Must(G.Rectify(h))
		}
	}
	p := G.Must(G.SoftMax(h))
	m.cost = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.Log(p))))))))
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

func name(s string, i int) string { return s + string(rune('0'+i)) }

func newMNIST() *model { return newMLP(mlpBatch, mlpSizes...) }
