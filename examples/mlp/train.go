package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/nn"
)

// A trainer trains on one rank.
type trainer struct {
	*rank
	o                 *options
	trainSet, testSet *mnist.Set
	out               io.Writer

	scope   *cupool.Scope // of all tensors that last as long as the training
	net     *network
	data    source
	test    samples
	loss    *tensor.Dense // of each sample of this rank's part of a batch, added up over an epoch
	reducer *dist.Reducer // of the gradients; nil: there are no other ranks

	rng    *rand.Rand // of the order of the samples
	steps  int        // of an epoch
	done   int        // steps so far
	epochs []training.Epoch

	graphs         []*cupool.Graph // an epoch's steps; none: they are taken one by one
	rates, numbers *tensor.Dense   // of these steps
}

// run trains, and prints a line for each epoch.
func (t *trainer) run(ctx context.Context) error {
	t.scope = t.eng.Scope()
	if err := t.build(); err != nil {
		return err
	}
	t.scope.Leave() // what is made from now on belongs to a step
	t.printTask()
	order := <-training.Shuffled(t.rng, t.trainSet.N)
	for i := range t.o.Epochs {
		next := training.Shuffled(t.rng, t.trainSet.N) // is made meanwhile
		e, err := t.epoch(ctx, order)
		if err != nil {
			if interrupted := t.interrupted(ctx); interrupted != nil {
				return interrupted // whatever else that ended
			}
			return err
		}
		t.epochs = append(t.epochs, e)
		e.Print(t.out, i, t.o.Epochs)
		order = <-next
		// The steps of the first epoch have made what operations make when they
		// are used first, which a graph cannot hold.
		if i == 0 && t.o.Graph {
			if err := t.capture(); err != nil {
				return err
			}
		}
	}
	return nil
}

// printTask prints what is trained, and on what.
func (t *trainer) printTask() {
	ranks := ""
	if t.comm != nil {
		ranks = fmt.Sprintf("%d rank(s), the first on ", t.size)
	}
	fmt.Fprintf(t.out, "%s%s: %d training and %d test images, layers %v, %s, %d epochs of %d steps\n",
		ranks, t.device.Name(), t.trainSet.N, t.testSet.N, t.widths(), t.o.Optimizer, t.o.Epochs, t.steps)
}

func (t *trainer) widths() []int { return t.o.Hidden.Layers(t.trainSet.Size(), mnist.Classes) }

// build makes the network, the same one on all ranks, and what it learns from.
func (t *trainer) build() (err error) {
	t.steps, t.rng = t.trainSet.N/t.o.Batch, t.o.Random(training.ForOrder)
	if t.net, err = newNetwork(t.eng, t.o.Random(training.ForWeights), t.o.Optimizer == "adam", t.widths()); err != nil {
		return err
	}
	if t.data, err = newSource(t.eng, t.trainSet, t.share, t.o); err != nil {
		return err
	}
	if t.test, err = uploadAll(t.eng, t.testSet); err != nil {
		return err
	}
	if t.loss, err = newZeros(t.eng, t.o.Batch/t.size); err != nil {
		return err
	}
	if t.o.Graph {
		if t.rates, err = newZeros(t.eng, t.steps); err != nil {
			return err
		}
		if t.numbers, err = newZeros(t.eng, t.steps); err != nil {
			return err
		}
	}
	if t.comm == nil {
		return nil
	}
	var grads []tensor.Tensor // in the order in which backward finishes them
	for _, l := range slices.Backward(t.net.layers) {
		grads = append(grads, l.w.Grad, l.b.Grad)
	}
	t.reducer, err = dist.NewReducer(t.comm, t.eng, grads, dist.ReducerConfig{BucketBytes: t.o.bucket, FirstBytes: t.o.bucket})
	return err
}

// close gives everything back to the pool, after the first rank has written what
// -snapshot and -profile ask for.
func (t *trainer) close() (err error) {
	if t.share.rank == 0 {
		t.o.Unwritten = t.o.Observe.Write(t.pool)
	}
	for _, g := range t.graphs {
		err = errors.Join(err, g.Close())
	}
	if t.reducer != nil {
		err = errors.Join(err, t.reducer.Close())
	}
	return errors.Join(err, t.scope.Close())
}

// epoch trains on the samples in an order, all but the last few that fill no
// batch, and then measures the accuracy.
func (t *trainer) epoch(ctx context.Context, order []int) (e training.Epoch, err error) {
	start, before := time.Now(), t.pool.Stats().DriverAllocs
	// The losses are added up where they are computed, and looked at once.
	if err := errors.Join(t.eng.Zero(t.loss), t.data.shuffle(order), t.setTurns()); err != nil {
		return e, err
	}
	for i := 0; i < t.steps; {
		if err := t.interrupted(ctx); err != nil {
			return e, err
		}
		n := 1
		if len(t.graphs) > 0 {
			n, err = min(graphSteps, t.steps-i), t.graphs[i/graphSteps].Launch()
		} else {
			err = t.step(i, t.turn(t.done))
		}
		if err != nil {
			return e, err
		}
		i += n
		t.done += n
	}
	if err := t.eng.Sync(); err != nil { // the device may be far behind
		return e, err
	}
	e.Step = time.Since(start) / time.Duration(t.steps)
	e.Loss, e.Accuracy, err = t.measure()
	e.DriverAllocs = t.pool.Stats().DriverAllocs - before
	return e, err
}

