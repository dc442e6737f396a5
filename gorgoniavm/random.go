package gorgoniavm

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// Dropout and random nodes draw from streams of Philox: each run has one for each
// of these operations.

// WithSeed makes the random numbers of dropout and of random nodes
// (gorgonia.UniformRandomNode and others) depend on seed, the run and the
// operation alone. VMs with one seed draw the same in their first runs, and so on,
// on every device. Without it each VM has a seed of its own on a GPU, and where the
// CPU can touch the memory Gorgonia draws.
func WithSeed(seed uint64) Option {
	return func(c *config) { c.seed = &seed }
}

// draws is what a VM's random numbers depend on.
type draws struct {
	seed    uint64
	ours    bool           // the engine draws, not gorgonia
	streams map[int]uint64 // of the operations that draw, by slot
	run     held           // the number of the run (nn.Seed.Draw), until Close; none before the first run
}

// newDraws gives operations their streams: room for 2⁴⁰ runs each, in the
// program's order.
func newDraws(p *program.Program, e *cupool.Engine, c *config) draws {
	d := draws{seed: rand.Uint64(), ours: !e.AllocAccessible() || c.seed != nil, streams: make(map[int]uint64)}
	if c.seed != nil {
		d.seed = *c.seed
	}
	for i := range p.Instrs {
		if in := &p.Instrs[i]; in.Name == dropoutName || in.Name == randomName {
			d.streams[in.Out] = uint64(len(d.streams)) << 40
		}
	}
	return d
}

const (
	dropoutName = "*gorgonia.dropoutOp"
	randomName  = "gorgonia.randomOp"
)

// prepareDraws makes the number of the run, which outlasts the run. A recording
// would take it from its own memory, but the first run is none.
func (m *VM) prepareDraws() error {
	if d := &m.draws; !d.ours || len(d.streams) == 0 || d.run.v != nil {
		return nil
	}
	t, b, err := m.mem.take(tensor.Int, tensor.Shape{1})
	if err != nil {
		return err
	}
	h := m.mem.own(t, b)
	if err := m.e.Zero(t); err != nil {
		m.mem.drop(&h)
		return err
	}
	m.draws.run = h
	return nil
}

// begin is walk for the first instructions of a run.
func (m *VM) begin(instrs []program.Instr) error {
	if run, ok := m.draws.run.v.(*tensor.Dense); ok {
		if err := nn.NextDraw(m.e, run); err != nil {
			return err
		}
	}
	return m.walk(instrs)
}

// seedOf returns the seed of the operation in a slot; false: none draws there, or
// gorgonia does.
func (m *VM) seedOf(slot int) (nn.Seed, bool) {
	stream, ok := m.draws.streams[slot]
	if !ok || !m.draws.ours {
		return nn.Seed{}, false
	}
	return nn.Seed{Seed: m.draws.seed, Stream: stream, Draw: m.draws.run.v.(*tensor.Dense)}, true
}

// random makes random numbers.
func random(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	s, ok := m.seedOf(in.Out)
	if !ok || in.Dtype != tensor.Float32 && in.Dtype != tensor.Float64 {
		return foreign(m, in, args)
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	a, b := program.Field(in.Op, "a").Float(), program.Field(in.Op, "b").Float()
	switch which := program.Field(in.Op, "which").Uint(); which {
	case uniform:
		return dst, nn.Uniform(m.e, dst, a, b, s)
	case gaussian:
		return dst, nn.Normal(m.e, dst, a, b, s)
	case binomial:
		return dst, nn.Binomial(m.e, dst, int(a), b, s)
	default:
		return nil, fmt.Errorf("random numbers of kind %d: %w", which, ErrOperand)
	}
}

// The distributions of gorgonia's random nodes.
const (
	uniform = iota
	gaussian
	binomial
)

// dropout drops elements, or passes them on where it does not train.
func dropout(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	drop := program.Field(in.Op, "probability").Float()
	switch {
	case !ok:
		return foreign(m, in, args)
	case !drops(in):
		return d, nil
	}
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if s, ok := m.seedOf(in.Out); ok {
		return dst, nn.Dropout(m.e, d, dst, drop, s)
	}
	m.fellBack(in)
	return dst, m.dropout(in, dst, d, drop)
}

// drops reports whether a dropout, or its gradient, drops anything.
func drops(in *program.Instr) bool {
	return program.Field(in.Op, "probability").Float() != 0 && program.Field(in.Op, "isTraining").Bool()
}

// dropoutBack is the gradient of a dropout. Gorgonia divides it by the
// probability to drop, in evaluation as well, and it is 0 where that is 0. So does
// this, but that gorgonia takes elements that are 0 for dropped ones.
func dropoutBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	s, ok := m.seedOf(in.In[1]) // of the dropout, whose result is the second operand
	if !ok {
		return foreign(m, in, args)
	}
	dy, err := dense(args[2])
	if err != nil {
		return nil, err
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	drop := program.Field(in.Op, "probability").Float()
	switch {
	case drop == 0:
		return dx, m.e.Zero(dx)
	case !drops(in):
		return dx, nn.ScaledDropoutBack(m.e, dy, dx, 0, 1/drop, s)
	}
	return dx, nn.ScaledDropoutBack(m.e, dy, dx, drop, 1/drop, s)
}

// dropout computes gorgonia's dropout, with its random numbers, into a
// destination. Gorgonia's own way to give it a destination fails.
func (m *VM) dropout(in *program.Instr, dst, d *tensor.Dense, drop float64) error {
	if _, err := m.e.Accessible(d); err != nil {
		return err
	}
	random := *(*func() float64)(unsafe.Pointer(reflect.ValueOf(in.Op).Elem().FieldByName("rndGen").UnsafeAddr()))
	switch x := d.Data().(type) {
	case []float32:
		dropTo(dst.Data().([]float32), x, float32(1-drop), random)
	case []float64:
		dropTo(dst.Data().([]float64), x, 1-drop, random)
	default:
		return ErrOperand
	}
	return nil
}

// dropTo keeps elements with a probability.
func dropTo[T float32 | float64](dst, src []T, keep T, random func() float64) {
	for i, x := range src {
		dst[i] = 0
		if T(random()) < keep {
			dst[i] = x / keep
		}
	}
}
