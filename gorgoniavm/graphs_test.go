package gorgoniavm_test

import (
	"io"
	"log"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"

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
	"pool and norm":       newPoolAndNorm,
	"slices and concat":   newSlicesAndConcat,
	"operations":          newOperations,
	"lstm layer":          func() *model { return newLSTMLayer(3, 4, 5, 4, 6) },
	"gru layer":           func() *model { return newGRULayer(3, 4, 5, 4, 6) },
	"character model":     func() *model { return newCharacterModel(4, 8, 5, 6) },
	"cross entropy":       fusedLosses["mean"].build,
}

// param returns an input of the graph with random numbers.
func (m *model) param(name string, seed int64, shape ...int) *G.Node {
	return m.paramOf(tensor.Float32, name, seed, shape...)
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

// newOperations has operations side by side.
func newOperations() *model {
	m := startModel()
	a, b, v, w := m.param("a", 1, 4, 8), m.param("b", 2, 8, 3), m.param("v", 3, 8), m.param("w", 4, 8)
	products := G.Nodes{G.Must(G.Mul(a, b)), G.Must(G.Mul(a, v)), G.Must(G.OuterProd(v, w)), G.Must(G.Mul(v, v)),
		G.Must(G.BatchedMatMul(m.param("ba", 5, 3, 2, 4), m.param("bb", 6, 3, 4, 2))), G.Must(G.Tensordot([]int{1}, []int{0}, a, b))}

	c, d := m.param("c", 7, 3, 4, 5), m.param("d", 8, 3, 4)
	reductions := G.Nodes{G.Must(G.Sum(c, 1)), G.Must(G.Mean(c, 0)), G.Must(G.Sum(c, 0, 2)), G.Must(G.Max(d, 1)), G.Must(G.Mean(d)), G.Must(G.Sum(d))}

	x, y := m.param("x", 9, 4, 5), m.param("y", 10, 4, 5)
	sum := G.Must(G.Add(x, y))
	at := G.NewVector(m.g, tensor.Int, G.WithShape(4), G.WithName("at"), G.WithValue(tensor.New(tensor.WithShape(4), tensor.WithBacking([]int{3, 0, 0, 2}))))
	elements := G.Nodes{G.Must(G.LeakyRelu(sum, 0.1)), G.Must(G.Softplus(sum)), G.Must(G.Cube(sum)), G.Must(G.Exp(sum)), G.Must(G.Abs(sum)),
		G.Must(G.Log(G.Must(G.Exp(x)))), G.Must(G.Sin(sum)), G.Must(G.Expm1(x)), G.Must(G.Mish(sum)), G.Must(G.Sqrt(G.Must(G.Square(x)))),
		G.Must(G.HadamardProd(x, G.Must(G.Gt(x, y, true)))), G.Must(G.HadamardProd(y, G.Must(G.Lte(x, y, true)))),
		G.Must(G.HadamardDiv(x, G.Must(G.Exp(y)))), G.Must(G.Sub(x, y)),
		G.Must(G.LogSoftMax(x)), G.Must(G.Sparsemax(y)), G.Must(G.ByIndices(x, at, 0))}

	images := m.param("images", 11, 2, 6, 4, 4)
	normed, _, _, _, err := G.BatchNorm(images, m.param("s", 12, 2, 6, 4, 4), m.param("t", 13, 2, 6, 4, 4), 0.1, 1e-5)
	layers := G.Nodes{G.Must(normed, err), G.Must(G.GroupNorm(images, m.param("gs", 14, 1, 6, 1, 1), m.param("gt", 15, 1, 6, 1, 1), 3, 6, 1e-5)),
		G.Must(G.AveragePool2D(images, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})), G.Must(G.Upsample2D(images, 2))}
	all := slices.Concat(products, reductions, elements, layers)
	for i, n := range all { // with more, training diverges
		all[i] = G.Must(G.Mul(n, G.NewConstant(float32(0.1))))
	}
	return m.learn(all...)
}

