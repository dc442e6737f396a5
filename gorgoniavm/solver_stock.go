package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/nilptr"
)

// StockSolver runs one of Gorgonia's own solvers, or any other, without leaks.
// Memory that a Step takes from the engine's pool goes back after the next Step,
// which may still read it, as Adam's reads the moments. Memory of the first Step
// stays until Close, as solvers then make the tensors that they keep.
//
// A Solver computes the same with less memory, and on a device without copies to
// Go's heap. The methods of a StockSolver
// are for one goroutine at a time. During Step no other goroutine may use the
// engine.
type StockSolver struct {
	e      *cupool.Engine
	solver gorgonia.Solver
	first  *cupool.Scope
	last   *cupool.Scope
	closed bool
}

var _ gorgonia.Solver = (*StockSolver)(nil)

// NewStockSolver returns a StockSolver. It fails with a *cupool.ConfigError
// without an engine or solver.
func NewStockSolver(e *cupool.Engine, s gorgonia.Solver) (*StockSolver, error) {
	switch {
	case e.Allocator() == nil:
		return nil, &cupool.ConfigError{Field: "Engine", Value: nil, Reason: "a solver's memory needs one"}
	case nilptr.Is(s):
		return nil, &cupool.ConfigError{Field: "Solver", Value: nil, Reason: "there has to be one"}
	}
	return &StockSolver{e: e, solver: s}, nil
}

// Step implements gorgonia.Solver. It fails with what the solver says, with
// cupool.ErrOutOfMemory when the pool is full, with cupool.ErrClosed, and with a
// *SolverError around cupool.ErrNotSupported for a node that is nil.
func (s *StockSolver) Step(model []gorgonia.ValueGrad) (err error) {
	if s == nil || s.e == nil {
		return errNone("StockSolver")
	}
	if s.closed {
		return fmt.Errorf("gorgoniavm: solver: %w", cupool.ErrClosed)
	}
	for i, n := range model {
		if isNoNode(n) {
			return &SolverError{Index: i, Err: errNoNode}
		}
	}
	scope := s.e.Scope()
	defer func() { err = errors.Join(err, s.leave(scope, model)) }() // the solver may panic
	return cupool.Try(func() error { return s.solver.Step(model) })
}

// leave ends a step.
func (s *StockSolver) leave(scope *cupool.Scope, model []gorgonia.ValueGrad) error {
	scope.Leave()
	err := keepModel(scope, model)
	if s.first == nil {
		s.first = scope
		return err
	}
	if s.last != nil {
		err = errors.Join(err, s.last.Close())
	}
	s.last = scope
	return err
}

// keepModel keeps a model's weights and gradients, should a solver have made
// new ones.
func keepModel(scope *cupool.Scope, model []gorgonia.ValueGrad) error {
	var errs []error
	for _, n := range model {
		g, err := n.Grad()
		errs = append(errs, err)
		for _, v := range []gorgonia.Value{n.Value(), g} {
			if d, ok := v.(*tensor.Dense); ok {
				errs = append(errs, scope.Keep(d))
			}
		}
	}
	return errors.Join(errs...)
}

// Close gives back what the solver holds; it must not be used any more. It
// returns what the allocator says. To close a StockSolver again does nothing.
func (s *StockSolver) Close() error {
	if s == nil || s.e == nil {
		return errNone("StockSolver")
	}
	s.closed = true
	var errs []error
	for _, scope := range []*cupool.Scope{s.first, s.last} {
		if scope != nil {
			errs = append(errs, scope.Close())
		}
	}
	return errors.Join(errs...)
}
