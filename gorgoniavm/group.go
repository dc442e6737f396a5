package gorgoniavm

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Groups of elementwise operations, and the rooms that they write to. A device
// that has kernels computes them.

// group computes elementwise operations in one launch.
func group(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	g := in.Group
	a := m.now.fused
	*a = gpu.FusedArgs{} // a literal with fields would be made elsewhere first, and copied
	a.N, a.Columns, a.Inputs, a.Scalars = int64(g.N), int64(g.Columns), int64(len(g.Inputs)), int64(len(g.Scalars))
	a.Outputs, a.Steps = int64(len(g.Outputs)), int64(len(g.Steps))
	copy(a.Step[:], g.Steps)
	for i := range g.Inputs {
		v := &g.Inputs[i]
		if err := m.operandOf(&a.In[i], g, v, &m.now.slots[in.In[v.Slot]]); err != nil {
			return nil, err
		}
	}
	for i, at := range g.Scalars {
		x, err := floatOf(args[at])
		if err != nil {
			return nil, err
		}
		a.Scalar[i] = x
	}
	v, err := m.outputsOf(a, in)
	if err != nil {
		return nil, err
	}
	return v, tensorop.Of(m.e).GPU().Fused("elementwise", in.Dtype == tensor.Float64, a)
}

// operandOf fills in where a part of a tensor is. What lies in a block that the
// run holds needs no look-up.
func (m *VM) operandOf(o *gpu.FusedOperand, g *program.Group, v *program.View, of *held) error {
	d, err := dense(of.v)
	if err != nil {
		return err
	}
	if !of.plain || d.IsMaterializable() { // an operation may have left one transposed
		last := v.Offset + (v.Rows-1)*v.Stride + v.Columns
		if d.Shape().TotalSize() < last || d.RequiresIterator() || d.DataOrder() != 0 || of.p == 0 && !m.e.Owns(d) {
			return fmt.Errorf("a tensor of shape %v where %d elements are read: %w", d.Shape(), last, ErrOperand)
		}
	}
	o.P = uint64(d.Uintptr()) + uint64(v.Offset)*uint64(d.Dtype().Size())
	o.Row, o.Column = int64(v.Stride), 1
	if v.Rows == 1 || v.Stride == v.Columns {
		o.Row = int64(g.Columns)
	}
	return nil
}

// outputsOf makes the results of a group and fills in where they are. It returns
// that of the instruction itself, or where there is none, the room that the
// others go to.
func (m *VM) outputsOf(a *gpu.FusedArgs, in *program.Instr) (own gorgonia.Value, err error) {
	for i := range in.Group.Outputs {
		o := &in.Group.Outputs[i]
		var to *held
		switch {
		case o.Room:
			to = &m.now.slots[in.In[o.Slot]]
			if own == nil {
				own = to.v
			}
		case o.Slot >= 0:
			to, err = m.partFor(in.Parts[o.Slot])
		}
		if err == nil && to != nil {
			err = m.operandOf(&a.Out[i], in.Group, &o.View, to)
		}
		if err != nil {
			return nil, err
		}
		a.Out[i].Reg = int64(o.Reg)
	}
	for i := range in.Group.Outputs {
		if o := &in.Group.Outputs[i]; !o.Room && o.Slot < 0 {
			d, err := m.destination(in)
			if err != nil {
				return nil, err
			}
			return d, m.operandOf(&a.Out[i], in.Group, &o.View, &m.now.dst)
		}
	}
	return own, nil
}

// partFor makes a result that another instruction will take (exec).
func (m *VM) partFor(slot int) (*held, error) {
	if _, err := m.destination(&m.prog.Instrs[slot]); err != nil {
		return nil, err
	}
	m.now.slots[slot], m.now.dst = m.now.dst, held{}
	return &m.now.slots[slot], nil
}

// room makes memory for a tensor whose parts others write.
func room(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := m.roomIn(in, args)
	if err != nil || !in.Zero {
		return d, err
	}
	return d, m.e.Zero(d)
}

// roomIn makes a room, or returns one in another with the header of the last run,
// as destination does.
func (m *VM) roomIn(in *program.Instr, args []gorgonia.Value) (*tensor.Dense, error) {
	if len(args) == 0 {
		return m.destination(in)
	}
	outer, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	if d := m.now.headers[in.Out]; d != nil && slices.Equal(d.Shape(), in.Shape) && !d.IsMaterializable() {
		size := uintptr(in.Dtype.Size())
		tensor.FromMemory(outer.Uintptr()+uintptr(in.Offset)*size, uintptr(in.Shape.TotalSize())*size)(d)
		return d, nil
	}
	d := m.part(outer, in.Offset, in.Shape)
	m.now.headers[in.Out] = d
	return d, nil
}

// part returns the elements of a tensor from one on, in a shape.
func (m *VM) part(of *tensor.Dense, from int, shape tensor.Shape) *tensor.Dense {
	size := uintptr(of.Dtype().Size())
	return tensor.NewDense(of.Dtype(), shape, tensor.FromMemory(of.Uintptr()+uintptr(from)*size, uintptr(shape.TotalSize())*size), tensor.WithEngine(m.e))
}

// whole returns the room once all parts are written.
func whole(_ *VM, _ *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return args[0], nil
}

// partsProduct is aᵀ·b of rows of two tensors.
func partsProduct(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	a, b, err := pair(args)
	if err != nil {
		return nil, err
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	x := m.part(a, in.Views[0].Offset, tensor.Shape{in.Views[0].Rows, in.Views[0].Columns})
	y := m.part(b, in.Views[1].Offset, tensor.Shape{in.Views[1].Rows, in.Views[1].Columns})
	return dst, m.e.MatMul(operand.Transposed(x), y, dst)
}
