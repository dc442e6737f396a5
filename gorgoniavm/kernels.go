package gorgoniavm

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// kernel computes an operation on values as the engine has them. What it
// returns is new, or lies in one of the operands.
type kernel func(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error)

// kernels are the operations that the engine computes, on its device. All
// others gorgonia computes by itself (foreign.go).
var kernels = map[string]kernel{
	"gorgonia.elemBinOp":      elementwise,
	"gorgonia.elemUnaryOp":    elementwise,
	"gorgonia.linAlgBinOp":    product,
	"*gorgonia.softmaxOp":     toDestination,
	"*gorgonia.softmaxDiffOp": toDestination,
	"gorgonia.sumOp":          reduce,
	"*gorgonia.maxOp":         reduce,
	"*gorgonia.repeatOp":      repeat,
	"gorgonia.reshapeOp":      reshape,
	"gorgonia.transposeOp":    transpose,
	"gorgonia.concatOp":       plain,
	"gorgonia.tensordotOp":    contract,
	"gorgonia.minBetween":     plain,
	"gorgonia.maxBetween":     plain,
	"*gorgonia.byIndicesOp":   plain,
	"*gorgonia.dropoutOp":     dropout,
	"*gorgonia.sliceOp":       slice,
	"gorgonia.sliceIncrOp":    addToSlice,
	"gorgonia.sizeOp":         plain,
	"gorgonia.Iop":            plain,
}

// kernelOf returns an operation's type and what computes it.
func kernelOf(op gorgonia.Op) (string, kernel) {
	name := opName(op)
	k, ok := kernels[name]
	switch {
	case !ok:
		return name, foreign
	case name == "gorgonia.elemUnaryOp" && op.String() == "sigmoid":
		return name, sigmoid
	}
	return name, k
}

// overwritable returns the argument of op that its result may overwrite. What
// comparisons have for a result is no number of their operands'.
func overwritable(op gorgonia.Op, name string) (int, bool) {
	switch name {
	case "gorgonia.elemBinOp":
		a := op.OverwritesInput()
		return a, a >= 0 && !field(op, "retSame").Bool()
	case "gorgonia.elemUnaryOp":
		a := op.OverwritesInput()
		return a, a >= 0
	}
	return 0, false
}

// plain lets gorgonia call the engine.
func plain(_ *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return in.op.Do(args...)
}

// elementwise computes in place where it can.
func elementwise(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	if _, ok := m.reuse(in); ok {
		return in.op.(gorgonia.UnsafeDoer).UnsafeDo(args...)
	}
	return in.op.Do(args...)
}

// toDestination computes into a new tensor, which gorgonia would take from
// Go's heap.
func toDestination(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return in.op.(gorgonia.UsePreallocDoer).UsePreallocDo(dst, args...)
}

// product computes products of matrices and vectors.
func product(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	switch {
	case in.scalar:
		return in.op.Do(args...)
	case in.outer:
		return outer(m, in, args)
	}
	return toDestination(m, in, args)
}

// outer computes outer products. Tensor would clear the destination on the
// CPU.
func outer(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if err := m.e.Zero(dst); err != nil {
		return nil, err
	}
	return dst, m.e.Outer(a, b, dst)
}

// contract is a product along axes, of which gorgonia would lose temporaries.
func contract(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil {
		return nil, err
	}
	return m.e.Contract(a, b, in.axes, in.otherAxes)
}

// reduce sums up, or finds the maximum, along axes.
func reduce(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	sum := m.e.Sum
	if in.name == "*gorgonia.maxOp" {
		sum = m.e.Max
	}
	t, err := sum(d, in.axes...)
	if err != nil {
		return nil, err
	}
	r := t.(*tensor.Dense)
	m.dst = m.blocks.hold(r, false)
	if r.IsScalar() || r.Shape().Eq(in.shape) {
		return r, nil
	}
	return r, r.Reshape(in.shape...)
}

// repeat repeats elements along an axis. Gorgonia reads a single element on
// the CPU.
func repeat(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	n, err := intOf(args[1])
	if err != nil {
		return nil, err
	}
	d, isTensor := args[0].(*tensor.Dense)
	if isTensor && n == 1 && d.Shape().Eq(in.shape) {
		return d, nil
	}
	dst, err := m.destination(in)
	switch {
	case err != nil:
		return nil, err
	case !isTensor:
		return dst, m.e.Memset(dst, args[0].Data())
	}
	axis := in.axes[0]
	if axis >= d.Dims() || d.Shape().TotalSize() == 1 {
		return m.repeatOne(dst, d, in.shape)
	}
	return m.e.RepeatReuse(d, dst, axis, n)
}

