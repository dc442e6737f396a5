package dist

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/internal/poolaccess"
	"gorgonia.org/tensor"
)

// ReducerConfig sets up a Reducer. The zero value has the sizes of PyTorch's
// DistributedDataParallel.
type ReducerConfig struct {
	BucketBytes int64          // of the gradients that are reduced at once. 0: 25 MiB
	FirstBytes  int64          // of the first of them, so that the network has work early. 0: 1 MiB, or BucketBytes if that is less
	Stream      *cupool.Stream // on which they are reduced. nil: one that the Reducer makes
}

// Reducer makes the gradients of a step the mean of those of all ranks, in
// buckets, while the backward pass computes the next ones. Gradients stay where
// they are. All ranks make one with gradients of the same shapes and types, in
// the same order, and the same configuration.
//
// A step says Ready of each gradient, and Finish before it uses them. That may be
// captured in a graph, where the Comm can. With a Comm of Local on a GPU, Ready
// returns when the bucket is reduced: take package nccl's there.
//
// A Reducer is used from one goroutine at a time.
type Reducer struct {
	comm    Comm
	eng     *cupool.Engine
	stream  *cupool.Stream
	own     bool // the Reducer made the stream
	event   cupool.EventHandle
	grads   []Memory
	buckets []bucket
	of      []int  // the bucket of each gradient
	ready   []bool // in this step
	next    int    // the bucket that is reduced next
	err     error  // of this step
	closed  bool
}

// A bucket is the gradients from first to end-1.
type bucket struct {
	first, end int
	missing    int // that are not ready
	reduce     func() error
}

// NewReducer returns a Reducer of gradients of an engine, in the order in which the
// backward pass finishes them. It fails with a *cupool.ConfigError, with
// cupool.ErrForeignStream for a stream of another device, and as OfTensor and
// cupool.Pool.NewStream do.
func NewReducer(c Comm, eng *cupool.Engine, grads []tensor.Tensor, cfg ReducerConfig) (*Reducer, error) {
	r := &Reducer{comm: c, eng: eng, stream: cfg.Stream, ready: make([]bool, len(grads))}
	switch {
	case nilptr.Is(c):
		return nil, &cupool.ConfigError{Field: "comm", Value: nil, Reason: "Local and package nccl make one"}
	case eng == nil || eng.Allocator() == nil:
		return nil, &cupool.ConfigError{Field: "engine", Value: nil, Reason: "gradients have one"}
	case cfg.BucketBytes < 0 || cfg.FirstBytes < 0:
		return nil, &cupool.ConfigError{Field: "BucketBytes, FirstBytes", Value: [2]int64{cfg.BucketBytes, cfg.FirstBytes}, Reason: "they must not be negative"}
	case cfg.Stream != nil && cfg.Stream.Pool() != eng.Stream().Pool():
		return nil, fmt.Errorf("dist: NewReducer: %w: the engine's device is %s", cupool.ErrForeignStream, eng.Allocator().Driver().Name())
	}
	for i, t := range grads {
		m, err := OfTensor(t)
		if err == nil && cupool.EngineOf(t).Stream().Pool() != eng.Stream().Pool() {
			err = fmt.Errorf("%w: its engine is of another device", cupool.ErrForeignPointer)
		}
		if err != nil {
			return nil, fmt.Errorf("dist: NewReducer: gradient %d: %w", i, err)
		}
		r.grads = append(r.grads, m)
	}
	r.divide(cfg)
	if err := r.take(); err != nil {
		return nil, err
	}
	return r, nil
}

// take takes what the device gives to the Reducer.
func (r *Reducer) take() (err error) {
	a := r.eng.Allocator()
	if r.stream == nil {
		if r.stream, err = a.NewStream(); err != nil {
			return err
		}
		r.own = true
	}
	if r.event, err = a.Driver().NewEvent(); err == nil {
		return nil
	}
	if r.own {
		err = errors.Join(err, r.stream.Close())
	}
	return err
}

// divide puts the gradients into buckets.
func (r *Reducer) divide(cfg ReducerConfig) {
	most := cfg.BucketBytes
	if most == 0 {
		most = 25 << 20
	}
	limit := cfg.FirstBytes
	if limit == 0 {
		limit = min(1<<20, most)
	}
	var bytes int64
	for i, m := range r.grads {
		if n := len(r.buckets); n == 0 || bytes >= limit {
			if n > 0 {
				limit = most
			}
			r.buckets, bytes = append(r.buckets, bucket{first: i}), 0
		}
		bytes += m.Bytes()
		r.of = append(r.of, len(r.buckets)-1)
		b := &r.buckets[len(r.buckets)-1]
		b.end = i + 1
		b.missing++
	}
	for i := range r.buckets {
		b := &r.buckets[i]
		b.reduce = func() error { return r.reduce(b) }
	}
}

