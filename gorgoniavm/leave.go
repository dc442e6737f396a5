package gorgoniavm

import (
	"errors"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// leaving is how Close parts from the values of nodes. Several nodes may have
// the same tensor, so tensors are disarmed when all nodes have their copies.
type leaving struct {
	m    *VM
	left []gorgonia.Value // tensors to disarm
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
	if err == nil {
		err = bind(c)
	}
	l.errs, l.left = append(l.errs, err), append(l.left, d)
}

// done disarms the tensors and returns what went wrong.
func (l *leaving) done() error {
	for _, v := range l.left {
		forget(v)
	}
	return errors.Join(l.errs...)
}
