package main

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// A machine runs the graph of a network and moves its weights.
type machine struct {
	n       *network
	vm      gorgonia.VM
	solver  gorgonia.Solver
	setRate func(rate float64) error
	model   []gorgonia.ValueGrad
	closers []func() error
}

// newMachine makes the machine that kind names, for a network whose weights
// are where it wants them. The options are for -vm pool.
func newMachine(eng *cupool.Engine, n *network, kind, optimizer string, opts ...gorgoniavm.Option) (m *machine, err error) {
	m = &machine{n: n, model: gorgonia.NodesToValueGrads(n.weights)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if err := m.setVM(newVM(eng, n, kind, opts...)); err != nil {
		return m, err
	}
	if kind == "pool" {
		return m, m.useSolver(eng, optimizer)
	}
	return m, m.useStockSolver(eng, kind, optimizer)
}

func (m *machine) setVM(vm gorgonia.VM, err error) error {
	if err == nil {
		m.vm = vm
		m.closers = append(m.closers, vm.Close)
	}
	return err
}

// newVM makes the VM that kind names. A network to test is run in evaluation
// mode.
func newVM(eng *cupool.Engine, n *network, kind string, opts ...gorgoniavm.Option) (gorgonia.VM, error) {
	training := n.loss != nil
	switch {
	case kind == "pool" && training:
		return gorgoniavm.New(n.g, eng, append(opts, gorgoniavm.Gradients(n.weights...))...)
	case kind == "pool":
		return gorgoniavm.New(n.g, eng, append(opts, gorgoniavm.EvalMode())...)
	case kind == "tape" && training:
		return gorgoniavm.NewTape(n.g, eng, gorgoniavm.TapeConfig{BindDualValues: n.weights, Exclusive: true})
	case kind == "tape":
		return gorgoniavm.NewTape(n.g, eng, gorgoniavm.TapeConfig{Options: []gorgonia.VMOpt{gorgonia.EvalMode()}, Exclusive: true})
	case training:
		return gorgonia.NewTapeMachine(n.g, gorgonia.BindDualValues(n.weights...)), nil
	default:
		return gorgonia.NewTapeMachine(n.g, gorgonia.EvalMode()), nil
	}
}

// momentum is what examples/mlp has.
const momentum = 0.9

// useSolver has one of ours move the weights.
func (m *machine) useSolver(eng *cupool.Engine, optimizer string) error {
	methods := map[string]gorgoniavm.Method{
		"sgd":     gorgoniavm.Momentum{Momentum: momentum},
		"adam":    gorgoniavm.Adam{},
		"rmsprop": gorgoniavm.RMSProp{},
	}
	s, err := gorgoniavm.NewSolver(eng, methods[optimizer], gorgoniavm.KeepGradients()) // the VM makes new ones
	if err != nil {
		return err
	}
	m.solver, m.setRate = s, s.SetLearnRate
	m.closers = append(m.closers, s.Close)
	return nil
}

// useStockSolver has one of Gorgonia's move them, in scopes if its memory is in
// the pool.
func (m *machine) useStockSolver(eng *cupool.Engine, kind, optimizer string) error {
	var stock gorgonia.Solver
	switch optimizer {
	case "adam":
		stock = gorgonia.NewAdamSolver()
	case "rmsprop":
		stock = gorgonia.NewRMSPropSolver()
	default:
		stock = gorgonia.NewMomentum(gorgonia.WithMomentum(momentum))
	}
	m.solver = stock
	m.setRate = func(rate float64) error {
		gorgonia.WithLearnRate(rate)(stock)
		return nil
	}
	if kind == "stock" {
		return nil
	}
	s, err := gorgoniavm.NewStockSolver(eng, stock)
	if err != nil {
		return err
	}
	m.solver = s
	m.closers = append(m.closers, s.Close)
	return nil
}

// step runs the graph, forward and backward, moves the weights, and returns the
// loss.
func (m *machine) step(rate float64) (loss float64, err error) {
	defer m.vm.Reset()
	if err := m.vm.RunAll(); err != nil {
		return 0, err
	}
	value, ok := m.n.loss.Value().Data().(float32)
	if !ok {
		return 0, fmt.Errorf("a loss of type %T", m.n.loss.Value())
	}
	if err := m.setRate(rate); err != nil {
		return 0, err
	}
	return float64(value), m.solver.Step(m.model)
}

// close gives back what the machine made, not the weights.
func (m *machine) close() error {
	var errs []error
	for _, c := range m.closers {
		errs = append(errs, c())
	}
	m.closers = nil
	return errors.Join(errs...)
}
