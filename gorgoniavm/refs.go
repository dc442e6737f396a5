package gorgoniavm

import (
	"errors"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// held is a value and the reference that its holder has to the block it lies
// in. Scalars and tensors in Go's heap have no block.
type held struct {
	v     gorgonia.Value
	p     cupool.Ptr // of the block; 0: none
	fetch *fetch     // of a scalar on a device that is under way to the host, or nil
}

// blockRefs counts the holders of blocks. Views, reshaped tensors and shallow
// clones lie in the block of the tensor that they come from and have no tie to
// it, so a block is known by its address, whichever tensor leads there.
type blockRefs struct {
	a    cupool.Allocator
	refs map[cupool.Ptr]blockRef
	err  error // of the first free that failed
}

type blockRef struct {
	block    cupool.Block
	n        int32
	borrowed bool // not the VM's to free or to overwrite
}

// hold takes a reference to the block that v lies in. The first one decides
// whose the block is.
func (r *blockRefs) hold(v gorgonia.Value, borrowed bool) held {
	d, ok := v.(*tensor.Dense)
	if !ok || d.MemSize() == 0 {
		return held{v: v}
	}
	b, err := r.a.Lookup(cupool.Ptr(d.Uintptr()))
	if err != nil { // in Go's heap
		return held{v: v}
	}
	ref, ok := r.refs[b.Ptr()]
	if !ok {
		ref = blockRef{block: b, borrowed: borrowed}
	}
	ref.n++
	r.refs[b.Ptr()] = ref
	return held{v: v, p: b.Ptr()}
}

// again takes one more reference for another holder of h's value.
func (r *blockRefs) again(h held) held {
	if h.p != 0 {
		ref := r.refs[h.p]
		ref.n++
		r.refs[h.p] = ref
	}
	return h
}

// drop gives a reference back, and the block with the last one.
func (r *blockRefs) drop(h held) {
	if h.p == 0 {
		return
	}
	ref := r.refs[h.p]
	if ref.n--; ref.n > 0 {
		r.refs[h.p] = ref
		return
	}
	delete(r.refs, h.p)
	if ref.borrowed {
		return
	}
	if err := r.a.Free(ref.block); r.err == nil {
		r.err = err
	}
}

// sole reports whether h is the only holder of a whole block of the VM's,
// which then may be overwritten.
func (r *blockRefs) sole(h held) bool {
	ref := r.refs[h.p]
	d, ok := h.v.(*tensor.Dense)
	return ok && h.p != 0 && ref.n == 1 && !ref.borrowed && int64(d.MemSize()) == ref.block.Size()
}

// borrow makes all blocks somebody else's.
func (r *blockRefs) borrow() {
	for p, ref := range r.refs {
		ref.borrowed = true
		r.refs[p] = ref
	}
}

// own is hold for a tensor over a new block of the VM's.
func (r *blockRefs) own(v gorgonia.Value, b cupool.Block) held {
	if b.IsEmpty() {
		return held{v: v}
	}
	r.refs[b.Ptr()] = blockRef{block: b, n: 1}
	return held{v: v, p: b.Ptr()}
}

// take makes a tensor whose elements are undefined. It belongs to no scope of
// the engine, which would free it.
func (m *VM) take(dt tensor.Dtype, shape tensor.Shape) (*tensor.Dense, cupool.Block, error) {
	b, err := m.blocks.a.Alloc(int64(shape.TotalSize())*int64(dt.Size()), m.e.Stream())
	if err != nil {
		return nil, b, err
	}
	return tensor.NewDense(dt, shape, tensor.FromMemory(uintptr(b.Ptr()), uintptr(b.Size())), tensor.WithEngine(m.e)), b, nil
}

// lasting returns a tensor like d once fill has written its elements.
func (m *VM) lasting(d *tensor.Dense, fill func(t *tensor.Dense) error) (*tensor.Dense, error) {
	t, b, err := m.take(d.Dtype(), d.Shape())
	if err != nil {
		return nil, err
	}
	if err := fill(t); err != nil {
		return nil, errors.Join(err, m.blocks.a.Free(b))
	}
	return t, nil
}

// copyOf returns what lasting fills with d's elements.
func (m *VM) copyOf(d *tensor.Dense) (*tensor.Dense, error) {
	return m.lasting(d, func(t *tensor.Dense) error { return m.e.Copy(t, d) })
}

// drop empties a holder.
func (m *VM) drop(h *held) {
	m.blocks.drop(*h)
	*h = held{}
}

// forget takes the data from a tensor whose block is freed, so that its use is
// an error rather than a read of somebody else's memory.
func forget(v gorgonia.Value) {
	if d, ok := v.(*tensor.Dense); ok {
		tensor.FromMemory(0, 0)(d)
	}
}
