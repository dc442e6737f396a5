package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// A program may give the value of one node to an input between runs, as in
// gorgonia.Let(w, updated.Value()). The next run gives back the value of the
// first node, so the VM holds it for the input, until that has another value.

// lend holds the kept values that the program gave to inputs, and returns them.
// It gives back those that inputs no longer have.
func (m *VM) lend() (lent []gorgonia.Value) {
	var gone []gorgonia.Value
	for n := range m.variables() {
		v := n.Value()
		if h, ok := m.weights[n]; ok {
			if h.v == v {
				continue
			}
			delete(m.weights, n)
			gone = append(gone, h.v)
			m.mem.drop(&h)
		}
		if h, ok := m.keptAs(n, v); ok {
			m.weights[n] = m.mem.again(h)
			lent = append(lent, v)
		}
	}
	for _, v := range gone {
		if !m.hasVariable(v) {
			forget(v)
		}
	}
	return lent
}

// variables are the inputs of the program, in its order.
func (m *VM) variables() func(yield func(*gorgonia.Node) bool) {
	return func(yield func(*gorgonia.Node) bool) {
		for i := range m.prog.Instrs {
			if in := &m.prog.Instrs[i]; in.Kind == program.Variable && !yield(in.Node) {
				return
			}
		}
	}
}

// keptAs returns the kept value of a node that input n has too.
func (m *VM) keptAs(n *gorgonia.Node, v gorgonia.Value) (held, bool) {
	d, ok := v.(*tensor.Dense)
	if !ok || m.inputs[n].of == d { // the last run read it: that run did not make it
		return held{}, false
	}
	for i := range m.kept {
		if m.kept[i].h.v == v {
			return m.kept[i].h, true
		}
	}
	return held{}, false
}

// hasVariable reports whether an input has a value.
func (m *VM) hasVariable(v gorgonia.Value) bool {
	for n := range m.variables() {
		if n.Value() == v {
			return true
		}
	}
	return false
}

// moveFromRecording gives inputs copies of the values that they have from a
// recording, before its memory is given back.
func (m *VM) moveFromRecording(rec *recording) error {
	for _, b := range rec.bound {
		for n := range m.variables() {
			d, ok := b.h.v.(*tensor.Dense)
			if !ok || n.Value() != b.h.v {
				continue
			}
			if err := m.rebind(n, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebind gives an input a copy of its value, which is the VM's until the input
// has another value, or Close.
func (m *VM) rebind(n *gorgonia.Node, d *tensor.Dense) error {
	up, err := m.mem.copyOf(d)
	if err != nil {
		return err
	}
	m.weights[n] = m.mem.hold(up, false)
	return gorgonia.UnsafeLet(n, up)
}
