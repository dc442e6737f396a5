package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/gorgoniavm"
)

// A machine runs the graph of a network and moves its weights.
type machine struct {
	n       *network
	vm      gorgonia.VM
	solver  gorgonia.Solver
	setRate func(rate float64)
	average func(gradients []tensor.Tensor) error // over all ranks; nil: there is one
}

// momentum is what examples/mlp has.
const momentum = 0.9

// newMachine makes a machine over the pool.
func newMachine(eng *cupool.Engine, n *network, o *options) (m *machine, err error) {
	// The weights move into the pool, for good.
	if err := gorgoniavm.ToPool(eng, n.weights...); err != nil {
		return nil, err
	}
	opts := []gorgoniavm.Option{gorgoniavm.Gradients(n.weights...)}
	if o.Graph {
		opts = append(opts, gorgoniavm.Replay())
	}
	vm, err := gorgoniavm.New(n.g, eng, opts...)
	if err != nil {
		return nil, err
	}
	method := map[string]gorgoniavm.Method{
		"sgd":     gorgoniavm.Momentum{Momentum: momentum},
		"adam":    gorgoniavm.Adam{},
		"rmsprop": gorgoniavm.RMSProp{},
	}[o.Optimizer]
	solver, err := gorgoniavm.NewSolver(eng, method, gorgoniavm.KeepGradients()) // the VM makes new ones
	if err != nil {
		return nil, errors.Join(err, vm.Close())
	}
	return &machine{n, vm, solver, func(rate float64) { _ = solver.SetLearnRate(rate) }, nil}, nil
}

// newTapeMachine makes Gorgonia's machine, in Go's memory.
func newTapeMachine(n *network, o *options) *machine {
	solver := map[string]gorgonia.Solver{
		"sgd":     gorgonia.NewMomentum(gorgonia.WithMomentum(momentum)),
		"adam":    gorgonia.NewAdamSolver(),
		"rmsprop": gorgonia.NewRMSPropSolver(),
	}[o.Optimizer]
	vm := gorgonia.NewTapeMachine(n.g, gorgonia.BindDualValues(n.weights...))
	return &machine{n, vm, solver, func(rate float64) { gorgonia.WithLearnRate(rate)(solver) }, nil}
}

// inGo has the values of a tape machine's inputs, which lie in the pool, name
// Go's engine: results are where the engine of an operand puts them.
func inGo(inputs ...*node) {
	for _, n := range inputs {
		tensor.WithEngine(tensor.StdEng{})(n.Value().(*tensor.Dense))
	}
}

// step runs the graph, forward and backward, moves the weights, and returns the
// loss.
func (m *machine) step(rate float64) (loss float64, err error) {
	defer m.vm.Reset()
	if err := m.vm.RunAll(); err != nil {
		return 0, err
	}
	if m.average != nil {
		var gradients []tensor.Tensor
		for _, w := range m.n.weights {
			g, err := w.Grad()
			if err != nil {
				return 0, err
			}
			gradients = append(gradients, g.(tensor.Tensor))
		}
		if err := m.average(gradients); err != nil {
			return 0, err
		}
	}
	value := m.n.loss.Value().Data().(float32)
	m.setRate(rate)
	return float64(value), m.solver.Step(gorgonia.NodesToValueGrads(m.n.weights))
}

// close gives back what the machine made, not the weights.
func (m *machine) close() error {
	if m == nil {
		return nil
	}
	err := m.vm.Close()
	if s, ok := m.solver.(io.Closer); ok {
		err = errors.Join(err, s.Close())
	}
	return err
}

// A trainer trains a network, and with -compare a twin of it.
type trainer struct {
	o           *options
	pool        *cupool.Pool
	eng         *cupool.Engine
	train, test samples
	comm        dist.Comm // the way to the other ranks; nil: there are none

	machine *machine
	feed    *feed
	tested  *network // has the weights of the one that is trained
	testX   *tensor.Dense
	twin    *machine // nil: none

	rng    *rand.Rand // of the order of the samples
	steps  int        // of an epoch
	done   int        // steps so far
	epochs []epoch
}

