package gorgoniavm_test

import (
	"math"
	"slices"
	"testing"

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

// VMs with one seed draw the same numbers, new ones in each run, and others with
// another seed. Gradients go where the values went.
func TestWithSeed(t *testing.T) {
	const seed = 42
	var first []any
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			runs := make([][]any, 3)
			for i, s := range []uint64{seed, seed, seed + 1} {
				d := newDropped(t, 0.3)
				vm, err := gorgoniavm.New(d.g, e, gorgoniavm.WithSeed(s), gorgoniavm.TraceValues())
				require.NoError(t, err)
				read := func(v G.Value) any { return data(t, e, v) }
				runs[i] = d.run(t, vm, read)
				requireDropped(t, 0.3, runs[i])
				again := d.run(t, vm, read)
				requireDropped(t, 0.3, again)
				for j := range again {
					require.NotEqual(t, runs[i][j], again[j])
				}
				require.NoError(t, vm.Close())
			}
			require.Equal(t, runs[0], runs[1])
			for j := range runs[2] {
				require.NotEqual(t, runs[0][j], runs[2][j])
			}
			if first == nil {
				first = runs[0]
			}
			require.Equal(t, first, runs[0], "on every device")
			uniform := runs[0][2].([]float32)
			assert.GreaterOrEqual(t, slices.Min(uniform), float32(1))
			assert.Less(t, slices.Max(uniform), float32(2))
			assert.InDelta(t, 5, runs[0][3].([]float64)[0], 1)
			assert.InDelta(t, 20, runs[0][4].([]float32)[0], 20)
		})
	}
}

// VMs without a seed differ.
func TestSeedsDiffer(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			var runs [2][]any
			for i := range runs {
				d := newDropped(t, 0.5)
				vm, err := gorgoniavm.New(d.g, e, gorgoniavm.TraceValues())
				require.NoError(t, err)
				runs[i] = d.run(t, vm, func(v G.Value) any { return data(t, e, v) })
				requireDropped(t, 0.5, runs[i])
				require.NoError(t, vm.Close())
			}
			require.NotEqual(t, runs[0][0], runs[1][0])
			require.NotEqual(t, runs[0][2], runs[1][2])
		})
	}
}

// Without training, and with probability 0, dropout passes values on; the gradient
// is gorgonia's.
func TestDropoutThatDropsNothing(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				drop, grad float64
				opts       []gorgoniavm.Option
			}{{0, 0, nil}, {0.25, 4, []gorgoniavm.Option{gorgoniavm.EvalMode()}}} {
				e, _ := newEngine(t)
				d := newDropped(t, c.drop)
				vm, err := gorgoniavm.New(d.g, e, append(c.opts, gorgoniavm.TraceValues(), gorgoniavm.WithSeed(1))...)
				require.NoError(t, err)
				run := d.run(t, vm, func(v G.Value) any { return data(t, e, v) })
				require.Equal(t, slices.Repeat([]float32{1}, 1000), run[0])
				require.Equal(t, slices.Repeat([]float32{float32(c.grad)}, 1000), run[1])
				require.NoError(t, vm.Close())
			}
		})
	}
}
