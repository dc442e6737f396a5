package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/cupool/cupool/examples/internal/observe"
	"github.com/cupool/cupool/examples/internal/training"
)

// train runs this process's ranks until all are done, or until one fails, which
// ends the others. It returns what the first reports.
func train(ctx context.Context, o *options, stdout, stderr io.Writer) (r report, err error) {
	trainSet, testSet, err := training.LoadData(&o.Options)
	if err != nil {
		return r, err
	}
	ranks := o.ranks(stdout, stderr)
	reports := make([]report, len(ranks))
	err = together(ctx, ranks, func(ctx context.Context, r *rank) (err error) {
		reports[r.rank-ranks[0].rank], err = r.train(ctx, trainSet, testSet)
		return err
	})
	r = reports[0]
	for _, other := range reports[1:] {
		r.LeakedBlocks += other.LeakedBlocks
	}
	return r, err
}

// together opens the ranks and calls f for each, in a goroutine of its own. The
// first error ends them all.
func together(ctx context.Context, ranks []*rank, f func(ctx context.Context, r *rank) error) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		fail := func(err error) { end(r.named(err)) }
		all.Go(func() { errs[i] = r.run(running, fail, func() error { return f(running, r) }) })
	}
	all.Wait()
	return firstError(ctx, running, errs)
}

// named says which rank an error is of, where there are several.
func (r *rank) named(err error) error {
	if r.join == nil {
		return err
	}
	return fmt.Errorf("rank %d: %w", r.rank, err)
}

// firstError returns why the ranks ended: the error of the one that ended the
// others, or, where the program was interrupted, where a rank was then.
func firstError(program, running context.Context, errs []error) error {
	for _, err := range errs {
		switch {
		case err == nil:
		case program.Err() != nil || len(errs) == 1:
			return err
		default:
			return context.Cause(running)
		}
	}
	return nil
}

// ranks are those of this process. Only the first of all prints.
func (o *options) ranks(stdout, stderr io.Writer) (ranks []*rank) {
	join := o.group.joiner()
	for i := range max(o.group.gpus, 1) {
		own := *o
		r := &rank{share: o.group.share(i), o: &own, device: o.group.device(o.Device, i), join: join, stdout: stdout, stderr: stderr}
		if r.rank > 0 {
			own.Observe, r.stdout, r.stderr = observe.Options{}, io.Discard, io.Discard
		}
		ranks = append(ranks, r)
	}
	return ranks
}
