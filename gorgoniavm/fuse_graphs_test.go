package gorgoniavm_test

import (
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// convLayer is how gorgonia's users write a convolution.
type convLayer struct {
	kernel, pad, stride, dilation [2]int
	bias, rectify                 bool
}

// square is a layer with a kernel of so many rows and columns.
func square(size, pad, stride int, bias, rectify bool) convLayer {
	return convLayer{[2]int{size, size}, [2]int{pad, pad}, [2]int{stride, stride}, [2]int{1, 1}, bias, rectify}
}

// of applies the layer, with the filter, and bias, number i.
func (l convLayer) of(m *model, x *G.Node, i, out int) *G.Node {
	return l.with(m, x, m.param(name("w", i), int64(10*i), out, x.Shape()[1], l.kernel[0], l.kernel[1]), i)
}

func (l convLayer) with(m *model, x, w *G.Node, i int) *G.Node {
	return l.apply(x, w, func(shape ...int) *G.Node { return m.param(name("b", i), int64(10*i+1), shape...) })
}

// apply applies the layer with a filter, and with a bias of a shape if it has one.
func (l convLayer) apply(x, w *G.Node, bias func(shape ...int) *G.Node) *G.Node {
	y := G.Must(G.Conv2d(x, w, l.kernel[:], l.pad[:], l.stride[:], l.dilation[:]))
	if l.bias {
		y = G.Must(G.BroadcastAdd(y, bias(1, w.Shape()[0], 1, 1), nil, []byte{0, 2, 3}))
	}
	if l.rectify {
		y = G.Must(G.Rectify(y))
	}
	return y
}

// newConvs returns a network on images that are learned too.
func newConvs(layers func(m *model, x *G.Node) *G.Node) func() *model {
	return func() *model {
		m := startModel()
		return m.learn(layers(m, m.param("x", 1, 2, 3, 7, 6)))
	}
}

// fusedConvs are graphs with convolutions.
var fusedConvs = map[string]fused{
	"plain": {newConvs(func(m *model, x *G.Node) *G.Node {
		return square(3, 1, 1, false, false).of(m, x, 1, 4)
	}), []int{1, 1, 0, 0}},
	"bias": {newConvs(func(m *model, x *G.Node) *G.Node {
		return square(3, 1, 1, true, false).of(m, x, 1, 4)
	}), []int{1, 1, 0, 0}},
	"one after the other": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, x, 1, 4)
		return square(2, 0, 2, false, true).of(m, square(1, 0, 1, false, true).of(m, h, 2, 5), 3, 2)
	}), []int{3, 3, 0, 1}},
	"pooled": {func() *model { return newConvnetOf(3, 12, 4, 8) }, []int{2, 2, 0, 0}},
	"one filter for two": {newConvs(func(m *model, x *G.Node) *G.Node {
		w := m.param("w", 10, 3, 3, 3, 3)
		l := square(3, 1, 1, false, true)
		return l.with(m, l.with(m, x, w, 1), w, 2)
	}), []int{2, 2, 0, 1}},
	"two filters for one": {newConvs(func(m *model, x *G.Node) *G.Node { // the patches have two gradients, which are added
		l := square(3, 1, 1, true, false)
		return G.Must(G.Add(l.of(m, x, 1, 4), G.Must(G.Tanh(l.of(m, x, 2, 4)))))
	}), []int{2, 2, 0, 0}},
	"a residual": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, x, 1, 3)
		h = square(3, 1, 1, true, false).of(m, h, 2, 3)
		return G.Must(G.Rectify(G.Must(G.Add(x, h))))
	}), []int{2, 2, 1, 1}},
	"rectified and not": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, false, false).of(m, x, 1, 4)
		return G.Must(G.Sub(G.Must(G.Rectify(h)), h))
	}), []int{1, 1, 1, 1}},
	"a row for each line": {newConvs(func(m *model, x *G.Node) *G.Node { // Conv1d
		return G.Must(G.Conv1d(x, m.param("w", 10, 4, 3, 1, 3), 3, 1, 2, 1))
	}), []int{1, 1, 0, 0}},
	"another bias": {newConvs(func(m *model, x *G.Node) *G.Node { // one number for each row
		h := square(3, 1, 1, false, false).of(m, x, 1, 7)
		return G.Must(G.BroadcastAdd(h, m.param("b", 11, 1, 1, 7, 1), nil, []byte{0, 1, 3}))
	}), []int{1, 1, 0, 0}},
	"a dense layer": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 0, 2, true, true).of(m, x, 1, 4)
		return m.denseLayer(G.Must(G.Reshape(h, tensor.Shape{2, 24})), 2, 5, true, true)
	}), []int{1, 1, 0, 2}},
}