// repeatOne fills dst with the one element of d.
func (m *VM) repeatOne(dst, d *tensor.Dense, shape tensor.Shape) (gorgonia.Value, error) {
	if d.Shape().TotalSize() != 1 {
		return nil, fmt.Errorf("repeating a %v to a %v: %w", d.Shape(), shape, ErrOperand)
	}
	if m.e.AllocAccessible() {
		v, err := m.scalarOf(d)
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
func reshape(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	if !ok {
		dst, err := m.destination(in)
		if err != nil {
			return nil, err
		}
		return dst, m.e.Memset(dst, args[0].Data())
	}
	switch {
	case in.scalar:
		return m.scalarOf(d)
	case slices.Equal(d.Shape(), in.shape): // to Eq, a row is a column
		return d, nil
	}
	return m.reshaped(in, d)
}

// reshaped returns a tensor over d's memory. On a device its header is that of
// the last run, as a destination's.
func (m *VM) reshaped(in *instr, d *tensor.Dense) (*tensor.Dense, error) {
	plain := !m.e.AllocAccessible() && !d.IsMaterializable() && d.DataOrder() == 0 && !d.IsMasked()
	if h := m.headers[in.out]; plain && h != nil && slices.Equal(h.Shape(), in.shape) && !h.IsMaterializable() {
		tensor.FromMemory(d.Uintptr(), d.MemSize())(h)
		return h, nil
	}
	clone := d.ShallowClone()
	if err := clone.Reshape(in.shape...); err != nil {
		return nil, err
	}
	if plain {
		m.headers[in.out] = clone
	}
	return clone, nil
}

// transpose moves the elements, which gorgonia does by way of Go's heap.
func transpose(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if done, err := m.permute(dst, d, in.axes); done || err != nil {
		return dst, err
	}
	from := d.ShallowClone()
	// tensor keeps the axes, and recycles them.
	if err := from.T(slices.Clone(in.axes)...); err != nil {
		if _, noop := err.(tensor.NoOpError); !noop {
			return nil, err
		}
	}
	return dst, m.e.Copy(dst, from)
}

// slice copies a part of a tensor.
func slice(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	v, err := sliced(in, d)
	if err != nil {
		return nil, err
	}
	if in.scalar {
		return m.scalarOf(v)
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if !v.Shape().Eq(in.shape) {
		return nil, fmt.Errorf("a slice of shape %v for a node of shape %v: %w", v.Shape(), in.shape, ErrOperand)
	}
	return dst, m.e.Copy(dst, v)
}

// addToSlice puts a tensor into a part of one of zeros.
func addToSlice(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if err := m.e.Zero(dst); err != nil {
		return nil, err
	}
	return in.op.(gorgonia.UsePreallocDoer).UsePreallocDo(dst, args...)
}

// sliced returns the view that a sliceOp takes of d. A program may change the
// slice between runs (gorgonia.UnsafeLet).
func sliced(in *instr, d *tensor.Dense) (*tensor.Dense, error) {
	parts := make([]tensor.Slice, d.Dims())
	s := in.op.(interface{ IsSlice() tensor.Slice }).IsSlice()
	if s != nil && s.End() > s.Start() {
		parts[in.axes[0]] = s
	}
	v, err := d.Slice(parts...)
	if err != nil {
		return nil, err
	}
	return v.(*tensor.Dense), nil
}

func dense(v gorgonia.Value) (*tensor.Dense, error) {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("an operand of type %T: %w", v, ErrOperand)
	}
	return d, nil
}

// pair returns two operands.
func pair(args []gorgonia.Value) (a, b *tensor.Dense, err error) {
	if a, err = dense(args[0]); err != nil {
		return nil, nil, err
	}
	b, err = dense(args[1])
	return a, b, err
}

// intOf returns a scalar as an int, cut off like gorgonia's.
func intOf(v gorgonia.Value) (int, error) {
	switch x := v.Data().(type) {
	case float64:
		return int(x), nil
	case float32:
		return int(x), nil
	case int:
		return x, nil
	case int64:
		return int(x), nil
	case int32:
		return int(x), nil
	case byte:
		return int(x), nil
	}
	return 0, fmt.Errorf("%T is no number of times: %w", v.Data(), ErrOperand)
}
