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
	// batch returns the samples with the places [from, to) in that order as new
	// tensors.
	batch(from, to int) (x, y tensor.Tensor)
	// rest gives up what was made for steps that do not come.
	rest() error
	// tensors are all that live between steps.
	tensors() []tensor.Tensor
	// fallbacks counts the operations that an engine of its own left to the host.
	fallbacks() int64
}

// newSource returns what makes batches of set: from images moved by up to shift
// pixels in x and y, as rng says, or from a copy of the set on the device.
func newSource(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) source {
	b := newBatcher(eng, set, shift, rng)
	if shift > 0 {
		return b
	}
	b.shuffle(training.NaturalOrder(set.N))
	x, y := b.batch(0, set.N)
	return newResident(eng, samples{x.(*tensor.Dense), y.(*tensor.Dense)})
}

// samples are images, one a row, and the classes they show.
type samples struct{ x, y *tensor.Dense }

// tensors are those of samples that are there.
func (s samples) tensors() []tensor.Tensor {
	if s.x == nil {
		return nil
	}
	return []tensor.Tensor{s.x, s.y}
}

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

// A resident set is on the device as a whole, and once more in the order of an
// epoch, so that a batch is a part of that. The order of the next epoch is made
// on a stream of its own while the last steps are computed.
type resident struct {
	eng     *cupool.Engine // computes
	side    *cupool.Engine // puts in order
	all     samples
	seen    samples // the same, as the side engine sees it
	ordered samples
	next    samples // for the next shuffle; none if it was not prepared
}

func newResident(eng *cupool.Engine, all samples) *resident {
	r := &resident{eng: eng, side: must(engineOn(eng.Allocator())), all: all, seen: samples{all.x.ShallowClone(), all.y.ShallowClone()}}
	check(r.side.Stream().WaitStream(eng.Stream()))
	handOver(r.side, r.seen.tensors()...)
	return r
}

func (r *resident) prepare(order []int) {
	at := upload(r.side, order, len(order))
	pick := func(t *tensor.Dense) *tensor.Dense { return must(tensor.ByIndices(t, at, 0)).(*tensor.Dense) }
	r.next = samples{pick(r.seen.x), pick(r.seen.y)}
	check(r.side.FreeTensor(at))
}

func (r *resident) shuffle(order []int) {
	check(r.rest())
	if r.next.x == nil {
		r.prepare(order)
	}
	check(r.eng.Stream().WaitStream(r.side.Stream()))
	r.ordered, r.next = r.upcoming(), samples{}
}

// upcoming returns what is in order for the next shuffle, as the engine that
// computes sees it. Only what runs after that shuffle may read it.
func (r *resident) upcoming() samples {
	handOver(r.eng, r.next.tensors()...)
	return r.next
}

func (r *resident) batch(from, to int) (x, y tensor.Tensor) {
	part := r.ordered.part(from, to)
	return part.x, part.y
}

// window returns memory for n samples.
func (r *resident) window(n int) samples {
	return samples{must(r.eng.Empty(r.all.x.Dtype(), n, r.all.x.Shape()[1])), must(r.eng.Empty(tensor.Int, n))}
}

// copyTo fills a window with the samples from a place in the order on.
func (r *resident) copyTo(w samples, from int) {
	part := r.ordered.part(from, from+w.x.Shape()[0])
	check(r.eng.Copy(w.x, part.x))
	check(r.eng.Copy(w.y, part.y))
}

// rest frees what is in order, for the device when it has computed that.
func (r *resident) rest() error {
	done := r.ordered
	r.ordered = samples{}
	return r.eng.FreeTensor(done.tensors()...)
}

func (r *resident) tensors() []tensor.Tensor {
	return slices.Concat(r.all.tensors(), r.ordered.tensors(), r.next.tensors())
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
	*training.Batcher
}

func newBatcher(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) *batcher {
	return &batcher{eng, training.NewBatcher(set, shift, rng)}
}

func (b *batcher) shuffle(order []int) { b.Shuffle(order) }

func (b *batcher) prepare([]int) {}

func (b *batcher) batch(from, to int) (x, y tensor.Tensor) {
	images, classes := b.Batch(from, to)
	return upload(b.eng, images, to-from, b.Set.Size()), upload(b.eng, classes, to-from)
}

func (b *batcher) rest() error { return nil }

func (b *batcher) tensors() []tensor.Tensor { return nil }

func (b *batcher) fallbacks() int64 { return 0 }
