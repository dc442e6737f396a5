package gorgoniavm

import (
	"fmt"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// exec computes one node and gives back what nobody reads after it.
func (m *VM) exec(in *instr) error {
	h, err := m.compute(in)
	if err != nil {
		return err
	}
	if in.scalar {
		if h.fetch, err = m.fetch(in, h.v); err != nil {
			m.drop(&h)
			return err
		}
	}
	m.slots[in.out] = h
	if err := m.look(in, h.v); err != nil {
		return err
	}
	if in.keep {
		m.kept = append(m.kept, binding{in.node, in.shape, m.blocks.again(h)})
	}
	for _, from := range in.dead {
		m.drop(&m.slots[from])
	}
	if m.prog.uses[in.out] == 0 {
		m.drop(&m.slots[in.out])
	}
	return nil
}

// compute returns the value of a node.
func (m *VM) compute(in *instr) (held, error) {
	switch in.kind {
	case variable:
		return m.load(in)
	case constant:
		return m.constant(in.node)
	}
	if v := m.numbers[in.out]; v != nil {
		return held{v: v}, nil
	}
	m.args = m.args[:0]
	for _, from := range in.in {
		v, err := m.operand(from)
		if err != nil {
			return held{}, fmt.Errorf("its operand %s: %w", nameOf(m.prog.instrs[from].node), err)
		}
		m.args = append(m.args, v)
	}
	if in.kind == statement {
		return held{}, m.statement(in)
	}
	if arity := in.op.Arity(); !in.fused && arity >= 0 && arity != len(m.args) {
		return held{}, fmt.Errorf("%d operands, but it takes %d: %w", len(m.args), arity, ErrOperand)
	}
	v, err := m.count(in)
	if err != nil {
		return held{}, err
	}
	if v == nil {
		return held{}, ErrNoValue
	}
	if in.fixed {
		m.numbers[in.out] = v
	}
	h := m.dst
	if m.dst = (held{}); h.v == v {
		return h, nil
	}
	defer m.blocks.drop(h)
	return m.blocks.hold(v, false), nil
}

// operand returns the value in a slot. A scalar that was computed on the device
// is read when it is first needed.
func (m *VM) operand(slot int) (gorgonia.Value, error) {
	h := &m.slots[slot]
	if _, ok := h.v.(*tensor.Dense); !ok || !m.prog.instrs[slot].scalar {
		if h.v == nil {
			return nil, ErrNoValue
		}
		return h.v, nil
	}
	v, err := m.scalar(*h)
	if err != nil {
		return nil, err
	}
	for i := range m.kept { // lest it is read twice
		if b := &m.kept[i]; b.h.v == h.v {
			b.take(m, v)
		}
	}
	m.drop(h)
	h.v = v
	return v, nil
}

// count runs an operation, and counts it when the engine had to compute some
// of it on copies.
func (m *VM) count(in *instr) (gorgonia.Value, error) {
	if m.e.AllocAccessible() {
		return in.run(m, in, m.args)
	}
	before := m.e.Stats().Fallbacks
	v, err := in.run(m, in, m.args)
	if m.e.Stats().Fallbacks != before {
		m.fallbacks[in.name]++
	}
	return v, err
}

// reuse returns the argument that in may overwrite: nobody reads it
// afterwards, and its block is the VM's and nobody else's.
func (m *VM) reuse(in *instr) (int, bool) {
	if in.inPlace < 0 {
		return 0, false
	}
	h := m.slots[in.in[in.inPlace]]
	d, ok := h.v.(*tensor.Dense)
	return in.inPlace, ok && m.blocks.sole(h) && d.Shape().Eq(in.shape)
}

// destination makes a tensor for the result of in, whose elements are
// undefined. It is given back when the operation fails or returns another one.
// The header is that of the last run, which nobody has any more: what lasts
// has headers of its own.
func (m *VM) destination(in *instr) (*tensor.Dense, error) {
	d := m.headers[in.out]
	if d == nil || !d.Shape().Eq(in.shape) || d.IsMaterializable() {
		d, err := m.empty(in.dt, in.shape)
		m.headers[in.out] = d
		return d, err
	}
	b, err := m.blocks.a.Alloc(int64(d.Shape().TotalSize())*int64(in.dt.Size()), m.e.Stream())
	if err != nil {
		return nil, err
	}
	tensor.FromMemory(uintptr(b.Ptr()), uintptr(b.Size()))(d)
	m.dst = m.blocks.own(d, b)
	return d, nil
}

// empty makes a destination.
func (m *VM) empty(dt tensor.Dtype, shape tensor.Shape) (*tensor.Dense, error) {
	d, b, err := m.take(dt, shape)
	if err != nil {
		return nil, err
	}
	m.dst = m.blocks.own(d, b)
	return d, nil
}

// binding is a value that a node has until the next RunAll.
type binding struct {
	node  *gorgonia.Node
	shape tensor.Shape // of the node, which makes a copy for whoever asks
	h     held
}

// bindKept gives nodes the values that they are to have.
func (m *VM) bindKept() error {
	for i := range m.kept {
		b := &m.kept[i]
		v, err := m.fit(b)
		if err == nil && b.node.Value() != v {
			err = gorgonia.UnsafeLet(b.node, v)
		}
		if err != nil {
			return &OpError{Node: nameOf(b.node), Op: opName(b.node.Op()), Err: fmt.Errorf("binding the result to its node: %w", err)}
		}
		b.take(m, v)
	}
	return nil
}

// take makes v the binding's value, in place of a tensor that it is read from
// or a clone of.
func (b *binding) take(m *VM, v gorgonia.Value) {
	if _, ok := v.(*tensor.Dense); !ok {
		m.drop(&b.h)
	}
	b.h.v = v
}

// fit returns a value in the shape of its node: operations may return other
// dimensions of size one than gorgonia says.
func (m *VM) fit(b *binding) (gorgonia.Value, error) {
	d, ok := b.h.v.(*tensor.Dense)
	switch {
	case !ok:
		return b.h.v, nil
	case b.node.IsScalar():
		return m.scalar(b.h)
	}
	clone := d.ShallowClone()
	if !d.Shape().Eq(b.shape) {
		if err := clone.Reshape(b.shape...); err != nil {
			return nil, fmt.Errorf("the result has the shape %v, its node %v: %w", d.Shape(), b.shape, ErrOperand)
		}
	}
	return clone, nil
}

// releaseKept takes the values of the last RunAll from their nodes. What the
// program took from a node meanwhile (ExprGraph.UnbindAll) may be somebody
// else's tensor by now.
func (m *VM) releaseKept() {
	for i := range m.kept {
		b := &m.kept[i]
		if b.node.Value() == b.h.v {
			forget(b.h.v)
		}
		m.drop(&b.h)
	}
	m.kept = m.kept[:0]
}

// input is how the engine sees the tensor of an input.
type input struct {
	of   *tensor.Dense
	at   cupool.Ptr
	seen *tensor.Dense
}

// load returns the value of an input. What lies in the pool already is used
// where it is, and what the CPU can touch too; else, and for views with gaps or
// of Go's heap, it is copied, each time, as the program may have changed it.
func (m *VM) load(in *instr) (held, error) {
	n := in.node
	v := n.Value()
	if v == nil {
		return held{}, fmt.Errorf("%w; give it one with gorgonia.Let", ErrNoValue)
	}
	d, ok := v.(*tensor.Dense)
	if !ok {
		return held{v: v}, nil
	}
	if d.Dtype() != in.dt || d.Shape().TotalSize() != in.shape.TotalSize() {
		return held{}, fmt.Errorf("its value is a %v of %v, the node a %v of %v: %w", d.Shape(), d.Dtype(), in.shape, in.dt, ErrOperand)
	}
	if d.MemSize() == 0 && d.Shape().TotalSize() > 0 {
		return held{}, fmt.Errorf("its value is a freed tensor: %w", cupool.ErrUseAfterFree)
	}
	if in.scalar {
		s, err := m.scalarOf(d)
		return held{v: s}, err
	}
	if !m.inPlace(n, d) {
		return m.copied(n, d)
	}
	if m.recording != nil {
		m.recording.use(n, d)
	}
	return m.blocks.hold(m.seen(n, d), true), nil
}

// inPlace reports whether an input is used where it lies. A CUDA graph does so
// where the last run did.
func (m *VM) inPlace(n *gorgonia.Node, d *tensor.Dense) bool {
	if m.recording != nil && !m.known(n, d) {
		return false
	}
	if d.IsMaterializable() {
		return !d.RequiresIterator() && d.DataOrder() == 0 && m.e.Owns(d)
	}
	return m.e.AllocAccessible() || m.e.Owns(d)
}

// copied returns a copy of an input in the pool, without the gaps of views.
func (m *VM) copied(n *gorgonia.Node, d *tensor.Dense) (held, error) {
	up, err := m.empty(d.Dtype(), d.Shape())
	if err != nil {
		return held{}, err
	}
	if m.recording != nil {
		delete(m.inputs, n) // the next recording copies it too
		m.recording.stage(n, up)
	} else if err := m.e.Copy(up, d); err != nil {
		return held{}, err
	}
	h := m.dst
	m.dst = held{}
	return h, nil
}

// seen returns d as a tensor of the engine that is no view. Operations may
// change its header while they run, so that it is not the program's own.
func (m *VM) seen(n *gorgonia.Node, d *tensor.Dense) *tensor.Dense {
	if m.known(n, d) {
		return m.inputs[n].seen
	}
	at := d.Uintptr()
	var seen *tensor.Dense
	if d.IsMaterializable() {
		seen = tensor.NewDense(d.Dtype(), d.Shape().Clone(), tensor.FromMemory(at, d.MemSize()))
	} else {
		seen = d.ShallowClone()
	}
	tensor.WithEngine(m.e)(seen)
	m.inputs[n] = input{of: d, at: cupool.Ptr(at), seen: seen}
	return seen
}

// known reports whether d is what seen saw last.
func (m *VM) known(n *gorgonia.Node, d *tensor.Dense) bool {
	in, ok := m.inputs[n]
	return ok && d.MemSize() > 0 && in.of == d && in.at == cupool.Ptr(d.Uintptr()) && in.seen.Shape().Eq(d.Shape())
}

// constant returns a constant, which is copied to the pool once.
func (m *VM) constant(n *gorgonia.Node) (held, error) {
	d, ok := n.Value().(*tensor.Dense)
	if !ok {
		return held{v: n.Value()}, nil
	}
	h, ok := m.consts[n]
	if !ok {
		up, err := m.copyOf(d)
		if err != nil {
			return held{}, err
		}
		h = m.blocks.hold(up, false)
		m.consts[n] = h
	}
	return m.blocks.again(h), nil
}
