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
		r.modes = append(r.modes, recordedMode{op, isTraining(op)})
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
		r.bound = append(r.bound, binding{b.node, b.shape, held{v: v}})
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
