package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/tensorop"
)

// walk computes nodes one by one.
func (m *VM) walk(instrs []program.Instr) error {
	for i := range instrs {
		m.now.at = &instrs[i]
		if err := m.exec(m.now.at); err != nil {
			return err
		}
	}
	return nil
}

// exec computes one node and gives back the values that it was the last to read.
func (m *VM) exec(in *program.Instr) error {
	h := &m.now.slots[in.Out]
	if in.Step != program.PartOf { // whose value another instruction has put there
		made, err := m.compute(in)
		if err != nil {
			return err
		}
		*h = made
	} else if h.v == nil {
		return ErrNoValue
	}
	if in.Scalar {
		var err error
		if h.fetch, err = m.fetch(in, h.v); err != nil {
			m.mem.drop(h)
			return err
		}
	}
	if err := m.look(in, h.v); err != nil {
		return err
	}
	if in.Keep {
		m.kept = append(m.kept, binding{in.Node, in.Shape, m.mem.again(*h)})
	}
	for _, from := range in.Dead {
		m.mem.drop(&m.now.slots[from])
	}
	if m.prog.Uses[in.Out] == 0 {
		m.mem.drop(h)
	}
	return nil
}

// compute returns the value of a node.
func (m *VM) compute(in *program.Instr) (held, error) {
	switch in.Kind {
	case program.Variable:
		return m.load(in)
	case program.Constant:
		return m.constant(in.Node)
	}
	if v := m.now.numbers[in.Out]; v != nil {
		return held{v: v}, nil
	}
	m.now.args = m.now.args[:0]
	for _, from := range in.In {
		v, err := m.operand(from)
		if err != nil {
			return held{}, fmt.Errorf("its operand %s: %w", nameOf(m.prog.Instrs[from].Node), err)
		}
		m.now.args = append(m.now.args, v)
	}
	if in.Kind == program.Statement {
		return held{}, m.statement(in)
	}
	if !in.Fused() {
		if arity := in.Op.Arity(); arity >= 0 && arity != len(m.now.args) {
			return held{}, fmt.Errorf("%d operands, but it takes %d: %w", len(m.now.args), arity, ErrOperand)
		}
	}
	v, err := m.count(in)
	if err != nil {
		return held{}, err
	}
	if v == nil {
		return held{}, ErrNoValue
	}
	if in.Fixed {
		m.now.numbers[in.Out] = v
	}
	h := m.now.dst
	if m.now.dst = (held{}); h.v == v {
		return h, nil
	}
	made := m.result(in, v)
	m.mem.drop(&h)
	return made, nil
}

// result takes a reference to the block that the result of in lies in. One in the memory of
// an operand needs no look-up.
func (m *VM) result(in *program.Instr, v gorgonia.Value) held {
	if d, ok := v.(*tensor.Dense); ok && d.MemSize() > 0 {
		for _, from := range in.In {
			of := &m.now.slots[from]
			if x, ok := of.v.(*tensor.Dense); ok && of.p != 0 && d.Uintptr()-x.Uintptr() < x.MemSize() {
				return m.mem.again(held{v: v, p: of.p, foreign: of.foreign})
			}
		}
	}
	return m.mem.hold(v, false)
}

// operand returns the value in a slot. A scalar that was computed on the device
// is read when it is first needed.
func (m *VM) operand(slot int) (gorgonia.Value, error) {
	h := &m.now.slots[slot]
	if _, ok := h.v.(*tensor.Dense); !ok || !m.prog.Instrs[slot].Scalar {
		if h.v == nil {
			return nil, ErrNoValue
		}
		return h.v, nil
	}
	v, err := m.scalar(*h)
	if err != nil {
		return nil, err
	}
	for i := range m.kept { // lest it is read twice
		if b := &m.kept[i]; b.h.v == h.v {
			b.take(m, v)
		}
	}
	m.mem.drop(h)
	h.v = v
	return v, nil
}

// count runs an operation, and counts it if the engine computed some of it on
// copies.
func (m *VM) count(in *program.Instr) (v gorgonia.Value, err error) {
	defer nvtx.Start(in.Name, int64(in.Node.ID())).End()
	if in.Stock {
		defer catch(&err)
	}
	if m.e.AllocAccessible() {
		return m.runs[in.Out](m, in, m.now.args)
	}
	before := tensorop.Of(m.e).Fallbacks()
	v, err = m.runs[in.Out](m, in, m.now.args)
	if tensorop.Of(m.e).Fallbacks() != before {
		m.fellBack(in)
	}
	return v, err
}

// catch makes a panic of gorgonia's or tensor's an error. Those that cupool.Try knows
// go on to it.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }:
		panic(p)
	case error:
		var ours *cupool.EngineError
		if errors.As(p, &ours) {
			panic(p)
		}
		*err = fmt.Errorf("it panics: %w", p)
	default:
		*err = fmt.Errorf("it panics: %v", p)
	}
}

// named adds the node of the present operation to an error.
func (m *VM) named(err error) error {
	if err == nil {
		return nil
	}
	var named *OpError
	switch {
	case errors.As(err, &named):
		return err
	case m.now.at == nil:
		return fmt.Errorf("gorgoniavm: RunAll: %w", err)
	}
	return &OpError{Node: nameOf(m.now.at.Node), Op: m.now.at.Name, Err: err}
}

// commit binds the values that last to their nodes, adds those gradients of the
// run that which chooses to the nodes' own, and sets the variables of Set.
func (m *VM) commit(which gradients) error {
	m.now.at = nil
	if err := m.bindKept(); err != nil {
		return err
	}
	if err := m.addGradients(which); err != nil {
		return err
	}
	if err := m.assign(); err != nil {
		return err
	}
	m.now.at = nil
	return m.settle()
}

// settle waits for the device where the program may look at the values
// without asking: where the CPU can touch them.
func (m *VM) settle() error {
	if !m.e.AllocAccessible() {
		return nil
	}
	return m.e.Sync()
}
