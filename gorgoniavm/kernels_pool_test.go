package gorgoniavm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// layerTest is a graph of one layer over inputs of either type, to be compared
// with the tape machine's results.
type layerTest struct {
	dt   tensor.Dtype
	rand *rand.Rand
	m    *model
}

func newLayerTest(t *testing.T, dt tensor.Dtype) *layerTest {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &layerTest{dt: dt, rand: rand.New(rand.NewPCG(seed, 0)), m: startModel()}
}

// input returns a weight with numbers among which there are equal ones.
func (l *layerTest) input(shape ...int) *G.Node {
	xs := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range xs {
		xs[i] = float64(l.rand.IntN(8)) / 4
	}
	n := G.NewTensor(l.m.g, l.dt, len(shape), G.WithShape(shape...), G.WithName(name("x", len(l.m.weights))), G.WithValue(floatsOf(l.dt, xs, shape...)))
	l.m.weights = append(l.m.weights, n)
	return n
}

// floatsOf returns a tensor of numbers.
func floatsOf(dt tensor.Dtype, xs []float64, shape ...int) *tensor.Dense {
	if dt == tensor.Float64 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(xs))
	}
	fs := make([]float32, len(xs))
	for i, x := range xs {
		fs[i] = float32(x)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(fs))
}

// doubles returns a copy of a value's numbers.
func doubles(t *testing.T, e *cupool.Engine, v G.Value) (xs []float64) {
	switch d := data(t, e, v).(type) {
	case []float64:
		return d
	case []float32:
		for _, x := range d {
			xs = append(xs, float64(x))
		}
		return xs
	}
	return []float64{math.NaN()}
}

// requireClose compares numbers.
func requireClose(t *testing.T, dt tensor.Dtype, want, got []float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	bound, largest := 2e-5, 1.
	if dt == tensor.Float64 {
		bound = 1e-11
	}
	for _, x := range want {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i := range want {
		if want[i] == got[i] || math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		require.InDelta(t, want[i], got[i], bound*largest, "%s %d", what, i)
	}
}

// results runs a machine and returns the numbers of y and of the gradients.
func (l *layerTest) results(t *testing.T, e *cupool.Engine, vm G.VM, y *G.Node) [][]float64 {
	require.NoError(t, vm.RunAll())
	all := [][]float64{doubles(t, e, y.Value())}
	for _, w := range l.m.weights {
		if g, err := w.Grad(); err == nil {
			all = append(all, doubles(t, e, g))
		}
	}
	return all
}

// compare compares y, and gradients if the layer has some, on a device with those
// of the tape machine.
func (l *layerTest) compare(t *testing.T, y *G.Node, learns bool) {
	t.Helper()
	var inputs G.Nodes
	if learns {
		// An uneven gradient for each element.
		uneven := l.input(y.Shape()...)
		l.m.cost = G.Must(G.Sum(G.Must(G.HadamardProd(y, uneven))))
		_, err := G.Grad(l.m.cost, l.m.weights...)
		require.NoError(t, err)
		inputs = l.m.weights
	}
	tape := G.NewTapeMachine(l.m.g, G.BindDualValues(inputs...))
	want := l.results(t, nil, tape, y)
	require.NoError(t, tape.Close())
	for _, w := range inputs {
		g, err := w.Grad()
		require.NoError(t, err)
		g.(*tensor.Dense).Zero()
	}
	e, _ := newDeviceMeter(t)
	vm, err := gorgoniavm.New(l.m.g, e, gorgoniavm.BindDualValues(inputs...), gorgoniavm.Keep(y))
	require.NoError(t, err)
	defer func() { require.NoError(t, vm.Close()) }()
	got := l.results(t, e, vm, y)
	require.Len(t, got, len(want))
	for i := range want {
		requireClose(t, l.dt, want[i], got[i], fmt.Sprint("result ", i))
	}
	if computes {
		require.Empty(t, vm.Fallbacks())
	}
}

// eachFloat runs a test for float32 and float64, several times.
func eachFloat(t *testing.T, f func(t *testing.T, l *layerTest)) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for i := range 4 {
			t.Run(fmt.Sprint(dt, i), func(t *testing.T) { f(t, newLayerTest(t, dt)) })
		}
	}
}

// windows returns a random image and pooling of it.
func (l *layerTest) windows() (x *G.Node, kernel tensor.Shape, pad, stride []int) {
	r := l.rand
	kernel = tensor.Shape{1 + r.IntN(3), 1 + r.IntN(3)}
	x = l.input(1+r.IntN(3), 1+r.IntN(3), 3+r.IntN(6), 3+r.IntN(6))
	pad = []int{r.IntN(kernel[0]), r.IntN(kernel[1])}
	return x, kernel, pad, []int{1 + r.IntN(3), 1 + r.IntN(3)}
}

func TestMaxPoolIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		x, kernel, pad, stride := l.windows()
		t.Log(x.Shape(), kernel, pad, stride)
		l.compare(t, G.Must(G.MaxPool2D(x, kernel, pad, stride)), true)
	})
}

func TestAveragePoolIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		x, kernel, pad, stride := l.windows()
		t.Log(x.Shape(), kernel, pad, stride)
		l.compare(t, G.Must(G.AveragePool2D(x, kernel, pad, stride)), true)
	})
}

// Four paddings: before and behind rows, before and behind columns.
func TestUnevenPaddingIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.MaxPool2D(l.input(1, 2, 6, 5), tensor.Shape{2, 3}, []int{1, 0, 1, 1}, []int{1, 2})), true)
	})
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.AveragePool2D(l.input(1, 2, 6, 5), tensor.Shape{2, 3}, []int{1, 1, 0, 1}, []int{1, 2})), true)
	})
}

func TestPool1DIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.MaxPool1D(l.input(2, 2, 1, 9), 3, 1, 2)), true)
	})
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.AveragePool1D(l.input(2, 2, 1, 9), 3, 1, 2)), true)
	})
}

func TestGlobalAveragePoolIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.GlobalAveragePool2D(l.input(1+l.rand.IntN(3), 2, 3, 1+l.rand.IntN(5)))), false)
	})
}

func TestUpsampleIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		l.compare(t, G.Must(G.Upsample2D(l.input(2, 2, 3, 4), 1+l.rand.IntN(3))), true)
	})
}

// A NaN is not the largest of a window.
func TestMaxPoolOfNaN(t *testing.T) {
	l := newLayerTest(t, tensor.Float32)
	x := l.input(1, 1, 2, 4)
	copy(x.Value().Data().([]float32), []float32{float32(math.NaN()), 3, float32(math.Inf(-1)), float32(math.Inf(1)), 3, 2, 5, float32(math.Inf(1))})
	l.compare(t, G.Must(G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1})), true)
}