// newDropout is a layer with dropout.
func newDropout() *model {
	m := startModel()
	h := G.Must(G.Dropout(G.Must(G.Rectify(G.Must(G.Mul(m.param("x", 1, 128, 256), m.param("w", 2, 256, 256))))), 0.4))
	return m.learn(h)
}

// recurrent is a layer over sequences. Its gates are slices of one product, and
// so are the steps' inputs. Gorgonia takes slices that differ by 256 for the same
// one, so what is sliced has an axis for the gates and one for the steps.
type recurrent struct {
	m                        *model
	batch, in, hidden, steps int
}

// gates returns the parts of a product for each gate.
func (r *recurrent) gates(z *G.Node, n int) (gs []*G.Node) {
	z = G.Must(G.Reshape(z, tensor.Shape{r.batch, n, r.hidden}))
	for k := range n {
		gs = append(gs, G.Must(G.Slice(z, nil, G.S(k))))
	}
	return gs
}

// inputs returns x·w + b for each step.
func (r *recurrent) inputs(n int) (zs []*G.Node) {
	x := G.NewMatrix(r.m.g, tensor.Float32, G.WithShape(r.steps*r.batch, r.in), G.WithName("x"), G.WithValue(values(1, r.steps*r.batch, r.in)))
	r.m.inputs = append(r.m.inputs, x)
	z := G.Must(G.BroadcastAdd(G.Must(G.Mul(x, r.m.param("wx", 2, r.in, n*r.hidden))), r.m.param("b", 3, 1, n*r.hidden), nil, []byte{0}))
	z = G.Must(G.Reshape(z, tensor.Shape{r.steps, r.batch, n * r.hidden}))
	for t := range r.steps {
		zs = append(zs, G.Must(G.Slice(z, G.S(t))))
	}
	return zs
}

// learn puts a layer on top of the hidden states, and a cross entropy.
func (r *recurrent) learn(hs G.Nodes, out int) *model {
	for t, h := range hs {
		hs[t] = G.Must(G.Reshape(h, tensor.Shape{1, r.batch, r.hidden}))
	}
	h := G.Must(G.Reshape(G.Must(G.Concat(0, hs...)), tensor.Shape{r.steps * r.batch, r.hidden}))
	y := G.NewMatrix(r.m.g, tensor.Float32, G.WithShape(r.steps*r.batch, out), G.WithName("y"), G.WithValue(oneHot(9, r.steps*r.batch, out)))
	r.m.inputs = append(r.m.inputs, y)
	z := G.Must(G.BroadcastAdd(G.Must(G.Mul(h, r.m.param("wo", 5, r.hidden, out))), r.m.param("bo", 6, 1, out), nil, []byte{0}))
	r.m.cost = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z))))))))
	if _, err := G.Grad(r.m.cost, r.m.weights...); err != nil {
		panic(err)
	}
	return r.m
}

// newLSTMLayer is a network of long short-term memory.
func newLSTMLayer(batch, in, hidden, steps, out int) *model {
	r := &recurrent{startModel(), batch, in, hidden, steps}
	wh := r.m.param("wh", 4, hidden, 4*hidden)
	var h, c *G.Node
	var hs G.Nodes
	for t, z := range r.inputs(4) {
		if t > 0 {
			z = G.Must(G.Add(z, G.Must(G.Mul(h, wh))))
		}
		g := r.gates(z, 4)
		write := G.Must(G.HadamardProd(G.Must(G.Sigmoid(g[0])), G.Must(G.Tanh(g[1]))))
		if t == 0 {
			c = write
		} else {
			c = G.Must(G.Add(G.Must(G.HadamardProd(G.Must(G.Sigmoid(g[2])), c)), write))
		}
		h = G.Must(G.HadamardProd(G.Must(G.Sigmoid(g[3])), G.Must(G.Tanh(c))))
		hs = append(hs, h)
	}
	return r.learn(hs, out)
}

