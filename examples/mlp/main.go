// Mlp trains a multi-layer perceptron on MNIST with gorgonia's tensors. All
// tensors, the weights as well as every temporary of every step, live in a
// cupool:
//
//	go run ./examples/mlp                     # a subset of MNIST, built in
//	go run ./examples/mlp -data DIR -hidden 512,256 -optimizer adam
//	go run ./examples/mlp -plan               # steps served by a plan of their memory
//
// ops.go and model.go have the network's formulas, optim.go the optimizers,
// train.go the steps and epochs, data.go the way of a batch into the pool;
// what examples/gorgonia does in the same way is in examples/internal/training.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/progress"
	"github.com/cupool/cupool/planner"
)

func main() { training.Main(run) }

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if err != nil {
		return training.Usage("mlp", err, stderr)
	}
	r, err := train(ctx, o, stdout, stderr)
	return training.Ended("mlp", r, err, o.JSON, stdout, stderr)
}

// train opens the device, makes a pool on it and an engine on that, trains,
// and gives everything back.
func train(ctx context.Context, o *options, stdout, stderr io.Writer) (r report, err error) {
	trainSet, testSet, err := training.LoadData(&o.Options)
	if err != nil {
		return r, err
	}
	device, err := cupool.Open(o.Device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	pool, err := o.PoolOn(device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }() // complains of leaks
	seen, err := observe.Start(&o.Observe, pool, stderr)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	memory := cupool.Allocator(pool)
	var plan *planner.Planner // nil without -plan
	if o.plan {
		if plan, err = planner.New(pool, planner.Config{}); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, plan.Close()) }()
		memory = plan
	}
	eng, err := engineOn(memory)
	if err != nil {
		return r, err
	}

	t, err := newTrainer(pool, eng, o, trainSet, testSet)
	if err != nil {
		return r, err
	}
	t.plan = plan
	fmt.Fprintf(stdout, "%s: %d training and %d test images, layers %v, %s, %d epochs of %d steps\n",
		device.Name(), trainSet.N, testSet.N, o.Hidden.Layers(trainSet.Size(), 10), o.Optimizer, o.Epochs, t.steps)
	epochs, err := runEpochs(ctx, t, stdout, stderr)
	err = errors.Join(err, seen.Record(), t.free())
	r = newReport(epochs, t.stepTimes, pool.Stats())
	r.Device, r.FallbackOps = device.Name(), eng.Stats().Fallbacks+t.train.fallbacks()+t.test.fallbacks()
	if plan != nil {
		r.addPlan(plan.Stats(), pool.Stats())
	}
	return r, err
}

// engineOn makes an engine on a stream of its own, as the default stream cannot
// be captured.
func engineOn(memory cupool.Allocator) (*cupool.Engine, error) {
	stream, err := memory.NewStream()
	if err != nil {
		return nil, err
	}
	return cupool.NewEngine(memory, cupool.WithStream(stream))
}

// runEpochs trains, with a line for each epoch and a bar inside it.
func runEpochs(ctx context.Context, t *trainer, stdout, stderr io.Writer) (epochs []epoch, err error) {
	for i := range t.epochs {
		bar := progress.New(stderr, fmt.Sprintf("epoch %d/%d", i+1, t.epochs), "steps", t.steps)
		e, err := t.runEpoch(ctx, func() { bar.Add(1) })
		bar.Close()
		if err != nil {
			return epochs, err
		}
		epochs = append(epochs, e)
		printEpoch(stdout, i, t.epochs, e)
	}
	return epochs, nil
}
