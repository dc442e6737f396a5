package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// Tape is Gorgonia's own tape machine without its leaks: Reset gives back the
// memory that a run takes from the engine's pool. It implements gorgonia.VM. A
// VM runs the same graphs with all of their memory in the pool, and less of it.
//
// After RunAll, values of nodes are there until Reset, and gradients of inputs
// (BindDualValues) until Close, which leaves copies of them in Go's heap. Values that gorgonia.Read read stay, in Go's
// heap. As with the tape machine, RunAll only runs after Reset.
//
// The tape machine takes most of its memory from Go's heap whatever engine it
// has: without Exclusive, about a sixth of a step's bytes come from the pool.
// Where memory runs out inside of tensor, the program ends: the machine computes
// in a goroutine of its own, in which the engine's panic cannot be caught.
//
// The methods of a Tape are for one goroutine at a time. During RunAll no other
// goroutine may use the engine.
type Tape struct {
	vm    gorgonia.VM
	g     *gorgonia.ExprGraph
	e     *cupool.Engine
	prime int                               // tensors that densePool has for a run; 0: none
	spare []*tensor.Dense                   // those that the last run left
	scope *cupool.Scope                     // of the last run; nil: none
	grads map[*gorgonia.Node]gorgonia.Value // that runs made, until Close
}

var _ gorgonia.VM = (*Tape)(nil)

// TapeConfig says how a Tape runs.
type TapeConfig struct {
	// BindDualValues are the nodes whose gradients are bound to them, as
	// gorgonia.BindDualValues has it. None: no gradients are.
	BindDualValues gorgonia.Nodes
	// Options are more of the tape machine's options. The engine is set
	// already.
	Options []gorgonia.VMOpt
	// Exclusive says that no other goroutine of the program makes tensors, of
	// whatever engine, during RunAll, and that no operation of the graph makes
	// any whose elements hold Go pointers, or keeps one for the next run
	// (Gorgonia's do not). Then the tensors that the tape machine makes
	// without asking an engine get pool memory as well, more than nine tenths
	// of a step's bytes. They get it by way of tensor's pool of recycled tensors, which
	// all goroutines share: another one's tensor.New would be given memory
	// that Reset takes away.
	Exclusive bool
}

// NewTape returns a tape machine for g on e's memory. It fails with a
// *cupool.ConfigError without graph or engine, with cupool.ErrNotSupported on
// a device whose memory the CPU cannot touch, and with gorgonia's error for a
// graph that cannot be compiled. Values of inputs lie where they are; ToPool
// moves them.
func NewTape(g *gorgonia.ExprGraph, e *cupool.Engine, cfg TapeConfig) (*Tape, error) {
	switch {
	case g == nil:
		return nil, &cupool.ConfigError{Field: "graph", Value: nil, Reason: "a tape machine needs one"}
	case e == nil:
		return nil, &cupool.ConfigError{Field: "engine", Value: nil, Reason: "a tape machine needs one"}
	case !e.AllocAccessible():
		return nil, fmt.Errorf("gorgoniavm: a tape machine on %v: %w", e, cupool.ErrNotSupported)
	}
	program, registers, err := gorgonia.Compile(g)
	if err != nil {
		return nil, fmt.Errorf("gorgoniavm: compiling the graph: %w", err)
	}
	opts := []gorgonia.VMOpt{gorgonia.WithPrecompiled(program, registers), gorgonia.WithEngine(e)}
	if len(cfg.BindDualValues) > 0 {
		opts = append(opts, gorgonia.BindDualValues(cfg.BindDualValues...))
	}
	t := &Tape{
		vm:    gorgonia.NewTapeMachine(g, append(opts, cfg.Options...)...),
		g:     g,
		e:     e,
		grads: map[*gorgonia.Node]gorgonia.Value{},
	}
	if cfg.Exclusive {
		t.prime = primedPerNode * len(g.AllNodes())
	}
	return t, nil
}