// normalized is a batch norm with the scale and bias number i, of one number for
// each channel.
func (m *model) normalized(x *G.Node, i int) *G.Node {
	shape := make([]int, x.Dims())
	for d := range shape {
		shape[d] = 1
	}
	shape[1] = x.Shape()[1]
	scale, bias := m.param(name("scale", i), int64(10*i+5), shape...), m.param(name("shift", i), int64(10*i+6), shape...)
	y, _, _, _, err := G.BatchNorm(x, scale, bias, 0.1, 1e-2)
	return G.Must(y, err)
}

// tilted is x times other numbers. The sum of squares of a normalized x alone has
// next to no gradient.
func tilted(m *model, x *G.Node) *G.Node {
	return G.Must(G.HadamardProd(x, m.param("tilt", 99, x.Shape()...)))
}

// normLayer is a normalized convolution.
func (m *model) normLayer(x *G.Node, i, out int) *G.Node {
	return m.normalized(square(3, 1, 1, false, false).of(m, x, i, out), i)
}

// fusedNorms are graphs with batch normalizations.
var fusedNorms = map[string]fused{
	"plain": {newConvs(func(m *model, x *G.Node) *G.Node { return tilted(m, m.normLayer(x, 1, 4)) }), []int{1, 1, 0, 0}},
	"rectified": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := G.Must(G.Rectify(m.normLayer(x, 1, 4)))
		return G.Must(G.Rectify(m.normLayer(h, 2, 3)))
	}), []int{2, 2, 0, 0}},
	"a residual": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := G.Must(G.Rectify(m.normLayer(x, 1, 4)))
		h = G.Must(G.Add(m.normLayer(h, 2, 3), x))
		return tilted(m, m.normLayer(G.Must(G.Rectify(h)), 3, 3))
	}), []int{3, 3, 1, 0}},
	"rows": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(G.Must(G.Reshape(x, tensor.Shape{6, 42})), 1, 5, true, false)
		return G.Must(G.Rectify(m.normalized(h, 2)))
	}), []int{1, 1, 0, 0}},
	"a scale for every element": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, false, false).of(m, x, 1, 3)
		y, _, _, _, err := G.BatchNorm(h, m.param("scale", 15, h.Shape()...), m.param("shift", 16, h.Shape()...), 0.1, 1e-2)
		return G.Must(y, err)
	}), []int{0, 0, 0, 0}},
	"one scale for two": {newConvs(func(m *model, x *G.Node) *G.Node {
		scale, bias := m.param("scale", 15, 1, 3, 1, 1), m.param("shift", 16, 1, 3, 1, 1)
		for range 2 {
			y, _, _, _, err := G.BatchNorm(x, scale, bias, 0.1, 1e-2)
			x = G.Must(G.Tanh(G.Must(y, err)))
		}
		return tilted(m, x)
	}), []int{2, 2, 0, 0}},
	"rectified and not": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := m.normLayer(x, 1, 4)
		return G.Must(G.Sub(G.Must(G.Rectify(h)), h))
	}), []int{1, 1, 1, 1}},
}

// fusedLosses are graphs with a loss over the logarithms of SoftMax.
var fusedLosses = map[string]fused{
	"mean": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Mul(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z)))))), G.NewConstant(float32(-10))))
	}), []int{1}},
	"sum": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Neg(G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.LogSoftMax(z, 1)), y))))))
	}), []int{1}},
	"two": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		one := G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.LogSoftMax(z)), y))))
		return G.Must(G.Add(one, G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(G.Must(G.Neg(z))))))))))
	}), []int{2}},
	"squared": {newLoss(func(_ *model, z, y *G.Node) *G.Node { // the gradient depends on the sum
		return G.Must(G.Square(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z))))))))
	}), []int{0}},
	"of columns": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z, 0))))))
	}), []int{0}},
	"not of logarithms": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.SoftMax(z))))))
	}), []int{0}},
	"logarithms read too": {newLoss(func(_ *model, z, y *G.Node) *G.Node {
		logs := G.Must(G.LogSoftMax(z))
		return G.Must(G.Add(G.Must(G.Sum(G.Must(G.HadamardProd(y, logs)))), G.Must(G.Sum(G.Must(G.Square(logs))))))
	}), []int{0}},
	"weights learned": {newLoss(func(m *model, z, y *G.Node) *G.Node {
		m.weights = append(m.weights, y)
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z))))))
	}), []int{0}},
}

// newLoss returns a layer with a loss after it.
func newLoss(loss func(m *model, z, y *G.Node) *G.Node) func() *model {
	return func() *model {
		m := startModel()
		x := G.NewMatrix(m.g, tensor.Float32, G.WithShape(6, 5), G.WithName("x"), G.WithValue(values(1, 6, 5)))
		y := G.NewMatrix(m.g, tensor.Float32, G.WithShape(6, 4), G.WithName("y"), G.WithValue(values(2, 6, 4)))
		m.inputs = G.Nodes{x}
		m.cost = loss(m, m.denseLayer(x, 3, 4, true, false), y)
		if !m.weights.Contains(y) {
			m.inputs = append(m.inputs, y)
		}
		if _, err := G.Grad(m.cost, m.weights...); err != nil {
			panic(err)
		}
		return m
	}
}
