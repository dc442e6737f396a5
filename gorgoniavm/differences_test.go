package gorgoniavm_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// TestDifferences holds rows of the tables in docs/gorgonia.md: what the tape machine, a VM on
// the host and one on a GPU compute.
func TestDifferences(t *testing.T) {
	nan := math.NaN()
	input := func(g *G.ExprGraph, name string, shape []int, values ...float64) *G.Node {
		return G.NewTensor(g, tensor.Float64, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))))
	}
	ones := []float64{1, 1, 1, 1, 1, 1}
	rows := map[string]struct {
		build           func(g *G.ExprGraph) *G.Node
		tape, host, gpu []float64
	}{
		"AveragePool2D": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.AveragePool2D(input(g, "x", []int{1, 1, 2, 3}, ones...), tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1}))
		}, []float64{4. / 3, 4. / 3}, []float64{4. / 3, 4. / 3}, []float64{4. / 3, 4. / 3}},
		"AveragePool1D": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.AveragePool1D(input(g, "x", []int{1, 1, 1, 4}, 1, 2, 3, 4), 2, 0, 1))
		}, []float64{2, 3, 4}, []float64{2, 3, 4}, []float64{2, 3, 4}},
		"the gradient of OuterProd": {func(g *G.ExprGraph) *G.Node {
			v, w := input(g, "v", []int{2}, 1, 2), input(g, "w", []int{2}, 3, 5)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.OuterProd(v, w)))), v)
			require.NoError(t, err)
			return grads[0]
		}, []float64{3, 3}, []float64{3, 3}, []float64{3, 3}}, // 8, 8
		"the gradient of InverseSqrt": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{2}, 4, 0.25)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.InverseSqrt(x)))), x)
			require.NoError(t, err)
			return grads[0]
		}, []float64{-4, -1. / 16}, []float64{-4, -1. / 16}, []float64{-4, -1. / 16}}, // -1/16, -4
		"a value and its reshape": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{2, 2}, 1, 2, 3, 4)
			y := G.Must(G.Square(x))
			same := G.Must(G.Neg(G.Must(G.Neg(G.Must(G.Reshape(y, tensor.Shape{4}))))))
			G.Must(G.Add(y, x))
			return same
		}, []float64{2, 6, 12, 20}, []float64{1, 4, 9, 16}, []float64{1, 4, 9, 16}},
		"Max of NaN": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Max(input(g, "x", []int{2, 2}, 1, nan, 0, 2), 1)) },
			nil, nil, []float64{nan, 2}},
		"products with infinities": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Mul(input(g, "x", []int{1, 2}, 0, 1), input(g, "y", []int{2, 1}, math.Inf(1), 2)))
		}, nil, nil, []float64{nan}},
		"Upsample2D of a zero": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Inverse(G.Must(G.Upsample2D(input(g, "x", []int{1, 1, 1, 1}, math.Copysign(0, -1)), 2))))
		}, nil, slices.Repeat([]float64{math.Inf(-1)}, 4), slices.Repeat([]float64{math.Inf(1)}, 4)},
		"Sigmoid": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Sigmoid(input(g, "x", []int{2}, 20, 0))) },
			[]float64{1, 0.5}, []float64{1, 0.5}, []float64{1 / (1 + math.Exp(-20)), 0.5}},
		"Softplus": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Softplus(input(g, "x", []int{2}, 20, 0))) },
			[]float64{20, math.Ln2}, []float64{20, math.Ln2}, []float64{20 + math.Log1p(math.Exp(-20)), math.Ln2}},
	}
	read := func(n *G.Node) *G.Value {
		v := new(G.Value)
		G.Read(n, v)
		return v
	}
	check := func(want, got []float64, what string) {
		require.True(t, want == nil || len(got) == len(want), "%s: %v, want %v", what, got, want)
		for i := range want {
			require.True(t, same(want[i], got[i]) || math.Abs(want[i]-got[i]) < 1e-12, "%s: %v, want %v", what, got, want)
		}
	}
	for name, row := range rows {
		g := G.NewGraph()
		v := read(row.build(g))
		tape := G.NewTapeMachine(g)
		require.NoError(t, tape.RunAll())
		require.NoError(t, tape.Close())
		check(row.tape, elementsOf(*v), name+", tape machine")
	}
	everywhere(t, func(t *testing.T, d device) {
		for name, row := range rows {
			e, _ := d.open(t)
			g := G.NewGraph()
			v := read(row.build(g))
			vm, err := gorgoniavm.New(g, e, d.options...)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, vm.RunAll())
				switch {
				case d.computes:
					check(row.gpu, elementsOf(*v), name)
				case d.exact:
					check(row.host, elementsOf(*v), name)
				}
			}
			require.NoError(t, vm.Close())
		}
	})
}
