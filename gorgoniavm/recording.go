package gorgoniavm

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// recording is a run as CUDA graphs: all instructions but those that come last,
// with the additions to gradients that are tensors. Its values lie in the
// graphs' memory, in the same place in every run, so no holder counts them.
type recording struct {
	graphs   []*cupool.Graph // one after the other; scalars are fetched behind the first
	launches int

	// What it was made with.
	inputs  []recordedInput
	numbers []recordedNumber
	cuts    []recordedCut
	grads   []recordedInput // bound gradients

	// What it leaves.
	slots   []held
	scalars []binding // kept scalars, which are read after each launch
	bound   []binding // kept tensors, which their nodes have
	lets    []binding
	fetches []held // scalars on their way to the host
}

// recordedInput is a tensor that a graph reads or adds to.
type recordedInput struct {
	node  *gorgonia.Node
	v     gorgonia.Value // what the node has, where the graph uses it in place
	at    cupool.Ptr     // its address
	shape tensor.Shape
	stage *tensor.Dense // else, where it is copied to before a launch
}

// recordedNumber is a scalar that is a graph's for good.
type recordedNumber struct {
	node *gorgonia.Node
	x    any
}

// recordedCut is a slice that a graph was made with.
type recordedCut struct {
	of sliceOp
	at [3]int // start, end, step
}

type sliceOp interface{ IsSlice() tensor.Slice }

func cutOf(op sliceOp) (at [3]int) {
	if s := op.IsSlice(); s != nil {
		at = [3]int{s.Start(), s.End(), s.Step()}
	}
	return at
}

// numberOf returns a scalar as it can be compared; false: it cannot be known
// without waiting for the device, or is none.
func numberOf(v gorgonia.Value) (any, bool) {
	if s, ok := v.(gorgonia.Scalar); ok {
		return s.Data(), true
	}
	d, ok := v.(*tensor.Dense)
	if !ok || d.MemSize() == 0 || !d.IsNativelyAccessible() || d.Shape().TotalSize() != 1 {
		return nil, false
	}
	return d.Get(0), true
}

func recordedInPlace(n *gorgonia.Node, d *tensor.Dense) recordedInput {
	return recordedInput{node: n, v: d, at: cupool.Ptr(d.Uintptr()), shape: d.Shape().Clone()}
}

// use notes that an input is read in place.
func (r *recording) use(n *gorgonia.Node, d *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInPlace(n, d))
}

// stage notes that an input is copied to a place of the graph's.
func (r *recording) stage(n *gorgonia.Node, to *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInput{node: n, stage: to.ShallowClone()})
}

// complete notes what the instructions that were recorded depend on, and leave.
func (r *recording) complete(m *VM) error {
	for i := range m.prog.instrs[:m.prog.late] {
		if err := r.depend(&m.prog.instrs[i]); err != nil {
			return err
		}
	}
	for _, n := range m.prog.targets {
		if d, ok := boundGradient(n).(*tensor.Dense); ok {
			r.grads = append(r.grads, recordedInPlace(n, d))
		}
	}
	for _, h := range m.slots {
		r.slots = append(r.slots, h.uncounted())
	}
	for _, b := range m.lets {
		r.lets = append(r.lets, binding{b.node, b.shape, b.h.uncounted()})
	}
	return r.keep(m)
}

// depend notes what an instruction has that is no tensor.
func (r *recording) depend(in *instr) error {
	if op, ok := in.op.(sliceOp); ok {
		r.cuts = append(r.cuts, recordedCut{op, cutOf(op)})
	}
	if in.kind != variable {
		return nil
	}
	if _, ok := in.node.Value().(*tensor.Dense); ok && !in.scalar {
		return nil
	}
	x, ok := numberOf(in.node.Value())
	if !ok {
		return &OpError{Node: nameOf(in.node), Op: in.name, Err: fmt.Errorf("a %T may change: %w", in.node.Value(), cupool.ErrNotSupported)}
	}
	r.numbers = append(r.numbers, recordedNumber{in.node, x})
	return nil
}

// keep notes the values that nodes have after a run.
func (r *recording) keep(m *VM) error {
	for i := range m.kept {
		b := &m.kept[i]
		if b.node.IsScalar() {
			r.scalars = append(r.scalars, binding{b.node, b.shape, b.h.uncounted()})
			continue
		}
		v, err := m.fit(b)
		if err != nil {
			return err
		}
		r.bound = append(r.bound, binding{b.node, b.shape, held{v: v}})
	}
	return nil
}

// uncounted returns a value without a reference to its block.
func (h held) uncounted() held { return held{v: h.v, fetch: h.fetch} }

// fits reports whether a launch would compute with what nodes have now.
func (r *recording) fits(m *VM) bool {
	for i := range r.inputs {
		if !r.inputs[i].fits(m, r.inputs[i].node.Value()) {
			return false
		}
	}
	for i := range r.grads {
		if !r.grads[i].fits(m, boundGradient(r.grads[i].node)) {
			return false
		}
	}
	for _, n := range r.numbers {
		if x, ok := numberOf(n.node.Value()); !ok || x != n.x {
			return false
		}
	}
	for _, c := range r.cuts {
		if cutOf(c.of) != c.at {
			return false
		}
	}
	return true
}

func (in *recordedInput) fits(m *VM, now gorgonia.Value) bool {
	d, ok := now.(*tensor.Dense)
	switch {
	case !ok || d.MemSize() == 0:
		return false
	case in.stage != nil:
		return d.Dtype() == in.stage.Dtype() && d.Shape().Eq(in.stage.Shape())
	}
	return in.v == now && in.at == cupool.Ptr(d.Uintptr()) && d.Shape().Eq(in.shape) && m.inPlace(in.node, d)
}

// feed copies the inputs that the graph has a place for.
func (r *recording) feed(e *cupool.Engine) error {
	for _, in := range r.inputs {
		if in.stage == nil {
			continue
		}
		if err := e.Copy(in.stage, in.node.Value().(*tensor.Dense)); err != nil {
			return &OpError{Node: nameOf(in.node), Op: "input", Err: err}
		}
	}
	return nil
}

// run launches the graphs.
func (r *recording) run(e *cupool.Engine) error {
	for i, g := range r.graphs {
		if err := g.Launch(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		for _, h := range r.fetches {
			if err := h.fetch.begin(e.Stream(), h.v.(*tensor.Dense)); err != nil {
				return err
			}
		}
	}
	return nil
}

// close gives the graphs back.
func (r *recording) close() error {
	var errs []error
	for _, g := range r.graphs {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// restore puts what a launch leaves where a walk would have put it.
func (r *recording) restore(m *VM) error {
	copy(m.slots, r.slots)
	m.kept = append(m.kept, r.scalars...)
	m.lets = append(m.lets, r.lets...)
	for _, b := range r.bound {
		if b.node.Value() == b.h.v {
			continue
		}
		if err := gorgonia.UnsafeLet(b.node, b.h.v); err != nil {
			return &OpError{Node: nameOf(b.node), Op: opName(b.node.Op()), Err: err}
		}
	}
	return nil
}

// unbind takes the values that the recording has from their nodes.
func (r *recording) unbind() {
	for _, b := range r.bound {
		if b.node.Value() == b.h.v {
			forget(b.h.v)
		}
	}
}

// recorded are the gradients that a graph adds, unrecorded the others.
func recorded(in *instr, g gorgonia.Value) bool {
	_, isTensor := g.(*tensor.Dense)
	return isTensor && !in.late
}

func unrecorded(in *instr, g gorgonia.Value) bool { return !recorded(in, g) }
