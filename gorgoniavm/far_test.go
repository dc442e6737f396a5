package gorgoniavm_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// near compares numbers that are given by their bits.
func near(t *testing.T, want, got any) {
	t.Helper()
	if w, ok := want.(uint32); ok {
		want, got = []uint32{w}, []uint32{got.(uint32)}
	}
	w, g := want.([]uint32), got.([]uint32)
	require.Len(t, g, len(w))
	largest := 1e-3
	for i := range w {
		largest = max(largest, math.Abs(float64(math.Float32frombits(w[i]))))
	}
	for i := range w {
		require.InDelta(t, math.Float32frombits(w[i]), math.Float32frombits(g[i]), 1e-4*largest)
	}
}

// nearAll compares what steps of training came to.
func nearAll(t *testing.T, want, got trained) {
	t.Helper()
	for i := range want.Costs {
		near(t, want.Costs[i], got.Costs[i])
		for w := range want.Gradients[i] {
			near(t, want.Gradients[i][w], got.Gradients[i][w])
		}
	}
}

// Every model trains in memory that the CPU cannot touch, where it faults, to
// what it trains to elsewhere.
func TestModelsFarAway(t *testing.T) {
	for name, build := range models {
		t.Run(name, func(t *testing.T) {
			m := build()
			want := m.tape(t, 3)
			e, a := newFarMeter(t)
			vm := open(t, m, e)
			nearAll(t, want, m.train(t, e, vm, 3))
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			assert.Equal(t, live, a.live)
		})
	}
}

// evaluate runs a graph of its own and returns the values of nodes.
func evaluate(t *testing.T, nodes ...*G.Node) (all []any) {
	t.Helper()
	for name, newEngine := range engines {
		e, _ := newEngine(t)
		vm, err := gorgoniavm.New(nodes[0].Graph(), e, gorgoniavm.TraceValues())
		require.NoError(t, err)
		require.NoError(t, vm.RunAll(), name)
		var got []any
		for _, n := range nodes {
			got = append(got, data(t, e, n.Value()))
		}
		require.NoError(t, vm.Close())
		if all != nil {
			require.Equal(t, all, got, name)
		}
		all = got
	}
	return all
}

// Operations among scalars of all kinds, and from tensors to scalars.
func TestScalars(t *testing.T) {
	g := G.NewGraph()
	v := G.NewVector(g, tensor.Float64, G.WithShape(3), G.WithName("v"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 4}))))
	x := G.NewScalar(g, tensor.Float64, G.WithName("x"), G.WithValue(2.5))
	one := G.Must(G.Reshape(x, tensor.Shape{1}))
	n := G.NewScalar(g, tensor.Int, G.WithName("n"), G.WithValue(3))
	m := G.NewMatrix(g, tensor.Float64, G.WithShape(2, 2), G.WithName("m"), G.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))))
	constant := G.NewConstant(tensor.New(tensor.WithBacking([]float64{10, 20, 30})), G.WithName("constant"))
	got := evaluate(t,
		G.Must(G.Add(x, G.Must(G.Sum(v)))),
		G.Must(G.Slice(v, G.S(1))),
		G.Must(G.Reshape(one, tensor.Shape{})),
		G.Must(G.Reshape(x, tensor.Shape{1, 1})),
		G.Must(G.Mul(v, v)),
		G.Must(G.At(m, 1, 0)),
		G.Must(G.Max(v)),
		G.Must(G.Add(n, n)),
		G.Must(G.Gt(x, x, true)),
		G.Must(G.Lt(x, G.Must(G.Sum(v)), false)),
		G.Must(G.Add(constant, v)),
		G.Must(G.HadamardProd(v, x)),
		G.Must(G.Sigmoid(x)),
		G.Must(G.Sigmoid(v)),
		G.Must(G.DiagFlat(v)),
		G.Must(G.ConvType(v, tensor.Float64, tensor.Int)),
		G.Must(G.Transpose(m)),
		G.Must(G.Transpose(v)),
	)
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	want := []any{9.5, 2., 2.5, []float64{2.5}, 21., 3., 4., 6, 0., true, []float64{11, 22, 34}, []float64{2.5, 5, 10}, sigmoid(2.5),
		[]float64{sigmoid(1), sigmoid(2), sigmoid(4)}, []float64{1, 0, 0, 0, 2, 0, 0, 0, 4}, []int{1, 2, 4}, []float64{1, 3, 2, 4}, []float64{1, 2, 4}}
	require.Len(t, got, len(want))
	for i := range want {
		assert.Equal(t, want[i], got[i], "%d", i)
	}
}

// Gradients of scalars of float64, and one that was bound in Go's heap before.
func TestGradientsOfDoubles(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			g := G.NewGraph()
			v := G.NewVector(g, tensor.Float64, G.WithShape(3), G.WithName("v"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 4}))))
			G.WithGrad(tensor.New(tensor.WithBacking([]float64{100, 100, 100})))(v)
			x := G.NewScalar(g, tensor.Float64, G.WithName("x"), G.WithValue(2.5))
			cost := G.Must(G.Sum(G.Must(G.HadamardProd(v, x))))
			_, err := G.Grad(cost, v, x)
			require.NoError(t, err)
			vm, err := gorgoniavm.New(g, e, gorgoniavm.BindDualValues(v, x))
			require.NoError(t, err)
			for i := range 2 {
				require.NoError(t, vm.RunAll())
				dv, err := v.Grad()
				require.NoError(t, err)
				assert.True(t, e.Owns(dv.(tensor.Tensor)))
				up := 100 + 2.5*float64(i+1)
				assert.Equal(t, []float64{up, up, up}, data(t, e, dv))
				dx, err := x.Grad()
				require.NoError(t, err)
				assert.Equal(t, 7*float64(i+1), dx.Data())
			}
			require.NoError(t, vm.Close())
		})
	}
}

// What the program gives a weight that has moved to a device takes its place.
func TestWeightReplaced(t *testing.T) {
	e, a := newFarMeter(t)
	c := newChain()
	_, err := G.Grad(c.sum, c.x)
	require.NoError(t, err)
	vm := c.run(t, e, gorgoniavm.BindDualValues(c.x))
	live := a.live
	require.NoError(t, G.Let(c.x, tensor.New(tensor.WithBacking([]float32{1, 1, 1, 1}))))
	require.NoError(t, vm.RunAll())
	assert.Equal(t, float32(4), c.sum.Value().Data())
	assert.Equal(t, live, a.live, "the old one is given back")
	require.NoError(t, vm.Close())
	assert.Zero(t, a.live)
}
