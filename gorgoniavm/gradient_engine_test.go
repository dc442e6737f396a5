package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// bareSolvers are Gorgonia's own.
var bareSolvers = map[string]func() gorgonia.Solver{
	"Vanilla":         func() gorgonia.Solver { return gorgonia.NewVanillaSolver() },
	"Adam":            func() gorgonia.Solver { return gorgonia.NewAdamSolver() },
	"AdaGrad":         func() gorgonia.Solver { return gorgonia.NewAdaGradSolver() },
	"Momentum":        func() gorgonia.Solver { return gorgonia.NewMomentum() },
	"RMSProp":         func() gorgonia.Solver { return gorgonia.NewRMSPropSolver() },
	"AdamW":           func() gorgonia.Solver { return gorgonia.NewAdamW(gorgonia.WithL1Reg(0.01), gorgonia.WithClip(0.3)) },
	"BarzilaiBorwein": func() gorgonia.Solver { return gorgonia.NewBarzilaiBorweinSolver() },

	"Vanilla, regularized":  func() gorgonia.Solver { return gorgonia.NewVanillaSolver(regularized...) },
	"Adam, regularized":     func() gorgonia.Solver { return gorgonia.NewAdamSolver(regularized...) },
	"Momentum, regularized": func() gorgonia.Solver { return gorgonia.NewMomentum(regularized...) },
	"RMSProp, regularized":  func() gorgonia.Solver { return gorgonia.NewRMSPropSolver(regularized...) },
}

var regularized = []gorgonia.SolverOpt{
	gorgonia.WithL1Reg(0.01), gorgonia.WithL2Reg(0.02), gorgonia.WithBatchSize(2), gorgonia.WithClip(0.3), gorgonia.WithLearnRate(0.01),
}

// newRegression is a linear regression in float64, the only type that all of
// Gorgonia's solvers know.
func newRegression() *model {
	g := gorgonia.NewGraph()
	of := func(name string, rows, cols int, values ...float64) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(rows, cols), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values))))
	}
	x, y, w := of("x", 3, 2, 1, 2, 3, 4, 5, 7), of("y", 3, 1, 1, 0, 2), of("w", 2, 1, 0.5, -0.25)
	m := &model{g: g, inputs: gorgonia.Nodes{x, y}, weights: gorgonia.Nodes{w}}
	m.cost = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(x, w)), y))))))
	if _, err := gorgonia.Grad(m.cost, w); err != nil {
		panic(err)
	}
	return m
}

// TestBareSolversFarAway: Gorgonia's own solvers, on a VM over memory that the
// CPU cannot touch, train as in Go's memory, or fail with an error in their first
// step. They do not end the process.
func TestBareSolversFarAway(t *testing.T) {
	options := map[string]func(m *model) gorgoniavm.Option{
		"BindDualValues": func(m *model) gorgoniavm.Option { return gorgoniavm.BindDualValues(m.weights...) },
		"Gradients":      func(m *model) gorgoniavm.Option { return gorgoniavm.Gradients(m.weights...) },
	}
	for option, bind := range options {
		t.Run(option, func(t *testing.T) {
			if !testkit.InChild(t) {
				return
			}
			for name, newSolver := range bareSolvers {
				t.Run(name, func(t *testing.T) {
					plain := newRegression()
					tape := gorgonia.NewTapeMachine(plain.g, gorgonia.BindDualValues(plain.weights...))
					want := traced(t, plain, tape, newSolver(), 5)
					require.NoError(t, tape.Close())

					e, a := newFarMeter(t)
					m := newRegression()
					if option == "Gradients" { // a solver zeroes weights that are not moved by the VM in Go's heap
						require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
						defer freeInputs(t, e, m)
					}
					vm, err := gorgoniavm.New(m.g, e, bind(m))
					require.NoError(t, err)
					// What a solver takes from the pool it does not give back.
					solver, scope := newSolver(), e.Scope()
					for i := range want {
						require.NoError(t, vm.RunAll())
						require.InDelta(t, want[i], m.cost.Value().Data(), 1e-9, "step %d", i)
						err := solver.Step(gorgonia.NodesToValueGrads(m.weights))
						if name == "BarzilaiBorwein" || name == "AdamW" {
							var ours *cupool.EngineError
							require.ErrorAs(t, err, &ours)
							require.ErrorIs(t, err, cupool.ErrNotSupported)
							break
						}
						require.NoError(t, err)
						live := a.live
						require.NoError(t, vm.RunAll())
						vm.Reset()
						require.Equal(t, live, a.live)
						if option == "BindDualValues" {
							zeroGradients(t, e, m)
						}
					}
					require.NoError(t, vm.Close())
					require.NoError(t, scope.Close())
				})
			}
		})
	}
}

