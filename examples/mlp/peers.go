package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"gorgonia.org/tensor"
)

// peers are the other ranks, as a trainer sees them. All ranks call the same
// methods in the same order. Nil is no other ranks.
type peers struct {
	comm    dist.Comm
	eng     *cupool.Engine
	reducer *dist.Reducer // of the gradients
	layers  int

	measures bool          // waits; not in a graph, in which nothing can wait, nor where calls of comm wait
	steps    int           // whose gradients were reduced
	measured int           // of those
	waited   time.Duration // in these, for gradients that were not reduced when the last one was computed
}

// measureEvery is how many steps are taken for one whose wait is measured. To
// measure waits for the device, which then runs dry.
const measureEvery = 50

// meet begins to average gradients with the other ranks, if there are any. Layers
// become ready from the last to the first. It fails where another rank trains
// something else.
func (t *trainer) meet(comm dist.Comm, o *options) (err error) {
	if comm == nil {
		return nil
	}
	p := &peers{comm: comm, eng: t.eng, layers: len(t.net.layers), measures: t.graph == nil && (o.group.comm == "nccl" || t.eng.AllocAccessible())}
	if err := p.agree(t.task(o)); err != nil {
		return err
	}
	var grads []tensor.Tensor
	for _, l := range slices.Backward(t.net.layers) {
		grads = append(grads, l.w.grad, l.b.grad)
	}
	if p.reducer, err = dist.NewReducer(comm, t.eng, grads, dist.ReducerConfig{BucketBytes: o.group.bucket, FirstBytes: o.group.bucket}); err != nil {
		return err
	}
	t.peers = p
	return nil
}

// task is what the ranks of a training have in common, as text.
func (t *trainer) task(o *options) string {
	return fmt.Sprint(o.Epochs, o.Batch, o.Hidden, o.LR, o.Seed, o.Optimizer, o.Shift, o.ShuffleLabels, t.trainN, t.testN, o.graph, o.group.bucket)
}

// agree fails unless all ranks have the same task.
func (p *peers) agree(task string) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(task)) // a Hash does not fail
	tasks, err := p.gather(float64(h.Sum32()))
	if err != nil {
		return err
	}
	for rank, theirs := range tasks {
		if theirs != tasks[0] {
			return fmt.Errorf("rank %d trains something else than rank 0: all ranks need the same flags and images", rank)
		}
	}
	return nil
}

// ready says that the stream sets the gradients of a layer.
func (p *peers) ready(layer int) error {
	if p == nil {
		return nil
	}
	first := 2 * (p.layers - 1 - layer)
	return errors.Join(p.reducer.Ready(first), p.reducer.Ready(first+1))
}

// finish has the stream wait for the mean of all ranks' gradients.
func (p *peers) finish() error {
	if p == nil {
		return nil
	}
	p.steps++
	if !p.measures || p.steps%measureEvery != 2 {
		return p.reducer.Finish()
	}
	if err := p.eng.Sync(); err != nil {
		return err
	}
	start := time.Now()
	if err := errors.Join(p.reducer.Finish(), p.eng.Sync()); err != nil {
		return err
	}
	p.measured++
	p.waited += time.Since(start)
	return nil
}

// wait is the mean time that a step waits for other ranks, or 0 where none was
// measured.
func (p *peers) wait() time.Duration {
	if p == nil || p.measured == 0 {
		return 0
	}
	return p.waited / time.Duration(p.measured)
}

// sum adds up each of the values over all ranks. It waits for them.
func (p *peers) sum(values ...float64) (sums []float64, err error) {
	if p == nil {
		return values, nil
	}
	return p.exchange(values, len(values), func(to, from dist.Memory) error {
		return p.comm.AllReduce(to, from, dist.Sum, p.eng.Stream())
	})
}

// gather returns the values of all ranks, one rank after the other. It waits for
// them.
func (p *peers) gather(values ...float64) (all []float64, err error) {
	if p == nil {
		return values, nil
	}
	return p.exchange(values, len(values)*p.comm.Size(), func(to, from dist.Memory) error {
		return p.comm.AllGather(to, from, p.eng.Stream())
	})
}

// exchange gives the values to an operation of all ranks and returns what n values
// it makes.
func (p *peers) exchange(values []float64, n int, f func(to, from dist.Memory) error) (result []float64, err error) {
	scope := p.eng.Scope()
	defer func() { err = errors.Join(err, scope.Close()) }()
	defer catch(&err)

	from, to := upload(p.eng, values, len(values)), must(p.eng.Empty(tensor.Float64, n))
	check(f(must(dist.OfTensor(to)), must(dist.OfTensor(from))))
	host := must(p.eng.ToHost(to))
	check(p.comm.Err())
	return host.Data().([]float64), nil
}

// close gives back what the gradients were gathered in.
func (p *peers) close() error {
	if p == nil {
		return nil
	}
	return p.reducer.Close()
}

// err is what went wrong among the ranks so far. It does not wait.
func (p *peers) err() error {
	if p == nil {
		return nil
	}
	return p.comm.Err()
}

// groupReport sums up what the ranks did. All of them call it.
func (t *trainer) groupReport(comm string) (*groupReport, error) {
	pool := t.pool.Stats().All
	peaks, err := t.peers.gather(float64(pool.AllocatedBytes.Peak), float64(pool.ReservedBytes.Peak))
	if err != nil {
		return nil, err
	}
	r := &groupReport{Ranks: t.share.size, Comm: comm}
	for i := 0; i < len(peaks); i += 2 {
		r.PeakLiveBytes = append(r.PeakLiveBytes, int64(peaks[i]))
		r.PeakReservedBytes = append(r.PeakReservedBytes, int64(peaks[i+1]))
	}
	var all time.Duration
	for _, took := range t.stepTimes {
		all += took
	}
	mean := all.Seconds() / float64(len(t.stepTimes))
	r.ImagesPerSecond = float64(t.batch) / mean
	r.WaitMicros, r.WaitShare = t.peers.wait().Seconds()*1e6, t.peers.wait().Seconds()/mean
	return r, nil
}
