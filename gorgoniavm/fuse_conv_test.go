package gorgoniavm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
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
func (l convLayer) of(m *model, dt tensor.Dtype, x *G.Node, i, out int) *G.Node {
	w := m.paramOf(dt, name("w", i), int64(10*i), out, x.Shape()[1], l.kernel[0], l.kernel[1])
	return l.with(m, dt, x, w, i)
}

func (l convLayer) with(m *model, dt tensor.Dtype, x, w *G.Node, i int) *G.Node {
	y := G.Must(G.Conv2d(x, w, l.kernel[:], l.pad[:], l.stride[:], l.dilation[:]))
	if l.bias {
		y = G.Must(G.BroadcastAdd(y, m.paramOf(dt, name("b", i), int64(10*i+1), 1, w.Shape()[0], 1, 1), nil, []byte{0, 2, 3}))
	}
	if l.rectify {
		y = G.Must(G.Rectify(y))
	}
	return y
}

// paramOf is param for a type.
func (m *model) paramOf(dt tensor.Dtype, name string, seed int64, shape ...int) *G.Node {
	v := values(seed, shape...)
	if dt == tensor.Float64 {
		wide := make([]float64, len(v.Float32s()))
		for i, x := range v.Float32s() {
			wide[i] = float64(x)
		}
		v = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(wide))
	}
	n := G.NewTensor(m.g, dt, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(v))
	m.weights = append(m.weights, n)
	return n
}

// newConvs returns a network on images that are learned too.
func newConvs(layers func(m *model, x *G.Node) *G.Node) func() *model {
	return func() *model {
		m := startModel()
		return m.learn(layers(m, m.param("x", 1, 2, 3, 7, 6)))
	}
}

// fusedConvs are graphs with convolutions, how many are computed in one step,
// forward and back, and how often Rectify is a step of its own.
var fusedConvs = map[string]struct {
	build             func() *model
	forward, back     int
	rectify, rectBack int
}{
	"plain": {newConvs(func(m *model, x *G.Node) *G.Node {
		return square(3, 1, 1, false, false).of(m, tensor.Float32, x, 1, 4)
	}), 1, 1, 0, 0},
	"bias": {newConvs(func(m *model, x *G.Node) *G.Node {
		return square(3, 1, 1, true, false).of(m, tensor.Float32, x, 1, 4)
	}), 1, 1, 0, 0},
	"one after the other": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, tensor.Float32, x, 1, 4)
		return square(2, 0, 2, false, true).of(m, tensor.Float32, square(1, 0, 1, false, true).of(m, tensor.Float32, h, 2, 5), 3, 2)
	}), 3, 3, 0, 1},
	"pooled": {func() *model { return newConvnetOf(3, 12, 4, 8) }, 2, 2, 0, 0},
	"one filter for two": {newConvs(func(m *model, x *G.Node) *G.Node {
		w := m.param("w", 10, 3, 3, 3, 3)
		l := square(3, 1, 1, false, true)
		return l.with(m, tensor.Float32, l.with(m, tensor.Float32, x, w, 1), w, 2)
	}), 2, 2, 0, 1},
	"two filters for one": {newConvs(func(m *model, x *G.Node) *G.Node { // the patches have two gradients, which are added
		l := square(3, 1, 1, true, false)
		return G.Must(G.Add(l.of(m, tensor.Float32, x, 1, 4), G.Must(G.Tanh(l.of(m, tensor.Float32, x, 2, 4)))))
	}), 2, 2, 0, 0},
	"a residual": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, tensor.Float32, x, 1, 3)
		h = square(3, 1, 1, true, false).of(m, tensor.Float32, h, 2, 3)
		return G.Must(G.Rectify(G.Must(G.Add(x, h))))
	}), 2, 2, 1, 1},
	"rectified and not": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, false, false).of(m, tensor.Float32, x, 1, 4)
		return G.Must(G.Sub(G.Must(G.Rectify(h)), h))
	}), 1, 1, 1, 1},
	"a row for each line": {newConvs(func(m *model, x *G.Node) *G.Node { // Conv1d
		return G.Must(G.Conv1d(x, m.param("w", 10, 4, 3, 1, 3), 3, 1, 2, 1))
	}), 1, 1, 0, 0},
	"another bias": {newConvs(func(m *model, x *G.Node) *G.Node { // one number for each row
		h := square(3, 1, 1, false, false).of(m, tensor.Float32, x, 1, 7)
		return G.Must(G.BroadcastAdd(h, m.param("b", 11, 1, 1, 7, 1), nil, []byte{0, 1, 3}))
	}), 1, 1, 0, 0},
	"a dense layer": {newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 0, 2, true, true).of(m, tensor.Float32, x, 1, 4)
		return m.denseLayer(G.Must(G.Reshape(h, tensor.Shape{2, 24})), 2, 5, true, true)
	}), 1, 1, 0, 2},
}

