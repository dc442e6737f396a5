package gorgoniavm_test

import (
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// TestRandomMachines runs random graphs on Gorgonia's tape machine, on VMs on the host
// and on a GPU, and recorded, several times with other inputs, and compares all with a
// model: slices of float64. Where the tape machine errs, it does not count.
func TestRandomMachines(t *testing.T) {
	if os.Getenv(isTapeServer) != "" {
		serveTapes()
	}
	t.Cleanup(tapes.stop)
	names := []string{"near"}
	if gputest.Expected() {
		names = append(names, "cuda", "cuda, recorded")
	}
	var machines []*machine
	for _, name := range names {
		d := devices[name]
		e, m := d.open(t)
		machines = append(machines, &machine{name, d, e, m})
	}
	testkit.Programs(t, 32, 80, func(c *testkit.Choices) (string, error) { return runMachines(c, machines) })
}

// A machine is where VMs run.
type machine struct {
	name string
	device
	e *cupool.Engine
	m *meter
}

// A plan is what a program's bytes make of it besides its graph: it is the same
// for all machines.
type plan struct {
	*builder
	cost      *term
	learned   []*term // whose gradients are wanted
	grads     G.Nodes
	bind      bool
	read      []*term
	keep      []*term
	trace     bool
	runs      int
	how       [][]int             // for each run and input, how its value changes
	solve     int                 // which solver moves the learned inputs between runs; 0: none
	weights   map[*term][]float64 // the values of learned inputs in a run, where a solver moved them
	failed    error
	gradients bool
	seeded    bool // of random numbers: all machines draw the same
	syncs     bool // statistics are looked at after each run
	logs      bool
}

// outcome is what a run came to: the values of terms by name, and an error.
type outcome struct {
	values  map[string][]float64
	weights map[string][]float64 // learned inputs, where a solver moved them
	stats   [][2][]float64       // the running means and variances of batch norms, if they were looked at
	err     error
}

// tapes is a process that runs programs on Gorgonia's tape machine, as that computes on a
// goroutine of its own, where a panic of tensor ends the process.
type tapeServer struct {
	cmd *exec.Cmd
	in  *gob.Encoder
	out *gob.Decoder
}

var tapes tapeServer

type tapeRequest struct {
	Program []byte
	Near    float64
}

type tapeReply struct {
	Values []map[string][]float64
	Err    string
}

// isTapeServer is the variable by which the test's process is the tape server.
const isTapeServer = "CUPOOL_TEST_TAPES"

func (s *tapeServer) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.cmd = exec.Command(self, "-test.run=^TestRandomMachines$", "-test.timeout=0")
	s.cmd.Env = append(os.Environ(), isTapeServer+"=1")
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	s.cmd.ExtraFiles = []*os.File{w}
	s.in, s.out = gob.NewEncoder(in), gob.NewDecoder(r)
	err = s.cmd.Start()
	w.Close()
	return err
}

func (s *tapeServer) stop() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// run returns what a program comes to.
func (s *tapeServer) run(c testkit.Choices, near float64) (all []outcome) {
	if s.cmd == nil {
		if err := s.start(); err != nil {
			panic(err)
		}
	}
	var reply tapeReply
	err := s.in.Encode(tapeRequest{c.Rest(), near})
	if err == nil {
		err = s.out.Decode(&reply)
	}
	if err != nil {
		s.stop()
		return []outcome{{err: fmt.Errorf("the tape machine panics: %w", err)}}
	}
	for _, v := range reply.Values {
		all = append(all, outcome{values: v})
	}
	if reply.Err != "" {
		all = append(all, outcome{err: errors.New(reply.Err)})
	}
	return all
}

// serveTapes is the tape server's main program.
func serveTapes() {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.NewFile(3, "replies"))
	for {
		var request tapeRequest
		if in.Decode(&request) != nil {
			os.Exit(0)
		}
		var reply tapeReply
		for _, o := range tape(testkit.ChoicesOf(request.Program), request.Near) {
			if o.err != nil {
				reply.Err = o.err.Error()
				break
			}
			reply.Values = append(reply.Values, o.values)
		}
		if out.Encode(reply) != nil {
			os.Exit(1)
		}
	}
}

