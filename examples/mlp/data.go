package main

import (
	"math/rand/v2"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
	"gorgonia.org/tensor"
)

// A source makes batches of samples as tensors of the pool: images, one a row,
// and the classes they show.
type source interface {
	// shuffle makes the order of an epoch's samples known. Its tensors belong
	// to the engine's scope.
	shuffle(order []int)
	// batch returns the samples with the places [from, to) in that order as new
	// tensors.
	batch(from, to int) (x, y tensor.Tensor)
	// rest gives up what was made for steps that do not come.
	rest() error
	// tensors are all that live between steps.
	tensors() []tensor.Tensor
}

// newSource returns what makes batches of set: from images moved by up to shift
// pixels in x and y, as rng says, or from a copy of the set on the device.
func newSource(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) source {
	b := newBatcher(eng, set, shift, rng)
	if shift > 0 {
		return b
	}
	r := &resident{eng: eng}
	b.shuffle(training.NaturalOrder(set.N))
	r.x, r.y = b.batch(0, set.N)
	return r
}

// A resident set is on the device as a whole.
type resident struct {
	eng    *cupool.Engine
	x, y   tensor.Tensor
	order  *tensor.Dense
	window *tensor.Dense // if there is one, batches are what it has
}

func (r *resident) shuffle(order []int) {
	r.order, r.window = upload(r.eng, order, len(order)), nil
}

// open makes a window of n samples, for batches at one place of memory.
func (r *resident) open(n int) { r.window = must(r.eng.Empty(tensor.Int, n)) }

// move moves the window to a place in the order.
func (r *resident) move(from int) {
	check(r.eng.Copy(r.window, must(r.order.Slice(tensor.S(from, from+r.window.Shape()[0])))))
}

func (r *resident) batch(from, to int) (x, y tensor.Tensor) {
	picks := tensor.Tensor(r.window)
	if r.window == nil {
		picks = must(r.order.Slice(tensor.S(from, to)))
	}
	return must(tensor.ByIndices(r.x, picks, 0)), must(tensor.ByIndices(r.y, picks, 0))
}

func (r *resident) rest() error { return nil }

func (r *resident) tensors() []tensor.Tensor { return []tensor.Tensor{r.x, r.y} }

// A batcher copies samples to the device, a batch at a time.
type batcher struct {
	eng *cupool.Engine
	*training.Batcher
}

func newBatcher(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) *batcher {
	return &batcher{eng, training.NewBatcher(set, shift, rng)}
}

func (b *batcher) shuffle(order []int) { b.Shuffle(order) }

func (b *batcher) batch(from, to int) (x, y tensor.Tensor) {
	images, classes := b.Batch(from, to)
	return upload(b.eng, images, to-from, b.Set.Size()), upload(b.eng, classes, to-from)
}

func (b *batcher) rest() error { return nil }

func (b *batcher) tensors() []tensor.Tensor { return nil }
