package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
)

// Tests of tape machines that copy values into what nodes hold (TraceExec).

// traced runs steps of training on a tape machine that traces.
func traced(t *testing.T, m *model, vm gorgonia.VM, solver gorgonia.Solver, steps int) (losses []any) {
	t.Helper()
	for range steps {
		require.NoError(t, vm.RunAll())
		losses = append(losses, m.cost.Value().Data())
		require.NoError(t, solver.Step(gorgonia.NodesToValueGrads(m.weights)))
		vm.Reset()
	}
	return losses
}

func vanilla() gorgonia.Solver { return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1)) }

// tracedInGo is what the same steps come to in Go's memory.
func tracedInGo(t *testing.T, steps int) []any {
	t.Helper()
	m := newMLP(4, 5, 6, 3)
	vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...), gorgonia.TraceExec())
	losses := traced(t, m, vm, vanilla(), steps)
	require.NoError(t, vm.Close())
	return losses
}

// freeInputs frees the values of a model's inputs and their gradients, where they
// are the engine's.
func freeInputs(t *testing.T, e *cupool.Engine, m *model) {
	t.Helper()
	for _, n := range append(append(gorgonia.Nodes{}, m.weights...), m.inputs...) {
		if d, ok := n.Value().(*tensor.Dense); ok && e.Owns(d) {
			require.NoError(t, e.FreeTensor(d))
		}
	}
}

// TestTapeTraced: a Tape that traces, as Gorgonia's TestBatchNormStacked does,
// runs as often as wanted, and gives its memory back.
func TestTapeTraced(t *testing.T) {
	for name, exclusive := range map[string]bool{"shared": false, "exclusive": true} {
		t.Run(name, func(t *testing.T) {
			if !testkit.InChild(t) {
				return
			}
			want := tracedInGo(t, 4)
			e, _ := newPool(t)
			m := newMLP(4, 5, 6, 3)
			require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
			tape, err := gorgoniavm.NewTape(m.g, e, gorgoniavm.TapeConfig{
				BindDualValues: m.weights, Exclusive: exclusive, Options: []gorgonia.VMOpt{gorgonia.TraceExec()},
			})
			require.NoError(t, err)
			require.Equal(t, want, traced(t, m, tape, vanilla(), 4))
			require.NoError(t, tape.Close())
			freeInputs(t, e, m)
		})
	}
}

// TestTapeThenTraced: after a Tape was closed, a tape machine that traces runs
// the same graph.
func TestTapeThenTraced(t *testing.T) {
	if !testkit.InChild(t) {
		return
	}
	want := tracedInGo(t, 4)
	e, _ := newPool(t)
	m := newMLP(4, 5, 6, 3)
	tape, err := gorgoniavm.NewTape(m.g, e, gorgoniavm.TapeConfig{BindDualValues: m.weights})
	require.NoError(t, err)
	got := traced(t, m, tape, vanilla(), 2)
	require.NoError(t, tape.Close())
	vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...), gorgonia.TraceExec())
	require.Equal(t, want, append(got, traced(t, m, vm, vanilla(), 2)...))
	require.NoError(t, vm.Close())
}

// TestVMThenTraced: as it does after a VM was closed.
func TestVMThenTraced(t *testing.T) {
	if !testkit.InChild(t) {
		return
	}
	e, _ := newPool(t)
	m := newMLP(4, 5, 6, 3)
	mine, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues())
	require.NoError(t, err)
	traced(t, m, mine, vanilla(), 2)
	require.NoError(t, mine.Close())
	vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...), gorgonia.TraceExec())
	traced(t, m, vm, vanilla(), 2)
	require.NoError(t, vm.Close())
}