// newPlan returns a program's plan, without gradients where Gorgonia has none.
func newPlan(c testkit.Choices) *plan {
	again := c
	p := &plan{builder: newBuilder(&c), gradients: true}
	p.failed = testkit.Caught(func() error { p.build(); return nil })
	if p.failed == nil && p.over && len(p.learned) > 0 {
		p = &plan{builder: newBuilder(&again)}
		p.failed = testkit.Caught(func() error { p.build(); return nil })
	}
	return p
}

// build makes the graph.
func (p *plan) build() {
	p.runs = 1 + p.N(3)
	p.bind, p.trace = p.N(2) == 0, p.Chance(4)
	p.gradients = !p.Chance(4) && p.gradients
	how := p.N(256)
	p.seeded, p.syncs, p.logs = how&1 == 0, how&2 == 0, how&28 == 0
	for range 1 + p.N(3) {
		p.input(p.shape())
	}
	hows, wanted, reads := p.N(256), p.N(256), p.N(256)
	for !p.Done() && !p.over {
		p.step()
	}
	if p.over {
		return
	}
	last := slices.DeleteFunc(slices.Clone(p.terms), func(t *term) bool { return t.bools })
	for _, t := range last[max(len(last)-1-wanted%2, 0):] {
		p.addCost(t)
	}
	p.cost = p.total
	if p.over {
		return
	}
	if p.gradients && !p.dependsOn(noGradient) {
		for i, t := range p.inputs {
			if t.id < len(p.cost.from) && p.cost.from[t.id] && (wanted>>(1+i))&1 == 0 && len(t.shape) > 0 {
				p.learned = append(p.learned, t)
			}
		}
	}
	for i, t := range p.terms {
		if t.n.Op() == nil {
			continue
		}
		switch (reads + i*7) % 6 {
		case 0:
			p.read = append(p.read, t)
		case 1:
			p.keep = append(p.keep, t)
			continue
		}
		if slices.Contains(p.drawn, t) {
			p.keep = append(p.keep, t)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(hows), 0))
	if p.bind && len(p.learned) > 0 && !p.wild && rng.IntN(2) == 0 {
		p.solve = 1 + rng.IntN(len(methods))
	}
	for r := range p.runs {
		var how []int
		for _, t := range p.inputs {
			how = append(how, rng.IntN(8))
			if p.solve > 0 && slices.Contains(p.learned, t) { // a solver takes tensors without gaps, and moves them
				how[len(how)-1] %= 3
				if r > 0 {
					how[len(how)-1] = 0
				}
			}
		}
		p.how = append(p.how, how)
	}
	if len(p.learned) > 0 {
		var ws G.Nodes
		for _, t := range p.learned {
			ws = append(ws, t.n)
		}
		if err := testkit.Caught(func() (err error) { p.grads, err = G.Grad(p.cost.n, ws...); return err }); err != nil { // it panics, too
			p.say("Grad: %v", err)
			p.over = true
		}
	}
}

// dependsOn reports whether the cost depends on a term with a tag.
func (p *plan) dependsOn(tag string) bool {
	return slices.ContainsFunc(p.terms, func(t *term) bool {
		return t.id < len(p.cost.from) && p.cost.from[t.id] && slices.Contains(t.tags, tag)
	})
}

// draws reports whether no two machines compute the same, unless they have one seed.
func (p *plan) draws() bool {
	return slices.ContainsFunc(p.drawn, func(t *term) bool { return !p.eval || slices.Contains(t.tags, "random") })
}

func (p *plan) ws() (ws G.Nodes) {
	for _, t := range p.learned {
		ws = append(ws, t.n)
	}
	return ws
}

// describe says what is done with the graph.
func (p *plan) describe() string {
	var s strings.Builder
	s.WriteString(p.text.String())
	names := func(ts []*term) (r []string) {
		for _, t := range ts {
			r = append(r, t.name)
		}
		return r
	}
	if p.cost != nil {
		fmt.Fprintf(&s, "cost %s, gradients by %v (bound %v), read %v, keep %v (all %v), runs %d, solver %d, inputs change %v\n",
			p.cost.name, names(p.learned), p.bind, names(p.read), names(p.keep), p.trace, p.runs, p.solve, p.how)
	}
	return s.String()
}

