package gorgoniavm

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/nn"
)

// Solver moves a model's weights against their gradients, in place. The moments
// that it remembers live in the pool from the first Step to Close, and no
// further Step allocates memory there. It implements gorgonia.Solver, with the
// numbers of Gorgonia's own solvers up to rounding. Each of those takes several
// tensors a step from the pool and loses them; a StockSolver runs them without that,
// and has their numbers to the bit on the CPU.
//
// Weights and gradients are of float32 or float64, scalars or tensors without
// gaps or masks, one of a kind for each. Tensors may be anywhere that the CPU can
// touch, and in the engine's memory on a device: there the engine's kernels
// do the work, on its stream, and Step returns before it is done. They move all
// weights at once, so no weight is there twice. The moments
// belong to no scope of the engine.
//
// The methods of a Solver are for one goroutine at a time.
type Solver struct {
	eng    *cupool.Engine
	method rule
	keep   bool    // gradients are not zeroed
	step   int     // of steps so far
	carry  float64 // what a step keeps of Momentum's m
	last   float64 // the learning rate of the last step; 0: there was none
	params []param
	batch  []nn.Param // of weights in device memory; kept for its room
	closed bool
}

// SolverOption is an option of NewSolver. A nil one changes nothing.
type SolverOption func(*Solver)

// KeepGradients leaves the gradients of a Step as they are, or as a
// Regularization left them. That saves zeroing gradients that nobody adds to:
// those of a VM with Gradients, or without BindDualValues, where each RunAll
// makes new ones.
func KeepGradients() SolverOption {
	return func(s *Solver) { s.keep = true }
}

// NewSolver returns a Solver that moves weights by a Method: SGD, Momentum,
// RMSProp, Adam or AdamW. It fails with a *cupool.ConfigError for a number out
// of its range, and without an engine or method.
func NewSolver(eng *cupool.Engine, m Method, opts ...SolverOption) (*Solver, error) {
	if eng.Allocator() == nil {
		return nil, &cupool.ConfigError{Field: "Engine", Value: nil, Reason: "a solver needs one"}
	}
	if nilptr.Is(m) {
		return nil, &cupool.ConfigError{Field: "Method", Value: nil, Reason: "a solver needs one"}
	}
	r, err := m.rule()
	if err != nil {
		return nil, err
	}
	s := &Solver{eng: eng, method: r}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	return s, nil
}

// SolverError is a Step that failed for a weight. It unwraps to
// cupool.ErrNotSupported, cupool.ErrSizeMismatch, cupool.ErrUseAfterFree,
// cupool.ErrOutOfMemory or the device's error.
type SolverError struct {
	Index int    // of the weight in the model
	Name  string // of its node, if it has one
	Err   error
}

func (e *SolverError) Error() string {
	weight := strings.TrimSpace(fmt.Sprint(e.Index, " ", e.Name))
	return fmt.Sprintf("gorgoniavm: solving for weight %s: %v", weight, e.Err)
}

// Unwrap returns the reason.
func (e *SolverError) Unwrap() error { return e.Err }

// check fails for a Solver that is none.
func (s *Solver) check() error {
	if s == nil || s.eng == nil {
		return errNone("Solver")
	}
	return nil
}

// LearnRate returns the learning rate of the next Step.
func (s *Solver) LearnRate() float64 {
	if s == nil {
		return 0
	}
	return s.method.rate
}

// SetLearnRate sets the learning rate from the next Step on. It fails with a
// *cupool.ConfigError for a rate that is not positive and finite.
func (s *Solver) SetLearnRate(rate float64) error {
	if err := s.check(); err != nil {
		return err
	}
	if !(rate > 0) || math.IsInf(rate, 0) {
		return &cupool.ConfigError{Field: "LearnRate", Value: rate, Reason: "must be positive and finite"}
	}
	s.method.rate = rate
	return nil
}

