package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/planner"
	"gorgonia.org/tensor"
)

// A trainer holds all that lasts longer than a step.
type trainer struct {
	pool  *cupool.Pool
	plan  *planner.Planner // nil: steps are not planned
	eng   *cupool.Engine
	net   *mlp
	opt   optimizer
	train source
	test  source
	loss  *tensor.Dense // of each sample of this rank's part of a batch, added up over an epoch
	peers *peers        // nil: there are no other ranks

	share share
	rng   *rand.Rand // of the order of the samples
	order []int      // that of the next epoch

	trainN, testN int // samples
	testLabels    []byte

	batch     int             // samples of all ranks
	steps     int             // of one epoch
	epochs    int             // of the training
	lr        float64         // of the first step; it falls linearly to 0
	stepTimes []time.Duration // of all steps so far
	graph     *graphSteps     // nil: steps are no CUDA graph
}

// An epoch is what came of one pass over the training set.
type epoch struct {
	loss         float64 // mean over its steps
	accuracy     float64 // on the test set, after its last step
	driverAllocs int64   // what the pool had to ask of the device
	duration     time.Duration
}

// newTrainer makes the network and the optimizer that o asks for, the same ones
// on all ranks.
func newTrainer(pool *cupool.Pool, eng *cupool.Engine, o *options, of share, train, test *mnist.Set) (t *trainer, err error) {
	// Should memory run out half way, the scope frees what is there.
	scope := eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	defer catch(&err)

	net := newMLP(eng, tensor.Float32, o.Random(training.ForWeights), o.Hidden.Layers(train.Size(), mnist.Classes)...)
	t = &trainer{
		pool:  pool,
		eng:   eng,
		net:   net,
		opt:   optimizers[o.Optimizer](net),
		train: trainSource(eng, o, of, train),
		test:  newSource(eng, test, share{0, 1}, 0, nil),
		loss:  zeros(eng, net.dt, o.Batch/of.size),
		share: of,
		rng:   o.Random(training.ForOrder),

		trainN:     train.N,
		testN:      test.N,
		testLabels: test.Labels,

		batch:  o.Batch,
		steps:  train.N / o.Batch,
		epochs: o.Epochs,
		lr:     o.LR,
	}
	if o.graph {
		t.graph = newGraphSteps(eng, t.train.(*resident), t.steps, o.graphSteps, o.graphFork)
	}
	t.order = <-training.Shuffled(t.rng, t.trainN)
	return t, scope.Keep(t.tensors()...)
}

// trainSource makes the batches to train on as o asks for.
func trainSource(eng *cupool.Engine, o *options, of share, set *mnist.Set) source {
	if o.prefetch {
		return newPrefetcher(eng, set, of, o.Shift, o.Batch, o.Random(training.ForShifts))
	}
	return newSource(eng, set, of, o.Shift, o.Random(training.ForShifts))
}

// tensors are all that live between steps.
func (t *trainer) tensors() []tensor.Tensor {
	return slices.Concat(t.net.tensors(), t.opt.tensors(), t.train.tensors(), t.test.tensors(), t.graph.tensors(), []tensor.Tensor{t.loss})
}

// free gives them, and the graph, back to the pool.
func (t *trainer) free() error {
	return errors.Join(t.graph.close(), t.peers.close(), t.eng.FreeTensor(t.tensors()...))
}

// fallbacks counts the operations that this rank's device left to the host.
func (t *trainer) fallbacks() int64 {
	return t.eng.Stats().Fallbacks + t.train.fallbacks() + t.test.fallbacks()
}

// runEpoch trains on the samples in random order, all but the last few that
// fill no batch, and then measures the accuracy. It calls progress after
// every step.
func (t *trainer) runEpoch(ctx context.Context, progress func()) (e epoch, err error) {
	start, before := time.Now(), t.pool.Stats().DriverAllocs
	t.awaitPlan(ctx)
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	defer catch(&err)

	// The losses are added up where they are computed and looked at once.
	check(t.eng.Zero(t.loss))
	t.train.shuffle(t.order)
	if t.graph != nil {
		t.graph.begin(t)
	}
	following := training.Shuffled(t.rng, t.trainN)
	if err := t.runSteps(ctx, progress); err != nil {
		return e, err
	}
	if t.order = <-following; len(t.stepTimes) < t.steps*t.epochs {
		t.train.prepare(t.order) // while the device computes what it was given
	}
	if err := t.settle(start); err != nil {
		return e, err
	}
	if err := t.measure(&e); err != nil {
		return e, err
	}
	e.driverAllocs = t.pool.Stats().DriverAllocs - before
	e.duration = time.Since(start)
	return e, nil
}

