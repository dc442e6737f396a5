package gorgoniavm

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
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
			b.h.disarm()
		}
		m.mem.drop(&b.h)
	}
	m.kept = m.kept[:0]
}

// A program may give the value of one node to an input between runs, as in
// gorgonia.Let(w, updated.Value()). The next run gives back the value of the
// first node, so the VM holds it for the input, until that has another value. The
// program may have given it to a second input by then.

// lend holds the kept values that the program gave to inputs, and returns them.
// It gives back those that inputs no longer have.
func (m *VM) lend() (lent []gorgonia.Value) {
	var gone []held
	for n := range m.variables() {
		v := n.Value()
		if h, ok := m.weights[n]; ok {
			if h.v == v {
				continue
			}
			delete(m.weights, n)
			gone = append(gone, h)
		}
		if h, ok := m.keptAs(n, v); ok {
			m.weights[n] = m.mem.again(h)
			lent = append(lent, v)
		} else if h, ok := m.lentAs(v, gone); ok {
			m.weights[n] = m.mem.again(h)
		}
	}
	for _, h := range gone {
		if !m.hasVariable(h.v) {
			h.disarm()
		}
		m.mem.drop(&h)
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

// lentAs returns the value that another input has, or had until now, where it is v.
func (m *VM) lentAs(v gorgonia.Value, gone []held) (held, bool) {
	for _, h := range m.weights {
		if h.v == v {
			return h, true
		}
	}
	for _, h := range gone {
		if h.v == v {
			return h, true
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
// recording, before its memory is given back. They lie in Go's heap, as memory may have
// run out.
func (m *VM) moveFromRecording(rec *recording) error {
	for _, b := range rec.bound {
		for n := range m.variables() {
			d, ok := b.h.v.(*tensor.Dense)
			if !ok || n.Value() != b.h.v {
				continue
			}
			h, err := m.e.ToHost(d)
			if err == nil {
				err = gorgonia.UnsafeLet(n, h)
			}
			if err != nil {
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

// leaving is how Close parts from the values of nodes. Several nodes may have
// the same tensor, so tensors are disarmed when all nodes have their copies.
type leaving struct {
	m    *VM
	left []held // tensors to disarm
	errs []error
}

// value gives back a value of a node. If the node still has it, the node gets a
// copy in Go's heap.
func (l *leaving) value(n *gorgonia.Node, h held) {
	l.leave(h, n.Value(), func(v gorgonia.Value) error { return gorgonia.UnsafeLet(n, v) })
}

// gradient is value for the gradient that is bound to a node.
func (l *leaving) gradient(n *gorgonia.Node, h held) {
	l.leave(h, boundGradient(n), func(v gorgonia.Value) error {
		gorgonia.WithGrad(v)(n)
		return nil
	})
}

func (l *leaving) leave(h held, now gorgonia.Value, bind func(gorgonia.Value) error) {
	defer l.m.mem.drop(&h)
	d, ok := h.v.(*tensor.Dense)
	if !ok || now != h.v {
		return
	}
	c, err := l.m.e.ToHost(d)
	switch {
	case err == nil:
		err = bind(c)
	case errors.Is(err, cupool.ErrUseAfterFree): // it ended with a scope of the program's
		err = nil
	}
	l.errs, l.left = append(l.errs, err), append(l.left, h)
}

// done disarms the tensors and returns what went wrong.
func (l *leaving) done() error {
	for _, h := range l.left {
		h.disarm()
	}
	return errors.Join(l.errs...)
}
