package gorgoniavm_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
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

// tapeSolvers are Gorgonia's solvers.
var tapeSolvers = map[string]func() gorgonia.Solver{
	"Vanilla": func() gorgonia.Solver {
		return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1), gorgonia.WithL2Reg(0.01))
	},
	"Momentum": func() gorgonia.Solver { return gorgonia.NewMomentum(gorgonia.WithLearnRate(0.02)) },
	"RMSProp":  func() gorgonia.Solver { return gorgonia.NewRMSPropSolver() },
	"Adam":     func() gorgonia.Solver { return gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01)) },
	"AdaGrad":  func() gorgonia.Solver { return gorgonia.NewAdaGradSolver() },
}

// tapeLosses trains a network for some steps on a tape machine, in scopes and
// with poisoned memory if there is an engine, and returns losses and live bytes
// after each step.
func tapeLosses(t *testing.T, eng *cupool.Engine, pool *meter, exclusive bool, solver gorgonia.Solver, steps int) (losses []any, live []int64) {
	t.Helper()
	m := newMLP(16, 20, 30, 10)
	var vm gorgonia.VM = gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...))
	if eng != nil {
		require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
		require.NoError(t, gorgoniavm.ToPool(eng, m.inputs...))
		tape, err := gorgoniavm.NewTape(m.g, eng, gorgoniavm.TapeConfig{BindDualValues: m.weights, Exclusive: exclusive})
		require.NoError(t, err)
		vm = tape
		stock, err := gorgoniavm.NewStockSolver(eng, solver)
		require.NoError(t, err)
		defer func() { require.NoError(t, stock.Close()) }()
		solver = stock
	}
	for range steps {
		require.NoError(t, vm.RunAll())
		losses = append(losses, m.cost.Value().Data())
		require.NoError(t, solver.Step(gorgonia.NodesToValueGrads(m.weights)))
		vm.Reset()
		if eng != nil {
			poison(t, eng)
			live = append(live, pool.Stats().All.AllocatedBytes.Current)
		}
	}
	require.NoError(t, vm.Close())
	if eng != nil {
		freeInputs(t, eng, m)
	}
	return losses, live
}

// In scopes, with whatever solver, a tape machine computes what it computes in
// Go's memory, and leaks nothing, also when freed memory is poisoned.
func TestTape(t *testing.T) {
	for name, solver := range tapeSolvers {
		for _, exclusive := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", exclusive), func(t *testing.T) {
				const steps = 6
				eng, pool := newMeter(t)
				want, _ := tapeLosses(t, nil, nil, false, solver(), steps)
				got, live := tapeLosses(t, eng, pool, exclusive, solver(), steps)
				require.Equal(t, want, got)
				require.NotEqual(t, got[0], got[steps-1])
				for _, n := range live[2:] {
					require.Equal(t, live[2], n, "live bytes %v", live)
				}
			})
		}
	}
}

// goBytes is how much f takes from Go's heap.
func goBytes(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// poolShare is the part of the bytes that f takes that come from the pool.
func poolShare(pool *meter, f func()) float64 {
	before := pool.Stats().All.AllocatedBytes.Allocated
	fromGo := goBytes(f)
	fromPool := pool.Stats().All.AllocatedBytes.Allocated - before
	return float64(fromPool) / float64(fromPool+fromGo)
}

func TestTapeShare(t *testing.T) {
	share := map[bool]float64{}
	for _, exclusive := range []bool{false, true} {
		eng, pool := newMeter(t)
		m := newMNIST()
		require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
		tape, err := gorgoniavm.NewTape(m.g, eng, gorgoniavm.TapeConfig{BindDualValues: m.weights, Exclusive: exclusive})
		require.NoError(t, err)
		for range 3 {
			share[exclusive] = poolShare(pool, func() { require.NoError(t, tape.RunAll()) })
			tape.Reset()
		}
		require.NoError(t, tape.Close())
		freeInputs(t, eng, m)
	}
	t.Log(share)
	require.Greater(t, share[false], 0.1)
	require.Greater(t, share[true], 0.9)
}

// A Tape runs again with TraceExec, which copies each result into the value that
// its node has. Close leaves the gradients in Go's heap.
func TestTapeTraces(t *testing.T) {
	eng, _ := newMeter(t)
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 2), gorgonia.WithName("x"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))))
	square := gorgonia.Must(gorgonia.Square(x))
	_, err := gorgonia.Grad(gorgonia.Must(gorgonia.Sum(square)), x)
	require.NoError(t, err)
	tape, err := gorgoniavm.NewTape(g, eng, gorgoniavm.TapeConfig{
		BindDualValues: gorgonia.Nodes{x}, Options: []gorgonia.VMOpt{gorgonia.TraceExec()},
	})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, tape.RunAll())
		require.Equal(t, []float64{1, 4, 9, 16}, square.Value().Data())
		tape.Reset()
		poison(t, eng)
	}
	grad, err := x.Grad()
	require.NoError(t, err)
	require.True(t, eng.Owns(grad.(*tensor.Dense)))
	require.NoError(t, tape.Close())
	require.Zero(t, grad.MemSize(), "a freed tensor")
	grad, err = x.Grad()
	require.NoError(t, err)
	require.Equal(t, []float64{6, 12, 18, 24}, grad.Data())
}