// An epoch is what came of one pass over the training set.
type epoch struct {
	training.Epoch
	twinStep            time.Duration
	firstLoss, lastLoss float64
	twinLoss            float64 // the last one
}

// run trains, and gives everything back.
func (t *trainer) run(ctx context.Context, out io.Writer) (err error) {
	scope := t.eng.Scope() // of all that lasts as long as the training
	defer func() {
		t.o.Unwritten = t.o.Observe.Write(t.pool)
		err = errors.Join(err, t.machine.close(), t.twin.close(), scope.Close())
	}()
	if err := t.build(); err != nil {
		return err
	}
	scope.Leave()
	fmt.Fprintf(out, "%s: %d training and %d test samples, %s, %s, %d epochs of %d steps\n",
		t.pool.Driver().Name(), t.train.n, t.test.n, t.o.net, t.o.Optimizer, t.o.Epochs, t.steps)
	order := training.Shuffled(t.rng, t.train.n)
	for i := range t.o.Epochs {
		if err := t.feed.shuffle(<-order); err != nil {
			return err
		}
		order = training.Shuffled(t.rng, t.train.n)
		e, err := t.epoch(ctx)
		if err != nil {
			return cmp.Or(t.interrupted(ctx), err) // whatever else that ended
		}
		t.epochs = append(t.epochs, e)
		e.Print(out, i, t.o.Epochs)
	}
	return nil
}

// build makes the networks and machines.
func (t *trainer) build() error {
	t.steps, t.rng = t.train.n/t.o.Batch, t.o.Random(training.ForOrder)
	t.o.Batch /= t.o.ranks() // from here on it is this rank's part
	n, err := newNetwork(t.o, t.o.Random(training.ForWeights), nil)
	if err != nil {
		return err
	}
	if t.machine, err = newMachine(t.eng, n, t.o); err != nil {
		return err
	}
	if t.comm != nil {
		t.machine.average = t.average
	}
	if t.feed, err = newFeed(t.eng, t.train, t.o.Batch); err != nil {
		return err
	}
	if t.tested, err = newNetwork(t.o, nil, n); err != nil {
		return err
	}
	if t.testX, err = t.eng.Empty(tensor.Float32, t.tested.x.Shape().Clone()...); err != nil {
		return err
	}
	if err := gorgonia.Let(t.tested.x, t.testX); err != nil || !t.o.compare {
		return err
	}
	twin, err := newNetwork(t.o, t.o.Random(training.ForWeights), nil)
	if err == nil {
		t.twin = newTapeMachine(twin, t.o)
	}
	return err
}

// average has the stream make gradients the means over all ranks.
func (t *trainer) average(gradients []tensor.Tensor) error {
	return t.comm.Group(func() error {
		for _, g := range gradients {
			m, err := dist.OfTensor(g)
			if err != nil {
				return err
			}
			if err := t.comm.AllReduce(m, m, dist.Avg, t.eng.Stream()); err != nil {
				return err
			}
		}
		return nil
	})
}

// mean is that of a number over all ranks. It waits for them.
func (t *trainer) mean(value float64) (float64, error) {
	if t.comm == nil {
		return value, nil
	}
	v, err := t.eng.FromHost(tensor.New(tensor.WithBacking([]float64{value})))
	if err != nil {
		return 0, err
	}
	defer func() { _ = t.eng.FreeTensor(v) }()
	if err := t.average([]tensor.Tensor{v}); err != nil {
		return 0, err
	}
	means, err := t.eng.ToHost(v)
	if err := errors.Join(err, t.comm.Err()); err != nil {
		return 0, err
	}
	return means.Float64s()[0], nil
}