// runSteps takes the steps of an epoch.
func (t *trainer) runSteps(ctx context.Context, progress func()) (err error) {
	defer func() { err = errors.Join(err, t.train.rest()) }()
	for i := 0; i < t.steps; {
		if err := errors.Join(t.interruption(ctx), t.peers.err()); err != nil {
			return err
		}
		start := time.Now()
		n, err := t.graph.launch(t, i)
		if n == 0 {
			n, err = 1, t.planned(func() error { return t.step(i*t.batch, t.learn(t.turn(0))) })
		}
		if err != nil {
			return err
		}
		took := time.Since(start) / time.Duration(n)
		for range n {
			t.stepTimes = append(t.stepTimes, took)
			progress()
		}
		i += n
		// The very first step makes what is made when it is used first.
		if t.graph != nil && !t.graph.captured() {
			if err := t.graph.capture(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// interruption says where the training was when ctx ended, if it did.
func (t *trainer) interruption(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	n := len(t.stepTimes)
	return &training.Interruption{Epoch: n/t.steps + 1, Step: n % t.steps, Steps: t.steps, Cause: context.Cause(ctx)}
}

// settle waits for the steps of the epoch that began at start. A device that
// the CPU runs ahead of took as long as all of them for each.
func (t *trainer) settle(start time.Time) error {
	if err := t.eng.Sync(); err != nil || t.eng.AllocAccessible() {
		return err
	}
	mean := time.Since(start) / time.Duration(t.steps)
	for i := len(t.stepTimes) - t.steps; i < len(t.stepTimes); i++ {
		t.stepTimes[i] = mean
	}
	return nil
}

// awaitPlan waits for a plan that is being made since the last epoch, if steps
// are planned, so that it serves this one.
func (t *trainer) awaitPlan(ctx context.Context) {
	if t.plan != nil {
		_ = t.plan.Wait(ctx) // the next step sees that ctx is done
	}
}

// planned runs a step as an iteration, if steps are planned.
func (t *trainer) planned(step func() error) error {
	if t.plan == nil {
		return step()
	}
	if err := t.plan.BeginIteration(); err != nil {
		return err
	}
	return errors.Join(step(), t.plan.EndIteration())
}

// step learns from the batch that begins at a place in the order. Everything
// it makes goes back to the pool at its end, for the next step to find.
func (t *trainer) step(from int, learn learner) (err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	defer catch(&err)

	x, y := t.train.batch(from, from+t.batch)
	acts := t.net.forward(x)
	learn(acts, t.net.crossEntropy(acts[len(acts)-1], y, t.loss))
	return nil
}

// A learner updates the parameters, from what forward returned and the gradient
// of the loss by the logits.
type learner func(acts []tensor.Tensor, logits tensor.Tensor)

// learn returns the learner of a turn.
func (t *trainer) learn(at turn) learner {
	return func(acts []tensor.Tensor, logits tensor.Tensor) {
		t.net.backward(acts, logits, t.peers.ready)
		check(t.peers.finish())
		t.opt.step(at)
	}
}

// learnForked is learn for steps that are captured.
func (t *trainer) learnForked(at turn) learner {
	return func(acts []tensor.Tensor, logits tensor.Tensor) {
		t.net.backwardForked(acts, logits, func(layer int) error { return t.opt.stepLayer(at, layer) })
	}
}

// turn is the step that follows after so many others.
func (t *trainer) turn(others int) turn {
	n := len(t.stepTimes) + others
	return turn{number: n + 1, rate: t.lr * (1 - float64(n)/float64(t.steps*t.epochs))}
}

// measure adds the mean loss of an epoch, and the part of the test set that the
// network recognizes. Each rank looks at its part of the test set.
func (t *trainer) measure(e *epoch) error {
	const batch = 500
	loss, right := number(t.eng, must(tensor.Sum(t.loss))), 0
	t.test.shuffle(training.NaturalOrder(t.testN))
	first, last := t.share.part(0, t.testN)
	for from := first; from < last; from += batch {
		n, err := t.recognized(from, min(from+batch, last))
		if err != nil {
			return err
		}
		right += n
	}
	sums, err := t.peers.sum(loss, float64(right))
	if err != nil {
		return err
	}
	e.loss, e.accuracy = sums[0]/float64(t.steps*t.batch), sums[1]/float64(t.testN)
	return nil
}

// recognized counts the test images in [from, to) whose largest logit is
// that of their label.
func (t *trainer) recognized(from, to int) (right int, err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	defer catch(&err)

	x, _ := t.test.batch(from, to)
	acts := t.net.forward(x)
	best := must(tensor.Argmax(acts[len(acts)-1], 1))
	guesses := must(t.eng.ToHost(best)).Data().([]int)
	for i, guess := range guesses {
		if guess == int(t.testLabels[from+i]) {
			right++
		}
	}
	return right, nil
}
