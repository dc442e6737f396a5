package gorgoniavm

import (
	"errors"
	"fmt"
	"maps"

	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/gorgoniavm/internal/refs"
	"github.com/cupool/cupool/internal/tensorop"
)

// VM runs a gorgonia graph with every value in the memory of an Engine's
// pool. It implements gorgonia.VM.
//
// Where the CPU cannot touch the memory, values and gradients of nodes are not
// to be printed, zeroed or read in place: that ends the process with a fault
// (cupool.Engine says what else does). Gorgonia's own solvers work there, but
// for BarzilaiBorweinSolver and AdamW, which fail with cupool.ErrNotSupported.
//
// A VM is for one goroutine at a time, and so are the engine's stream and the
// graph that it runs. VMs of different graphs on engines of their own run side
// by side, also where their inputs share tensors that nobody writes to.
type VM struct {
	g         *gorgonia.ExprGraph
	e         *cupool.Engine
	c         config
	home      *gorgonia.ExprGraph // that the nodes are in
	prog      *program.Program
	runs      []kernel // what computes each instruction
	mem       memory
	now       frame                             // of the run under way
	inputs    map[*gorgonia.Node]input          // tensors of the inputs as the engine sees them
	consts    map[*gorgonia.Node]held           // constants in the pool, until Close
	duals     map[*gorgonia.Node]held           // gradients that this VM made, until Close
	weights   map[*gorgonia.Node]held           // values of inputs that it holds, until they have others or Close
	kept      []binding                         // values that nodes have until the next RunAll
	norms     map[any]*norm                     // normalizations, by keyOf
	derivs    map[*gorgonia.Node]*gorgonia.Node // inputs by the nodes that compute their gradients, where the CPU cannot touch the memory
	fetches   fetches                           // scalars on their way from the device
	fallbacks map[string]int64                  // see Fallbacks
	replay    replays                           // runs as CUDA graphs (Replay)
	draws     draws                             // of random numbers
	recording *recording                        // the one that is being made; nil: none
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
	if e.Allocator() == nil {
		return nil, &cupool.ConfigError{Field: "engine", Reason: "a VM needs one"}
	}
	var c config
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	home := homeOf(g)
	if err := c.validate(home); err != nil {
		return nil, err
	}
	prog, err := compile(g, e, &c, tensorop.Of(e).GPU() != nil)
	if err != nil {
		return nil, err
	}
	if err := prog.SetTraining(!c.eval); err != nil {
		return nil, fmt.Errorf("gorgoniavm: setting the mode: %w", err)
	}
	return &VM{
		g: g, e: e, c: c, home: home, prog: prog, runs: kernelsOf(prog), derivs: derivsOf(prog, e), norms: normsOf(prog),
		mem:       memory{e: e, blocks: refs.Blocks{Allocator: e.Allocator()}},
		now:       newFrame(len(prog.Instrs)),
		inputs:    make(map[*gorgonia.Node]input),
		consts:    make(map[*gorgonia.Node]held),
		duals:     make(map[*gorgonia.Node]held),
		weights:   make(map[*gorgonia.Node]held),
		fetches:   make(fetches, len(prog.Instrs)),
		fallbacks: make(map[string]int64),
		replay:    replays{on: c.replay}, draws: newDraws(prog, e, &c),
	}, nil
}

// compile makes the program of a graph, with groups of elementwise operations or
// without.
func compile(g *gorgonia.ExprGraph, e *cupool.Engine, c *config, groups bool) (*program.Program, error) {
	want := c.wants
	want.Fuse, want.Group = !e.AllocAccessible() && !c.looks(), groups
	return program.Compile(g, &want)
}

// recut does without groups, once the program has changed a slice.
func (m *VM) recut() error {
	if !m.prog.Recut() {
		return nil
	}
	if err := errors.Join(m.dropRecording(), m.fetches.close(m.e)); err != nil {
		return err
	}
	prog, err := compile(m.g, m.e, &m.c, false)
	if err != nil {
		return err
	}
	m.prog, m.runs, m.now = prog, kernelsOf(prog), newFrame(len(prog.Instrs))
	m.fetches = make(fetches, len(prog.Instrs))
	m.draws.streams = newDraws(prog, m.e, &m.c).streams // by other slots
	return nil
}