// newGRULayer is a network of gated recurrent units, with the reset gate behind
// the product as in cuDNN's.
func newGRULayer(batch, in, hidden, steps, out int) *model {
	r := &recurrent{startModel(), batch, in, hidden, steps}
	wh := r.m.param("wh", 4, hidden, 3*hidden)
	h := G.NewMatrix(r.m.g, tensor.Float32, G.WithShape(batch, hidden), G.WithName("h"), G.WithValue(values(7, batch, hidden)))
	r.m.inputs = append(r.m.inputs, h)
	one := G.NewConstant(float32(1))
	var hs G.Nodes
	for _, z := range r.inputs(3) {
		x, u := r.gates(z, 3), r.gates(G.Must(G.Mul(h, wh)), 3)
		update := G.Must(G.Sigmoid(G.Must(G.Add(x[0], u[0]))))
		reset := G.Must(G.Sigmoid(G.Must(G.Add(x[1], u[1]))))
		next := G.Must(G.Tanh(G.Must(G.Add(x[2], G.Must(G.HadamardProd(reset, u[2]))))))
		h = G.Must(G.Add(G.Must(G.HadamardProd(G.Must(G.Sub(one, update)), next)), G.Must(G.HadamardProd(update, h))))
		hs = append(hs, h)
	}
	return r.learn(hs, out)
}

