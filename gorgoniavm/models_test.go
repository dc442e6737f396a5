package gorgoniavm_test

import (
	"io"
	"log"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia's group normalization prints its gradients.
func init() { log.SetOutput(io.Discard) }

// models are graphs that the machines are compared on. Most are those of
// gorgonia's tests and examples.
var models = map[string]func() *model{
	"mlp":                 func() *model { return newMLP(16, 20, 30, 10) },
	"convnet":             newConvnet,
	"lstm":                newLSTM,
	"rnn":                 newRNN,
	"linear regression":   newLinearRegression,
	"logistic regression": newLogisticRegression,
	"batch norm":          newBatchNorm,
	"pool and norm":       newPoolAndNorm,
	"group norm":          newGroupNorm,
	"average pool":        newAveragePool,
	"upsample":            newUpsample,
	"slices and concat":   newSlicesAndConcat,
	"products":            newProducts,
	"reductions":          newReductions,
	"by indices":          newByIndices,
	"sparsemax":           newSparsemax,
	"activations":         newActivations,
	"comparisons":         newComparisons,
	"log softmax":         newLogSoftMax,
	"lstm layer":          func() *model { return newLSTMLayer(3, 4, 5, 4, 6) },
	"gru layer":           func() *model { return newGRULayer(3, 4, 5, 4, 6) },
	"character model":     func() *model { return newCharacterModel(4, 8, 5, 6) },
	"cross entropy":       func() *model { return newLoss(fusedLosses["mean"].loss) },
}

// param returns an input of the graph with random numbers.
func (m *model) param(name string, seed int64, shape ...int) *G.Node {
	n := G.NewTensor(m.g, tensor.Float32, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(values(seed, shape...)))
	m.weights = append(m.weights, n)
	return n
}

// learn makes the sum of squares of nodes the cost and derives it.
func (m *model) learn(nodes ...*G.Node) *model {
	for _, n := range nodes {
		c := n
		if !n.IsScalar() {
			c = G.Must(G.Sum(G.Must(G.Square(n))))
		}
		if m.cost == nil {
			m.cost = c
		} else {
			m.cost = G.Must(G.Add(m.cost, c))
		}
	}
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

func startModel() *model { return &model{g: G.NewGraph()} }

// newConvnet is gorgonia's example, smaller and without its dropout.
func newConvnet() *model { return newConvnetOf(3, 12, 4, 8) }

// newConvnetOf returns a network of convolutions for a batch of square images.
func newConvnetOf(batch, size int, channels ...int) *model {
	m := startModel()
	x := G.NewTensor(m.g, tensor.Float32, 4, G.WithShape(batch, 1, size, size), G.WithName("x"), G.WithValue(values(1, batch, 1, size, size)))
	y := G.NewMatrix(m.g, tensor.Float32, G.WithShape(batch, 10), G.WithName("y"), G.WithValue(oneHot(2, batch, 10)))
	m.inputs = G.Nodes{x, y}
	h := x
	from := 1
	for i, c := range channels {
		w := m.param(name("w", i), int64(3+i), c, from, 3, 3)
		h = G.Must(G.Rectify(G.Must(G.Conv2d(h, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))))
		h = G.Must(G.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		from, size = c, size/2
	}
	h = G.Must(G.Reshape(h, tensor.Shape{batch, from * size * size}))
	h = G.Must(G.Rectify(G.Must(G.Mul(h, m.param("w8", 8, from*size*size, 20)))))
	p := G.Must(G.SoftMax(G.Must(G.Mul(h, m.param("w9", 9, 20, 10)))))
	m.cost = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.HadamardProd(G.Must(G.Log(p)), y))))))
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

// newLSTM is two steps of the cell of gorgonia's charRNN example. How gonum
// adds up a dot product of float32 depends on whether the vector begins at a
// multiple of 16 bytes; Go's heap has vectors of 8 numbers there, as the pool
// has all.
func newLSTM() *model {
	const in, hidden = 8, 8
	m := startModel()
	gate := make(map[string][3]*G.Node)
	for i, g := range []string{"i", "f", "o", "c"} {
		gate[g] = [3]*G.Node{
			m.param("wx"+g, int64(10*i), hidden, in),
			m.param("wh"+g, int64(10*i+1), hidden, hidden),
			m.param("b"+g, int64(10*i+2), hidden),
		}
	}
	embedding := m.param("embedding", 99, 4, in)
	h := m.param("h", 100, hidden)
	c := m.param("c", 101, hidden)
	for t := range 2 {
		x := G.Must(G.Slice(embedding, G.S(t+1)))
		z := func(g string) *G.Node {
			w := gate[g]
			return G.Must(G.Add(G.Must(G.Add(G.Must(G.Mul(w[0], x)), G.Must(G.Mul(w[1], h)))), w[2]))
		}
		input, forget, output := G.Must(G.Sigmoid(z("i"))), G.Must(G.Sigmoid(z("f"))), G.Must(G.Sigmoid(z("o")))
		c = G.Must(G.Add(G.Must(G.HadamardProd(forget, c)), G.Must(G.HadamardProd(input, G.Must(G.Tanh(z("c")))))))
		h = G.Must(G.HadamardProd(output, G.Must(G.Tanh(c))))
	}
	return m.learn(G.Must(G.SoftMax(h)))
}