// TestSolversInTurn: a Solver finds a gradient that another solver had.
func TestSolversInTurn(t *testing.T) {
	run := func(t *testing.T, e *cupool.Engine) []any {
		m := newRegression()
		vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...))
		require.NoError(t, err)
		ours, err := gorgoniavm.NewSolver(e, gorgoniavm.SGD{LearnRate: 0.01})
		require.NoError(t, err)
		model := gorgonia.NodesToValueGrads(m.weights)
		var seen []any
		for i := range 6 {
			require.NoError(t, vm.RunAll())
			g, err := m.weights[0].Grad()
			require.NoError(t, err)
			if i%2 == 0 {
				_, err := tensor.Clamp(g.(*tensor.Dense), -0.5, 0.5, tensor.UseUnsafe())
				require.NoError(t, err)
				require.NoError(t, ours.Step(model))
			} else {
				require.NoError(t, gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.01)).Step(model))
			}
			seen = append(seen, m.cost.Value().Data(), data(t, e, m.weights[0].Value()), data(t, e, g))
		}
		require.NoError(t, ours.Close())
		require.NoError(t, vm.Close())
		g, err := m.weights[0].Grad()
		require.NoError(t, err)
		return append(seen, g.Data())
	}
	near, _ := newMeter(t)
	far, _ := newFarMeter(t)
	require.Equal(t, run(t, near), run(t, far))
}

// A Solver, and Gorgonia's solvers that keep squares of gradients, cannot mix a gradient on a
// device with a weight in Go's heap. They change nothing, and what their errors advise works.
func TestSolversThatNeedBoundGradients(t *testing.T) {
	for _, device := range []string{"far", "cuda"} {
		for _, solver := range []string{"Adam", "AdaGrad", "RMSProp", "RMSProp, regularized", "a Solver"} {
			t.Run(device+"/"+solver, func(t *testing.T) {
				d := devices[device]
				if d.computes {
					gputest.Need(t)
				}
				e, _ := d.open(t)
				for _, m := range []*model{newMLP(4, 3, 2), newRegression()} {
					vm := d.vm(t, m.g, e)
					require.NoError(t, vm.RunAll())
					before := m.weights[0].Value().(*tensor.Dense).Clone().(*tensor.Dense).Data()
					step := func() error {
						if bare := bareSolvers[solver]; bare != nil {
							scope := e.Scope() // for what the solver has taken by then
							defer func() { require.NoError(t, scope.Close()) }()
							return bare().Step(gorgonia.NodesToValueGrads(m.weights))
						}
						s, err := gorgoniavm.NewSolver(e, gorgoniavm.Adam{})
						require.NoError(t, err)
						defer func() { require.NoError(t, s.Close()) }()
						return s.Step(gorgonia.NodesToValueGrads(m.weights))
					}
					err := step()
					require.ErrorIs(t, err, cupool.ErrNotSupported)
					require.ErrorContains(t, err, "give the VM BindDualValues with it, or move it by ToPool")
					require.Equal(t, before, m.weights[0].Value().Data())
					require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
					require.NoError(t, vm.RunAll())
					require.NoError(t, step())
					require.NoError(t, vm.Close())
					for _, w := range m.weights {
						require.NoError(t, e.FreeTensor(w.Value().(*tensor.Dense)))
					}
				}
			})
		}
	}
}