// RunAll implements gorgonia.VM. It fails with the tape machine's error; the
// run's memory then goes back at once.
func (t *Tape) RunAll() error {
	if t.scope == nil {
		t.scope = t.e.Scope()
	}
	before := t.gradients()
	err := t.primed(t.vm.RunAll)
	t.scope.Leave()
	if err = errors.Join(err, t.keep(before)); err != nil {
		return errors.Join(err, t.reset())
	}
	return nil
}

// gradients returns the gradients that are bound to inputs.
func (t *Tape) gradients() map[*gorgonia.Node]gorgonia.Value {
	all := map[*gorgonia.Node]gorgonia.Value{}
	for _, n := range t.g.Inputs() {
		if g := boundGradient(n); g != nil {
			all[n] = g
		}
	}
	return all
}

// keep keeps the values that outlast the run: those of inputs, their gradients,
// and those that were read.
func (t *Tape) keep(before map[*gorgonia.Node]gorgonia.Value) error {
	var errs []error
	for n, g := range t.gradients() {
		d, ok := g.(*tensor.Dense)
		if !ok || !t.e.Owns(d) {
			continue
		}
		if before[n] != g {
			t.grads[n] = g
		}
		errs = append(errs, t.scope.Keep(d))
	}
	for _, n := range t.g.AllNodes() {
		if n.Op() == nil {
			if d, ok := n.Value().(*tensor.Dense); ok {
				errs = append(errs, t.scope.Keep(d))
			}
		} else if into := program.ReadTarget(n.Op()); into != nil {
			errs = append(errs, t.toHeap(into))
		}
	}
	return errors.Join(errs...)
}

// toHeap moves a value to Go's heap.
func (t *Tape) toHeap(v *gorgonia.Value) error {
	d, ok := (*v).(*tensor.Dense)
	if !ok || !t.e.Owns(d) {
		return nil
	}
	h, err := t.e.ToHost(d)
	if err == nil {
		*v = h
	}
	return err
}

// Reset implements gorgonia.VM: it gives back the memory of the last run. Nodes
// whose values lay there have none then, and the tensors are freed ones.
func (t *Tape) Reset() { _ = t.reset() }

func (t *Tape) reset() error {
	t.vm.Reset()
	if t.scope == nil {
		return nil
	}
	mine := t.pooled()
	err := t.scope.Close()
	t.scope = nil
	for _, n := range mine {
		if d := n.Value().(*tensor.Dense); !t.e.Owns(d) {
			forget(d)
			program.Unbind(n) // a machine that traces would copy into the tensor
		}
	}
	return err
}

// pooled returns the nodes, other than inputs, whose values are in the pool.
func (t *Tape) pooled() (ns gorgonia.Nodes) {
	for _, n := range t.g.AllNodes() {
		if d, ok := n.Value().(*tensor.Dense); ok && n.Op() != nil && t.e.Owns(d) {
			ns = append(ns, n)
		}
	}
	return ns
}

// Close implements gorgonia.VM: it gives back all memory that runs took. Nodes
// keep their gradients as copies in Go's heap, as VM.Close leaves them; the
// tensors that they had are freed ones then. It returns errors of the allocator.
func (t *Tape) Close() error {
	errs := []error{t.reset(), t.vm.Close()}
	for n, g := range t.grads {
		errs = append(errs, t.leaveGradient(n, g.(*tensor.Dense)))
		delete(t.grads, n)
	}
	return errors.Join(errs...)
}

// leaveGradient gives back a gradient of a node. If the node still has it, the
// node gets a copy in Go's heap.
func (t *Tape) leaveGradient(n *gorgonia.Node, d *tensor.Dense) error {
	if boundGradient(n) != gorgonia.Value(d) {
		return t.e.FreeTensor(d)
	}
	c, err := t.e.ToHost(d)
	if err == nil {
		gorgonia.WithGrad(c)(n)
	}
	return errors.Join(err, t.e.FreeTensor(d))
}
