package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/internal/progress"
	"github.com/cupool/cupool/planner"
)

// A rank trains on its part of each batch, on a device of its own.
type rank struct {
	share
	o              *options
	device         string
	join           joiner // nil: there are no other ranks
	stdout, stderr io.Writer

	driver cupool.Driver
	pool   *cupool.Pool
	seen   *observe.Session
	plan   *planner.Planner // nil without -plan
	eng    *cupool.Engine
	comm   dist.Comm      // nil: there are no other ranks
	backs  []func() error // what open has to give back
}

// A joiner finds the other ranks and returns a rank's way to them. It waits for
// them.
type joiner func(ctx context.Context, of share, pool *cupool.Pool) (dist.Comm, error)

// run opens the device, makes a pool on it and an engine on that, calls f, and
// gives everything back. It calls fail with the error that ends the training,
// before others can see that this rank is gone.
func (r *rank) run(ctx context.Context, fail func(error), f func() error) (err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	if err = r.open(ctx); err == nil {
		err = f()
	}
	if err != nil {
		fail(err)
		if r.comm != nil {
			err = errors.Join(err, r.comm.Abort())
		}
	}
	return err
}

// open makes all that the training stands on.
func (r *rank) open(ctx context.Context) (err error) {
	if r.driver, err = cupool.Open(r.device); err != nil {
		return err
	}
	r.gives(r.driver.Close)
	if r.pool, err = r.o.PoolOn(r.driver); err != nil {
		return err
	}
	r.gives(r.pool.Close) // complains of leaks
	if r.seen, err = observe.Start(&r.o.Observe, r.pool, r.stderr); err != nil {
		return err
	}
	r.gives(r.seen.Close)
	if err := r.connect(ctx); err != nil {
		return err
	}
	memory := cupool.Allocator(r.pool)
	if r.o.plan {
		if r.plan, err = planner.New(r.pool, planner.Config{}); err != nil {
			return err
		}
		r.gives(r.plan.Close)
		memory = r.plan
	}
	r.eng, err = engineOn(memory)
	return err
}

// connect finds the other ranks. When ctx ends, nothing waits for them any more.
func (r *rank) connect(ctx context.Context) (err error) {
	if r.join == nil {
		return nil
	}
	if r.comm, err = r.join(ctx, r.share, r.pool); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.comm.Abort() })
	r.gives(func() error {
		stop()
		if err := r.comm.Close(); ctx.Err() == nil {
			return err
		}
		return nil // what ended the ranks is known
	})
	return nil
}

// gives notes how to give something back.
func (r *rank) gives(back func() error) { r.backs = append(r.backs, back) }

// close gives everything back, the last first.
func (r *rank) close() (err error) {
	for _, back := range slices.Backward(r.backs) {
		err = errors.Join(err, back())
	}
	return err
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

// trainer makes what trains.
func (r *rank) trainer(train, test *mnist.Set) (*trainer, error) {
	t, err := newTrainer(r.pool, r.eng, r.o, r.share, train, test)
	if err != nil {
		return nil, err
	}
	t.plan = r.plan
	if err := t.meet(r.comm, r.o); err != nil {
		return nil, errors.Join(err, t.free())
	}
	return t, nil
}

// train trains, and reports.
func (r *rank) train(ctx context.Context, train, test *mnist.Set) (rep report, err error) {
	t, err := r.trainer(train, test)
	if err != nil {
		return rep, err
	}
	fmt.Fprintf(r.stdout, "%s: %d training and %d test images, layers %v, %s, %d epochs of %d steps\n",
		r.title(), train.N, test.N, r.o.Hidden.Layers(train.Size(), mnist.Classes), r.o.Optimizer, r.o.Epochs, t.steps)
	epochs, err := r.runEpochs(ctx, t)
	var of *groupReport
	if err == nil && r.comm != nil {
		of, err = t.groupReport(r.o.group.comm)
	}
	err = errors.Join(err, r.seen.Record(), t.free())
	rep = newReport(epochs, t.stepTimes, r.pool.Stats())
	rep.Device, rep.Group = r.driver.Name(), of
	rep.FallbackOps = t.fallbacks()
	if r.plan != nil {
		rep.addPlan(r.plan.Stats(), r.pool.Stats())
	}
	return rep, err
}

// title says on what is trained.
func (r *rank) title() string {
	if r.comm == nil {
		return r.driver.Name()
	}
	return fmt.Sprintf("%s by %s, the first on %s", ranks(r.size), r.o.group.comm, r.driver.Name())
}

// runEpochs trains, with a line for each epoch and a bar inside it.
func (r *rank) runEpochs(ctx context.Context, t *trainer) (epochs []epoch, err error) {
	for i := range t.epochs {
		bar := progress.New(r.stderr, fmt.Sprintf("epoch %d/%d", i+1, t.epochs), "steps", t.steps)
		e, err := t.runEpoch(ctx, func() { bar.Add(1) })
		bar.Close()
		if interrupted := t.interruption(ctx); err != nil && interrupted != nil {
			return epochs, interrupted // whatever else that ended
		}
		if err != nil {
			return epochs, errors.Join(t.peers.err(), err)
		}
		epochs = append(epochs, e)
		printEpoch(r.stdout, i, t.epochs, e)
	}
	return epochs, nil
}
