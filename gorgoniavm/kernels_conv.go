package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// conv is act(x ∗ w + bias), or that without a bias.
func conv(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layer(in, args, func(x, w *tensor.Dense, bias, y tensor.Tensor) error {
		return nn.Conv2d(m.e, x, w, bias, y, nn.Conv(in.Conv), activationOf(in))
	})
}

// convBack makes the gradients of a convolution.
func convBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layerBack(in, args, func(x, w, dz *tensor.Dense, dx, dw, db tensor.Tensor) error {
		return nn.Conv2dBack(m.e, x, w, dz, dx, dw, db, nn.Conv(in.Conv), activationOf(in))
	})
}

// im2col copies each element of images as often as a kernel covers it.
func im2col(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, col *tensor.Dense) error { return nn.Im2Col(m.e, x, col, nn.Conv(in.Conv)) })
}

// col2im adds up what im2col copied from one element.
func col2im(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(col, x *tensor.Dense) error { return nn.Col2Im(m.e, col, x, nn.Conv(in.Conv)) })
}