// changes gives the inputs the values of a run. near is how far they are moved.
func (p *plan) changes(r int, near float64, give func(i int, t *term, how int, d *tensor.Dense) error) error {
	for i, t := range p.inputs {
		d := floatsOf(p.dt, p.inputAt(i, r, near), t.shape...)
		if len(t.shape) == 0 {
			d = tensor.New(tensor.FromScalar(d.Get(0)))
		}
		if err := give(i, t, p.how[r][i], d); err != nil {
			return err
		}
	}
	return nil
}

// inputAt returns the numbers of an input in a run.
func (p *plan) inputAt(i, r int, near float64) []float64 {
	if w, ok := p.weights[p.inputs[i]]; ok {
		return slices.Clone(w)
	}
	at := 0
	for k := 1; k <= r; k++ {
		if p.how[k][i] > 0 {
			at = k
		}
	}
	values := p.numbers(p.inputs[i], at)
	if near > 0 {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		for k := range values {
			values[k] *= 1 + near*(rng.Float64()-0.5)
		}
	}
	return values
}

// start gives inputs their first values, and reads.
func (p *plan) start(near float64, give func(i int, t *term, how int, d *tensor.Dense) error) (reads map[string]*G.Value, err error) {
	err = p.changes(0, near, give)
	reads = make(map[string]*G.Value)
	for _, t := range p.read {
		v := new(G.Value)
		G.Read(t.n, v)
		reads[t.name] = v
	}
	return reads, err
}

// setStats gives batch norms the statistics that they evaluate with.
func (p *plan) setStats() error {
	for _, n := range p.norms {
		if !p.eval {
			continue
		}
		if err := n.op.SetStats(floatsOf(p.dt, n.mean, n.channels), floatsOf(p.dt, n.variance, n.channels)); err != nil {
			return err
		}
	}
	return nil
}

// stats returns the statistics that batch norms have.
func (p *plan) stats() (all [][2][]float64) {
	for _, n := range p.norms {
		mean, variance := n.op.Stats()
		all = append(all, [2][]float64{elementsOf(mean), elementsOf(variance)})
	}
	return all
}

// learns compares statistics after each run with the model.
func (p *plan) learns(got []outcome, models [][][][]float64) error {
	eps := 1e-9
	if p.dt == tensor.Float32 {
		eps = 1e-3
	}
	for k, n := range p.norms {
		mean, variance := make([]float64, n.channels), slices.Repeat([]float64{1}, n.channels)
		if p.eval {
			mean, variance = n.mean, n.variance
		}
		for r, o := range got {
			most := 1.0
			for _, x := range models[r][0][n.x.id] {
				most = max(most, math.Abs(x))
			}
			if o.err != nil || !(most < 1e6) || n.each < 2 { // the variance of one element is none
				break
			}
			if !p.eval {
				m, v := n.moments(models[r][0][n.x.id])
				for c := range m {
					mean[c] += normMomentum * (m[c] - mean[c])
					variance[c] += normMomentum * (v[c]*float64(n.each)/float64(n.each-1) - variance[c])
				}
			}
			if len(o.stats) > k && !(p.close(o.stats[k][0], mean, eps*most) && p.close(o.stats[k][1], variance, eps*most*most)) {
				return fmt.Errorf("the statistics of %s after run %d are %v, want %v and %v", n.x.name, r, o.stats[k], mean, variance)
			}
		}
	}
	return nil
}

func let(n *G.Node, d *tensor.Dense) error {
	if n.IsScalar() && d.Dims() == 0 {
		return G.Let(n, d.Get(0))
	}
	return G.Let(n, d)
}

