package gorgoniavm

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// statement runs a Read or a Set.
func (m *VM) statement(in *instr) error {
	if in.name == opRead {
		return m.read(in)
	}
	if len(in.in) != 2 {
		return fmt.Errorf("%d operands: %w", len(in.in), ErrOperand)
	}
	to := m.prog.instrs[in.in[0]].node
	m.lets = append(m.lets, binding{to, in.shape, m.blocks.again(m.slots[in.in[1]])})
	return nil
}

// read copies a value to where gorgonia.Read was told. What is read lies in
// Go's heap, is the program's and outlives the VM.
func (m *VM) read(in *instr) error {
	if len(m.args) != 1 {
		return fmt.Errorf("%d operands: %w", len(m.args), ErrOperand)
	}
	into := readTarget(in.op)
	d, ok := m.args[0].(*tensor.Dense)
	if !ok {
		v, err := gorgonia.CloneValue(m.args[0])
		*into = v
		return err
	}
	if have, ok := (*into).(*tensor.Dense); ok && have.Dtype() == d.Dtype() && have.Shape().Eq(d.Shape()) && have.IsNativelyAccessible() {
		return m.e.Copy(have, d)
	}
	h, err := m.e.ToHost(d)
	if err != nil {
		return err
	}
	*into = h
	return nil
}

// readTarget returns where a Read puts the value: the operation's one field,
// which is not exported.
func readTarget(op gorgonia.Op) *gorgonia.Value {
	return (*gorgonia.Value)(reflect.ValueOf(op).FieldByName("into").UnsafePointer())
}

// assign does what Set says, a = b, once everything else is done.
func (m *VM) assign() error {
	for i := range m.lets {
		if err := m.set(m.lets[i].node, m.lets[i].h.v); err != nil {
			return fmt.Errorf("setting %s: %w", nameOf(m.lets[i].node), err)
		}
	}
	return nil
}

func (m *VM) set(n *gorgonia.Node, v gorgonia.Value) error {
	from, ok := v.(*tensor.Dense)
	to, isTensor := n.Value().(*tensor.Dense)
	switch {
	case ok && isTensor:
		return m.e.Copy(to, from)
	case ok || isTensor:
		return fmt.Errorf("a %T to a %T: %w", v, n.Value(), ErrOperand)
	}
	v, err := gorgonia.CloneValue(v)
	if err != nil {
		return err
	}
	return gorgonia.UnsafeLet(n, v)
}

// ToPool moves the values of nodes that lie in Go's heap to e's pool: weights
// are best there. The nodes have new tensors then, which belong to the
// program: e.FreeTensor gives them back. Nodes with a value in the pool, or a
// scalar, or none, are left alone. It fails with an *OpError around what the
// pool or the device says; the nodes before that one are moved.
func ToPool(e *cupool.Engine, nodes ...*gorgonia.Node) error {
	for _, n := range nodes {
		d, ok := n.Value().(*tensor.Dense)
		if !ok || e.Owns(d) {
			continue
		}
		up, err := e.FromHost(d)
		if err == nil {
			if err = gorgonia.UnsafeLet(n, up); err != nil {
				err = errors.Join(err, e.FreeTensor(up))
			}
		}
		if err != nil {
			return &OpError{Node: nameOf(n), Op: "to the pool", Err: err}
		}
	}
	return nil
}