// Fused convolutions have the values and gradients that the tape machine has.
func TestFusedConvs(t *testing.T) {
	for name, c := range fusedConvs {
		t.Run(name, func(t *testing.T) {
			m := c.build()
			want := m.tape(t, 3)
			e, a := newFarMeter(t)
			vm := open(t, m, e)
			forward, back := gorgoniavm.FusedConvs(vm)
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

// randomConv returns a layer of random sizes and a size of images that it fits.
func randomConv(r *rand.Rand) (l convLayer, shape tensor.Shape, out int) {
	shape = tensor.Shape{1 + r.IntN(3), 1 + r.IntN(3), 0, 0}
	for d := range 2 {
		l.kernel[d], l.pad[d], l.stride[d], l.dilation[d] = 1+r.IntN(5), r.IntN(3), 1+r.IntN(3), 1+r.IntN(2)
		shape[2+d] = max(1, l.dilation[d]*(l.kernel[d]-1)+1-2*l.pad[d]) + r.IntN(6)
	}
	l.bias, l.rectify = r.IntN(2) == 0, r.IntN(2) == 0
	return l, shape, 1 + r.IntN(4)
}

// Convolutions of any size have the tape machine's numbers.
func TestConvsOfAllSizes(t *testing.T) {
	eachConv(t, func(t *testing.T, m *model, what string) {
		e, _ := newFarMeter(t)
		requireTapes(t, m, e, what)
	})
}

// A result may be one element, which is not a scalar.
func TestConvToOneElement(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		m := startModel()
		x := m.paramOf(dt, "x", 1, 1, 3, 4, 5)
		m.learn(convLayer{[2]int{4, 5}, [2]int{}, [2]int{1, 1}, [2]int{1, 1}, true, true}.of(m, dt, x, 1, 1))
		e, _ := newFarMeter(t)
		requireTapes(t, m, e, dt.String())
	}
}

// eachConv runs a test on layers of random sizes.
func eachConv(t *testing.T, test func(t *testing.T, m *model, what string)) {
	t.Helper()
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for range 15 {
			seed := rand.Uint64()
			t.Run(fmt.Sprint(dt, " ", seed), func(t *testing.T) {
				l, shape, out := randomConv(rand.New(rand.NewPCG(seed, 0)))
				m := startModel()
				x := m.paramOf(dt, "x", 1, shape...)
				m.learn(l.of(m, dt, x, 1, out))
				test(t, m, fmt.Sprintf("%+v of %v to %d", l, shape, out))
			})
		}
	}
}

// requireTapes compares one run with one of the tape machine's.
func requireTapes(t *testing.T, m *model, e *cupool.Engine, what string) {
	t.Helper()
	tape := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
	require.NoError(t, tape.RunAll(), what)
	want := numbersOf(t, nil, m)
	for _, w := range m.weights {
		G.WithGrad(tensor.New(tensor.Of(w.Dtype()), tensor.WithShape(w.Shape()...)))(w)
	}
	require.NoError(t, tape.Close())
	vm := open(t, m, e)
	require.NoError(t, vm.RunAll(), what)
	got := numbersOf(t, e, m)
	for name := range want {
		largest := 1e-3
		for _, x := range want[name] {
			largest = max(largest, x, -x)
		}
		require.InDeltaSlice(t, want[name], got[name], 1e-4*largest, "%s of %s", name, what)
	}
}

// numbersOf returns the cost of a model and its gradients.
func numbersOf(t *testing.T, e *cupool.Engine, m *model) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{"cost": widen(m.cost.Value().Data())}
	for _, w := range m.weights {
		g, err := w.Grad()
		require.NoError(t, err)
		all[w.Name()] = widen(data(t, e, g))
	}
	return all
}

func widen(data any) (wide []float64) {
	switch x := data.(type) {
	case float32:
		return []float64{float64(x)}
	case float64:
		return []float64{x}
	case []float64:
		return append(wide, x...)
	}
	for _, x := range data.([]float32) {
		wide = append(wide, float64(x))
	}
	return wide
}

// Whichever value a program wants to see, it sees the one that is computed
// where nothing is fused, and all else stays.
func TestConvsWithAValueKept(t *testing.T) {
	e, _ := newFarMeter(t)
	requireKept(t, e, keptConvs())
}

func keptConvs() *model {
	return newConvs(func(m *model, x *G.Node) *G.Node {
		h := square(3, 1, 1, true, true).of(m, tensor.Float32, x, 1, 4)
		return square(3, 0, 1, false, true).of(m, tensor.Float32, h, 2, 3)
	})()
}

func requireKept(t *testing.T, e *cupool.Engine, m *model) {
	t.Helper()
	traced, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues())
	require.NoError(t, err)
	require.NoError(t, traced.RunAll())
	want, seen := numbersOf(t, e, m), make(map[*G.Node][]float64)
	for _, n := range m.g.AllNodes() {
		if n.Op() != nil && !n.IsScalar() {
			seen[n] = widen(data(t, e, n.Value()))
		}
	}
	require.NoError(t, traced.Close())
	require.Greater(t, len(seen), 30)
	for n, value := range seen {
		for _, w := range m.weights {
			G.WithGrad(tensor.New(tensor.Of(w.Dtype()), tensor.WithShape(w.Shape()...)))(w)
		}
		vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.Keep(n))
		require.NoError(t, err)
		require.NoError(t, vm.RunAll(), n.Name())
		require.InDeltaSlice(t, value, widen(data(t, e, n.Value())), 1e-3, n.Name())
		for name, g := range numbersOf(t, e, m) {
			require.InDeltaSlice(t, want[name], g, 1e-3, "%s with %s kept", name, n.Name())
		}
		require.NoError(t, vm.Close())
	}
}