// tape runs a program on Gorgonia's tape machine.
func tape(c testkit.Choices, near float64) (all []outcome) {
	p := newPlan(c)
	var vm G.VM
	reads, err := p.start(near, func(_ int, t *term, _ int, d *tensor.Dense) error { return let(t.n, d) })
	if err != nil {
		return []outcome{{err: err}}
	}
	err = testkit.Caught(func() error {
		var opts []G.VMOpt
		if p.eval {
			opts = append(opts, G.EvalMode())
		}
		if p.bind && len(p.learned) > 0 {
			vm = G.NewTapeMachine(p.g, append(opts, G.BindDualValues(p.ws()...))...)
		} else {
			for i, n := range p.grads {
				v := new(G.Value)
				G.Read(n, v)
				reads["grad "+p.learned[i].name] = v
			}
			vm = G.NewTapeMachine(p.g, opts...)
		}
		return p.setStats()
	})
	if err != nil {
		return []outcome{{err: err}}
	}
	for r := range p.runs {
		o := outcome{values: make(map[string][]float64)}
		o.err = testkit.Caught(func() error {
			if r > 0 {
				if err := p.changes(r, near, func(_ int, t *term, _ int, d *tensor.Dense) error { return let(t.n, d) }); err != nil {
					return err
				}
				vm.Reset()
			}
			if err := vm.RunAll(); err != nil {
				return err
			}
			for name, v := range reads {
				o.values[name] = slices.Clone(elementsOf(*v))
			}
			if p.bind {
				for _, t := range p.learned {
					g, err := t.n.Grad()
					if err != nil {
						return err
					}
					o.values["grad "+t.name] = slices.Clone(elementsOf(g))
				}
			}
			return nil
		})
		all = append(all, o)
		if o.err != nil {
			break
		}
	}
	return all
}

// elementsOf returns the elements of a value in host memory, by their coordinates.
func elementsOf(v G.Value) []float64 {
	d, ok := v.(*tensor.Dense)
	if !ok {
		return []float64{numberOf(v.Data())}
	}
	shape := d.Shape()
	n := shape.TotalSize()
	if n == 1 {
		return []float64{numberOf(d.Get(0))}
	}
	r := make([]float64, n)
	at := make([]int, len(shape))
	for i := range r {
		x, err := d.At(at...)
		if err != nil {
			panic(err)
		}
		r[i] = numberOf(x)
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
	return r
}

func numberOf(x any) float64 {
	switch x := x.(type) {
	case float32:
		return float64(x)
	case float64:
		return x
	case int:
		return float64(x)
	case bool:
		return truth(x)
	case []float64:
		return x[0]
	case []float32:
		return float64(x[0])
	}
	panic(fmt.Sprintf("a number of type %T", x))
}

// run runs a program on a VM.
func (m *machine) run(c testkit.Choices) (all []outcome, err error) {
	p := newPlan(c)
	live := m.m.live
	var pooled []tensor.Tensor
	give := func(_ int, t *term, how int, d *tensor.Dense) error {
		if len(t.shape) == 0 {
			return let(t.n, d)
		}
		d, base, err := m.laidOut(d, how)
		if base != nil {
			pooled = append(pooled, base)
		}
		if err != nil {
			return err
		}
		return G.Let(t.n, d)
	}
	reads, err := p.start(0, give)
	if err != nil {
		return nil, err
	}
	var opts []gorgoniavm.Option
	if len(p.learned) > 0 {
		if p.bind {
			opts = append(opts, gorgoniavm.BindDualValues(p.ws()...))
		} else {
			opts = append(opts, gorgoniavm.Gradients(p.ws()...))
		}
	}
	if p.trace {
		opts = append(opts, gorgoniavm.TraceValues())
	} else if len(p.keep) > 0 {
		var ns G.Nodes
		for _, t := range p.keep {
			ns = append(ns, t.n)
		}
		opts = append(opts, gorgoniavm.Keep(ns...))
	}
	if p.eval {
		opts = append(opts, gorgoniavm.EvalMode())
	}
	if p.seeded {
		opts = append(opts, gorgoniavm.WithSeed(7))
	}
	if p.logs {
		opts = append(opts, gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)))
	}
	vm, err := gorgoniavm.New(p.g, m.e, slices.Concat(m.options, opts)...)
	if err != nil {
		return nil, fmt.Errorf("New: %w", err)
	}
	if err := p.setStats(); err != nil {
		return nil, err
	}
	var solver *gorgoniavm.Solver
	if p.solve > 0 {
		if solver, err = gorgoniavm.NewSolver(m.e, methods[p.solve-1]); err != nil {
			return nil, err
		}
	}
	value := func(v G.Value) []float64 {
		d, ok := v.(*tensor.Dense)
		if !ok {
			return elementsOf(v)
		}
		h, err := m.e.ToHost(d)
		if err != nil {
			panic(fmt.Errorf("ToHost: %w", err))
		}
		return elementsOf(h)
	}
	for r := range p.runs {
		o := outcome{values: make(map[string][]float64)}
		o.err = testkit.Caught(func() error {
			if r > 0 && solver != nil {
				if err := solver.Step(G.NodesToValueGrads(p.ws())); err != nil {
					return err
				}
				o.weights = make(map[string][]float64)
				for _, t := range p.learned {
					o.weights[t.name] = value(t.n.Value())
				}
			}
			if r > 0 {
				err := p.changes(r, 0, func(i int, t *term, how int, d *tensor.Dense) error {
					switch {
					case how == 0:
						return nil
					case how == 3 && len(t.shape) > 0: // the value that the node has
						if v, ok := t.n.Value().(*tensor.Dense); ok {
							return m.e.Copy(v, d)
						}
					}
					return give(i, t, how, d)
				})
				if err != nil {
					return err
				}
			}
			if err := vm.RunAll(); err != nil {
				return err
			}
			for name, v := range reads {
				o.values[name] = slices.Clone(elementsOf(*v))
			}
			if p.syncs {
				if err := vm.SyncStats(); err != nil {
					return err
				}
				o.stats = p.stats()
			}
			return p.kept(o.values, value)
		})
		all = append(all, o)
		if o.err != nil {
			break
		}
	}
	err = testkit.Caught(func() error {
		err := vm.Close()
		if solver != nil {
			err = errors.Join(err, solver.Close())
		}
		if last := &all[len(all)-1]; err == nil && last.err == nil {
			last.stats = p.stats()
			err = p.stays(*last, value)
		}
		for _, d := range pooled {
			err = errors.Join(err, m.e.FreeTensor(d))
		}
		return err
	})
	if err == nil && m.m.live != live {
		err = fmt.Errorf("%d bytes are live after Close", m.m.live-live)
	}
	return all, err
}

