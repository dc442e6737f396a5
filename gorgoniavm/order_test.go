package gorgoniavm_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// executed returns the log of a run.
func executed(t *testing.T, m *model, opts ...gorgoniavm.Option) []string {
	t.Helper()
	var out bytes.Buffer
	e, _ := newMeter(t)
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.WithLogger(log))...)
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	require.NoError(t, vm.Close())
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// Gradients that nobody asked for are left out when the program says which
// ones it wants.
func TestPrune(t *testing.T) {
	m := newMLP(4, 6, 5, 3)
	nodes := len(m.g.AllNodes())
	all := executed(t, m)
	assert.Len(t, all, nodes)
	assert.Len(t, executed(t, m, gorgoniavm.BindDualValues()), nodes)
	assert.Len(t, executed(t, m, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues()), nodes)
	for _, wanted := range []gorgoniavm.Option{gorgoniavm.BindDualValues(m.weights...), gorgoniavm.Gradients(m.weights...)} {
		few := executed(t, m, wanted)
		assert.Less(t, len(few), nodes)
		assert.Less(t, products(few), products(all), "the gradient of the images")
	}

}

// What a program says it wants is computed.
func TestPruneKeeps(t *testing.T) {
	for _, keep := range []bool{false, true} {
		e, _ := newMeter(t)
		m := startModel()
		x, w := m.param("x", 1, 4, 4), m.param("w", 2, 4, 4)
		m.cost = G.Must(G.Sum(G.Must(G.Square(G.Must(G.Mul(x, w))))))
		grads, err := G.Grad(m.cost, x, w)
		require.NoError(t, err)
		own := G.Must(G.Square(x))
		m.weights = G.Nodes{w}
		var opts []gorgoniavm.Option
		if keep {
			opts = append(opts, gorgoniavm.Keep(grads[0]))
		}
		require.NoError(t, open(t, m, e, opts...).RunAll())
		assert.Equal(t, keep, grads[0].Value() != nil)
		assert.NotNil(t, own.Value(), "roots of the program's own stay")
	}
}

func products(log []string) (n int) {
	for _, l := range log {
		if strings.Contains(l, "linAlgBinOp") {
			n++
		}
	}
	return n
}

// Scalars come last, but for those that tensors depend on.
func TestScalarsLast(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float32, G.WithShape(3), G.WithName("x"), G.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, 3}))))
	sum := G.Must(G.Sum(x))
	scaled := G.Must(G.HadamardProd(x, G.Must(G.Inverse(sum))))
	last := G.Must(G.Neg(sum))
	more := G.Must(G.Sum(G.Must(G.Square(scaled))))
	log := executed(t, &model{g: g})
	at := func(n *G.Node) int {
		for i, l := range log {
			if strings.Contains(l, `node="`+n.Name()) {
				return i
			}
		}
		require.Fail(t, "not executed", "%v", n)
		return -1
	}
	assert.Equal(t, len(log)-1, at(last))
	assert.Less(t, at(sum), at(scaled))
	assert.Less(t, at(more), at(last))
}
