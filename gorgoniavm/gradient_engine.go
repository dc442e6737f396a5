package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/callstack"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Gradients for solvers that are not ours.
//
// Gorgonia's solvers compute with a gradient by functions of tensor, which ask
// its engine, and then zero it on the CPU, which asks nobody. So a gradient in
// memory that the CPU cannot touch has an engine of its own. When that is asked
// to compute with the gradient, it moves the gradient to Go's heap. The next
// RunAll, or Step of a Solver, moves it back. A Solver does not ask the engine.

// gradientEngine is the engine of a gradient.
type gradientEngine struct {
	*cupool.Engine
	g      *tensor.Dense
	was    tensor.Engine  // of g, before
	of     *gorgonia.Node // the input, where g is the value of a node and not bound to it
	device tensor.Dense   // g as it was on the device, while it is in Go's heap
}

// hostGradient is the engine of a gradient while it is in Go's heap. Clones of
// the gradient are there too.
type hostGradient struct {
	*gradientEngine
	cloned []uint64 // memory of the last clone, which tensor keeps by its address at first
}

// lendGradient gives a gradient an engine that moves it for other solvers.
func (m *VM) lendGradient(d *tensor.Dense) {
	if m.e.AllocAccessible() || operand.IsFreed(d) {
		return
	}
	if e, ok := d.Engine().(*gradientEngine); ok && e.g == d {
		return
	}
	operand.SetEngine(d, &gradientEngine{Engine: m.e, g: d, was: d.Engine()})
}

// lendDerivative is lendGradient for a value of a node, if that computes a gradient.
func (m *VM) lendDerivative(n *gorgonia.Node, v gorgonia.Value) {
	d, ok := v.(*tensor.Dense)
	of := m.derivs[n]
	if !ok || of == nil {
		return
	}
	m.lendGradient(d)
	if e, ok := d.Engine().(*gradientEngine); ok {
		e.of = of
	}
}

// toDevice moves a gradient that is in Go's heap back to the device.
func toDevice(d *tensor.Dense) error {
	e, ok := d.Engine().(*hostGradient)
	if !ok || operand.IsFreed(d) {
		return nil
	}
	if err := e.Copy(&e.device, d); err != nil {
		return err
	}
	e.leaveHost()
	return nil
}

// dropHostGradient is toDevice for a gradient that is about to be computed anew.
func dropHostGradient(v gorgonia.Value) {
	if d, ok := v.(*tensor.Dense); ok && !operand.IsFreed(d) {
		if e, ok := d.Engine().(*hostGradient); ok {
			e.leaveHost()
		}
	}
}

func (e *gradientEngine) leaveHost() { *e.g, e.device = e.device, tensor.Dense{} }

// takeBackGradients moves gradients to the device, with the engines that they
// had.
func (m *VM) takeBackGradients() error {
	var errs []error
	for _, n := range m.prog.Targets {
		d, ok := boundGradient(n).(*tensor.Dense)
		if !ok {
			continue
		}
		errs = append(errs, toDevice(d))
		if e, ok := d.Engine().(*gradientEngine); ok {
			operand.SetEngine(d, e.was)
		}
	}
	return errors.Join(errs...)
}

// derivsOf returns the nodes that compute gradients of inputs, with these, for memory that
// the CPU cannot touch.
func derivsOf(p *program.Program, e *cupool.Engine) map[*gorgonia.Node]*gorgonia.Node {
	if e.AllocAccessible() {
		return nil
	}
	derivs := make(map[*gorgonia.Node]*gorgonia.Node)
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.Kind == program.Variable && in.Node.Deriv() != nil {
			derivs[in.Node.Deriv()] = in.Node
		}
	}
	return derivs
}

// unfit finds the solvers of Gorgonia that mix memory of the device and of Go's
// heap in ways that no engine is asked about.
var unfit = callstack.NewFinder(nil, "gorgonia.org/gorgonia.(*BarzilaiBorweinSolver).Step", "gorgonia.org/gorgonia.(*AdamW).Step")

// squaring finds the solvers of Gorgonia that add squares of gradients to what they keep where
// the weights are. Adam fails for weights in Go's heap; the others drop tensor's errors.
var squaring = callstack.NewFinder(nil, "gorgonia.org/gorgonia.(*AdamSolver).Step",
	"gorgonia.org/gorgonia.(*AdaGradSolver).Step", "gorgonia.org/gorgonia.(*RMSPropSolver).Step")

// toHost moves the gradient to Go's heap, if t is the gradient and is not there.
func (e *gradientEngine) toHost(t tensor.Tensor) error {
	if d, ok := t.(*tensor.Dense); !ok || d != e.g || d.IsNativelyAccessible() {
		return nil
	}
	if solver := unfit.Find(); solver != "" {
		return &cupool.EngineError{Op: "solve", Err: fmt.Errorf("%s cannot work with memory of %v, a gorgoniavm.Solver can: %w", solver, e.Engine, cupool.ErrNotSupported)}
	}
	if solver := squaring.Find(); solver != "" && e.of != nil {
		if w, ok := e.of.Value().(*tensor.Dense); ok && !e.Owns(w) {
			return &cupool.EngineError{Op: "solve", Err: fmt.Errorf("%s mixes the gradient in memory of %v with the value of %s in Go's heap: give the VM BindDualValues with it, or move it by ToPool: %w", solver, e.Engine, nameOf(e.of), cupool.ErrNotSupported)}
		}
	}
	h, err := e.ToHost(e.g)
	if err != nil {
		return err
	}
	e.device = *e.g
	*e.g = *h
	operand.SetEngine(e.g, &hostGradient{gradientEngine: e})
	return nil
}

// AllocAccessible implements tensor.Engine.
func (*hostGradient) AllocAccessible() bool { return true }

// Alloc implements tensor.Engine, for clones of the gradient.
func (e *hostGradient) Alloc(size int64) (tensor.Memory, error) {
	var m operand.Memory
	e.cloned, m = operand.InHeap(size)
	return &m, nil
}

// The operations that solvers begin with.

func (e *gradientEngine) Add(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Add(a, b, opts...)
}

func (e *gradientEngine) AddScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(t); err != nil {
		return nil, err
	}
	return e.Engine.AddScalar(t, s, leftTensor, opts...)
}

func (e *gradientEngine) Sub(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Sub(a, b, opts...)
}

func (e *gradientEngine) SubScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(t); err != nil {
		return nil, err
	}
	return e.Engine.SubScalar(t, s, leftTensor, opts...)
}

func (e *gradientEngine) Mul(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Mul(a, b, opts...)
}

func (e *gradientEngine) MulScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(t); err != nil {
		return nil, err
	}
	return e.Engine.MulScalar(t, s, leftTensor, opts...)
}

func (e *gradientEngine) Div(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Div(a, b, opts...)
}

func (e *gradientEngine) DivScalar(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(t); err != nil {
		return nil, err
	}
	return e.Engine.DivScalar(t, s, leftTensor, opts...)
}

func (e *gradientEngine) Square(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Square(a, opts...)
}

func (e *gradientEngine) Clamp(a tensor.Tensor, min, max interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	if err := e.toHost(a); err != nil {
		return nil, err
	}
	return e.Engine.Clamp(a, min, max, opts...)
}
