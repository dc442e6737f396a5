package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/gorgoniavm"
)

// A trainer holds all that lasts longer than a step.
type trainer struct {
	pool *cupool.Pool
	eng  *cupool.Engine
	o    *options
	rng  *rand.Rand   // of the order of the samples
	next <-chan []int // that of the next epoch

	steps  int // of one epoch
	trainN int

	net     *network
	machine *machine
	data    *feed
	twin    *machine // with -compare

	testNet  *network
	testData *feed

	m measurement
}

// An epoch is what came of one pass over the training set.
type epoch struct {
	loss     float64 // mean over its steps
	accuracy float64 // on the test set, after its last step
	duration time.Duration
}

// newTrainer makes the networks and machines that o asks for.
func newTrainer(pool *cupool.Pool, eng *cupool.Engine, o *options, train, test source) (t *trainer, err error) {
	t = &trainer{pool: pool, eng: eng, o: o, rng: o.Random(training.ForOrder), steps: train.len() / o.Batch, trainN: train.len()}
	t.next = training.Shuffled(t.rng, t.trainN)
	// Should memory run out half way, the scope frees what is there.
	scope := eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	if err := t.build(train, test); err != nil {
		return nil, errors.Join(err, t.closeMachines())
	}
	return t, scope.Keep(t.tensors()...)
}

func (t *trainer) build(train, test source) (err error) {
	if t.net, err = t.network(nil); err != nil {
		return err
	}
	if t.o.vm != "stock" {
		if err := gorgoniavm.ToPool(t.eng, t.net.weights...); err != nil {
			return err
		}
	}
	if t.data, err = newFeed(t.eng, t.net, train, t.o.Batch); err != nil {
		return err
	}
	var opts []gorgoniavm.Option
	if t.o.graph {
		opts = append(opts, gorgoniavm.Replay())
	}
	if t.machine, err = newMachine(t.eng, t.net, t.o.vm, t.o.Optimizer, opts...); err != nil {
		return err
	}
	if t.o.vm == "pool" && !t.o.compare { // a twin has the same inputs
		t.data.parts()
	}
	if err := t.buildTest(test); err != nil || !t.o.compare {
		return err
	}
	return t.buildTwin()
}

// network makes a network to train, or one to test with the weights of another.
func (t *trainer) network(from *network) (*network, error) {
	return t.o.net.build(t.o, t.o.Random(training.ForWeights), from)
}

// buildTest makes the network that is tested, with the weights of the one that
// is trained.
func (t *trainer) buildTest(test source) (err error) {
	if t.testNet, err = t.network(t.net); err != nil {
		return err
	}
	t.testData, err = newFeed(t.eng, t.testNet, test, t.o.Batch)
	return err
}

// buildTwin makes a network like the trained one with weights of its own, which
// sees the same batches.
func (t *trainer) buildTwin() error {
	n, err := t.network(nil)
	if err != nil {
		return err
	}
	for to, from := range map[*gorgonia.Node]*tensor.Dense{n.x: t.data.inputs.x, n.y: t.data.inputs.y} {
		if err := gorgonia.Let(to, from.ShallowClone()); err != nil { // the machine puts its own engine in
			return err
		}
	}
	t.twin, err = newMachine(t.eng, n, "stock", t.o.Optimizer)
	return err
}

// tensors are all that live in the pool between steps, but for what the
// machines made.
func (t *trainer) tensors() (ts []tensor.Tensor) {
	for _, n := range t.net.weights {
		if d, ok := n.Value().(*tensor.Dense); ok && t.eng.Owns(d) {
			ts = append(ts, d)
		}
	}
	return append(append(ts, t.data.tensors()...), t.testData.tensors()...)
}

// close gives everything back to the pool.
func (t *trainer) close() error {
	return errors.Join(t.closeMachines(), t.eng.FreeTensor(t.tensors()...))
}

func (t *trainer) closeMachines() error {
	var errs []error
	for _, m := range []*machine{t.machine, t.twin} {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	return errors.Join(errs...)
}

// runEpoch trains on the samples in random order, all but the last few that
// fill no batch, and then measures the accuracy. It calls progress after
// every step.
func (t *trainer) runEpoch(ctx context.Context, number int, progress func()) (e epoch, err error) {
	start := time.Now()
	t.m.began = start
	if err := t.data.shuffle(<-t.next); err != nil {
		return e, err
	}
	t.next = training.Shuffled(t.rng, t.trainN)
	for i := range t.steps {
		if ctx.Err() != nil {
			return e, &training.Interruption{Epoch: number + 1, Step: i, Steps: t.steps, Cause: context.Cause(ctx)}
		}
		loss, err := t.step(i)
		if err != nil {
			return e, err
		}
		t.note(loss, i)
		e.loss += loss / float64(t.steps)
		progress()
	}
	if e.accuracy, err = t.accuracy(); err != nil {
		return e, err
	}
	t.m.accuracy = e.accuracy
	e.duration = time.Since(start)
	return e, nil
}

// step learns from the batch with a number, and so does the twin. The last step
// of an epoch is weighed, which is not to count for the time of those before.
func (t *trainer) step(i int) (loss float64, err error) {
	rate := t.o.Rate(float64(len(t.m.times)) / float64(t.steps*t.o.Epochs))
	var loading time.Duration
	learn := func() error {
		start := time.Now()
		if err := t.data.load(i); err != nil {
			return err
		}
		loading = time.Since(start)
		loss, err = t.machine.step(rate)
		t.m.times = append(t.m.times, time.Since(start))
		return err
	}
	if i == t.steps-1 {
		err = errors.Join(t.settle(i), t.weighed(learn))
	} else {
		err = learn()
	}
	if err != nil || t.twin == nil {
		return loss, err
	}
	start := time.Now()
	_, err = t.twin.step(rate)
	t.m.twinTimes = append(t.m.twinTimes, loading+time.Since(start))
	return loss, err
}

// settle waits for the first n steps of the epoch. A device that the CPU runs
// ahead of took as long as all of them for each.
func (t *trainer) settle(n int) error {
	if err := t.eng.Sync(); err != nil || t.eng.AllocAccessible() || n == 0 {
		return err
	}
	mean := time.Since(t.m.began) / time.Duration(n)
	times := t.m.times[len(t.m.times)-n:]
	for i := range times {
		times[i] = mean
	}
	return nil
}

// accuracy is the part of the test samples that the network recognizes.
func (t *trainer) accuracy() (accuracy float64, err error) {
	vm, err := newVM(t.eng, t.testNet, t.o.vm)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	if trained, ok := t.machine.vm.(*gorgoniavm.VM); ok {
		if err := trained.SyncStats(); err != nil {
			return 0, err
		}
	}
	if err := t.testNet.learned(t.net); err != nil {
		return 0, err
	}
	n := t.testData.from.len()
	if err := t.testData.shuffle(training.NaturalOrder(n)); err != nil {
		return 0, err
	}
	right, rows := 0, 0
	for i := 0; i*t.o.Batch < n; i++ {
		r, of, err := t.recognized(vm, i)
		if err != nil {
			return 0, err
		}
		right, rows = right+r, rows+of
	}
	return float64(right) / float64(rows), nil
}

// recognized counts the rows of a batch of the test samples whose largest output
// is that of their class.
func (t *trainer) recognized(vm gorgonia.VM, i int) (right, rows int, err error) {
	if err := t.testData.load(i); err != nil {
		return 0, 0, err
	}
	defer vm.Reset()
	if err := vm.RunAll(); err != nil {
		return 0, 0, err
	}
	return t.testData.recognized()
}