// newCharacterModel is gorgonia's charRNN example, smaller: each gate has
// weights of its own, characters are rows of an embedding, and the cost is a sum
// of elements of logarithms. Characters come again.
func newCharacterModel(in, hidden, length, alphabet int) *model {
	m := startModel()
	weights := make(map[string][3]*G.Node)
	for i, gate := range []string{"i", "f", "o", "c"} {
		weights[gate] = [3]*G.Node{m.param("wx"+gate, int64(10*i), hidden, in), m.param("wh"+gate, int64(10*i+1), hidden, hidden), m.param("b"+gate, int64(10*i+2), hidden)}
	}
	decoder, bias := m.param("decoder", 90, alphabet, hidden), m.param("bias", 91, alphabet)
	embedding := m.param("embedding", 92, alphabet, in)
	h := G.NewVector(m.g, tensor.Float32, G.WithShape(hidden), G.WithName("h"), G.WithValue(values(93, hidden)))
	c := G.NewVector(m.g, tensor.Float32, G.WithShape(hidden), G.WithName("c"), G.WithValue(values(94, hidden)))
	m.inputs = G.Nodes{h, c}
	for t := range length {
		x := G.Must(G.Slice(embedding, G.S(t*t%alphabet)))
		z := func(gate string) *G.Node {
			w := weights[gate]
			return G.Must(G.Add(G.Must(G.Add(G.Must(G.Mul(w[0], x)), G.Must(G.Mul(w[1], h)))), w[2]))
		}
		write := G.Must(G.HadamardProd(G.Must(G.Sigmoid(z("i"))), G.Must(G.Tanh(z("c")))))
		c = G.Must(G.Add(G.Must(G.HadamardProd(G.Must(G.Sigmoid(z("f"))), c)), write))
		h = G.Must(G.HadamardProd(G.Must(G.Sigmoid(z("o"))), G.Must(G.Tanh(c))))
		p := G.Must(G.SoftMax(G.Must(G.Add(G.Must(G.Mul(decoder, h)), bias))))
		loss := G.Must(G.Slice(G.Must(G.Neg(G.Must(G.Log(p)))), G.S((t+1)*(t+1)%alphabet)))
		if m.cost == nil {
			m.cost = loss
		} else {
			m.cost = G.Must(G.Add(m.cost, loss))
		}
	}
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

// newGorgoniaConvnet is gorgonia's example with its dropout and its loss, and fewer
// channels.
func newGorgoniaConvnet() *model {
	m := startModel()
	x := G.NewTensor(m.g, tensor.Float32, 4, G.WithShape(2, 1, 28, 28), G.WithName("x"), G.WithValue(values(1, 2, 1, 28, 28)))
	y := G.NewMatrix(m.g, tensor.Float32, G.WithShape(2, 10), G.WithName("y"), G.WithValue(oneHot(2, 2, 10)))
	m.inputs = G.Nodes{x, y}
	h := x
	for i, c := range []int{4, 8, 12} {
		h = square(3, 1, 1, false, true).of(m, h, i, c)
		h = G.Must(G.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		h = G.Must(G.Dropout(h, 0.2))
	}
	h = G.Must(G.Reshape(h, tensor.Shape{2, 12 * 9}))
	h = G.Must(G.Dropout(m.denseLayer(h, 8, 25, false, true), 0.55))
	out := G.Must(G.LogSoftMax(m.denseLayer(h, 9, 10, false, false)))
	m.cost = G.Must(G.Mul(G.Must(G.Mean(G.Must(G.HadamardProd(y, out)))), G.NewConstant(float32(-10))))
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

// paramOf is param for a type.
func (m *model) paramOf(dt tensor.Dtype, name string, seed int64, shape ...int) *G.Node {
	n := G.NewTensor(m.g, dt, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(floatsOf(dt, floatsIn(values(seed, shape...).Data()), shape...)))
	m.weights = append(m.weights, n)
	return n
}

// newRandomGraph combines matrices by random elementwise operations, slices and
// concatenations, whose results are between -1 and 1 or so.
func newRandomGraph(seed uint64, dt tensor.Dtype, ops int) *model {
	r := randv2.New(randv2.NewPCG(seed, 1))
	m := startModel()
	rows, columns := 2+r.IntN(4), 2*(1+r.IntN(3))
	var pool G.Nodes
	for i := range 1 + r.IntN(3) {
		pool = append(pool, m.paramOf(dt, name("x", i), int64(i), rows, columns))
	}
	inputs := pool
	moves := G.NewMatrix(m.g, dt, G.WithShape(rows, columns), G.WithName("moves"))
	m.inputs = G.Nodes{moves}
	pool = append(pool, moves)
	pick := func() *G.Node { return pool[r.IntN(len(pool))] }
	for range ops {
		pool = append(pool, randomOperation(r, dt, pick, tensor.Shape{rows, columns}))
	}
	return m.learn(append(pool[len(pool)-min(len(pool), 2):], inputs...)...) // all have gradients
}

// randomOperation makes a matrix of some of those that pick returns.
func randomOperation(r *randv2.Rand, dt tensor.Dtype, pick func() *G.Node, shape tensor.Shape) *G.Node {
	half := constant(dt, 0.5)
	a, b := pick(), pick()
	columns := shape[1]
	switch r.IntN(12) {
	case 0:
		return G.Must(G.Mul(G.Must(G.Add(a, b)), half))
	case 1:
		return G.Must(G.Mul(half, G.Must(G.Sub(a, b))))
	case 2:
		return G.Must(G.HadamardProd(a, b))
	case 3:
		return G.Must(G.Sigmoid(a))
	case 4:
		return G.Must(G.Tanh(a))
	case 5:
		return G.Must(G.Rectify(a))
	case 6:
		return G.Must(G.HadamardProd(a, G.Must(G.Gt(a, b, true))))
	case 7:
		return G.Must(G.HadamardDiv(a, G.Must(G.Exp(G.Must(G.Square(b))))))
	case 8:
		return G.Must(G.Neg(G.Must(G.Cube(a))))
	case 9: // its columns the other way round
		left, right := G.Must(G.Slice(a, nil, G.S(0, columns/2))), G.Must(G.Slice(a, nil, G.S(columns/2, columns)))
		if columns == 2 {
			left, right = G.Must(G.Reshape(left, tensor.Shape{shape[0], 1})), G.Must(G.Reshape(right, tensor.Shape{shape[0], 1}))
		}
		return G.Must(G.Concat(1, G.Must(G.Sigmoid(right)), left))
	case 10:
		rows := G.Must(G.Concat(0, a, G.Must(G.Tanh(b))))
		return G.Must(G.Slice(rows, G.S(shape[0]-shape[0]/2, 2*shape[0]-shape[0]/2)))
	}
	flat := G.Must(G.Reshape(G.Must(G.Tanh(a)), tensor.Shape{1, shape.TotalSize()}))
	return G.Must(G.Reshape(G.Must(G.Mul(flat, half)), shape))
}

func constant(dt tensor.Dtype, x float64) *G.Node {
	if dt == tensor.Float64 {
		return G.NewConstant(x)
	}
	return G.NewConstant(float32(x))
}
