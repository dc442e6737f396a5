package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// fusedLosses are graphs with a loss over the logarithms of SoftMax, and how
// many the gradient is computed with.
var fusedLosses = map[string]struct {
	loss func(m *model, z, y *G.Node) *G.Node
	n    int
}{
	"mean": {func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Mul(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z)))))), G.NewConstant(float32(-10))))
	}, 1},
	"sum": {func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Neg(G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.LogSoftMax(z, 1)), y))))))
	}, 1},
	"two": {func(_ *model, z, y *G.Node) *G.Node {
		one := G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.LogSoftMax(z)), y))))
		return G.Must(G.Add(one, G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(G.Must(G.Neg(z))))))))))
	}, 2},
	"squared": {func(_ *model, z, y *G.Node) *G.Node { // the gradient depends on the sum
		return G.Must(G.Square(G.Must(G.Mean(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z))))))))
	}, 0},
	"of columns": {func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z, 0))))))
	}, 0},
	"not of logarithms": {func(_ *model, z, y *G.Node) *G.Node {
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.SoftMax(z))))))
	}, 0},
	"logarithms read too": {func(_ *model, z, y *G.Node) *G.Node {
		logs := G.Must(G.LogSoftMax(z))
		return G.Must(G.Add(G.Must(G.Sum(G.Must(G.HadamardProd(y, logs)))), G.Must(G.Sum(G.Must(G.Square(logs))))))
	}, 0},
	"weights learned": {func(m *model, z, y *G.Node) *G.Node {
		m.weights = append(m.weights, y)
		return G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.LogSoftMax(z))))))
	}, 0},
}

// newLoss returns a layer with a loss after it.
func newLoss(loss func(m *model, z, y *G.Node) *G.Node) *model {
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

// Fused losses have the values and gradients that the tape machine has.
func TestFusedLosses(t *testing.T) {
	for name, c := range fusedLosses {
		t.Run(name, func(t *testing.T) {
			m := newLoss(c.loss)
			want := m.tape(t, 3)
			e, a := newFarMeter(t)
			vm := open(t, m, e)
			require.Equal(t, c.n, gorgoniavm.FusedLosses(vm))
			nearAll(t, want, m.train(t, e, vm, 3))
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			require.Equal(t, live, a.live)
		})
	}
}
