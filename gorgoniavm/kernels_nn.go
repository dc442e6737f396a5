package gorgoniavm

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// The kernels of operations that gorgonia computes on the CPU, and package nn on a
// device.

// onDevice is a kernel for memory that the CPU cannot touch. Elsewhere, gorgonia
// computes the operation.
func onDevice(k kernel) kernel {
	return func(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
		if m.e.AllocAccessible() {
			return foreign(m, in, args)
		}
		return k(m, in, args)
	}
}

// functions are gorgonia's functions of one number that package tensor has no
// operation for.
var functions = map[string]nn.Function{
	"sigmoid": nn.Logistic, "sin": nn.Sin, "cos": nn.Cos, "ceil": nn.Ceil, "floor": nn.Floor,
	"log1p": nn.Log1p, "expm1": nn.Expm1, "softplus": nn.Softplus,
}

// function computes a function of each element, in place where it can. Gorgonia
// has Go functions for them.
func function(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	f, known := functions[in.Op.String()]
	d, ok := args[0].(*tensor.Dense)
	if !known || !ok || m.e.AllocAccessible() {
		return elementwise(m, in, args)
	}
	y := d
	if !m.mayOverwrite(in) {
		var err error
		if y, err = m.destination(in); err != nil {
			return nil, err
		}
	}
	return y, nn.Apply(m.e, f, d, y)
}

// sparsemax is gorgonia's: along the last axis, or one of a matrix. The result for
// its columns is in their order, as rows.
func sparsemax(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	axis := program.Field(in.Op, "axis").Int()
	columns := axis == 0 && ok && d.Dims() == 2
	if !ok || d.Dims() == 0 || axis != -1 && !columns && (axis != 1 || d.Dims() != 2) {
		return foreign(m, in, args)
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if !columns {
		return y, nn.Sparsemax(m.e, d, y)
	}
	turned := d.ShallowClone()
	if err := turned.T(); err != nil {
		return nil, err
	}
	rows := y.ShallowClone()
	if err := rows.Reshape(turned.Shape().Clone()...); err != nil {
		return nil, err
	}
	if err := m.e.Copy(rows, turned); err != nil {
		return nil, err
	}
	return y, nn.Sparsemax(m.e, rows, rows)
}

// sparsemaxBack is the gradient of sparsemax, which gorgonia has for vectors and
// matrices.
func sparsemaxBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	y, dy, err := pair(args)
	if err != nil {
		return nil, err
	}
	if y.Dims() != dy.Dims() || y.Dims() < 1 || y.Dims() > 2 {
		return foreign(m, in, args)
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dx, nn.SparsemaxBack(m.e, y, dy, dx)
}

// diagFlat puts the elements of a tensor on the diagonal of a matrix.
func diagFlat(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error { return nn.DiagFlat(m.e, x, y) })
}

// elementAt copies one element, which is fetched as other scalars are.
func elementAt(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	parts := make([]tensor.Slice, d.Dims())
	for i, at := range program.Ints(in.Op, "coordinates") {
		if i >= len(parts) || at < 0 || at >= d.Shape()[i] {
			return foreign(m, in, args) // which says what is wrong
		}
		parts[i] = gorgonia.S(at)
	}
	v, err := d.Slice(parts...)
	if err != nil {
		return nil, err
	}
	if v.Shape().TotalSize() != 1 {
		return foreign(m, in, args)
	}
	one, err := m.empty(in.Dtype, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	from := v.(*tensor.Dense)
	if err := from.Reshape(1); err != nil {
		return nil, err
	}
	return one, m.e.Copy(one, from)
}

// convert turns floats into ints or ints into floats.
func convert(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	types := []tensor.Dtype{in.Dtype}
	if ok {
		types = append(types, d.Dtype())
	}
	floats := slices.Contains(types, tensor.Float32) || slices.Contains(types, tensor.Float64)
	if !ok || !floats || !slices.Contains(types, tensor.Int) {
		return foreign(m, in, args)
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return y, nn.Convert(m.e, d, y)
}
