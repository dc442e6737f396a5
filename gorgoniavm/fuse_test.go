package gorgoniavm_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// denseLayer is rectify(x·w + b), or that without b or without rectify.
func (m *model) denseLayer(x *G.Node, i, out int, bias, rectify bool) *G.Node {
	h := G.Must(G.Mul(x, m.param(name("w", i), int64(10*i), x.Shape()[1], out)))
	if bias {
		h = G.Must(G.BroadcastAdd(h, m.param(name("b", i), int64(10*i+1), 1, out), nil, []byte{0}))
	}
	if rectify {
		h = G.Must(G.Rectify(h))
	}
	return h
}

// newDense returns a network whose inputs are half zeros.
func newDense(layers func(m *model, x *G.Node) *G.Node) func() *model {
	return func() *model {
		m := startModel()
		v := values(1, 6, 5)
		clear(v.Float32s()[:15])
		x := G.NewMatrix(m.g, tensor.Float32, G.WithShape(6, 5), G.WithName("x"), G.WithValue(v))
		m.inputs = G.Nodes{x}
		return m.learn(layers(m, x))
	}
}

// fusedModels are graphs with dense layers, and how many are computed in one
// step, forward and back.
var fusedModels = map[string]struct {
	build         func() *model
	forward, back int
}{
	"mlp": {func() *model { return newMLP(16, 20, 30, 20, 10) }, 3, 3},
	"rectified": {newDense(func(m *model, x *G.Node) *G.Node {
		return m.denseLayer(m.denseLayer(x, 1, 7, true, true), 2, 4, true, true)
	}), 2, 2},
	// Sums of nothing but zeros, at which Rectify has the slope 1.
	"exactly zero": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 7, true, true)
		if err := G.Let(m.weights[1], tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 7))); err != nil {
			panic(err)
		}
		return G.Must(G.Add(m.denseLayer(h, 2, 4, false, false), m.param("shift", 9, 6, 4)))
	}), 1, 2},
	"without a bias": {newDense(func(m *model, x *G.Node) *G.Node {
		return m.denseLayer(m.denseLayer(x, 1, 7, false, true), 2, 4, false, false)
	}), 1, 2},
	"a sum that is read too": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 4, true, false)
		return G.Must(G.Add(h, m.denseLayer(G.Must(G.Rectify(h)), 2, 4, true, false)))
	}), 2, 2},
	"a layer that is read twice": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 4, true, true)
		return G.Must(G.Add(m.denseLayer(h, 2, 4, true, true), m.denseLayer(h, 3, 4, true, true)))
	}), 3, 3},
	"one matrix for two layers": {newDense(func(m *model, x *G.Node) *G.Node {
		w := m.param("w", 2, 5, 5)
		h := G.Must(G.Rectify(G.Must(G.Mul(x, w))))
		return G.Must(G.Add(G.Must(G.Mul(h, w)), G.Must(G.Mul(x, w))))
	}), 0, 2},
	"a residual": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 5, true, true)
		return G.Must(G.Add(h, m.denseLayer(h, 2, 5, true, true)))
	}), 2, 2},
}

// Fused layers have the values and gradients that the tape machine has.
func TestFusedLayers(t *testing.T) {
	for name, c := range fusedModels {
		t.Run(name, func(t *testing.T) {
			m := c.build()
			want := m.tape(t, 3)
			e, a := newFarMeter(t)
			vm := open(t, m, e)
			forward, back := gorgoniavm.FusedLayers(vm)
			require.Equal(t, []int{c.forward, c.back}, []int{forward, back})
			nearAll(t, want, m.train(t, e, vm, 3))
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			require.Equal(t, live, a.live)
		})
	}
}

// What a program wants to see is computed by itself.
func TestWhatIsNotFused(t *testing.T) {
	var read G.Value
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for what, c := range map[string]struct {
		prepare       func(m *model, sum *G.Node)
		options       func(sum *G.Node) []gorgoniavm.Option
		forward, back int
	}{
		"nothing":      {forward: 2, back: 2},
		"a sum read":   {prepare: func(_ *model, sum *G.Node) { G.Read(sum, &read) }, forward: 2, back: 2},
		"a sum kept":   {options: func(sum *G.Node) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.Keep(sum)} }, forward: 2, back: 2},
		"all traced":   {options: func(*G.Node) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.TraceValues()} }, back: 2},
		"watched":      {options: func(*G.Node) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.WatchNaN()} }},
		"logged":       {options: func(*G.Node) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.WithLogger(quiet)} }},
		"a mask given": {prepare: func(m *model, sum *G.Node) { G.Must(G.Sum(G.Must(G.Gte(sum, G.NewConstant(float32(0)), true)))) }, forward: 2, back: 2},
	} {
		t.Run(what, func(t *testing.T) {
			build := func() (*model, *G.Node) {
				var sum *G.Node
				m := newDense(func(m *model, x *G.Node) *G.Node {
					sum = m.denseLayer(x, 1, 7, true, false)
					return m.denseLayer(G.Must(G.Rectify(sum)), 2, 4, true, true)
				})()
				return m, sum
			}
			m, sum := build()
			if c.prepare != nil {
				c.prepare(m, sum)
			}
			want := m.tape(t, 2)
			e, _ := newFarMeter(t)
			var opts []gorgoniavm.Option
			if c.options != nil {
				opts = c.options(sum)
			}
			vm := open(t, m, e, opts...)
			forward, back := gorgoniavm.FusedLayers(vm)
			require.Equal(t, []int{c.forward, c.back}, []int{forward, back})
			nearAll(t, want, m.train(t, e, vm, 2))
		})
	}
	require.NotNil(t, read)
}

// scaled is the sum of some rows of x, times a number.
type scaled struct {
	g          *G.ExprGraph
	x, by, cut *G.Node
	sum        *G.Node
}

func newScaled(t testing.TB) *scaled {
	t.Helper()
	g := G.NewGraph()
	s := &scaled{g: g}
	s.x = G.NewMatrix(g, tensor.Float32, G.WithShape(4, 3), G.WithName("x"),
		G.WithValue(tensor.New(tensor.WithBacking(tensor.Range(tensor.Float32, 0, 12)), tensor.WithShape(4, 3))))
	s.by = G.NewScalar(g, tensor.Float32, G.WithName("by"), G.WithValue(float32(1)))
	s.cut = G.Must(G.Slice(s.x, G.S(0, 2)))
	s.sum = G.Must(G.Sum(G.Must(G.Mul(G.Must(G.Mul(s.cut, s.by)), G.NewConstant(float32(2))))))
	_, err := G.Grad(s.sum, s.x)
	require.NoError(t, err)
	return s
}

// The gradient of a product with scalars is one of scalars, repeated: no tensor
// that is scaled.
func TestScaledScalars(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			s := newScaled(t)
			vm, err := gorgoniavm.New(s.g, e, gorgoniavm.Gradients(s.x))
			require.NoError(t, err)
			require.NoError(t, vm.RunAll())
			require.Equal(t, float32(30), s.sum.Value().Data())
			g, err := s.x.Grad()
			require.NoError(t, err)
			require.Equal(t, []float32{2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0}, data(t, e, g))
			require.NoError(t, vm.Close())
		})
	}
}
