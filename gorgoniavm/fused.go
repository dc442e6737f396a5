package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// The kernels of the steps that package program puts in the place of several
// operations.

// number is a value that the program knows.
func number(_ *VM, in *program.Instr, _ []gorgonia.Value) (gorgonia.Value, error) {
	return in.Number, nil
}

// scale multiplies a tensor by a scalar.
func scale(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
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

// activationOf returns the activation of a layer.
func activationOf(in *program.Instr) nn.Activation {
	if in.Rectify {
		return nn.Rectify
	}
	return nn.NoActivation
}

// linear is act(x·w + bias), or that without a bias.
func linear(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layer(in, args, func(x, w *tensor.Dense, bias, y tensor.Tensor) error {
		return nn.Linear(m.e, x, w, bias, y, activationOf(in))
	})
}

// layer has a step make the result of x, w and the bias, if there is one.
func (m *VM) layer(in *program.Instr, args []gorgonia.Value, step func(x, w *tensor.Dense, bias, y tensor.Tensor) error) (gorgonia.Value, error) {
	x, w, err := m.matrices(in, args)
	if err != nil {
		return nil, err
	}
	bias, err := third(args)
	if err != nil {
		return nil, err
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return y, step(x, w, bias, y)
}

// linearBack makes the gradients of a layer.
func linearBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layerBack(in, args, func(x, w, dz *tensor.Dense, dx, dw, db tensor.Tensor) error {
		return nn.LinearBack(m.e, x, w, dz, dx, dw, db, activationOf(in))
	})
}

// layerBack has a step make the gradients of a layer. The gradient by the weights
// is the instruction's result; those by the input and by the bias, where they are
// wanted, are its parts.
func (m *VM) layerBack(in *program.Instr, args []gorgonia.Value, step func(x, w, dz *tensor.Dense, dx, dw, db tensor.Tensor) error) (gorgonia.Value, error) {
	x, w, err := m.matrices(in, args)
	if err != nil {
		return nil, err
	}
	dz, err := dense(args[2])
	if err != nil {
		return nil, err
	}
	parts, err := m.parts(in)
	if err != nil {
		return nil, err
	}
	dw, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dw, step(x, w, dz, parts[0], dw, parts[1])
}

// parts makes the destinations of an instruction's parts in their slots. Those of
// no slot are nil.
func (m *VM) parts(in *program.Instr) (ts [2]tensor.Tensor, err error) {
	for i, slot := range in.Parts {
		if slot < 0 {
			continue
		}
		part, err := m.destination(&m.prog.Instrs[slot])
		if err != nil {
			return ts, err
		}
		ts[i] = part
		m.now.slots[slot], m.now.dst = m.now.dst, held{}
	}
	return ts, nil
}

// rectify is max(x, 0).
func rectify(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error { return nn.Activate(m.e, x, y, nn.Rectify) })
}

// rectifyBack is the gradient of rectify, of its result and the gradient by that.
func rectifyBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	y, dy, err := pair(args)
	if err != nil {
		return nil, err
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dx, nn.ActivateBack(m.e, y, dy, dx, nn.Rectify)
}

// lossBack makes the gradient of a cross entropy, and the losses of the rows for
// a part.
func lossBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	z, y, err := m.matrices(in, args)
	if err != nil {
		return nil, err
	}
	by, err := floatOf(args[2])
	if err != nil {
		return nil, err
	}
	losses, err := m.parts(in)
	if err != nil {
		return nil, err
	}
	dz, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dz, nn.ScaledCrossEntropy(m.e, z, y, losses[0], dz, -by)
}

// third returns the third operand, or nil where there are two.
func third(args []gorgonia.Value) (tensor.Tensor, error) {
	if len(args) < 3 {
		return nil, nil
	}
	return dense(args[2])
}

// matrices returns the first two operands of a layer in the shapes of their
// nodes. The values of inputs may have others.
func (m *VM) matrices(in *program.Instr, args []gorgonia.Value) (x, w *tensor.Dense, err error) {
	if x, w, err = pair(args); err != nil {
		return nil, nil, err
	}
	for i, d := range []**tensor.Dense{&x, &w} {
		shape := m.prog.Instrs[in.In[i]].Shape
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
