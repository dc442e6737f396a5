package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// conv is act(x ∗ w + bias), or that without a bias.
func conv(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
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
	return y, nn.Conv2d(m.e, x, w, bias, y, nn.Conv(in.Conv), activationOf(in))
}

// convBack makes the gradients of a convolution, as linearBack does those of a
// layer.
func convBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
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
	return dw, nn.Conv2dBack(m.e, x, w, dz, parts[0], dw, parts[1], nn.Conv(in.Conv), activationOf(in))
}

// im2col copies each element of images as often as a kernel covers it.
func im2col(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.columns(in, args, nn.Im2Col)
}

// col2im adds up what im2col copied from one element.
func col2im(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.columns(in, args, nn.Col2Im)
}

// columns calls im2col or col2im, where gorgonia cannot touch the memory.
func (m *VM) columns(in *program.Instr, args []gorgonia.Value, f func(*cupool.Engine, tensor.Tensor, tensor.Tensor, nn.Conv) error) (gorgonia.Value, error) {
	from, err := dense(args[0])
	switch {
	case err != nil:
		return nil, err
	case m.e.AllocAccessible() || in.Dtype != tensor.Float32 && in.Dtype != tensor.Float64:
		return foreign(m, in, args)
	}
	to, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return to, f(m.e, from, to, nn.Conv(in.Conv))
}
