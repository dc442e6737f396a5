package main

import (
	"math/rand/v2"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
	"gorgonia.org/tensor"
)

// A source makes batches of samples as tensors of the pool: images, one a row,
// and the classes they show.
type source interface {
	// shuffle makes the order of an epoch's samples known.
	shuffle(order []int)
	// prepare tells the order of the epoch after this one, once all batches of
	// this one were asked for: the next shuffle is given the same.
	prepare(order []int)
	// batch returns this rank's part of the samples with the places [from, to) in
	// that order.
	batch(from, to int) (x, y tensor.Tensor)
	// rest gives up what was made for steps that do not come.
	rest() error
	// tensors are all that live between steps.
	tensors() []tensor.Tensor
	// fallbacks counts the operations that an engine of its own left to the host.
	fallbacks() int64
}

// newSource returns what makes a rank's part of batches of set: from images moved
// by up to shift pixels in x and y, as rng says, or from a copy of the set on the
// device.
func newSource(eng *cupool.Engine, set *mnist.Set, of share, shift int, rng *rand.Rand) source {
	if shift > 0 {
		return newBatcher(eng, set, of, shift, rng)
	}
	whole := newBatcher(eng, set, share{0, 1}, 0, nil)
	whole.shuffle(training.NaturalOrder(set.N))
	x, y := whole.batch(0, set.N)
	return newResident(eng, samples{x.(*tensor.Dense), y.(*tensor.Dense)}, of)
}

// samples are images, one a row, and the classes they show.
type samples struct{ x, y *tensor.Dense }

func (s samples) tensors() []tensor.Tensor { return []tensor.Tensor{s.x, s.y} }

// part returns the samples [from, to) in place. Slice alone would drop the
// dimension of one sample.
func (s samples) part(from, to int) samples {
	rows := func(t *tensor.Dense) *tensor.Dense {
		shape := t.Shape().Clone()
		shape[0] = to - from
		part := must(t.Slice(tensor.S(from, to))).(*tensor.Dense)
		check(part.Reshape(shape...))
		return part
	}
	return samples{rows(s.x), rows(s.y)}
}

// A resident set is on the device as a whole, and in the order of an epoch in one
// of two places, so that a batch is a part of that. The order of the next epoch
// is made in the other place, on a stream of its own, while the last steps are
// computed.
type resident struct {
	eng    *cupool.Engine // computes
	side   *cupool.Engine // puts in order
	of     share
	seen   samples // the whole set, as the side engine sees it
	all    samples
	places [2]place
	now    int  // the place of this epoch
	ready  bool // the other one is in order for the next shuffle
}

// A place is memory for all samples, as both engines see it.
type place struct {
	samples
	side samples
}

func newResident(eng *cupool.Engine, all samples, of share) *resident {
	r := &resident{eng: eng, side: must(engineOn(eng.Allocator())), of: of, all: all}
	r.seen = r.share(all)
	for i := range r.places {
		s := samples{must(eng.Empty(all.x.Dtype(), all.x.Shape()...)), must(eng.Empty(all.y.Dtype(), all.y.Shape()...))}
		r.places[i] = place{s, r.share(s)}
	}
	check(r.side.Stream().WaitStream(eng.Stream()))
	return r
}

// share returns samples as the side engine sees them.
func (r *resident) share(s samples) samples {
	s = samples{s.x.ShallowClone(), s.y.ShallowClone()}
	handOver(r.side, s.tensors()...)
	return s
}

func (r *resident) prepare(order []int) {
	at := upload(r.side, order, len(order))
	to := r.places[1-r.now].side
	must(tensor.ByIndices(r.seen.x, at, 0, tensor.WithReuse(to.x)))
	must(tensor.ByIndices(r.seen.y, at, 0, tensor.WithReuse(to.y)))
	check(r.side.FreeTensor(at))
	r.ready = true
}

func (r *resident) shuffle(order []int) {
	if !r.ready {
		r.prepare(order)
	}
	// Each stream waits for what the other one did until now.
	check(r.eng.Stream().WaitStream(r.side.Stream()))
	check(r.side.Stream().WaitStream(r.eng.Stream()))
	r.now, r.ready = 1-r.now, false
}

func (r *resident) batch(from, to int) (x, y tensor.Tensor) {
	part := r.places[r.now].part(r.of.part(from, to))
	return part.x, part.y
}

func (r *resident) rest() error { return nil }

func (r *resident) tensors() []tensor.Tensor {
	return slices.Concat(r.all.tensors(), r.places[0].tensors(), r.places[1].tensors())
}

func (r *resident) fallbacks() int64 { return r.side.Stats().Fallbacks }

// handOver gives tensors of one engine to another, whose stream is recorded on
// their memory: once freed, it is not used again before that stream has done
// with it.
func handOver(eng *cupool.Engine, ts ...tensor.Tensor) {
	for _, t := range ts {
		check(eng.Allocator().RecordStream(memoryOf(eng, t), eng.Stream()))
		tensor.WithEngine(eng)(t)
	}
}

func memoryOf(eng *cupool.Engine, t tensor.Tensor) cupool.Block {
	return must(eng.Allocator().Lookup(cupool.Ptr(t.Uintptr())))
}

// A batcher copies samples to the device, a batch at a time.
type batcher struct {
	eng *cupool.Engine
	of  share
	*training.Batcher
}

func newBatcher(eng *cupool.Engine, set *mnist.Set, of share, shift int, rng *rand.Rand) *batcher {
	return &batcher{eng, of, training.NewBatcher(set, shift, rng)}
}

func (b *batcher) shuffle(order []int) { b.Shuffle(order) }

func (b *batcher) prepare([]int) {}

func (b *batcher) batch(from, to int) (x, y tensor.Tensor) {
	first, last := b.of.part(from, to)
	b.Skip(first - from)
	images, classes := b.Batch(first, last)
	b.Skip(to - last)
	return upload(b.eng, images, last-first, b.Set.Size()), upload(b.eng, classes, last-first)
}

func (b *batcher) rest() error { return nil }

func (b *batcher) tensors() []tensor.Tensor { return nil }

func (b *batcher) fallbacks() int64 { return 0 }
