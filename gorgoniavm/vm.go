package gorgoniavm

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// VM runs a gorgonia graph with every value in the memory of an Engine's
// pool. It implements gorgonia.VM.
//
// A VM is for one goroutine at a time, and so are the engine's stream and the
// graph that it runs. VMs of different graphs on engines of their own run side
// by side, also where their inputs share tensors that nobody writes to.
type VM struct {
	e    *cupool.Engine
	c    config
	prog *program

	inputs    map[*gorgonia.Node]input // tensors of the inputs as the engine sees them
	consts    map[*gorgonia.Node]held  // constants in the pool, until Close
	duals     map[*gorgonia.Node]held  // gradients that this VM made, until Close
	weights   map[*gorgonia.Node]held  // values that it moved to the device, until Close
	kept      []binding                // values that nodes have until the next RunAll
	slots     []held                   // by node, during RunAll
	headers   []*tensor.Dense          // of destinations, by node
	numbers   []gorgonia.Value         // that are the same in every run, by node
	blocks    blockRefs                // the blocks that slots and kept values share
	lets      []binding                // what Sets of this run assign
	dst       held                     // made for the present operation
	args      []gorgonia.Value         // of the present operation
	at        *instr                   // the present operation
	recording *recording               // of this run, as long as it is made
	fetches   fetches                  // scalars on their way from the device
	fallbacks map[string]int64         // see Fallbacks
	replay    replays                  // runs as CUDA graphs (Replay)
	closed    bool
}

var _ gorgonia.VM = (*VM)(nil)

// New returns a VM that runs g with e's memory, on e's stream. It sorts the
// graph once: nodes that are added later are not run. It fails with a
// *cupool.ConfigError without graph or engine or for a node that is not the
// graph's, and with gorgonia's error for a graph that has cycles.
func New(g *gorgonia.ExprGraph, e *cupool.Engine, opts ...Option) (*VM, error) {
	if g == nil {
		return nil, &cupool.ConfigError{Field: "graph", Reason: "a VM needs one"}
	}
	if e == nil {
		return nil, &cupool.ConfigError{Field: "engine", Reason: "a VM needs one"}
	}
	var c config
	for _, o := range opts {
		o(&c)
	}
	if err := c.validate(g); err != nil {
		return nil, err
	}
	prog, err := compile(g, &c, !e.AllocAccessible())
	if err != nil {
		return nil, err
	}
	if err := prog.setTraining(!c.eval); err != nil {
		return nil, fmt.Errorf("gorgoniavm: setting the mode: %w", err)
	}
	return &VM{
		e: e, c: c, prog: prog,
		inputs:    make(map[*gorgonia.Node]input),
		consts:    make(map[*gorgonia.Node]held),
		duals:     make(map[*gorgonia.Node]held),
		weights:   make(map[*gorgonia.Node]held),
		slots:     make([]held, len(prog.instrs)),
		headers:   make([]*tensor.Dense, len(prog.instrs)),
		numbers:   make([]gorgonia.Value, len(prog.instrs)),
		blocks:    blockRefs{a: e.Allocator(), refs: make(map[cupool.Ptr]blockRef)},
		fetches:   make(fetches, len(prog.instrs)),
		fallbacks: make(map[string]int64),
		replay:    replays{on: c.replay},
	}, nil
}

// RunAll runs the whole graph. What nodes had from the RunAll before is given
// back first; there is no need to call Reset in between.
//
// It fails with an *OpError that names the node, around what the operation
// said: an *cupool.OOMError when the pool cannot serve it, ErrNoValue for an
// input without a value, ErrNotANumber for WatchNaN and WatchInf. After a
// failure the values of the run are given back, no gradient and no variable of
// a Set has changed, and RunAll may be called again.
func (m *VM) RunAll() error {
	if m.closed {
		return fmt.Errorf("gorgoniavm: RunAll: %w", cupool.ErrClosed)
	}
	m.releaseKept()
	done := false
	defer func() {
		m.clear()
		if !done {
			m.releaseKept()
			m.dropRecording()
			clear(m.headers) // an operation may have left one transposed
		}
	}()
	err := m.named(cupool.Try(m.run))
	done = err == nil
	return err
}

