package gorgoniavm

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// capture records a run. The memory that the run takes belongs to the graphs, so
// the VM's references to it are forgotten and not dropped.
func (m *VM) capture() (*recording, error) {
	if err := m.recordable(); err != nil {
		return nil, err
	}
	rec, blocks := new(recording), m.mem.blocks
	m.recording, m.mem.blocks = rec, blocks.Clone()
	defer func() {
		m.mem.blocks, m.recording, m.now.at, m.now.dst = blocks, nil, nil, held{}
		clear(m.now.slots)
		clear(m.now.headers) // they are the recording's
		m.kept, m.now.lets = m.kept[:0], m.now.lets[:0]
	}()
	if err := m.recordRun(rec); err != nil {
		return nil, errors.Join(err, rec.close())
	}
	return rec, nil
}

// recordable fails where a graph would leave something out.
func (m *VM) recordable() error {
	if m.c.looks() {
		return fmt.Errorf("gorgoniavm: a graph neither logs nor watches: %w", cupool.ErrNotSupported)
	}
	for _, n := range m.prog.Targets {
		if boundGradient(n) == nil {
			return fmt.Errorf("gorgoniavm: %s has no gradient to add to: %w", nameOf(n), ErrNoValue)
		}
	}
	return nil
}

// recordRun records the graphs and notes what a launch has to do besides. The
// instructions after the last scalar that is fetched are a graph of their own.
// It may use the memory of the first graph, but not free it.
func (m *VM) recordRun(rec *recording) error {
	instrs, walk := inputsFirst(m.prog.Instrs[:m.prog.Late]), m.begin
	if n := m.fetches.after(instrs); 0 < n && n < len(instrs) {
		if err := m.recordGraph(rec, func() error { return m.begin(instrs[:n]) }); err != nil {
			return err
		}
		m.mem.blocks.Borrow()
		instrs, walk = instrs[n:], m.walk
	}
	return m.recordGraph(rec, func() error {
		if err := walk(instrs); err != nil {
			return err
		}
		if err := m.addGradients(recorded); err != nil {
			return err
		}
		return rec.complete(m)
	})
}

// inputsFirst returns instructions with inputs before all others. An input that
// is copied before a launch has its memory from the start of the graph, so that
// no earlier operation of the launch writes there.
func inputsFirst(instrs []program.Instr) []program.Instr {
	sorted := slices.Clone(instrs)
	slices.SortStableFunc(sorted, func(a, b program.Instr) int {
		switch {
		case a.Kind == program.Variable && b.Kind != program.Variable:
			return -1
		case a.Kind != program.Variable && b.Kind == program.Variable:
			return 1
		}
		return 0
	})
	return sorted
}

// recordGraph adds a graph that computes what f submits.
func (m *VM) recordGraph(rec *recording, f func() error) error {
	g, err := m.e.Capture(func() error {
		m.mem.blocks.Allocator = m.e.Allocator()
		if err := m.named(cupool.Try(f)); err != nil {
			return err
		}
		return m.mem.blocks.Err
	})
	if err == nil {
		rec.graphs = append(rec.graphs, g)
	}
	return err
}

// complete notes the values that the recorded instructions depend on and those
// that they leave.
func (r *recording) complete(m *VM) error {
	for i := range m.prog.Instrs[:m.prog.Late] {
		if err := r.depend(&m.prog.Instrs[i]); err != nil {
			return err
		}
	}
	for _, n := range m.prog.Targets {
		if d, ok := boundGradient(n).(*tensor.Dense); ok {
			r.grads = append(r.grads, recordedInPlace(n, d))
		}
	}
	for _, h := range m.now.slots {
		r.slots = append(r.slots, h.uncounted())
	}
	for _, b := range m.now.lets {
		r.lets = append(r.lets, binding{b.node, b.shape, b.h.uncounted()})
	}
	return r.keep(m)
}

