package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/nccl"
)

// A rank has a device of its own, and trains on its part of each batch.
type rank struct {
	share
	device cupool.Driver
	pool   *cupool.Pool
	eng    *cupool.Engine
	comm   dist.Comm // its way to the other ranks; nil: there are none
}

// open opens the device of one of this process's ranks, makes a pool on it and an
// engine on that.
func (r *rank) open(o *options, i int) (err error) {
	if r.device, err = cupool.Open(o.deviceOf(i)); err != nil {
		return err
	}
	if r.pool, err = o.PoolOn(r.device); err != nil {
		return err
	}
	stream, err := r.pool.NewStream() // the default stream cannot be captured
	if err != nil {
		return err
	}
	r.eng, err = cupool.NewEngine(r.pool, cupool.WithStream(stream))
	return err
}

// close gives back what open has opened. The pool complains of leaks.
func (r *rank) close() (err error) {
	if r.pool != nil {
		err = r.pool.Close()
	}
	if r.device != nil {
		err = errors.Join(err, r.device.Close())
	}
	return err
}

// deviceOf names the device of one of this process's ranks: on GPUs they have
// those from the named one on, and a host device each else.
func (o *options) deviceOf(i int) string {
	name, memory, _ := strings.Cut(o.Device, ",")
	_, first, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(cmp.Or(first, strconv.Itoa(o.local)))
	if o.gpus == 0 || !o.onGPU() || err != nil { // to open it says what is wrong
		return o.Device
	}
	name = fmt.Sprintf("cuda:%d", n+i)
	if memory != "" {
		name += "," + memory
	}
	return name
}

// connect has the ranks find each other: by NCCL those of GPUs, which may be in
// other processes, too, and through memory those of the host.
func connect(ctx context.Context, o *options, ranks []*rank) error {
	var pools []*cupool.Pool
	for _, r := range ranks {
		pools = append(pools, r.pool)
	}
	switch {
	case o.gpus == 0:
		return nil
	case !o.onGPU():
		comms, err := dist.Local(pools...)
		for i, c := range comms {
			ranks[i].comm = c
		}
		return err
	case o.nodes == 1:
		comms, err := nccl.NewLocal(ctx, pools, nccl.Config{Timeout: o.timeout})
		for i, c := range comms {
			ranks[i].comm = c
		}
		return err
	}
	return together(ctx, ranks, func(ctx context.Context, r *rank) error {
		comm, err := nccl.New(ctx, r.pool, nccl.Config{Rank: r.rank, Size: r.size, Address: o.rendezvous, Token: o.token, Timeout: o.timeout})
		if err == nil {
			r.comm = comm
		}
		return err
	})
}

// together calls f for each rank, in a goroutine of its own. The first error ends
// the context of all of them, and is the one that counts.
func together(ctx context.Context, ranks []*rank, f func(ctx context.Context, r *rank) error) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			err := f(running, r)
			if err != nil && r.comm != nil {
				err = fmt.Errorf("rank %d: %w", r.rank, err)
			}
			if errs[i] = err; err != nil {
				end(err)
			}
		})
	}
	all.Wait()
	if errors.Join(errs...) != nil && ctx.Err() == nil {
		return context.Cause(running)
	}
	return errs[0] // of all that the end of ctx has interrupted
}

// train opens this process's devices, trains on all of them at once, and gives
// everything back.
func train(ctx context.Context, o *options, stdout, stderr io.Writer) (rep report, err error) {
	trainSet, testSet, err := training.LoadData(&o.Options)
	if err != nil {
		return rep, err
	}
	var ranks []*rank
	defer func() {
		for _, r := range slices.Backward(ranks) {
			err = errors.Join(err, r.close())
		}
	}()
	for i := range max(o.gpus, 1) {
		r := &rank{share: o.share(i)}
		ranks = append(ranks, r)
		if err := r.open(o, i); err != nil {
			return rep, err
		}
	}
	stop, err := o.Observe.Serve(ranks[0].pool, stderr)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := connect(ctx, o, ranks); err != nil {
		return rep, err
	}

	trainers := make([]*trainer, len(ranks))
	err = together(ctx, ranks, func(ctx context.Context, r *rank) error {
		t := &trainer{o: o, rank: r, trainSet: trainSet, testSet: testSet, out: io.Discard}
		trainers[r.rank-ranks[0].rank] = t
		if r == ranks[0] {
			t.out = stdout
		}
		if r.comm != nil { // when one rank ends, nothing may wait for others any more
			stop := context.AfterFunc(ctx, func() { _ = r.comm.Abort() })
			defer stop()
		}
		// Tensor panics where the pool has no memory left.
		err := cupool.Try(func() error { return t.run(ctx) })
		if err != nil && r.comm != nil {
			err = errors.Join(err, r.comm.Abort())
		}
		return errors.Join(err, t.close())
	})
	for _, r := range ranks {
		if r.comm == nil {
			continue
		}
		if ended := r.comm.Close(); err == nil {
			err = ended
		}
	}
	return newReport(o, trainers), err
}

// newReport sums up what the ranks did, when they have freed all tensors.
func newReport(o *options, trainers []*trainer) report {
	first := trainers[0]
	r := report{Report: training.NewReport(first.epochs, first.steps, first.pool, first.eng)}
	if first.comm == nil {
		return r
	}
	r.Group = &groupReport{Ranks: first.size, Comm: "host", ImagesPerSecond: 1e6 * float64(o.Batch) / r.StepMicrosMedian}
	if o.onGPU() {
		r.Group.Comm = "nccl"
	}
	r.LeakedBlocks = 0
	for _, t := range trainers {
		st := t.pool.Stats().All
		r.LeakedBlocks += st.Allocation.Current
		r.Group.PeakLiveBytes = append(r.Group.PeakLiveBytes, st.AllocatedBytes.Peak)
		r.Group.PeakReservedBytes = append(r.Group.PeakReservedBytes, st.ReservedBytes.Peak)
	}
	return r
}