// laidOut returns a tensor with d's elements that lies in another way, and the tensor in the pool
// that it is a part of.
func (m *machine) laidOut(d *tensor.Dense, how int) (laid, base *tensor.Dense, err error) {
	shape := d.Shape()
	last := len(shape) - 1
	switch how {
	case 2:
		base, err = m.e.FromHost(d)
		return base, base, err
	case 4, 5: // between other columns
		if shape[last] == 1 {
			return d, nil, nil
		}
		wide := shape.Clone()
		wide[last] += 2
		all := tensor.New(tensor.Of(d.Dtype()), tensor.WithShape(wide...))
		if how == 5 {
			if base, err = m.e.FromHost(all); err != nil {
				return nil, nil, err
			}
			all = base
		}
		cut := make([]tensor.Slice, len(shape))
		cut[last] = G.S(1, wide[last]-1)
		v, err := all.Slice(cut...)
		if err != nil || !slices.Equal(v.Shape(), shape) { // tensor drops axes of one element
			return d, base, nil
		}
		return v.(*tensor.Dense), base, m.e.Copy(v, d)
	case 6: // transposed
		if last == 0 {
			return d, nil, nil
		}
		t, err := d.SafeT()
		if err != nil {
			return nil, nil, err
		}
		if base, err = m.e.FromHost(t); err != nil {
			return nil, nil, err
		}
		return base, base, base.T()
	case 7: // in column-major order
		if tensor.Shape(shape).IsVectorLike() {
			return d, nil, nil
		}
		c := tensor.New(tensor.Of(d.Dtype()), tensor.WithShape(shape...), tensor.AsFortran(nil))
		return c, nil, m.e.Copy(c, d)
	}
	return d, nil, nil
}

// methods are those of solvers.
var methods = []gorgoniavm.Method{
	gorgoniavm.SGD{LearnRate: 0.1}, gorgoniavm.Momentum{LearnRate: 0.1}, gorgoniavm.Momentum{LearnRate: 0.1, Nesterov: true},
	gorgoniavm.Adam{LearnRate: 0.1}, gorgoniavm.RMSProp{LearnRate: 0.1, Rho: 0.9}, gorgoniavm.AdamW{LearnRate: 0.1},
}

// A mover is the model of a solver, for one weight.
type mover struct{ m, v []float64 }

