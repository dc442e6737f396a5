package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gradients are added when everything else is done, so that a run that fails
// changes none of them.

// prepareGradients makes the gradients of inputs that have none yet.
func (m *VM) prepareGradients() error {
	for _, n := range m.prog.targets {
		if !n.IsVar() || n.Value() == nil {
			continue
		}
		if err := m.moveWeight(n); err != nil {
			return fmt.Errorf("the value of %s: %w", nameOf(n), err)
		}
		if _, err := m.gradientOf(n); err != nil {
			return fmt.Errorf("the gradient of %s: %w", nameOf(n), err)
		}
	}
	return nil
}

// moveWeight moves a value that is to be learned to a device whose memory the
// CPU cannot touch, where the gradients are. It is the VM's until Close.
func (m *VM) moveWeight(n *gorgonia.Node) error {
	d, ok := n.Value().(*tensor.Dense)
	if !ok || m.e.AllocAccessible() || m.e.Owns(d) {
		return nil
	}
	if old, ok := m.weights[n]; ok { // the program gave it another value since
		delete(m.weights, n)
		m.blocks.drop(old)
	}
	up, err := m.copyOf(d)
	if err != nil {
		return err
	}
	m.weights[n] = m.blocks.hold(up, false)
	return gorgonia.UnsafeLet(n, up)
}

// gradientOf returns the gradient that is bound to a node, in the pool, and
// binds a new one if there is none.
func (m *VM) gradientOf(n *gorgonia.Node) (gorgonia.Value, error) {
	g := boundGradient(n)
	d, ok := g.(*tensor.Dense)
	switch {
	case g != nil && (!ok || m.e.Owns(d)):
		return g, nil
	case ok && d.MemSize() > 0: // in Go's heap
		up, err := m.copyOf(d)
		if err != nil {
			return nil, err
		}
		return m.adoptGradient(n, up), nil
	}
	return m.zeroGradient(n)
}

// boundGradient returns the gradient that is bound to n, or nil: where there
// is none, Grad returns the value of the node that computes it.
func boundGradient(n *gorgonia.Node) gorgonia.Value {
	g, err := n.Grad()
	if err != nil || g == nil {
		return nil
	}
	if d := n.Deriv(); d != nil && d.Value() == g {
		return nil
	}
	return g
}

// zeroGradient binds a gradient of zeros.
func (m *VM) zeroGradient(n *gorgonia.Node) (gorgonia.Value, error) {
	v := n.Value()
	d, ok := v.(*tensor.Dense)
	if !ok {
		zero, err := zeroOf(v)
		if err != nil {
			return nil, err
		}
		gorgonia.WithGrad(zero)(n)
		return zero, nil
	}
	g, err := m.lasting(d, func(t *tensor.Dense) error { return m.e.Zero(t) })
	if err != nil {
		return nil, err
	}
	return m.adoptGradient(n, g), nil
}

// adoptGradient binds a gradient that is the VM's, until Close.
func (m *VM) adoptGradient(n *gorgonia.Node, g *tensor.Dense) gorgonia.Value {
	if old, ok := m.duals[n]; ok {
		m.blocks.drop(old)
	}
	m.duals[n] = m.blocks.hold(g, false)
	gorgonia.WithGrad(g)(n)
	return g
}

// commit binds what nodes are to have, adds the gradients of this run to those
// of the nodes, all or some, and sets the variables of Set.
func (m *VM) commit(which gradients) error {
	m.at = nil
	if err := m.bindKept(); err != nil {
		return err
	}
	if err := m.addGradients(which); err != nil {
		return err
	}
	if err := m.assign(); err != nil {
		return err
	}
	m.at = nil
	return m.settle()
}

// gradients says which gradients are added: that which in computes, to g?
type gradients func(in *instr, g gorgonia.Value) bool

func everyGradient(*instr, gorgonia.Value) bool { return true }

func (m *VM) addGradients(which gradients) error {
	for i := range m.prog.instrs {
		m.at = &m.prog.instrs[i]
		for _, of := range m.at.derivOf {
			g, err := m.gradientOf(of)
			if err != nil {
				return err
			}
			if !which(m.at, g) {
				continue
			}
			if err := m.addGradient(of, g, m.slots[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addGradient adds h to g, the gradient of n.
func (m *VM) addGradient(n *gorgonia.Node, g gorgonia.Value, h held) (err error) {
	to, isTensor := g.(*tensor.Dense)
	if !isTensor {
		d, err := m.scalar(h)
		if err != nil {
			return err
		}
		sum, err := addScalars(g, d)
		if err != nil {
			return err
		}
		gorgonia.WithGrad(sum)(n)
		return nil
	}
	from, fromTensor := h.v.(*tensor.Dense)
	if !fromTensor {
		_, err := m.e.AddScalar(to, h.v.Data(), true, tensor.UseUnsafe())
		return err
	}
	if !from.Shape().Eq(to.Shape()) && from.Shape().TotalSize() == to.Shape().TotalSize() {
		from = from.ShallowClone()
		if err := from.Reshape(to.Shape().Clone()...); err != nil {
			return err
		}
	}
	_, err = m.e.Add(to, from, tensor.UseUnsafe())
	return err
}
