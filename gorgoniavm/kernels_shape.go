package gorgoniavm

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// repeat repeats elements along an axis. Gorgonia reads a single element on the
// CPU, also where the CPU cannot touch it.
func repeat(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	n, err := intOf(args[1])
	if err != nil {
		return nil, err
	}
	d, isTensor := args[0].(*tensor.Dense)
	if isTensor && n == 1 && d.Shape().Eq(in.Shape) {
		return d, nil
	}
	dst, err := m.destination(in)
	switch {
	case err != nil:
		return nil, err
	case !isTensor:
		return dst, m.e.Memset(dst, args[0].Data())
	}
	axis := in.Axes[0]
	if axis >= d.Dims() || d.Shape().TotalSize() == 1 {
		return m.repeatOne(dst, d, in.Shape)
	}
	return m.e.RepeatReuse(d, dst, axis, n)
}

// repeatOne fills dst with the one element of d.
func (m *VM) repeatOne(dst, d *tensor.Dense, shape tensor.Shape) (gorgonia.Value, error) {
	if d.Shape().TotalSize() != 1 {
		return nil, fmt.Errorf("repeating a %v to a %v: %w", d.Shape(), shape, ErrOperand)
	}
	if m.e.AllocAccessible() {
		v, err := m.mem.scalarOf(d)
		if err != nil {
			return nil, err
		}
		return dst, m.e.Memset(dst, v.Data())
	}
	from, to := d.ShallowClone(), dst.ShallowClone()
	if err := errors.Join(from.Reshape(1), to.Reshape(shape.TotalSize())); err != nil {
		return nil, err
	}
	if shape.TotalSize() == 1 {
		return dst, m.e.Copy(to, from)
	}
	_, err := m.e.RepeatReuse(from, to, 0, shape.TotalSize())
	return dst, err
}

// reshape gives the same memory another shape.
func reshape(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	if !ok {
		dst, err := m.destination(in)
		if err != nil {
			return nil, err
		}
		return dst, m.e.Memset(dst, args[0].Data())
	}
	switch {
	case in.Scalar:
		return m.mem.scalarOf(d)
	case slices.Equal(d.Shape(), in.Shape): // to Eq, a row is a column
		return d, nil
	}
	return m.reshaped(in, d)
}

// transpose moves the elements. Gorgonia does so by way of Go's heap.
func transpose(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	from := d.ShallowClone()
	// tensor keeps the axes, and recycles them.
	if err := from.T(slices.Clone(in.Axes)...); err != nil {
		if _, noop := err.(tensor.NoOpError); !noop {
			return nil, err
		}
	}
	return dst, m.e.Copy(dst, from)
}

// slice copies a part of a tensor.
func slice(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	v, err := sliced(in, d)
	if err != nil {
		return nil, err
	}
	if in.Scalar {
		return m.element(v)
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	switch {
	case v.Shape().Eq(in.Shape):
	case v.Shape().TotalSize() == 1 && in.Shape.TotalSize() == 1: // of one element tensor makes a scalar
		v = m.part(v, 0, in.Shape)
	default:
		return nil, fmt.Errorf("a slice of shape %v for a node of shape %v: %w", v.Shape(), in.Shape, ErrOperand)
	}
	return dst, m.e.Copy(dst, v)
}

// element returns the one element of a slice. Where the CPU cannot touch it, it is
// a tensor, which RunAll fetches.
func (m *VM) element(v *tensor.Dense) (gorgonia.Value, error) {
	if m.e.AllocAccessible() {
		return m.mem.scalarOf(v)
	}
	if v.Shape().TotalSize() != 1 {
		return nil, fmt.Errorf("a slice of shape %v for a scalar: %w", v.Shape(), ErrOperand)
	}
	dst, err := m.empty(v.Dtype(), tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	return dst, m.e.Copy(dst, m.part(v, 0, tensor.Shape{1}))
}

// addToSlice puts a tensor into a part of one of zeros.
func addToSlice(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if err := m.e.Zero(dst); err != nil {
		return nil, err
	}
	v, err := sliced(in, dst)
	if err != nil {
		return nil, err
	}
	x, isTensor := args[1].(*tensor.Dense)
	if v.Shape().TotalSize() == 1 { // tensor makes a scalar of it, and adds that to x
		v = m.part(v, 0, tensor.Shape{1})
		if isTensor {
			x = m.part(x, 0, tensor.Shape{1})
		}
	}
	if isTensor {
		_, err = tensor.Add(v, x, tensor.UseUnsafe())
	} else {
		_, err = tensor.Add(v, args[1].Data(), tensor.UseUnsafe())
	}
	return dst, err
}

// sliced returns the view that a sliceOp takes of d. A program may change the
// slice between runs (gorgonia.UnsafeLet).
func sliced(in *program.Instr, d *tensor.Dense) (*tensor.Dense, error) {
	parts := make([]tensor.Slice, d.Dims())
	s := in.Op.(interface{ IsSlice() tensor.Slice }).IsSlice()
	if s != nil && s.End() > s.Start() {
		parts[in.Axes[0]] = s
	}
	v, err := d.Slice(parts...)
	if err != nil {
		return nil, err
	}
	return v.(*tensor.Dense), nil
}