// Step implements gorgonia.Solver: it moves the weights of the model and, unless
// they are kept, zeroes their gradients. The model has the same weights in the same order every
// time. It fails with a *SolverError, before it has moved anything unless a
// device fails in the middle, with cupool.ErrSizeMismatch for another number of weights,
// or with cupool.ErrClosed.
func (s *Solver) Step(model []gorgonia.ValueGrad) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.closed {
		return fmt.Errorf("gorgoniavm: solver: %w", cupool.ErrClosed)
	}
	if s.step > 0 && len(model) != len(s.params) {
		return fmt.Errorf("gorgoniavm: solver: a model of %d weights after one of %d: %w", len(model), len(s.params), cupool.ErrSizeMismatch)
	}
	if s.step == 0 { // a Step that failed may have seen another model
		if err := s.forget(); err != nil {
			return err
		}
		s.params = make([]param, len(model))
	}
	for i, n := range model {
		if err := s.prepare(i, n); err != nil {
			return &SolverError{Index: i, Name: weightName(n), Err: err}
		}
	}
	s.step++
	// m is kept in units of the learning rate, as nn.SGD's kernel has it. So it
	// changes with the rate.
	s.carry, s.last = s.method.momentum*(s.last/s.method.rate), s.method.rate
	for i := range s.params {
		p := &s.params[i]
		if p.onDevice() {
			if err := s.shapeOnDevice(p); err != nil {
				return &SolverError{Index: i, Name: weightName(model[i]), Err: err}
			}
			continue
		}
		s.moveOnHost(p)
	}
	return s.moveOnDevice()
}

// prepare finds the weight and gradient of a node, and at first makes what is
// remembered of them.
func (s *Solver) prepare(i int, n gorgonia.ValueGrad) error {
	p := &s.params[i]
	if err := p.find(s.eng, n); err != nil {
		return err
	}
	if s.step == 0 && p.onDevice() {
		for j := range s.params[:i] {
			if p.same(&s.params[j]) {
				return fmt.Errorf("it is weight %d, too: %w", j, cupool.ErrNotSupported)
			}
		}
	}
	return p.remember(s.eng, n.Value().Shape(), s.method.states(p.onDevice()))
}

// moveOnHost moves a weight that the CPU can touch.
func (s *Solver) moveOnHost(p *param) {
	if p.dt == tensor.Float64 {
		move[float64](s, p)
	} else {
		move[float32](s, p)
	}
}

// move moves a weight against its gradient.
func move[T layers.Float](s *Solver, p *param) {
	r, w, g := &s.method, floats[T](p.w, p.size), floats[T](p.g, p.size)
	state := [2][]T{floats[T](p.remembered[0], p.size), floats[T](p.remembered[1], p.size)}
	layers.Shape(g, w, r.shaping)
	switch r.kind {
	case sgd:
		layers.SGD(w, g, nil, r.rate, 0, 0)
	case momentum:
		layers.SGD(w, g, state[0], r.rate, s.carry, 0)
	case nesterov:
		layers.Nesterov(w, g, state[0], r.rate, s.carry, r.momentum)
	case rmsProp:
		layers.RMSProp(w, g, state[0], layers.RMSPropOptions{LR: r.rate, Rho: r.momentum, Epsilon: r.epsilon, Decay: r.decay, Clip: r.clip})
	case adam:
		layers.Adam(w, g, state[0], state[1], float64(s.step), layers.AdamOptions{LR: r.rate, Beta1: r.beta1, Beta2: r.beta2, Epsilon: r.epsilon, Decay: r.decay})
	}
	if !s.keep {
		clear(g)
	}
}

// Close gives back what the Solver remembers. It fails with what the allocator
// says. To close a Solver again does nothing.
func (s *Solver) Close() error {
	if err := s.check(); err != nil {
		return err
	}
	if s.closed {
		return nil
	}
	s.closed = true
	return s.forget()
}

// forget gives back what is remembered of a model.
func (s *Solver) forget() error {
	var errs []error
	for i := range s.params {
		errs = append(errs, s.params[i].forget(s.eng.Allocator()))
	}
	s.params, s.batch = nil, nil
	return errors.Join(errs...)
}

// weightName returns the name of a node, or nothing.
func weightName(n gorgonia.ValueGrad) string {
	if named, ok := n.(gorgonia.Namer); ok && !isNoNode(n) && named.Name() != noName {
		return named.Name()
	}
	return ""
}

var _ gorgonia.Solver = (*Solver)(nil)
