package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// prepareGradients makes the gradients of inputs that have none yet.
func (m *VM) prepareGradients() error {
	for n := range m.derivs {
		dropHostGradient(n.Value())
	}
	for _, n := range m.prog.Targets {
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
	return m.rebind(n, d)
}

// gradientOf returns the gradient that is bound to a node, in the pool, and
// binds a new one if there is none.
func (m *VM) gradientOf(n *gorgonia.Node) (gorgonia.Value, error) {
	g := boundGradient(n)
	d, ok := g.(*tensor.Dense)
	switch {
	case g != nil && !ok:
		return g, nil
	case ok:
		if err := toDevice(d); err != nil {
			return nil, err
		}
	}
	switch {
	case ok && m.e.Owns(d):
		m.lendGradient(d)
		return g, nil
	case ok && d.MemSize() > 0: // in Go's heap
		up, err := m.mem.copyOf(d)
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
	g, err := m.mem.lasting(d, func(t *tensor.Dense) error { return m.e.Zero(t) })
	if err != nil {
		return nil, err
	}
	return m.adoptGradient(n, g), nil
}

// adoptGradient binds a gradient that is the VM's, until Close.
func (m *VM) adoptGradient(n *gorgonia.Node, g *tensor.Dense) gorgonia.Value {
	if old, ok := m.duals[n]; ok {
		m.mem.drop(&old)
	}
	m.duals[n] = m.mem.hold(g, false)
	gorgonia.WithGrad(g)(n)
	m.lendGradient(g)
	return g
}

// gradients says which gradients are added: that which in computes, to g?
type gradients func(in *program.Instr, g gorgonia.Value) bool

func everyGradient(*program.Instr, gorgonia.Value) bool { return true }

func (m *VM) addGradients(which gradients) error {
	for i := range m.prog.Instrs {
		m.now.at = &m.prog.Instrs[i]
		for _, of := range m.now.at.DerivOf {
			g, err := m.gradientOf(of)
			if err != nil {
				return err
			}
			if !which(m.now.at, g) {
				continue
			}
			if err := m.addGradient(of, g, m.now.slots[i]); err != nil {
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