// named returns an error with the present operation's node.
func (m *VM) named(err error) error {
	if err == nil {
		return nil
	}
	var named *OpError
	switch {
	case errors.As(err, &named):
		return err
	case m.at == nil:
		return fmt.Errorf("gorgoniavm: RunAll: %w", err)
	}
	return &OpError{Node: nameOf(m.at.node), Op: m.at.name, Err: err}
}

func (m *VM) run() error {
	if err := m.prepareGradients(); err != nil {
		return err
	}
	if done, err := m.replayed(); done || err != nil {
		return err
	}
	if err := m.walk(m.prog.instrs); err != nil {
		return err
	}
	m.replay.ran = true
	return m.commit(everyGradient)
}

// walk computes nodes one by one.
func (m *VM) walk(instrs []instr) error {
	for i := range instrs {
		m.at = &instrs[i]
		if err := m.exec(m.at); err != nil {
			return err
		}
	}
	return nil
}

// settle waits for the device where the program may look at the values
// without asking: where the CPU can touch them.
func (m *VM) settle() error {
	if !m.e.AllocAccessible() {
		return nil
	}
	return m.e.Sync()
}

// clear gives back what the run still holds.
func (m *VM) clear() {
	m.drop(&m.dst)
	for i := range m.slots {
		m.drop(&m.slots[i])
	}
	for i := range m.lets {
		m.drop(&m.lets[i].h)
	}
	m.lets = m.lets[:0]
	m.fetches.end()
	clear(m.args)
	m.at = nil
}

// Reset does nothing: every RunAll begins anew. The values of the last one
// stay, as on gorgonia's machines.
func (m *VM) Reset() {}

// Close gives back all that the VM holds. Nodes keep their values and
// gradients as copies in Go's heap; the tensors that they had are freed ones
// then. To close a VM again does nothing. It returns what the allocator or the
// device says; everything is given back all the same.
func (m *VM) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	errs := []error{m.closeRecording()}
	for _, b := range m.kept {
		errs = append(errs, m.leaveValue(b.node, b.h))
	}
	for n, h := range m.weights {
		errs = append(errs, m.leaveValue(n, h))
	}
	for n, h := range m.duals {
		errs = append(errs, m.leave(h, boundGradient(n), func(v gorgonia.Value) error {
			gorgonia.WithGrad(v)(n)
			return nil
		}))
	}
	for _, h := range m.consts {
		m.blocks.drop(h)
	}
	m.kept, m.weights, m.duals, m.consts, m.inputs = nil, nil, nil, nil, nil
	errs = append(errs, m.fetches.close(m.e))
	return errors.Join(append(errs, m.blocks.err)...)
}

func (m *VM) leaveValue(n *gorgonia.Node, h held) error {
	return m.leave(h, n.Value(), func(v gorgonia.Value) error { return gorgonia.UnsafeLet(n, v) })
}

// leave gives back a value of a node, which gets a copy in its place if it has
// it still.
func (m *VM) leave(h held, now gorgonia.Value, bind func(gorgonia.Value) error) error {
	defer m.blocks.drop(h)
	d, ok := h.v.(*tensor.Dense)
	if !ok || now != h.v {
		return nil
	}
	c, err := m.e.ToHost(d)
	if err == nil {
		err = bind(c)
	}
	forget(d)
	return err
}

// Fallbacks returns how often an operation was computed by gorgonia itself, in
// Go on the CPU, by the operation's type (as "*gorgonia.im2colOp"). On a
// device whose memory the CPU cannot touch, that is done on copies, and
// operations that the engine has no kernel for count too.
func (m *VM) Fallbacks() map[string]int64 {
	return maps.Clone(m.fallbacks)
}
