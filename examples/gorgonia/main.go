// Gorgonia trains networks as Gorgonia graphs: on MNIST the multi-layer
// perceptron of examples/mlp, Gorgonia's own example of a convolutional network
// and a residual one, and a recurrent network on a text. All values, gradients
// and moments live in a cupool:
//
//	go run ./examples/gorgonia                     # a subset of MNIST, built in
//	go run ./examples/gorgonia -compare            # beside the stock tape machine, step by step
//	go run ./examples/gorgonia -vm tape            # Gorgonia's tape machine and solver, in scopes
//	go run ./examples/gorgonia -net rnn -cell gru -hidden 64
//	go run ./examples/gorgonia -net convnet -train-samples 1000 -epochs 1
//	go run -tags gpu ./examples/gorgonia -device cuda -shift 0
//
// nets.go lists the networks, each of which has a file; images.go and text.go
// have what they learn from. machine.go has the ways to run them, data.go the
// way of a batch into the pool, train.go the steps and epochs, and measure.go
// what is reported of them.
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
)

func main() { training.Main(run) }

// run is main with everything it depends on. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if err != nil {
		return training.Usage("gorgonia", err, stderr)
	}
	r, err := train(ctx, o, stdout, stderr)
	return training.Ended("gorgonia", r, err, o.JSON, stdout, stderr)
}

// train opens the device, makes a pool on it and an engine on that, trains,
// and gives everything back.
func train(ctx context.Context, o *options, stdout, stderr io.Writer) (r report, err error) {
	trainSet, testSet, err := o.net.open(o)
	if err != nil {
		return r, err
	}
	device, err := cupool.Open(o.Device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if (o.vm != "pool" || o.compare) && !device.HostAccessible() {
		return r, fmt.Errorf("the machine of Gorgonia computes on the CPU, which cannot touch the memory of %s; use -vm pool without -compare, or a device like cuda:0,managed", device.Name())
	}
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
	stream, err := pool.NewStream()
	if err != nil {
		return r, err
	}
	eng, err := cupool.NewEngine(pool, cupool.WithStream(stream))
	if err != nil {
		return r, err
	}
	t, err := newTrainer(pool, eng, o, trainSet, testSet)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(stdout, "%s: %d training and %d test %s, %s, %s, -vm %s, %d epochs of %d steps\n",
		device.Name(), trainSet.len(), testSet.len(), o.net.samples, o.net.describe(o), o.Optimizer, o.vm, o.Epochs, t.steps)
	err = runEpochs(ctx, t, stdout, stderr)
	err = errors.Join(err, seen.Record(), t.close())
	r = t.report()
	r.Device = device.Name()
	return r, err
}

// runEpochs trains, with a line for each epoch and a bar inside it.
func runEpochs(ctx context.Context, t *trainer, stdout, stderr io.Writer) error {
	for i := range t.o.Epochs {
		bar := progress.New(stderr, fmt.Sprintf("epoch %d/%d", i+1, t.o.Epochs), "steps", t.steps)
		e, err := t.runEpoch(ctx, i, func() { bar.Add(1) })
		bar.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "epoch %*d/%d  loss %.4f  test accuracy %.2f %%  live %.1f MiB  %v\n",
			len(fmt.Sprint(t.o.Epochs)), i+1, t.o.Epochs, e.loss, 100*e.accuracy, training.MiB(t.m.liveLast), e.duration.Round(1e6))
	}
	return nil
}
