package gorgoniavm_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
)

// poison fills the free memory of a pool with NaN, as far as blocks of these
// sizes reach.
func poison(t *testing.T, eng *cupool.Engine) {
	t.Helper()
	var all []tensor.Tensor
	for size := 1; size <= 1<<16; size *= 4 {
		for range 8 {
			d, err := eng.Empty(tensor.Float32, size)
			require.NoError(t, err)
			require.NoError(t, eng.Memset(d, float32(math.NaN())))
			all = append(all, d)
		}
	}
	require.NoError(t, eng.FreeTensor(all...))
}

// failing is a solver that fails after it took memory.
type failing struct {
	eng *cupool.Engine
	err error
}

func (f failing) Step([]gorgonia.ValueGrad) error {
	_, err := f.eng.Empty(tensor.Float64, 100)
	return errors.Join(err, f.err)
}

func TestStockSolverErrors(t *testing.T) {
	eng, pool := newMeter(t)
	for _, none := range []*cupool.Engine{nil, {}} {
		_, err := gorgoniavm.NewStockSolver(none, gorgonia.NewVanillaSolver())
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	for _, none := range []gorgonia.Solver{nil, (*gorgonia.AdamSolver)(nil)} {
		_, err := gorgoniavm.NewStockSolver(eng, none)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	boom := errors.New("boom")
	s, err := gorgoniavm.NewStockSolver(eng, failing{eng, boom})
	require.NoError(t, err)
	for range 4 {
		require.ErrorIs(t, s.Step(nil), boom)
	}
	require.Equal(t, int64(2), pool.Stats().All.Allocation.Current, "of the first and the last step")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Zero(t, pool.Stats().All.Allocation.Current)
	require.ErrorIs(t, s.Step(nil), cupool.ErrClosed)
}

// panicking is a solver that panics after it took memory.
type panicking struct{ eng *cupool.Engine }

func (p panicking) Step([]gorgonia.ValueGrad) error {
	_, _ = p.eng.Empty(tensor.Float64, 100)
	panic("of a solver")
}

// TestStockSolverPanics: what the program allocates after a solver's panic is not the step's.
func TestStockSolverPanics(t *testing.T) {
	eng, pool := newMeter(t)
	s, err := gorgoniavm.NewStockSolver(eng, panicking{eng})
	require.NoError(t, err)
	for range 3 {
		require.PanicsWithValue(t, "of a solver", func() { _ = s.Step(nil) })
	}
	d, err := eng.Empty(tensor.Float64, 7)
	require.NoError(t, err)
	require.Equal(t, int64(3), pool.Stats().All.Allocation.Current, "of the first and the last step, and this one")
	require.NoError(t, s.Close())
	require.NoError(t, eng.FreeTensor(d))
}

// With a VM, stock solvers train as with a tape machine in Go's memory, and leak
// nothing.
func TestStockSolverWithVM(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, name := range []string{"Vanilla", "Momentum", "RMSProp", "Adam", "AdaGrad"} {
			t.Run(name, func(t *testing.T) {
				const steps = 6
				m := newMLP(16, 20, 30, 10)
				want := traced(t, m, gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...)), bareSolvers[name](), steps)
				eng, pool := d.open(t)
				m = newMLP(16, 20, 30, 10)
				require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
				vm := d.bound(t, m, eng)
				stock, err := gorgoniavm.NewStockSolver(eng, bareSolvers[name]())
				require.NoError(t, err)
				var live []int64
				for i := range steps {
					require.NoError(t, vm.RunAll())
					near(t, bits(want[i]), bits(m.cost.Value().Data()))
					require.True(t, !d.exact || want[i] == m.cost.Value().Data())
					require.NoError(t, stock.Step(gorgonia.NodesToValueGrads(m.weights)))
					live = append(live, pool.Stats().All.AllocatedBytes.Current)
				}
				require.NotEqual(t, want[0], want[steps-1])
				for _, n := range live[2:] {
					require.Equal(t, live[2], n, "live bytes %v", live)
				}
				require.NoError(t, errors.Join(vm.Close(), stock.Close()))
				freeInputs(t, eng, m)
			})
		}
	})
}

// A node that is nil is an error, and the steps' memory goes back.
func TestStockSolverNoNode(t *testing.T) {
	eng, pool := newMeter(t)
	s, err := gorgoniavm.NewStockSolver(eng, gorgonia.NewVanillaSolver())
	require.NoError(t, err)
	good := &weight{value: gorgonia.NewF64(1), grad: gorgonia.NewF64(1)}
	for _, none := range []gorgonia.ValueGrad{nil, (*gorgonia.Node)(nil)} {
		var se *gorgoniavm.SolverError
		require.ErrorAs(t, s.Step([]gorgonia.ValueGrad{good, none}), &se)
		require.Equal(t, 1, se.Index)
		require.ErrorIs(t, se, cupool.ErrNotSupported)
		require.Equal(t, 1.0, good.value.Data(), "nothing has moved")
	}
	require.NoError(t, s.Close())
	require.Zero(t, pool.Stats().All.Allocation.Current)
}

// A tape machine that copies values into what nodes hold (TraceExec) runs on a graph
// that a VM has had.
func TestTraced(t *testing.T) {
	if !testkit.InChild(t) {
		return
	}
	const steps = 2
	machine := func(m *model) gorgonia.VM {
		return gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...), gorgonia.TraceExec())
	}
	m := newMLP(4, 5, 6, 3)
	want := traced(t, m, machine(m), vanilla(), 2*steps)
	e, _ := newMeter(t)
	m = newMLP(4, 5, 6, 3)
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues())
	require.NoError(t, err)
	got := traced(t, m, vm, vanilla(), steps)
	require.NoError(t, vm.Close())
	require.Equal(t, want, append(got, traced(t, m, machine(m), vanilla(), steps)...))
}

func vanilla() gorgonia.Solver { return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1)) }

// traced runs steps of training and returns the losses.
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

// A freed tensor prints as something that a person understands.
func TestPrintFreed(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		x, err := e.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
		require.NoError(t, err)
		require.NoError(t, e.FreeTensor(x))
		for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
			require.Contains(t, fmt.Sprintf(format, x), "Inaccesible data", format) // tensor's words
		}
	})
}
