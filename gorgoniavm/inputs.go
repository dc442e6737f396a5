package gorgoniavm

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/nilptr"
)

// input is how the engine sees the tensor of an input.
type input struct {
	of   *tensor.Dense
	at   cupool.Ptr
	seen *tensor.Dense
}

// load returns the value of an input. A tensor in the pool is used where it is,
// and so is one in Go's heap if the CPU can touch the pool. All others, those of other
// devices, views with gaps or in Go's heap, and what is in column-major order are copied
// by every run, as the program may have changed them.
func (m *VM) load(in *program.Instr) (held, error) {
	n := in.Node
	v := n.Value()
	if v == nil {
		return held{}, fmt.Errorf("%w; give it one with gorgonia.Let", ErrNoValue)
	}
	d, ok := v.(*tensor.Dense)
	if _, scalar := v.(gorgonia.Scalar); !ok && !scalar {
		return held{v: v}, nil
	}
	if err := fits(v, in.Dtype, in.Shape); err != nil {
		return held{}, err
	}
	if !ok {
		return held{v: v}, nil
	}
	if isFreed(d) {
		return held{}, fmt.Errorf("its value is a freed tensor: %w", cupool.ErrUseAfterFree)
	}
	if in.Scalar {
		s, err := m.mem.scalarOf(d)
		return held{v: s}, err
	}
	if m.recording != nil && d.IsMasked() {
		return held{}, fmt.Errorf("its value has a mask, which a graph does not know: %w", cupool.ErrNotSupported)
	}
	if !m.inPlace(n, d) {
		return m.copied(n, d)
	}
	if m.recording != nil {
		m.recording.use(n, d)
	}
	return m.mem.hold(m.seen(n, d), true), nil
}

// fits fails for a value that a node of that type and shape cannot have. Gorgonia's Let
// does not look at scalars.
func fits(v gorgonia.Value, dt tensor.Dtype, shape tensor.Shape) error {
	if v.Dtype() == dt && v.Shape().TotalSize() == shape.TotalSize() {
		return nil
	}
	return fmt.Errorf("its value is a %v of %v, the node a %v of %v: %w", v.Shape(), v.Dtype(), shape, dt, ErrOperand)
}

// inPlace reports whether an input is used where it lies, which one without elements
// does not. A recording uses an input in place only if the last run did so too.
func (m *VM) inPlace(n *gorgonia.Node, d *tensor.Dense) bool {
	if d.MemSize() == 0 || m.recording != nil && !m.known(n, d) {
		return false
	}
	if d.IsMaterializable() {
		return !d.RequiresIterator() && d.DataOrder() == 0 && m.e.Owns(d)
	}
	return d.DataOrder().IsRowMajor() && (m.e.AllocAccessible() && d.IsNativelyAccessible() || m.e.Owns(d))
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
	h := m.now.dst
	m.now.dst = held{}
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

// known reports whether d is the tensor that seen saw last.
func (m *VM) known(n *gorgonia.Node, d *tensor.Dense) bool {
	in, ok := m.inputs[n]
	return ok && d.MemSize() > 0 && in.of == d && in.at == cupool.Ptr(d.Uintptr()) && in.seen.Shape().Eq(d.Shape()) && slices.Equal(in.seen.Mask(), d.Mask())
}

// constant returns a constant, which is copied to the pool once.
func (m *VM) constant(n *gorgonia.Node) (held, error) {
	d, ok := n.Value().(*tensor.Dense)
	if !ok {
		return held{v: n.Value()}, nil
	}
	h, ok := m.consts[n]
	if !ok {
		up, err := m.mem.copyOf(d)
		if err != nil {
			return held{}, err
		}
		h = m.mem.hold(up, false)
		m.consts[n] = h
	}
	return m.mem.again(h), nil
}

// Let gives an input of the graph a value, as gorgonia.Let does: Gorgonia's
// tape machine has such a method. It fails with a *cupool.ConfigError for a
// node that is not the graph's or a value that is a nil pointer, with ErrOperand for
// a scalar that does not fit it, and with gorgonia's error for another value that does
// not or a node that is no input.
func (m *VM) Let(n *gorgonia.Node, be any) error {
	if err := m.has("Let", n); err != nil {
		return err
	}
	if be != nil && nilptr.Is(be) {
		return &cupool.ConfigError{Field: "Let", Value: nameOf(n), Reason: "the value is a nil pointer"}
	}
	if s, err := toScalar(be); err == nil && n.IsVar() {
		if err := fits(s, n.Dtype(), n.Shape()); err != nil {
			return fmt.Errorf("gorgoniavm: Let: %s: %w", nameOf(n), err)
		}
	}
	return gorgonia.Let(n, be)
}

// Set gives input a the value that node b has from the last RunAll, as the tape
// machine's method does. Both nodes have the same tensor then, which lasts as
// long as a has it. It fails as Let does, and with ErrNoValue for a b whose
// value was not kept.
func (m *VM) Set(a, b *gorgonia.Node) error {
	if err := m.has("Set", a, b); err != nil {
		return err
	}
	if b.Value() == nil {
		return fmt.Errorf("gorgoniavm: Set: %s: %w; Keep makes it last", nameOf(b), ErrNoValue)
	}
	return gorgonia.Let(a, b.Value())
}

// has fails for nodes that are not the graph's.
func (m *VM) has(method string, nodes ...*gorgonia.Node) error {
	if err := m.check(); err != nil {
		return err
	}
	for _, n := range nodes {
		if n == nil || n.Graph() != m.home {
			return notOfGraph(method, n)
		}
	}
	return nil
}

// homeOf returns the graph that the nodes of a graph say they are in: of one that
// ExprGraph.SubgraphRoots has made, that is the whole.
func homeOf(g *gorgonia.ExprGraph) *gorgonia.ExprGraph {
	if all := g.AllNodes(); len(all) > 0 {
		return all[0].Graph()
	}
	return g
}
