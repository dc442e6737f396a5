package gorgoniavm

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// binding is a value that a node has until the next RunAll.
type binding struct {
	node  *gorgonia.Node
	shape tensor.Shape // of the node; Node.Shape would copy it
	h     held
}

// bindKept gives nodes the values of the run that last.
func (m *VM) bindKept() error {
	for i := range m.kept {
		b := &m.kept[i]
		v, err := m.fit(b)
		if err == nil && b.node.Value() != v {
			err = gorgonia.UnsafeLet(b.node, v)
		}
		if err != nil {
			return &OpError{Node: nameOf(b.node), Op: program.OpName(b.node.Op()), Err: fmt.Errorf("binding the result to its node: %w", err)}
		}
		b.take(m, v)
		m.lendDerivative(b.node, v)
	}
	return nil
}

// take makes v the binding's value. The tensor in its place is one that v was
// read from, or that v is a clone of.
func (b *binding) take(m *VM, v gorgonia.Value) {
	if _, ok := v.(*tensor.Dense); !ok {
		m.mem.drop(&b.h)
	}
	b.h.v = v
}

// fit returns a value in the shape of its node. The result of an operation may
// have other dimensions of size one than its node.
func (m *VM) fit(b *binding) (gorgonia.Value, error) {
	d, ok := b.h.v.(*tensor.Dense)
	switch {
	case !ok:
		return b.h.v, nil
	case b.node.IsScalar():
		return m.scalar(b.h)
	}
	clone := d.ShallowClone()
	if !d.Shape().Eq(b.shape) {
		if err := clone.Reshape(b.shape...); err != nil {
			return nil, fmt.Errorf("the result has the shape %v, its node %v: %w", d.Shape(), b.shape, ErrOperand)
		}
	}
	return clone, nil
}

// releaseKept frees the values of the last RunAll. A value that the program took
// from its node meanwhile (ExprGraph.UnbindAll) may be in use elsewhere, so only
// values that nodes still have are disarmed, and that no input has.
func (m *VM) releaseKept() {
	lent := m.lend()
	for i := range m.kept {
		b := &m.kept[i]
		if b.node.Value() == b.h.v && !slices.Contains(lent, b.h.v) {
			forget(b.h.v)
		}
		m.mem.drop(&b.h)
	}
	m.kept = m.kept[:0]
}
