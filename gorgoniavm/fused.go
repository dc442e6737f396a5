package gorgoniavm

import (
	"fmt"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The steps that fuse puts into a program.

// linear is act(x·w + bias).
func linear(act cupool.Activation) kernel {
	return func(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
		x, w, err := m.matrices(in, args)
		if err != nil {
			return nil, err
		}
		bias, err := dense(args[2])
		if err != nil {
			return nil, err
		}
		y, err := m.destination(in)
		if err != nil {
			return nil, err
		}
		return y, m.e.Linear(x, w, bias, y, act)
	}
}

// linearBack makes the gradients of a layer: that of the weights is its result,
// those of the input and of the bias, where they are wanted, are its parts.
func linearBack(act cupool.Activation) kernel {
	return func(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
		x, w, err := m.matrices(in, args)
		if err != nil {
			return nil, err
		}
		dz, err := dense(args[2])
		if err != nil {
			return nil, err
		}
		var parts [2]tensor.Tensor
		for i, slot := range in.parts {
			if slot < 0 {
				continue
			}
			part, err := m.destination(&m.prog.instrs[slot])
			if err != nil {
				return nil, err
			}
			parts[i] = part
			m.slots[slot], m.dst = m.dst, held{}
		}
		dw, err := m.destination(in)
		if err != nil {
			return nil, err
		}
		return dw, m.e.LinearBack(x, w, dz, parts[0], dw, parts[1], act)
	}
}

// partOf is what another instruction has put into the slot already.
func partOf(m *VM, in *instr, _ []gorgonia.Value) (gorgonia.Value, error) {
	m.dst, m.slots[in.out] = m.slots[in.out], held{}
	return m.dst.v, nil
}

// scale multiplies a tensor by a scalar.
func scale(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	t, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return m.e.MulScalar(t, args[1].Data(), true, tensor.WithReuse(dst))
}

// matrices returns the first two operands of a layer in the shapes of their
// nodes, which inputs need not have.
func (m *VM) matrices(in *instr, args []gorgonia.Value) (x, w *tensor.Dense, err error) {
	if x, w, err = pair(args); err != nil {
		return nil, nil, err
	}
	for i, d := range []**tensor.Dense{&x, &w} {
		shape := m.prog.instrs[in.in[i]].shape
		if (*d).Shape().Eq(shape) {
			continue
		}
		*d = (*d).ShallowClone()
		if err := (*d).Reshape(shape...); err != nil {
			return nil, nil, fmt.Errorf("an operand of shape %v: %w", shape, err)
		}
	}
	return x, w, nil
}