// newRNN unrolls a plain recurrent network over a batch.
func newRNN() *model {
	const batch, in, hidden, steps = 3, 4, 6, 4
	m := startModel()
	wx, wh := m.param("wx", 1, in, hidden), m.param("wh", 2, hidden, hidden)
	xs := m.param("xs", 3, steps, batch, in)
	h := m.param("h", 4, batch, hidden)
	var all G.Nodes
	for t := range steps {
		x := G.Must(G.Slice(xs, G.S(t)))
		h = G.Must(G.Tanh(G.Must(G.Add(G.Must(G.Mul(x, wx)), G.Must(G.Mul(h, wh))))))
		all = append(all, h)
	}
	return m.learn(G.Must(G.Concat(1, all...)))
}

// newLinearRegression has scalars to learn.
func newLinearRegression() *model {
	m := startModel()
	x := G.NewVector(m.g, tensor.Float32, G.WithShape(50), G.WithName("x"), G.WithValue(values(1, 50)))
	y := G.NewVector(m.g, tensor.Float32, G.WithShape(50), G.WithName("y"), G.WithValue(values(2, 50)))
	a := G.NewScalar(m.g, tensor.Float32, G.WithName("a"), G.WithValue(float32(0.5)))
	b := G.NewScalar(m.g, tensor.Float32, G.WithName("b"), G.WithValue(float32(0.25)))
	m.weights = G.Nodes{a, b}
	pred := G.Must(G.Add(G.Must(G.Mul(x, a)), b))
	return m.learn(G.Must(G.Mean(G.Must(G.Square(G.Must(G.Sub(pred, y)))))))
}

// newLogisticRegression is gorgonia's example, with regularization.
func newLogisticRegression() *model {
	m := startModel()
	x := G.NewMatrix(m.g, tensor.Float32, G.WithShape(20, 7), G.WithName("x"), G.WithValue(values(1, 20, 7)))
	y := G.NewVector(m.g, tensor.Float32, G.WithShape(20), G.WithName("y"), G.WithValue(values(2, 20)))
	w := m.param("w", 3, 7)
	b := G.NewScalar(m.g, tensor.Float32, G.WithName("bias"), G.WithValue(float32(0.1)))
	m.weights = append(m.weights, b)
	one := G.NewConstant(float32(1), G.WithName("1"))
	prob := G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Mul(x, w)), b))))
	logP := G.Must(G.Mul(G.Must(G.Log(prob)), y))
	_ = logP
	first := G.Must(G.HadamardProd(G.Must(G.Neg(y)), G.Must(G.Log(prob))))
	second := G.Must(G.HadamardProd(G.Must(G.Sub(one, y)), G.Must(G.Log(G.Must(G.Sub(one, prob))))))
	xent := G.Must(G.Mean(G.Must(G.Sub(first, second))))
	return m.learn(xent, G.Must(G.Sum(G.Must(G.Square(w)))))
}

func newBatchNorm() *model {
	m := startModel()
	x := m.param("x", 1, 5, 2, 3, 4)
	s, b := m.param("s", 2, 5, 2, 3, 4), m.param("b", 3, 5, 2, 3, 4)
	y, _, _, _, err := G.BatchNorm(x, s, b, 0.1, 1e-5)
	if err != nil {
		panic(err)
	}
	return m.learn(y)
}

// newPoolAndNorm makes images of a dense layer, pools overlapping windows of them
// and normalizes those.
func newPoolAndNorm() *model {
	m := startModel()
	h := G.Must(G.Mul(m.param("x", 1, 4, 5), m.param("w", 2, 5, 2*6*7)))
	h = G.Must(G.MaxPool2D(G.Must(G.Reshape(h, tensor.Shape{4, 2, 6, 7})), tensor.Shape{3, 3}, []int{1, 1}, []int{2, 2}))
	y, _, _, _, err := G.BatchNorm(h, m.param("s", 3, h.Shape()...), m.param("b", 4, h.Shape()...), 0.1, 1e-2)
	if err != nil {
		panic(err)
	}
	return m.learn(y)
}