// interrupted says where the training was when ctx ended, if it did.
func (t *trainer) interrupted(ctx context.Context) error {
	return training.Interrupted(ctx, t.done/t.steps, t.done%t.steps, t.steps)
}

// turn is the step that follows after so many others. The learning rate falls to
// 0.
func (t *trainer) turn(done int) turn {
	return turn{number: done + 1, rate: t.o.LR * (1 - float64(done)/float64(t.steps*t.o.Epochs))}
}

// step learns from the batch with a number. Everything it makes goes back to the
// pool at its end, for the next step to find: nothing here waits for the device.
func (t *trainer) step(i int, at turn) (err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	batch, err := t.data.batch(i*t.o.Batch, (i+1)*t.o.Batch)
	if err != nil {
		return err
	}
	acts, err := t.net.forward(batch.x)
	if err != nil {
		return err
	}
	logits := acts[len(acts)-1]
	d, err := t.eng.Empty(tensor.Float32, logits.Shape()...)
	if err != nil {
		return err
	}
	if err := nn.CrossEntropy(t.eng, logits, batch.y, t.loss, d); err != nil {
		return err
	}
	if err := t.net.backward(acts, d, t.ready); err != nil {
		return err
	}
	if t.reducer != nil { // the stream waits for the mean of all ranks' gradients
		if err := t.reducer.Finish(); err != nil {
			return err
		}
	}
	return t.net.update(at)
}

// ready has the gradients of a layer averaged over the ranks, while the device
// computes those of the layers before.
func (t *trainer) ready(layer int) error {
	if t.reducer == nil {
		return nil
	}
	first := 2 * (len(t.net.layers) - 1 - layer)
	return errors.Join(t.reducer.Ready(first), t.reducer.Ready(first+1))
}

// graphSteps is the most steps that a graph has. Graphs of 30 are as fast, but
// more of them hold more memory.
var graphSteps = 500

// capture makes the steps of an epoch graphs. They read the samples, the learning
// rate and the number of a step where these are put for each epoch.
func (t *trainer) capture() error {
	for from := 0; from < t.steps; from += graphSteps {
		g, err := t.eng.Capture(func() error {
			for i := from; i < min(from+graphSteps, t.steps); i++ {
				rate, err := t.rates.Slice(tensor.S(i))
				if err != nil {
					return err
				}
				number, err := t.numbers.Slice(tensor.S(i))
				if err != nil {
					return err
				}
				if err := t.step(i, turn{rateAt: rate, numberAt: number}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.graphs = append(t.graphs, g)
	}
	return nil
}

// setTurns tells the graphs the turns of the epoch that begins.
func (t *trainer) setTurns() error {
	if len(t.graphs) == 0 {
		return nil
	}
	rates, numbers := make([]float32, t.steps), make([]float32, t.steps)
	for i := range t.steps {
		at := t.turn(t.done + i)
		rates[i], numbers[i] = float32(at.rate), float32(at.number)
	}
	return errors.Join(
		t.eng.Copy(t.rates, tensor.New(tensor.WithBacking(rates))),
		t.eng.Copy(t.numbers, tensor.New(tensor.WithBacking(numbers))))
}

// measure returns the mean loss of an epoch, and the part of the test set that the
// network recognizes. Each rank looks at its part of the test set.
func (t *trainer) measure() (loss, accuracy float64, err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	sum, err := tensor.Sum(t.loss)
	if err != nil {
		return 0, 0, err
	}
	lost, err := t.eng.ToHost(sum)
	if err != nil {
		return 0, 0, err
	}
	right := 0
	const batch = 500
	first, last := t.part(0, t.testSet.N)
	for from := first; from < last; from += batch {
		n, err := t.recognized(from, min(from+batch, last))
		if err != nil {
			return 0, 0, err
		}
		right += n
	}
	sums, err := t.sum(float64(lost.Data().(float32)), float64(right))
	if err != nil {
		return 0, 0, err
	}
	return sums[0] / float64(t.steps*t.o.Batch), sums[1] / float64(t.testSet.N), nil
}

// recognized counts the test images in [from, to) whose largest logit is that of
// their label.
func (t *trainer) recognized(from, to int) (right int, err error) {
	scope := t.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	part, err := t.test.part(from, to)
	if err != nil {
		return 0, err
	}
	acts, err := t.net.forward(part.x)
	if err != nil {
		return 0, err
	}
	best, err := tensor.Argmax(acts[len(acts)-1], 1)
	if err != nil {
		return 0, err
	}
	guesses, err := t.eng.ToHost(best) // waits for the device
	if err != nil {
		return 0, err
	}
	for i, guess := range guesses.Data().([]int) {
		if guess == int(t.testSet.Labels[from+i]) {
			right++
		}
	}
	return right, nil
}

// sum adds up each of the values over all ranks. It waits for them.
func (t *trainer) sum(values ...float64) ([]float64, error) {
	if t.comm == nil {
		return values, nil
	}
	v, err := t.eng.FromHost(tensor.New(tensor.WithBacking(values)))
	if err != nil {
		return nil, err
	}
	m, err := dist.OfTensor(v)
	if err != nil {
		return nil, err
	}
	if err := t.comm.AllReduce(m, m, dist.Sum, t.eng.Stream()); err != nil {
		return nil, err
	}
	sums, err := t.eng.ToHost(v)
	if err := errors.Join(err, t.comm.Err()); err != nil {
		return nil, err
	}
	return sums.Data().([]float64), nil
}
