package gorgoniavm_test

import (
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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
