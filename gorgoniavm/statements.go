package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// statement runs a Read or a Set.
func (m *VM) statement(in *program.Instr) error {
	if program.ReadTarget(in.Op) != nil {
		return m.read(in)
	}
	if len(in.In) != 2 {
		return fmt.Errorf("%d operands: %w", len(in.In), ErrOperand)
	}
	h := m.mem.again(m.now.slots[in.In[1]])
	if d, ok := h.v.(*tensor.Dense); ok && h.foreign { // an input's memory, which another Set may change first
		up, err := m.mem.copyOf(d)
		m.mem.drop(&h)
		if err != nil {
			return err
		}
		h = m.mem.hold(up, false)
	}
	m.now.lets = append(m.now.lets, binding{m.prog.Instrs[in.In[0]].Node, in.Shape, h})
	return nil
}

// read copies a value to the variable of a gorgonia.Read. The copy lies in Go's
// heap and belongs to the program. It is another tensor than the last one where the
// program has given that to an input, which this run may still read.
func (m *VM) read(in *program.Instr) error {
	if len(m.now.args) != 1 {
		return fmt.Errorf("%d operands: %w", len(m.now.args), ErrOperand)
	}
	into := program.ReadTarget(in.Op)
	d, ok := m.now.args[0].(*tensor.Dense)
	if !ok {
		v, err := gorgonia.CloneValue(m.now.args[0])
		*into = v
		return err
	}
	if have, ok := (*into).(*tensor.Dense); ok && have.Dtype() == d.Dtype() && have.Shape().Eq(d.Shape()) && have.IsNativelyAccessible() && !m.hasVariable(have) {
		return m.e.Copy(have, d)
	}
	h, err := m.e.ToHost(d)
	if err != nil {
		return err
	}
	*into = h
	return nil
}

// assign carries out the Sets, once everything else is done.
func (m *VM) assign() error {
	for i := range m.now.lets {
		if err := m.set(m.now.lets[i].node, m.now.lets[i].h.v); err != nil {
			return fmt.Errorf("setting %s: %w", nameOf(m.now.lets[i].node), err)
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
// scalar, or none, are left alone. It fails with an *OpError around the error of
// the pool or the device, or with a *cupool.ConfigError for a nil node; the nodes before
// that one are moved.
func ToPool(e *cupool.Engine, nodes ...*gorgonia.Node) error {
	for _, n := range nodes {
		if n == nil {
			return &cupool.ConfigError{Field: "nodes", Value: nil, Reason: "one of them is nil"}
		}
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