// What is read stays, in Go's heap; other values end with Reset.
func TestTapeValues(t *testing.T) {
	eng, pool := newMeter(t)
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 2), gorgonia.WithName("x"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))))
	require.NoError(t, gorgoniavm.ToPool(eng, x))
	square := gorgonia.Must(gorgonia.Square(x))
	var read gorgonia.Value
	gorgonia.Read(square, &read)
	tape, err := gorgoniavm.NewTape(g, eng, gorgoniavm.TapeConfig{})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, tape.RunAll())
		value := square.Value()
		require.Equal(t, []float64{1, 4, 9, 16}, value.Data())
		tape.Reset()
		poison(t, eng)
		require.Equal(t, []float64{1, 4, 9, 16}, read.Data())
		require.False(t, eng.Owns(read.(*tensor.Dense)))
		require.Zero(t, value.MemSize(), "a freed tensor")
		require.Nil(t, square.Value())
		require.Equal(t, []float64{1, 2, 3, 4}, x.Value().Data(), "the program's")
	}
	require.NoError(t, tape.Close())
	require.NoError(t, tape.Close())
	require.NoError(t, eng.FreeTensor(x.Value().(*tensor.Dense)))
	require.Zero(t, pool.Stats().All.Allocation.Current)
}

// A run that fails leaks nothing.
func TestTapeFails(t *testing.T) {
	eng, pool := newMeter(t)
	m := newMLP(16, 20, 30, 10)
	require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
	tape, err := gorgoniavm.NewTape(m.g, eng, gorgoniavm.TapeConfig{BindDualValues: m.weights, Options: []gorgonia.VMOpt{gorgonia.WithNaNWatch()}})
	require.NoError(t, err)
	x := m.inputs[0].Value().(*tensor.Dense)
	good := x.Float32s()[0]
	live := pool.Stats().All.Allocation.Current
	x.Float32s()[0] = float32(math.NaN())
	require.ErrorContains(t, tape.RunAll(), "NaN found")
	require.Equal(t, live, pool.Stats().All.Allocation.Current)
	x.Float32s()[0] = good
	require.NoError(t, tape.RunAll())
	require.NoError(t, tape.Close())
	require.Equal(t, live, pool.Stats().All.Allocation.Current)
	freeInputs(t, eng, m)
}

func TestNewTapeErrors(t *testing.T) {
	eng, _ := newMeter(t)
	_, err := gorgoniavm.NewTape(nil, eng, gorgoniavm.TapeConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = gorgoniavm.NewTape(gorgonia.NewGraph(), nil, gorgoniavm.TapeConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
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
	_, err := gorgoniavm.NewStockSolver(nil, gorgonia.NewVanillaSolver())
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = gorgoniavm.NewStockSolver(eng, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
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

// With the VM, too, stock solvers leak nothing, nor on a device.
func TestStockSolverWithVM(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for name, solver := range tapeSolvers {
			t.Run(name, func(t *testing.T) {
				const steps = 6
				want, _ := tapeLosses(t, nil, nil, false, solver(), steps)
				eng, pool := d.open(t)
				m := newMLP(16, 20, 30, 10)
				require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
				vm := d.bound(t, m, eng)
				stock, err := gorgoniavm.NewStockSolver(eng, solver())
				require.NoError(t, err)
				var live []int64
				for i := range steps {
					require.NoError(t, vm.RunAll())
					near(t, bits(want[i]), bits(m.cost.Value().Data()))
					require.True(t, !d.exact || want[i] == m.cost.Value().Data())
					require.NoError(t, stock.Step(gorgonia.NodesToValueGrads(m.weights)))
					live = append(live, pool.Stats().All.AllocatedBytes.Current)
				}
				for _, n := range live[2:] {
					require.Equal(t, live[2], n, "live bytes %v", live)
				}
				require.NoError(t, errors.Join(vm.Close(), stock.Close()))
				freeInputs(t, eng, m)
			})
		}
	})
}

// Tape machines that copy values into what nodes hold (TraceExec) run as often as
// wanted, in the pool, and on a graph that another machine has had.
func TestTraced(t *testing.T) {
	const steps = 2
	tape := func(c gorgoniavm.TapeConfig) func(e *cupool.Engine, m *model) (gorgonia.VM, error) {
		return func(e *cupool.Engine, m *model) (gorgonia.VM, error) {
			c.BindDualValues = m.weights
			return gorgoniavm.NewTape(m.g, e, c)
		}
	}
	vm := func(e *cupool.Engine, m *model) (gorgonia.VM, error) {
		return gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...), gorgoniavm.TraceValues())
	}
	trace := []gorgonia.VMOpt{gorgonia.TraceExec()}
	for name, c := range map[string]struct {
		first  func(e *cupool.Engine, m *model) (gorgonia.VM, error)
		pooled bool // and no machine after it
	}{
		"Tape":            {tape(gorgoniavm.TapeConfig{Options: trace}), true},
		"exclusive Tape":  {tape(gorgoniavm.TapeConfig{Options: trace, Exclusive: true}), true},
		"another's, Tape": {tape(gorgoniavm.TapeConfig{}), false},
		"another's, VM":   {vm, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !testkit.InChild(t) {
				return
			}
			machine := func(m *model) gorgonia.VM {
				return gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.weights...), gorgonia.TraceExec())
			}
			m := newMLP(4, 5, 6, 3)
			want := traced(t, m, machine(m), vanilla(), 2*steps)
			e, _ := newMeter(t)
			m = newMLP(4, 5, 6, 3)
			n := steps
			if c.pooled {
				require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
				n = 2 * steps
			}
			first, err := c.first(e, m)
			require.NoError(t, err)
			got := traced(t, m, first, vanilla(), n)
			require.NoError(t, first.Close())
			if !c.pooled {
				got = append(got, traced(t, m, machine(m), vanilla(), steps)...)
			}
			require.Equal(t, want, got)
			freeInputs(t, e, m)
		})
	}
}

func vanilla() gorgonia.Solver { return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1)) }

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
