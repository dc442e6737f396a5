package gorgoniavm_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cupool/cupool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// dropped is a dropout of ones with its gradient, and random nodes.
type dropped struct {
	g          *G.ExprGraph
	x, y, cost *G.Node
	random     G.Nodes
}

func newDropped(t *testing.T, drop float64) *dropped {
	t.Helper()
	g := G.NewGraph()
	d := &dropped{g: g, x: G.NewMatrix(g, tensor.Float32, G.WithShape(50, 20), G.WithName("x"), G.WithInit(G.Ones()))}
	d.y = G.Must(G.Dropout(d.x, drop))
	d.cost = G.Must(G.Sum(d.y))
	_, err := G.Grad(d.cost, d.x)
	require.NoError(t, err)
	d.random = G.Nodes{G.UniformRandomNode(g, tensor.Float32, 1, 2, 30), G.GaussianRandomNode(g, tensor.Float64, 5, 0.1, 3, 4),
		G.BinomialRandomNode(g, tensor.Float32, 40, 0.5, 20)}
	for _, n := range d.random {
		G.Must(G.Square(n))
	}
	return d
}

// run returns the numbers of a run: y, its gradient by x, and those of the random
// nodes.
func (d *dropped) run(t *testing.T, vm *gorgoniavm.VM, read func(G.Value) any) []any {
	t.Helper()
	require.NoError(t, vm.RunAll())
	grad, err := d.x.Grad()
	require.NoError(t, err)
	all := []any{read(d.y.Value()), read(grad)}
	for _, n := range d.random {
		all = append(all, read(n.Value()))
	}
	return all
}

// requireDropped requires that what was dropped has no gradient, and the rest what
// gorgonia has.
func requireDropped(t *testing.T, drop float64, run []any) {
	t.Helper()
	y, grad := run[0].([]float32), run[1].([]float32)
	zeros := 0
	for i := range y {
		if y[i] == 0 {
			zeros++
			require.Zero(t, grad[i])
			continue
		}
		require.InDelta(t, 1/(1-drop), y[i], 1e-5)
		require.InDelta(t, 1/drop, grad[i], 1e-5)
	}
	require.InDelta(t, drop, float64(zeros)/float64(len(y)), 6*math.Sqrt(drop*(1-drop)/float64(len(y))))
}

// VMs with one seed draw the same numbers on every device. Only normal numbers may differ,
// in their last bits, because a GPU's logarithm does. Each run draws new numbers, and
// another seed draws others. Gradients go where the values went.
func TestWithSeed(t *testing.T) {
	const seed, runs = 42, 4
	draw := func(t *testing.T, d device, e *cupool.Engine, opts ...gorgoniavm.Option) (all [][]any) {
		x := newDropped(t, 0.3)
		vm := d.vm(t, x.g, e, append(opts, gorgoniavm.TraceValues())...)
		for range runs {
			all = append(all, x.run(t, vm, func(v G.Value) any { return data(t, e, v) }))
			requireDropped(t, 0.3, all[len(all)-1])
		}
		require.Equal(t, d.records, vm.Replays().Launches == runs-1, "%+v", vm.Replays())
		require.NoError(t, vm.Close())
		return all
	}
	requireNew := func(t *testing.T, one, other []any) {
		t.Helper()
		for j := range one {
			require.NotEqual(t, one[j], other[j])
		}
	}
	var first [][]any
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		drawn := draw(t, d, e, gorgoniavm.WithSeed(seed))
		for i := range runs - 1 {
			requireNew(t, drawn[i], drawn[i+1])
		}
		if first == nil {
			first = drawn
		}
		for i := range first {
			for j, want := range first[i] {
				require.InDeltaSlice(t, want, drawn[i][j], 1e-12)
			}
		}
		requireNew(t, drawn[0], draw(t, d, e, gorgoniavm.WithSeed(seed+1))[0])
		requireNew(t, draw(t, d, e)[0], draw(t, d, e)[0]) // of no seed
	})
	uniform := first[0][2].([]float32)
	assert.GreaterOrEqual(t, slices.Min(uniform), float32(1))
	assert.Less(t, slices.Max(uniform), float32(2))
	assert.InDelta(t, 5, first[0][3].([]float64)[0], 1)
	assert.InDelta(t, 20, first[0][4].([]float32)[0], 20)
}

// Without training, and with probability 0, dropout passes values on; the gradient
// is gorgonia's. A VM that trains drops again.
func TestDropoutThatDropsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, c := range []struct {
			drop, grad float64
			opts       []gorgoniavm.Option
		}{{0, 0, nil}, {0.25, 4, []gorgoniavm.Option{gorgoniavm.EvalMode()}}} {
			e, _ := d.open(t)
			x := newDropped(t, c.drop)
			run := func(opts ...gorgoniavm.Option) []any {
				vm := d.vm(t, x.g, e, append(opts, gorgoniavm.TraceValues())...)
				defer func() { require.NoError(t, vm.Close()) }()
				return x.run(t, vm, func(v G.Value) any { return data(t, e, v) })
			}
			numbers := run(c.opts...)
			require.Equal(t, slices.Repeat([]float32{1}, 1000), numbers[0])
			require.Equal(t, slices.Repeat([]float32{float32(c.grad)}, 1000), numbers[1])
			if c.drop > 0 {
				requireDropped(t, c.drop, run())
			}
		}
	})
}

// The VM of a graph that was made last says for all of them whether dropout drops.
func TestDropoutOfAnotherMode(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(8, 16), G.WithName("x"), G.WithValue(values(1, 8, 16)))
		y := G.Must(G.Dropout(x, 0.5))
		vm := d.vm(t, g, e)
		for _, mode := range [][]gorgoniavm.Option{nil, {gorgoniavm.EvalMode()}, nil} {
			other, err := gorgoniavm.New(g, e, mode...)
			require.NoError(t, err)
			for range 3 { // recorded, the second one
				require.NoError(t, vm.RunAll())
				got := data(t, e, y.Value()).([]float32)
				require.Equal(t, mode == nil, slices.Contains(got, 0))
			}
			require.NoError(t, other.Close())
		}
		require.NoError(t, vm.Close())
	})
}