// move returns what step k makes of a weight.
func (s *mover) move(method gorgoniavm.Method, w, g []float64, k int) []float64 {
	if s.m == nil {
		s.m, s.v = make([]float64, len(w)), make([]float64, len(w))
	}
	r := slices.Clone(w)
	for i, g := range g {
		switch method := method.(type) {
		case gorgoniavm.SGD:
			r[i] -= 0.1 * g
		case gorgoniavm.Momentum:
			s.m[i] = 0.9*s.m[i] + g
			by := s.m[i]
			if method.Nesterov {
				by = g + 0.9*s.m[i]
			}
			r[i] -= 0.1 * by
		case gorgoniavm.RMSProp:
			s.v[i] = 0.9*s.v[i] + 0.1*g*g
			r[i] -= 0.1 * g / math.Sqrt(s.v[i]+1e-8)
		default:
			s.m[i], s.v[i] = 0.9*s.m[i]+0.1*g, 0.999*s.v[i]+0.001*g*g
			by := s.m[i] / (1 - math.Pow(0.9, float64(k))) / (math.Sqrt(s.v[i]/(1-math.Pow(0.999, float64(k)))) + 1e-8)
			if _, decays := method.(gorgoniavm.AdamW); decays {
				by += 0.01 * w[i]
			}
			r[i] -= 0.1 * by
		}
	}
	return r
}

// solved compares what a solver made of weights between runs with the model.
func (p *plan) solved(got []outcome) error {
	eps := 1e-11
	if p.dt == tensor.Float32 {
		eps = 2e-5
	}
	for i, t := range p.inputs {
		if p.solve == 0 || !slices.Contains(p.learned, t) {
			continue
		}
		var s mover
		w := p.inputAt(i, 0, 0)
		for r := 1; r < len(got) && got[r].err == nil; r++ {
			g := got[r-1].values["grad "+t.name]
			if slices.ContainsFunc(g, func(g float64) bool { return math.IsNaN(g) || math.Abs(g) > 1e15 || g != 0 && math.Abs(g) < 1e-15 }) {
				return nil // whose square is beyond the type's range
			}
			want := s.move(methods[p.solve-1], w, g, r)
			w = got[r].weights[t.name]
			for i := range want {
				if !(math.Abs(w[i]-want[i]) <= eps*(1+math.Abs(want[i])+math.Abs(g[i]))) {
					return fmt.Errorf("the solver makes %v of %s before run %d, want %v", w, t.name, r, want)
				}
			}
		}
	}
	return nil
}

// kept reads the values that are there after a run, and the gradients.
func (p *plan) kept(values map[string][]float64, read func(G.Value) []float64) error {
	terms := p.keep
	if p.trace {
		terms = p.terms
	}
	for _, t := range append([]*term{p.cost}, terms...) {
		if t.n.Value() == nil {
			return fmt.Errorf("%s has no value", t.name)
		}
		values["kept "+t.name] = read(t.n.Value())
	}
	for _, t := range p.learned {
		g, err := t.n.Grad()
		if err != nil {
			return fmt.Errorf("the gradient of %s: %w", t.name, err)
		}
		values["grad "+t.name] = read(g)
	}
	return nil
}

// stays compares what is there after Close with what the last run left.
func (p *plan) stays(last outcome, read func(G.Value) []float64) error {
	now := make(map[string][]float64)
	if err := p.kept(now, read); err != nil {
		return fmt.Errorf("after Close: %w", err)
	}
	for name, v := range now {
		if !slices.EqualFunc(v, last.values[name], same) {
			return fmt.Errorf("after Close %s is %v, and was %v", name, v, last.values[name])
		}
	}
	return nil
}

// runMachines runs a program everywhere and compares.
func runMachines(c *testkit.Choices, machines []*machine) (text string, err error) {
	p := newPlan(*c)
	text = p.describe()
	if p.failed != nil {
		return text, p.failed
	}
	if p.over {
		return text, nil // Gorgonia makes no graph of it
	}
	models := p.models()
	var errs []error
	stock := tapes.run(*c, 0)
	if p.draws() { // other numbers
		for i := range stock {
			stock[i].values = nil
		}
	}
	var first []map[*term][]float64 // what a machine has drawn in each run
	for _, m := range machines {
		var got []outcome
		failed := testkit.Caught(func() (err error) { got, err = m.run(*c); return err })
		if failed != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, failed))
			continue
		}
		if err := p.solved(got); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		models := slices.Clone(models)
		var drawn []map[*term][]float64
		for r, o := range got {
			if o.weights != nil {
				p.weights = make(map[*term][]float64)
				for _, t := range p.learned {
					p.weights[t] = o.weights[t.name]
				}
			}
			p.seen = make(map[*term][]float64)
			for _, t := range p.drawn {
				p.seen[t] = o.values["kept "+t.name]
			}
			drawn = append(drawn, p.seen)
			if o.weights != nil || p.draws() {
				models[r] = p.model(r)
			}
			err := p.compare(*c, m, r, o, stock, models)
			if err == nil && p.seeded && r < len(first) && o.err == nil {
				err = p.drawsTheSame(p.seen, first[r], models[r][0])
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, run %d: %w", m.name, r, err))
				break
			}
		}
		if first == nil {
			first = drawn
		}
		if err := p.learns(got, models); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		p.weights, p.seen = nil, nil
	}
	return text, errors.Join(errs...)
}

