package gorgoniavm

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// frame is what the instructions of a run leave for those after them. Slots are
// numbered as the instructions are.
type frame struct {
	slots   []held           // the results
	lets    []binding        // what Sets of this run assign
	at      *program.Instr   // the present operation; nil: none
	args    []gorgonia.Value // its operands
	dst     held             // made for its result
	headers []*tensor.Dense  // of destinations, by slot; they serve the next run again
	numbers []gorgonia.Value // that are the same in every run, by slot
	fused   *gpu.FusedArgs   // of the last group; an object of its own, as C may see none that has Go pointers
}

func newFrame(slots int) frame {
	return frame{slots: make([]held, slots), headers: make([]*tensor.Dense, slots), numbers: make([]gorgonia.Value, slots), fused: new(gpu.FusedArgs)}
}

// mayOverwrite reports whether in may overwrite its operand InPlace: it is the last to
// read that, and no other value lies in its block.
func (m *VM) mayOverwrite(in *program.Instr) bool {
	if in.InPlace < 0 {
		return false
	}
	h := m.now.slots[in.In[in.InPlace]]
	d, ok := h.v.(*tensor.Dense)
	return ok && m.mem.sole(h) && d.Shape().Eq(in.Shape)
}

// destination makes a tensor for the result of in, whose elements are
// undefined. It is given back when the operation fails or returns another one.
// The header is that of the last run. No value that lasts has that header, so it
// is free again.
func (m *VM) destination(in *program.Instr) (*tensor.Dense, error) {
	d := m.now.headers[in.Out]
	if d == nil || !slices.Equal(d.Shape(), in.Shape) || d.IsMaterializable() {
		d, err := m.empty(in.Dtype, in.Shape)
		m.now.headers[in.Out] = d
		return d, err
	}
	b, err := m.mem.blocks.Allocator.Alloc(int64(d.Shape().TotalSize())*int64(in.Dtype.Size()), m.e.Stream())
	if err != nil {
		return nil, err
	}
	tensor.FromMemory(uintptr(b.Ptr()), uintptr(b.Size()))(d)
	m.now.dst = m.mem.own(d, b)
	return d, nil
}

// empty makes a destination.
func (m *VM) empty(dt tensor.Dtype, shape tensor.Shape) (*tensor.Dense, error) {
	d, b, err := m.mem.take(dt, shape)
	if err != nil {
		return nil, err
	}
	m.now.dst = m.mem.own(d, b)
	return d, nil
}

// reshaped returns a tensor over d's memory. On a device it uses the header of
// the last run again, as destination does.
func (m *VM) reshaped(in *program.Instr, d *tensor.Dense) (*tensor.Dense, error) {
	plain := !m.e.AllocAccessible() && !d.IsMaterializable() && d.DataOrder() == 0 && !d.IsMasked()
	if h := m.now.headers[in.Out]; plain && h != nil && slices.Equal(h.Shape(), in.Shape) && !h.IsMaterializable() {
		tensor.FromMemory(d.Uintptr(), d.MemSize())(h)
		tensor.WithEngine(d.Engine())(h) // which may be the owner of d's block
		return h, nil
	}
	clone := d.ShallowClone()
	if err := clone.Reshape(in.Shape...); err != nil {
		return nil, err
	}
	if plain {
		m.now.headers[in.Out] = clone
	}
	return clone, nil
}