// check fails for a VM that is none.
func (m *VM) check() error {
	if m == nil || m.e == nil {
		return errNone("VM")
	}
	return nil
}

// RunAll runs the whole graph. It first gives back the values of the last
// RunAll; there is no need to call Reset in between.
//
// It fails with an *OpError that names the node, around the operation's error:
// an *cupool.OOMError when the pool cannot serve it, ErrNoValue for an
// input without a value, ErrNotANumber for WatchNaN and WatchInf. After a
// failure the values of the run are given back, no gradient and no variable of
// a Set has changed, and RunAll may be called again.
func (m *VM) RunAll() error {
	if err := m.check(); err != nil {
		return err
	}
	if m.closed {
		return fmt.Errorf("gorgoniavm: RunAll: %w", cupool.ErrClosed)
	}
	m.releaseKept()
	done := false
	defer func() {
		m.clear()
		if !done {
			m.releaseKept()
			_ = m.dropRecording() // the run has failed already
			clear(m.now.headers)  // an operation may have left one transposed
		}
	}()
	err := m.named(cupool.Try(m.run))
	done = err == nil
	return err
}

func (m *VM) run() error {
	if err := m.recut(); err != nil {
		return err
	}
	if err := errors.Join(m.prepareGradients(), m.prepareDraws()); err != nil {
		return err
	}
	if err := m.prepareNorms(); err != nil {
		return err
	}
	if done, err := m.replayed(); done || err != nil {
		return err
	}
	if err := m.begin(m.prog.Instrs); err != nil {
		return err
	}
	m.replay.ran = true
	return m.commit(everyGradient)
}

// clear gives back the blocks that the run still holds.
func (m *VM) clear() {
	m.mem.drop(&m.now.dst)
	for i := range m.now.slots {
		m.mem.drop(&m.now.slots[i])
	}
	for i := range m.now.lets {
		m.mem.drop(&m.now.lets[i].h)
	}
	m.now.lets = m.now.lets[:0]
	m.fetches.end()
	clear(m.now.args)
	m.now.at = nil
}

// Reset does nothing: every RunAll begins anew. The values of the last one
// stay, as on gorgonia's machines.
func (m *VM) Reset() {}

// Close gives back all memory that the VM holds. Nodes keep their values and
// gradients as copies in Go's heap; the tensors that they had are freed ones
// then, but for those in the program's own memory. To close a VM again does nothing. It returns errors of the allocator and
// of the device; all memory is given back all the same.
func (m *VM) Close() error {
	if err := m.check(); err != nil {
		return err
	}
	if m.closed {
		return nil
	}
	m.closed = true
	l := leaving{m: m}
	errs := []error{m.takeBackGradients(), m.closeRecording(&l), m.closeNorms()}
	m.lend()
	for _, b := range m.kept {
		l.value(b.node, b.h)
	}
	for n, h := range m.weights {
		l.value(n, h)
	}
	for n, h := range m.duals {
		l.gradient(n, h)
	}
	for _, h := range m.consts {
		m.mem.drop(&h)
	}
	m.mem.drop(&m.draws.run)
	m.kept, m.weights, m.duals, m.consts, m.inputs = nil, nil, nil, nil, nil
	errs = append(errs, l.done(), m.fetches.close(m.e))
	return errors.Join(append(errs, m.mem.blocks.Err)...)
}

// Fallbacks returns how often an operation was computed by gorgonia itself, in
// Go on the CPU, by the operation's type (as "*gorgonia.im2colOp"). On a
// device whose memory the CPU cannot touch, that is done on copies, and
// operations that the engine has no kernel for count too.
func (m *VM) Fallbacks() map[string]int64 {
	if m == nil {
		return nil
	}
	return maps.Clone(m.fallbacks)
}