// drawsTheSame compares what machines of one seed draw.
func (p *plan) drawsTheSame(one, other map[*term][]float64, v [][]float64) error {
	for _, t := range p.drawn {
		for i := range one[t] {
			switch {
			case len(other[t]) <= i, math.IsNaN(one[t][i]), math.IsNaN(other[t][i]): // a Sparsemax of +Inf is on a GPU
			case slices.Contains(t.tags, "random") && math.Abs(one[t][i]-other[t][i]) > 1e-4,
				slices.Contains(t.tags, "dropout") && math.Abs(v[t.in[0].id][i]) > 1e-6 && !math.IsInf(v[t.in[0].id][i], 0) && (one[t][i] == 0) != (other[t][i] == 0):
				return fmt.Errorf("%s is drawn as %v, and by another machine as %v", t.name, one[t], other[t])
			}
		}
	}
	return nil
}

// models evaluates the model for each run: first as it is, and then with numbers that are
// off by what the type rounds, which tells how much that matters.
func (p *plan) models() (all [][][][]float64) {
	for r := range p.runs {
		all = append(all, p.model(r))
	}
	return all
}

func (p *plan) model(r int) (one [][][]float64) {
	for k := range 5 {
		one = append(one, p.evaluate(func(i int) []float64 { return p.inputAt(i, r, 0) }, k))
	}
	return one
}

// compare compares a run of a machine.
func (p *plan) compare(c testkit.Choices, m *machine, r int, o outcome, stock []outcome, models [][][][]float64) error {
	tape := outcome{err: errors.New("an earlier run failed")}
	if r < len(stock) && o.weights == nil { // which the tape machine has otherwise
		tape = stock[r]
	}
	if o.err != nil {
		if tape.err != nil {
			return nil // with a panic that is not an engine's, which goes on
		}
		return fmt.Errorf("fails: %w (tape machine: %v)", o.err, tape.err)
	}
	eps := 1e-12
	if p.dt == tensor.Float32 {
		eps = 1e-5
	}
	for _, t := range p.terms {
		for _, how := range []string{"", "kept "} {
			got, ok := o.values[how+t.name]
			if !ok {
				continue
			}
			want := models[r][0][t.id]
			if len(got) != len(want) {
				return fmt.Errorf("%s%s has %d elements, want %d", how, t.name, len(got), len(want))
			}
			for i := range want {
				bound := eps * (1 + math.Abs(want[i]))
				unsure := false
				for _, other := range models[r][1:] {
					d := math.Abs(other[t.id][i] - want[i])
					unsure = unsure || !(d < 1e-3*(1+math.Abs(want[i])))
					bound = max(bound, 100*d)
				}
				if same(got[i], want[i]) || math.Abs(got[i]-want[i]) <= bound || unsure {
					continue
				}
				if p.fault(t, models[r][0], m.exact) != "" {
					continue
				}
				return fmt.Errorf("%s%s is %v, want %v, tape machine %v (%v)", how, t.name, got, want, tape.values[t.name], tape.err)
			}
		}
	}
	for i, t := range p.learned {
		got := o.values["grad "+t.name]
		if len(got) != len(models[r][0][t.id]) {
			return fmt.Errorf("the gradient of %s has %d elements", t.name, len(got))
		}
		want, ok := tape.values["grad "+t.name]
		if tape.err == nil && ok && p.close(got, want, 100*eps) {
			continue
		}
		if p.wild || o.weights == nil && !p.draws() && p.steep(c, r, t, got, want) {
			continue
		}
		if p.eval && !m.computes && p.dependsOn("norm") {
			continue // Gorgonia has no gradient of an evaluated BatchNorm
		}
		slope, sure := p.slopes(r, p.inputs[slices.Index(p.inputs, t)], models)
		_ = i
		if p.bind && r > 0 && p.solve == 0 {
			continue // a sum of gradients; the first run was compared with the model
		}
		if !sure || p.close(got, slope, 1e-3) {
			continue
		}
		return fmt.Errorf("the gradient of %s is %v, the model's slopes are %v, tape machine %v (%v)", t.name, got, slope, want, tape.err)
	}
	return nil
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// close reports whether numbers are the same but for a part of the largest.
func (p *plan) close(a, b []float64, part float64) bool {
	if len(a) != len(b) {
		return false
	}
	most := 1.0
	for _, x := range b {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			most = max(most, math.Abs(x))
		}
	}
	for i := range a {
		if !same(a[i], b[i]) && !(math.Abs(a[i]-b[i]) <= part*most) {
			return false
		}
	}
	return true
}

