package gorgoniavm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// updating is a graph that computes a new weight from the old, as Gorgonia's
// example of logistic regression does: w' = w + x.
func updating() (g *gorgonia.ExprGraph, w, upd *gorgonia.Node) {
	g = gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("x"),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, 10, 100}))))
	w = gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("w"),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{0, 0, 0}))))
	return g, w, gorgonia.Must(gorgonia.Add(w, x))
}

// TestLetBetweenRuns: the value of a node may be given to an input between runs,
// which holds it.
func TestLetBetweenRuns(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			g, w, upd := updating()
			vm, err := gorgoniavm.New(g, e, gorgoniavm.Keep(upd))
			require.NoError(t, err)
			for i := range 5 {
				require.NoError(t, vm.RunAll(), "run %d", i)
				n := float64(i + 1)
				require.Equal(t, []float64{n, 10 * n, 100 * n}, must(t, e, upd).Data())
				vm.Reset()
				require.NoError(t, gorgonia.Let(w, upd.Value()))
			}
			require.NoError(t, vm.Close())
			if d, ok := w.Value().(*tensor.Dense); ok && e.Owns(d) {
				require.NoError(t, e.FreeTensor(d))
			}
		})
	}
}

func must(t *testing.T, e *cupool.Engine, n *gorgonia.Node) *tensor.Dense {
	t.Helper()
	d, err := e.ToHost(n.Value().(*tensor.Dense))
	require.NoError(t, err)
	return d
}

// TestGradientsAfterClose: a VM and a Tape leave gradients in the same state when
// they are closed.
func TestGradientsAfterClose(t *testing.T) {
	state := func(n *gorgonia.Node) string {
		g, err := n.Grad()
		if err != nil {
			return "none"
		}
		d, ok := g.(*tensor.Dense)
		switch {
		case !ok:
			return "a scalar"
		case d.MemSize() == 0:
			return "freed"
		}
		return "there"
	}
	ways := map[string]string{}
	for name, run := range map[string]func(t *testing.T, e *cupool.Engine, m *model) gorgonia.VM{
		"VM": func(t *testing.T, e *cupool.Engine, m *model) gorgonia.VM {
			vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...))
			require.NoError(t, err)
			return vm
		},
		"Tape": func(t *testing.T, e *cupool.Engine, m *model) gorgonia.VM {
			tape, err := gorgoniavm.NewTape(m.g, e, gorgoniavm.TapeConfig{BindDualValues: m.weights})
			require.NoError(t, err)
			return tape
		},
	} {
		e, _ := newPool(t)
		m := newMLP(4, 5, 6, 3)
		require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
		vm := run(t, e, m)
		require.NoError(t, vm.RunAll())
		require.Equal(t, "there", state(m.weights[0]))
		require.NoError(t, vm.Close())
		ways[name] = state(m.weights[0])
		freeInputs(t, e, m)
	}
	require.Equal(t, ways["VM"], ways["Tape"])
}

// TestPrintFreed: a freed tensor prints as something that a person understands.
func TestPrintFreed(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			d, err := e.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
			require.NoError(t, err)
			require.NoError(t, e.FreeTensor(d))
			for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
				require.Contains(t, fmt.Sprintf(format, d), "Inaccesible data", format) // tensor's words
			}
		})
	}
	t.Run("node of a Tape", func(t *testing.T) {
		e, _ := newPool(t)
		g, w, upd := updating()
		tape, err := gorgoniavm.NewTape(g, e, gorgoniavm.TapeConfig{})
		require.NoError(t, err)
		require.NoError(t, tape.RunAll())
		tape.Reset()
		require.NotContains(t, fmt.Sprint(upd.Value()), "PANIC")
		require.NoError(t, tape.Close())
		if d, ok := w.Value().(*tensor.Dense); ok && e.Owns(d) {
			require.NoError(t, e.FreeTensor(d))
		}
	})
}
