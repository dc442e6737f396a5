package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// normalized is a batch norm with the scale and bias number i, of one number for
// each channel.
func (m *model) normalized(dt tensor.Dtype, x *G.Node, i int) *G.Node {
	shape := make([]int, x.Dims())
	for d := range shape {
		shape[d] = 1
	}
	shape[1] = x.Shape()[1]
	scale, bias := m.paramOf(dt, name("scale", i), int64(10*i+5), shape...), m.paramOf(dt, name("shift", i), int64(10*i+6), shape...)
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
	return m.normalized(tensor.Float32, square(3, 1, 1, false, false).of(m, tensor.Float32, x, i, out), i)
}

// fusedNorms are graphs with batch normalizations, how many are computed in one
// step, forward and back, and how often Rectify is a step of its own.
var fusedNorms = map[string]struct {
	build             func() *model
	forward, back     int
	rectify, rectBack int
}{
	"plain": {newConvs(func(m *model, x *G.Node) *G.Node { return tilted(m, m.normLayer(x, 1, 4)) }), 1, 1, 0, 0},
	"rectified": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := G.Must(G.Rectify(m.normLayer(x, 1, 4)))
		return G.Must(G.Rectify(m.normLayer(h, 2, 3)))
	}), 2, 2, 0, 0},
	"a residual": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := G.Must(G.Rectify(m.normLayer(x, 1, 4)))
		h = G.Must(G.Add(m.normLayer(h, 2, 3), x))
		return tilted(m, m.normLayer(G.Must(G.Rectify(h)), 3, 3))
	}), 3, 3, 1, 0},
	"rows": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(G.Must(G.Reshape(x, tensor.Shape{6, 42})), 1, 5, true, false)
		return G.Must(G.Rectify(m.normalized(tensor.Float32, h, 2)))
	}), 1, 1, 0, 0},
	"a scale for every element": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, false, false).of(m, tensor.Float32, x, 1, 3)
		y, _, _, _, err := G.BatchNorm(h, m.param("scale", 15, h.Shape()...), m.param("shift", 16, h.Shape()...), 0.1, 1e-2)
		return G.Must(y, err)
	}), 0, 0, 0, 0},
	"one scale for two": {newConvs(func(m *model, x *G.Node) *G.Node {
		scale, bias := m.param("scale", 15, 1, 3, 1, 1), m.param("shift", 16, 1, 3, 1, 1)
		for range 2 {
			y, _, _, _, err := G.BatchNorm(x, scale, bias, 0.1, 1e-2)
			x = G.Must(G.Tanh(G.Must(y, err)))
		}
		return x
	}), 2, 2, 0, 0},
	"rectified and not": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := m.normLayer(x, 1, 4)
		return G.Must(G.Sub(G.Must(G.Rectify(h)), h))
	}), 1, 1, 1, 1},
}

// Fused normalizations have the values and gradients that the tape machine has.
func TestFusedNorms(t *testing.T) {
	for name, c := range fusedNorms {
		t.Run(name, func(t *testing.T) {
			m := c.build()
			want := m.tape(t, 3)
			e, a := newFarMeter(t)
			vm := open(t, m, e)
			forward, back := gorgoniavm.FusedNorms(vm)
			rectify, rectBack := gorgoniavm.Rectified(vm)
			require.Equal(t, []int{c.forward, c.back, c.rectify, c.rectBack}, []int{forward, back, rectify, rectBack})
			nearAll(t, want, m.train(t, e, vm, 3))
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			require.Equal(t, live, a.live)
		})
	}
}

func TestFusedNormOfDoubles(t *testing.T) {
	m := startModel()
	x := m.paramOf(tensor.Float64, "x", 1, 3, 2, 4, 5)
	m.learn(G.Must(G.Rectify(m.normalized(tensor.Float64, G.Must(G.Tanh(x)), 1))))
	e, _ := newFarMeter(t)
	requireTapes(t, m, e, "float64")
}

func keptNorms() *model { return fusedNorms["rectified"].build() }

func TestNormsWithAValueKept(t *testing.T) {
	e, _ := newFarMeter(t)
	requireKept(t, e, keptNorms())
}