// Ready says that the engine's stream has been given all work that makes gradient
// i, of those of NewReducer. Each gradient is ready once in a step, in any order;
// buckets are reduced in theirs. It fails with cupool.ErrInvalidRange for a number
// that no gradient has or that was ready before, with cupool.ErrClosed, and as
// Comm's methods do; Finish then returns that error, too.
func (r *Reducer) Ready(i int) error {
	if err := r.open(); err != nil {
		return err
	}
	switch {
	case i < 0 || i >= len(r.ready):
		return fmt.Errorf("dist: rank %d: gradient %d of %d is ready: %w", r.comm.Rank(), i, len(r.ready), cupool.ErrInvalidRange)
	case r.ready[i]:
		return fmt.Errorf("dist: rank %d: gradient %d is ready twice in a step: %w: Finish ends a step", r.comm.Rank(), i, cupool.ErrInvalidRange)
	case r.err != nil:
		return r.err
	}
	r.ready[i] = true
	r.buckets[r.of[i]].missing--
	for r.next < len(r.buckets) && r.buckets[r.next].missing == 0 {
		if err := r.start(); err != nil {
			return err
		}
	}
	return nil
}

// open fails for a Reducer that is closed, or that NewReducer did not make.
func (r *Reducer) open() error {
	switch {
	case r == nil || r.comm == nil:
		return fmt.Errorf("dist: the Reducer is nil, or NewReducer did not make it: %w", cupool.ErrInvalidHandle)
	case r.closed:
		return fmt.Errorf("dist: reducer: %w", cupool.ErrClosed)
	}
	return nil
}

// start reduces the next bucket, once the engine's stream has done what it was
// given.
func (r *Reducer) start() error {
	b := &r.buckets[r.next]
	r.next++
	if c, ok := r.comm.(*local); ok && c.size > 1 && r.eng.Stream().Captured() { // before its stream is captured, too
		r.err = fmt.Errorf("dist: reducer of rank %d over the host on a stream that is captured: %w", c.rank, cupool.ErrNotSupported)
		return r.err
	}
	if r.err = r.order(r.eng.Stream(), r.stream); r.err == nil {
		r.err = r.comm.Group(b.reduce)
	}
	return r.err
}

func (r *Reducer) reduce(b *bucket) error {
	for _, m := range r.grads[b.first:b.end] {
		if err := r.comm.AllReduce(m, m, Avg, r.stream); err != nil {
			return err
		}
	}
	return nil
}

// order has the second stream wait for what the first was given. It does so with
// the device's own calls, which a capture can hold, too.
func (r *Reducer) order(first, second *cupool.Stream) error {
	d := r.eng.Allocator().Driver()
	err := d.RecordEvent(r.event, first.Handle())
	if err == nil {
		err = d.StreamWaitEvent(second.Handle(), r.event)
	}
	if err != nil {
		return fmt.Errorf("dist: rank %d: ordering two streams: %w", r.comm.Rank(), poolaccess.Of(first.Pool()).DriverError(err))
	}
	return nil
}

// Finish ends a step: what the engine's stream is given from now on sees the mean
// gradients. Gradients that were not ready are reduced as they are, so those that
// a step does not use are to be zero. It returns the first error of the step.
func (r *Reducer) Finish() error {
	if err := r.open(); err != nil {
		return err
	}
	for r.next < len(r.buckets) && r.err == nil {
		_ = r.start() // is in err
	}
	err := errors.Join(r.err, r.order(r.stream, r.eng.Stream()))
	clear(r.ready)
	for i := range r.buckets {
		r.buckets[i].missing = r.buckets[i].end - r.buckets[i].first
	}
	r.next, r.err = 0, nil
	return err
}

// Close gives back what the Reducer has of the device, after its work. The Comm
// stays. Where the stream that the Reducer made stays open (cupool.Stream.Close), so does
// the Reducer. Closing twice is cupool.ErrClosed.
func (r *Reducer) Close() error {
	if err := r.open(); err != nil {
		return err
	}
	var err error
	if r.own {
		if err = r.stream.Close(); !r.stream.Closed() {
			return err
		}
	}
	r.closed = true
	return errors.Join(r.eng.Allocator().Driver().DestroyEvent(r.event), err)
}