// epoch trains on the samples in their order, all but the last few that fill no
// batch, and then measures the accuracy.
func (t *trainer) epoch(ctx context.Context) (e epoch, err error) {
	before := t.pool.Stats().DriverAllocs
	nets := []*network{t.machine.n}
	if t.twin != nil {
		nets = append(nets, t.twin.n)
	}
	var ours, twins time.Duration
	for i := range t.steps {
		if err := t.interrupted(ctx); err != nil {
			return e, err
		}
		start := time.Now()
		if err := t.feed.load(i*t.o.ranks()+t.o.launch.Rank, nets...); err != nil {
			return e, err
		}
		loading := time.Since(start)
		rate := t.o.LR * (1 - float64(t.done)/float64(t.steps*t.o.Epochs))
		if e.lastLoss, err = t.machine.step(rate); err != nil {
			return e, err
		}
		t.done++
		ours += time.Since(start)
		if i == 0 {
			e.firstLoss = e.lastLoss
		}
		e.Loss += e.lastLoss / float64(t.steps)
		if t.twin != nil {
			start = time.Now()
			inGo(t.twin.n.x, t.twin.n.y)
			if e.twinLoss, err = t.twin.step(rate); err != nil {
				return e, err
			}
			twins += loading + time.Since(start)
		}
	}
	start := time.Now()
	if err := t.eng.Sync(); err != nil { // with the last weights
		return e, err
	}
	ours += time.Since(start)
	if e.Loss, err = t.mean(e.Loss); err != nil {
		return e, err
	}
	e.Step, e.twinStep = ours/time.Duration(t.steps), twins/time.Duration(t.steps)
	e.Accuracy, err = t.accuracy()
	e.DriverAllocs = t.pool.Stats().DriverAllocs - before
	return e, err
}

// interrupted says where the training was when ctx ended, if it did.
func (t *trainer) interrupted(ctx context.Context) error {
	return training.Interrupted(ctx, t.done/t.steps, t.done%t.steps, t.steps)
}

// accuracy is the part of the test samples whose rows the network recognizes.
func (t *trainer) accuracy() (accuracy float64, err error) {
	vm, err := gorgoniavm.New(t.tested.g, t.eng, gorgoniavm.EvalMode())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	if err := t.machine.vm.(*gorgoniavm.VM).SyncStats(); err != nil { // of batch normalizations
		return 0, err
	}
	if err := t.tested.learned(t.machine.n); err != nil {
		return 0, err
	}
	right, rows := 0, 0
	order := training.NaturalOrder(t.test.n)
	for from := 0; from < t.test.n; from += t.o.Batch {
		x, y := t.test.batch(order[from:min(from+t.o.Batch, t.test.n)], t.o.Batch)
		if err := t.eng.Copy(t.testX, tensor.New(tensor.WithBacking(x), tensor.WithShape(t.testX.Shape()...))); err != nil {
			return 0, err
		}
		if err := vm.RunAll(); err != nil {
			return 0, err
		}
		out, err := t.eng.ToHost(t.tested.out.Value().(tensor.Tensor))
		if err != nil {
			return 0, err
		}
		vm.Reset()
		width := out.Shape()[1]
		for i := 0; i < len(y); i += width {
			wanted := y[i : i+width]
			class := largest(wanted)
			if wanted[class] == 0 {
				continue // behind the last sample
			}
			rows++
			if largest(out.Float32s()[i:i+width]) == class {
				right++
			}
		}
	}
	return float64(right) / float64(rows), nil
}

// largest returns where the largest value is.
func largest(values []float32) (at int) {
	for i, v := range values {
		if v > values[at] {
			at = i
		}
	}
	return at
}

// report sums up a training whose tensors have all been freed.
func (t *trainer) report() report {
	var epochs []training.Epoch
	var twins []training.Epoch
	for _, e := range t.epochs {
		epochs = append(epochs, e.Epoch)
		twins = append(twins, training.Epoch{Step: e.twinStep})
	}
	r := report{Report: training.NewReport(epochs, t.steps, t.pool, t.eng), Net: t.o.net}
	if n := len(t.epochs); n > 0 {
		last := t.epochs[n-1]
		r.LossFirst, r.LossLast, r.TapeLossLast = training.Number(t.epochs[0].firstLoss), training.Number(last.lastLoss), training.Number(last.twinLoss)
		r.TapeStepMicrosMedian = training.MedianStep(twins)
	}
	if t.machine != nil {
		vm := t.machine.vm.(*gorgoniavm.VM)
		r.ForeignOps = vm.Fallbacks()
		replays := vm.Replays()
		r.GraphSteps = replays.Launches
		if replays.Err != nil {
			r.GraphError = replays.Err.Error()
		}
	}
	return r
}
