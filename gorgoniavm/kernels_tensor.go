package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/tensorop"
)

// plain lets gorgonia call the engine.
func plain(_ *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return in.Op.Do(args...)
}

// elementwise computes in place where it can. Gorgonia cannot for a scalar and a
// tensor of one element.
func elementwise(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	if m.mayOverwrite(in) && in.Shape.TotalSize() > 1 {
		return in.Op.(gorgonia.UnsafeDoer).UnsafeDo(args...)
	}
	return in.Op.Do(args...)
}

// toDestination computes into a new tensor of the pool. Gorgonia would take it
// from Go's heap.
func toDestination(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return in.Op.(gorgonia.UsePreallocDoer).UsePreallocDo(dst, args...)
}

// product computes products of matrices and vectors.
func product(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	switch {
	case in.Scalar:
		return dot(m, in, args)
	case in.Outer:
		return outer(m, in, args)
	case in.MatMul:
		return matMul(m, in, args)
	}
	return toDestination(m, in, args)
}

// matMul computes products of matrices on the device itself: Gorgonia would mark
// operands as transposed, and take that back.
func matMul(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil || m.e.AllocAccessible() {
		return toDestination(m, in, args)
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if done, err := tensorop.Of(m.e).GPU().MatMul(a, b, dst, in.Transposed[0], in.Transposed[1]); done {
		return dst, err
	}
	return in.Op.(gorgonia.UsePreallocDoer).UsePreallocDo(dst, args...)
}

// dot computes the product of two vectors, which a device leaves there, to be fetched
// as other scalars are.
func dot(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil || m.e.AllocAccessible() || a.Dims() != 1 || b.Dims() != 1 {
		return in.Op.Do(args...)
	}
	return m.e.Contract(a, b, []int{0}, []int{0})
}

// outer computes outer products. Package tensor would clear the destination on
// the CPU.
func outer(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if !m.e.AllocAccessible() && a.Dims() == 1 && b.Dims() == 1 && dst.Dims() == 2 { // a product of matrices overwrites
		column, row := m.part(a, 0, tensor.Shape{a.Shape()[0], 1}), m.part(b, 0, tensor.Shape{1, b.Shape()[0]})
		return dst, m.e.MatMul(column, row, dst)
	}
	if err := m.e.Zero(dst); err != nil {
		return nil, err
	}
	return dst, m.e.Outer(a, b, dst)
}

// contract computes a product along axes. Gorgonia's own way loses temporaries.
func contract(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil {
		return nil, err
	}
	return m.e.Contract(a, b, in.Axes, in.OtherAxes)
}

// reduce sums up, or finds the maximum, along axes.
func reduce(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	sum := m.e.Sum
	if in.Name == "*gorgonia.maxOp" {
		sum = m.e.Max
	}
	t, err := sum(d, in.Axes...)
	if err != nil {
		return nil, err
	}
	r := t.(*tensor.Dense)
	m.now.dst = m.mem.hold(r, false)
	if r.IsScalar() || r.Shape().Eq(in.Shape) {
		return r, nil
	}
	return r, r.Reshape(in.Shape...)
}