// depend notes the slice, the mode or the scalar input that an instruction was
// recorded with.
func (r *recording) depend(in *program.Instr) error {
	if op, ok := in.Op.(sliceOp); ok {
		r.cuts = append(r.cuts, recordedCut{op, program.CutOf(op)})
	}
	if op, ok := keyOf(in).(*gorgonia.BatchNormOp); ok {
		r.modes = append(r.modes, recordedMode{func() bool { return isTraining(op) }, isTraining(op)})
	}
	if in.Name == dropoutName {
		r.modes = append(r.modes, recordedMode{func() bool { return drops(in) }, drops(in)})
	}
	if in.Kind != program.Variable {
		return nil
	}
	if _, ok := in.Node.Value().(*tensor.Dense); ok && !in.Scalar {
		return nil
	}
	x, ok := numberOf(in.Node.Value())
	if !ok {
		return &OpError{Node: nameOf(in.Node), Op: in.Name, Err: fmt.Errorf("a %T may change: %w", in.Node.Value(), cupool.ErrNotSupported)}
	}
	r.numbers = append(r.numbers, recordedNumber{in.Node, x})
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
		r.bound = append(r.bound, binding{b.node, b.shape, held{v: v, foreign: b.h.foreign}})
	}
	return nil
}

// recorded reports whether a graph adds a gradient, unrecorded whether the VM
// has to do so after the launch.
func recorded(in *program.Instr, g gorgonia.Value) bool {
	_, isTensor := g.(*tensor.Dense)
	return isTensor && !in.Late
}

func unrecorded(in *program.Instr, g gorgonia.Value) bool { return !recorded(in, g) }

// recording is a run as CUDA graphs: all instructions but those that come last,
// and the additions to gradients that are tensors. Its values lie in the graphs'
// memory, in the same place in every run, so its references are not counted.
type recording struct {
	graphs   []*cupool.Graph // one after the other; scalars are fetched behind the first
	launches int

	// The values that it was made with.
	inputs  []recordedInput
	numbers []recordedNumber
	cuts    []recordedCut
	grads   []recordedInput // bound gradients
	modes   []recordedMode

	// The values that it leaves.
	slots   []held
	scalars []binding // kept scalars, which are read after each launch
	bound   []binding // kept tensors, which their nodes have
	lets    []binding
	fetches []held // scalars on their way to the host
}

// recordedInput is a tensor that a graph reads or adds to.
type recordedInput struct {
	node  *gorgonia.Node
	v     gorgonia.Value // the node's value, where the graph uses it in place
	at    cupool.Ptr     // its address
	shape tensor.Shape
	stage *tensor.Dense // else, where it is copied to before a launch
}

// recordedNumber is a scalar that a graph was made with.
type recordedNumber struct {
	node *gorgonia.Node
	x    any
}

// recordedCut is a slice that a graph was made with.
type recordedCut struct {
	of sliceOp
	at program.Cut
}

// recordedMode is the mode of a batch norm or dropout that a graph was made in: whether
// it trains.
type recordedMode struct {
	now func() bool
	was bool
}

type sliceOp interface{ IsSlice() tensor.Slice }

func recordedInPlace(n *gorgonia.Node, d *tensor.Dense) recordedInput {
	return recordedInput{node: n, v: d, at: cupool.Ptr(d.Uintptr()), shape: d.Shape().Clone()}
}

// use notes that an input is read in place.
func (r *recording) use(n *gorgonia.Node, d *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInPlace(n, d))
}

// stage notes that an input is copied to the graph's memory.
func (r *recording) stage(n *gorgonia.Node, to *tensor.Dense) {
	r.inputs = append(r.inputs, recordedInput{node: n, stage: to.ShallowClone()})
}

// feed copies the inputs that are not used in place to the graph's memory. First it
// gives those that have values of the last launch copies of these, as both it and the
// launch write there.
func (r *recording) feed(m *VM) error {
	for _, in := range r.inputs {
		v := in.node.Value()
		if in.stage == nil || !slices.ContainsFunc(r.bound, func(b binding) bool { return b.h.v == v }) {
			continue
		}
		if err := m.rebind(in.node, v.(*tensor.Dense)); err != nil {
			return &OpError{Node: nameOf(in.node), Op: "input", Err: err}
		}
	}
	for _, in := range r.inputs {
		if in.stage == nil {
			continue
		}
		if err := m.e.Copy(in.stage, in.node.Value().(*tensor.Dense)); err != nil {
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

// unbind disarms the recording's values that nodes still have.
func (r *recording) unbind() {
	for _, b := range r.bound {
		if b.node.Value() == b.h.v {
			b.h.disarm()
		}
	}
}

// uncounted returns a value without a reference to its block.
func (h held) uncounted() held { return held{v: h.v, foreign: h.foreign, fetch: h.fetch} }
