package gorgoniavm_test

import (
	"io"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/testkit"
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

// fused is a graph with operations that are computed together.
type fused struct {
	build func() *model
	n     []int // how many of each step there are
}

// fusions are graphs with fused steps, by the steps that are counted.
var fusions = map[string]struct {
	steps  []program.Step
	graphs map[string]fused
}{
	"layers":         {[]program.Step{program.Linear, program.LinearBack}, fusedLayers},
	"convolutions":   {[]program.Step{program.ConvForward, program.ConvBack, program.Rectify, program.RectifyBack}, fusedConvs},
	"normalizations": {[]program.Step{program.NormForward, program.NormBack, program.Rectify, program.RectifyBack}, fusedNorms},
	"losses":         {[]program.Step{program.LossBack}, fusedLosses},
}

// fusedLayers are graphs with dense layers.
var fusedLayers = map[string]fused{
	"mlp": {func() *model { return newMLP(16, 20, 30, 20, 10) }, []int{3, 3}},
	"rectified": {newDense(func(m *model, x *G.Node) *G.Node {
		return m.denseLayer(m.denseLayer(x, 1, 7, true, true), 2, 4, true, true)
	}), []int{2, 2}},
	// Sums of nothing but zeros, at which Rectify has the slope 1.
	"exactly zero": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 7, true, true)
		if err := G.Let(m.weights[1], tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 7))); err != nil {
			panic(err)
		}
		return G.Must(G.Add(m.denseLayer(h, 2, 4, false, false), m.param("shift", 9, 6, 4)))
	}), []int{1, 2}},
	"without a bias": {newDense(func(m *model, x *G.Node) *G.Node {
		return m.denseLayer(m.denseLayer(x, 1, 7, false, true), 2, 4, false, false)
	}), []int{1, 2}},
	"a sum that is read too": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 4, true, false)
		return G.Must(G.Add(h, m.denseLayer(G.Must(G.Rectify(h)), 2, 4, true, false)))
	}), []int{2, 2}},
	"a layer that is read twice": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 4, true, true)
		return G.Must(G.Add(m.denseLayer(h, 2, 4, true, true), m.denseLayer(h, 3, 4, true, true)))
	}), []int{3, 3}},
	"one matrix for two layers": {newDense(func(m *model, x *G.Node) *G.Node {
		w := m.param("w", 2, 5, 5)
		h := G.Must(G.Rectify(G.Must(G.Mul(x, w))))
		return G.Must(G.Add(G.Must(G.Mul(h, w)), G.Must(G.Mul(x, w))))
	}), []int{0, 2}},
	"a residual": {newDense(func(m *model, x *G.Node) *G.Node {
		h := m.denseLayer(x, 1, 5, true, true)
		return G.Must(G.Add(h, m.denseLayer(h, 2, 5, true, true)))
	}), []int{2, 2}},
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
			steps := gorgoniavm.Steps(vm)
			require.Equal(t, []int{c.forward, c.back}, []int{steps[program.Linear], steps[program.LinearBack]})
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

// Whichever value a program wants to see, it sees the one that is computed
// where nothing is fused, and all else stays.
func TestFusedAroundAValue(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if d.exact || d.records {
			t.Skip("nothing is fused, or recorded in one run")
		}
		e, _ := d.open(t)
		few := testkit.Choose(15, 5) // of the values, a random choice
		if !d.computes {
			few = testkit.Choose(math.MaxInt, 15)
		}
		requireKept(t, e, keptConvs(), few)
		requireKept(t, e, fusedNorms["rectified"].build(), few)
	})
}

func keptConvs() *model {
	return newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, x, 1, 4)
		return square(3, 0, 1, false, true).of(m, h, 2, 3)
	})()
}

func requireKept(t *testing.T, e *cupool.Engine, m *model, few int) {
	t.Helper()
	traced, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues())
	require.NoError(t, err)
	require.NoError(t, traced.RunAll())
	want, seen := numbersOf(t, e, m), make(map[*G.Node][]float64)
	for _, n := range m.g.AllNodes() {
		if n.Op() != nil && !n.IsScalar() {
			seen[n] = floatsIn(data(t, e, n.Value()))
		}
	}
	require.NoError(t, traced.Close())
	require.Greater(t, len(seen), 30)
	for n, value := range seen {
		if few--; few < 0 {
			break
		}
		for _, w := range m.weights {
			G.WithGrad(tensor.New(tensor.Of(w.Dtype()), tensor.WithShape(w.Shape()...)))(w)
		}
		vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.Keep(n))
		require.NoError(t, err)
		require.NoError(t, vm.RunAll(), n.Name())
		require.InDeltaSlice(t, value, floatsIn(data(t, e, n.Value())), 1e-3, n.Name())
		for name, g := range numbersOf(t, e, m) {
			require.InDeltaSlice(t, want[name], g, 1e-3, "%s with %s kept", name, n.Name())
		}
		require.NoError(t, vm.Close())
	}
}

// numbersOf returns the cost of a model and its gradients.
func numbersOf(t *testing.T, e *cupool.Engine, m *model) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{"cost": floatsIn(m.cost.Value().Data())}
	for _, w := range m.weights {
		g, err := w.Grad()
		require.NoError(t, err)
		all[w.Name()] = floatsIn(data(t, e, g))
	}
	return all
}