// steep reports whether a gradient depends on the last bits of the inputs as much as
// two machines differ.
func (p *plan) steep(c testkit.Choices, r int, t *term, got, want []float64) bool {
	near := 1e-13
	if p.dt == tensor.Float32 {
		near = 1e-5
	}
	moved := tapes.run(c, near)
	if r >= len(moved) || moved[r].err != nil || len(want) != len(got) {
		return false
	}
	other := moved[r].values["grad "+t.name]
	for i := range got {
		if d := math.Abs(got[i] - want[i]); !(d <= 100*math.Abs(other[i]-want[i])+1e-6*(1+math.Abs(want[i]))) {
			return false
		}
	}
	return true
}

// slopes returns the slopes of the cost by an input's elements, and whether they are
// sure: the same from both sides.
func (p *plan) slopes(r int, t *term, models [][][][]float64) (slopes []float64, sure bool) {
	if p.ties(models[r][0]) || p.steps(models[r][0]) || p.roots(models[r][0]) {
		return nil, false
	}
	p.near = models[r][0]
	defer func() { p.near = nil }()
	at := slices.Index(p.inputs, t)
	cost := models[r][0][p.cost.id][0]
	const h = 1e-5
	if math.Abs(cost) > 1e7 { // whose last bits are more than h makes of small slopes
		return nil, false
	}
	for k := range models[r][0][t.id] {
		side := func(d float64) float64 {
			v := p.evaluate(func(i int) []float64 {
				x := p.inputAt(i, r, 0)
				if i == at {
					x[k] += d
				}
				return x
			}, 0)
			return (v[p.cost.id][0] - cost) / d
		}
		up, down := side(h), side(-h)
		if !(math.Abs(up-down) <= 1e-2*(1+math.Abs(up))) || math.Abs(up) > 1e6 {
			return nil, false
		}
		slopes = append(slopes, (up+down)/2)
	}
	return slopes, true
}

// steps reports whether numbers are not finite, of which there are no slopes.
func (p *plan) steps(v [][]float64) bool {
	return slices.ContainsFunc(v, func(xs []float64) bool {
		return slices.ContainsFunc(xs, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	})
}

// roots reports whether there is a square root of 0, whose slope is infinite.
func (p *plan) roots(v [][]float64) bool {
	return slices.ContainsFunc(p.terms, func(t *term) bool {
		return slices.ContainsFunc(t.tags, func(tag string) bool { return tag == "Sqrt" || tag == "Pow" || tag == "BroadcastPow" }) && slices.Contains(v[t.in[0].id], 0) || slices.Contains(t.tags, "length") && slices.Contains(v[t.id], 0)
	})
}

// ties reports whether a maximum is there twice: Gorgonia gives all of them its gradient, or the first.
func (p *plan) ties(v [][]float64) bool {
	for _, t := range p.terms {
		if in := operandsOf(t, v); slices.Contains(t.tags, "between") {
			for i, x := range in[0] {
				if x == in[1][i] {
					return true
				}
			}
		}
		if slices.Contains(t.tags, "Max") {
			s := slices.Sorted(slices.Values(v[t.in[0].id]))
			if len(slices.Compact(s)) < len(v[t.in[0].id]) {
				return true
			}
		}
	}
	return false
}
