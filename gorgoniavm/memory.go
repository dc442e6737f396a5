package gorgoniavm

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/refs"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// memory is the engine's pool as a VM uses it. A block has as many holders as
// there are values in it, and goes back with the last one.
type memory struct {
	e      *cupool.Engine
	blocks refs.Blocks
}

// held is a value and the reference that its holder has to the block it lies
// in. Scalars and tensors in Go's heap have no block.
type held struct {
	v       gorgonia.Value
	p       cupool.Ptr // of the block; 0: none
	foreign bool       // v is a tensor in memory of the program's, in Go's heap or in a borrowed block
	plain   bool       // v is a destination that an operation wrote: its elements lie side by side, in row-major order
	fetch   *fetch     // of a scalar on a device that is under way to the host, or nil
}

// hold takes a reference to the block that v lies in. The first reference
// decides whether the block is borrowed: the VM neither frees nor overwrites a
// borrowed one.
func (m *memory) hold(v gorgonia.Value, borrowed bool) held {
	d, ok := v.(*tensor.Dense)
	if !ok || d.MemSize() == 0 {
		return held{v: v}
	}
	p := m.blocks.Hold(cupool.Ptr(d.Uintptr()), borrowed)
	return held{v: v, p: p, foreign: p == 0 || m.blocks.Foreign(p)}
}

// own is hold for a tensor over a new block.
func (m *memory) own(v gorgonia.Value, b cupool.Block) held {
	return held{v: v, p: m.blocks.Own(b), plain: !b.IsEmpty()}
}

// again takes one more reference for another holder of h's value.
func (m *memory) again(h held) held {
	m.blocks.Again(h.p)
	return h
}

// drop empties a holder.
func (m *memory) drop(h *held) {
	m.blocks.Drop(h.p)
	*h = held{}
}

// sole reports whether h is the only holder of a whole block that is not
// borrowed, so that the block may be overwritten.
func (m *memory) sole(h held) bool {
	d, ok := h.v.(*tensor.Dense)
	return ok && m.blocks.Sole(h.p, int64(d.MemSize()))
}

// take makes a tensor whose elements are undefined. It belongs to no scope of
// the engine, which would free it.
func (m *memory) take(dt tensor.Dtype, shape tensor.Shape) (*tensor.Dense, cupool.Block, error) {
	b, err := m.blocks.Allocator.Alloc(int64(shape.TotalSize())*int64(dt.Size()), m.e.Stream())
	if err != nil {
		return nil, b, err
	}
	return tensor.NewDense(dt, shape, tensor.FromMemory(uintptr(b.Ptr()), uintptr(b.Size())), tensor.WithEngine(m.e)), b, nil
}

// lasting returns a tensor of d's type and shape, with elements that fill wrote.
func (m *memory) lasting(d *tensor.Dense, fill func(t *tensor.Dense) error) (*tensor.Dense, error) {
	t, b, err := m.take(d.Dtype(), d.Shape())
	if err != nil {
		return nil, err
	}
	if err := fill(t); err != nil {
		return nil, errors.Join(err, m.blocks.Allocator.Free(b))
	}
	return t, nil
}

// copyOf returns a copy of d.
func (m *memory) copyOf(d *tensor.Dense) (*tensor.Dense, error) {
	return m.lasting(d, func(t *tensor.Dense) error { return m.e.Copy(t, d) })
}

// scalarOf reads a tensor of one element, which waits for the device.
func (m *memory) scalarOf(d *tensor.Dense) (gorgonia.Value, error) {
	if d.Shape().TotalSize() != 1 {
		return nil, fmt.Errorf("a tensor of shape %v is no scalar: %w", d.Shape(), ErrOperand)
	}
	if !m.e.AllocAccessible() {
		h, err := m.e.ToHost(d)
		if err != nil {
			return nil, err
		}
		d = h
	} else if _, err := m.e.Accessible(d); err != nil {
		return nil, err
	}
	return toScalar(d.Get(0))
}

// onHost returns a value that the CPU may read.
func (m *memory) onHost(v gorgonia.Value) (gorgonia.Value, error) {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v, nil
	}
	if !m.e.Owns(d) {
		return d, nil
	}
	return m.e.ToHost(d)
}

// isFreed reports whether a value is a tensor whose memory was freed.
func isFreed(v gorgonia.Value) bool {
	d, ok := v.(*tensor.Dense)
	return ok && operand.IsFreed(d)
}

// disarm takes the data from a tensor whose block is freed, so that its use is
// an error rather than a read of memory that is in use elsewhere. What lies in the
// program's memory stays.
func (h held) disarm() {
	if d, ok := h.v.(*tensor.Dense); ok && !h.foreign {
		operand.Disarm(d)
	}
}