func newGroupNorm() *model {
	m := startModel()
	x := m.param("x", 1, 2, 6, 3, 3)
	s, b := m.param("s", 2, 1, 6, 1, 1), m.param("b", 3, 1, 6, 1, 1)
	return m.learn(G.Must(G.GroupNorm(x, s, b, 3, 6, 1e-5)))
}

func newAveragePool() *model {
	m := startModel()
	x := m.param("x", 1, 2, 3, 8, 8)
	return m.learn(G.Must(G.AveragePool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})))
}

func newUpsample() *model {
	m := startModel()
	x := m.param("x", 1, 2, 3, 4, 4)
	return m.learn(G.Must(G.Upsample2D(x, 2)))
}

func newSlicesAndConcat() *model {
	m := startModel()
	x := m.param("x", 1, 4, 6)
	left := G.Must(G.Slice(x, nil, G.S(0, 3)))
	right := G.Must(G.Slice(x, nil, G.S(3, 6)))
	row := G.Must(G.Slice(x, G.S(2)))
	one := G.Must(G.Slice(row, G.S(1)))
	joined := G.Must(G.Concat(0, right, left))
	t := G.Must(G.Transpose(joined, 1, 0))
	return m.learn(G.Must(G.Reshape(t, tensor.Shape{2, 12})), G.Must(G.Square(one)))
}

func newProducts() *model {
	m := startModel()
	a, b := m.param("a", 1, 4, 8), m.param("b", 2, 8, 3)
	v, w := m.param("v", 3, 8), m.param("w", 4, 8)
	ba, bb := m.param("ba", 5, 3, 2, 4), m.param("bb", 6, 3, 4, 2)
	td := G.Must(G.Tensordot([]int{1}, []int{0}, a, b))
	return m.learn(G.Must(G.Mul(a, b)), G.Must(G.Mul(a, v)), G.Must(G.OuterProd(v, w)), G.Must(G.Mul(v, v)),
		G.Must(G.BatchedMatMul(ba, bb)), td)
}

func newReductions() *model {
	m := startModel()
	x := m.param("x", 1, 3, 4, 5)
	y := m.param("y", 2, 3, 4)
	return m.learn(G.Must(G.Sum(x, 1)), G.Must(G.Mean(x, 0)), G.Must(G.Sum(x, 0, 2)), G.Must(G.Max(y, 1)), G.Must(G.Mean(y)), G.Must(G.Sum(y)))
}

func newByIndices() *model {
	m := startModel()
	x := m.param("x", 1, 5, 3)
	at := G.NewVector(m.g, tensor.Int, G.WithShape(4), G.WithName("at"), G.WithValue(tensor.New(tensor.WithShape(4), tensor.WithBacking([]int{4, 0, 0, 2}))))
	return m.learn(G.Must(G.ByIndices(x, at, 0)))
}

func newSparsemax() *model {
	m := startModel()
	return m.learn(G.Must(G.Sparsemax(m.param("x", 1, 3, 5))))
}

func newActivations() *model {
	m := startModel()
	x := m.param("x", 1, 4, 5)
	y := G.Must(G.Add(x, m.param("y", 2, 4, 5)))
	nodes := []*G.Node{G.Must(G.LeakyRelu(y, 0.1)), G.Must(G.Softplus(y)), G.Must(G.Cube(y)), G.Must(G.Exp(y)), G.Must(G.Abs(y)),
		G.Must(G.Log(G.Must(G.Exp(x)))), G.Must(G.Sin(y)), G.Must(G.Expm1(x)), G.Must(G.Mish(y)), G.Must(G.Sqrt(G.Must(G.Square(x))))}
	return m.learn(nodes...)
}

func newComparisons() *model {
	m := startModel()
	x, y := m.param("x", 1, 4, 5), m.param("y", 2, 4, 5)
	return m.learn(G.Must(G.HadamardProd(x, G.Must(G.Gt(x, y, true)))), G.Must(G.HadamardProd(y, G.Must(G.Lte(x, y, true)))),
		G.Must(G.HadamardDiv(x, G.Must(G.Exp(y)))), G.Must(G.Sub(x, y)))
}

func newLogSoftMax() *model {
	m := startModel()
	return m.learn(G.Must(G.LogSoftMax(m.param("x", 1, 4, 5))))
}
