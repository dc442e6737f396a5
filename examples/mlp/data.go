package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/mnist"
	subset "github.com/cupool/cupool/testdata/mnist"
	"gorgonia.org/tensor"
)

// loadData reads the training and test set that o asks for.
func loadData(o *options) (train, test *mnist.Set, err error) {
	if o.data == "" {
		train, test, err = mnist.LoadFS(subset.Files, "testdata/mnist")
	} else {
		train, test, err = mnist.Load(o.data)
	}
	if err != nil {
		return nil, nil, err
	}
	if o.trainSamples > train.N {
		return nil, nil, fmt.Errorf("-train-samples %d, but there are %d", o.trainSamples, train.N)
	}
	if o.trainSamples > 0 {
		train = train.Take(o.trainSamples)
	}
	if o.batch > train.N {
		return nil, nil, fmt.Errorf("-batch %d, but there are %d training images", o.batch, train.N)
	}
	if o.shuffleLabels {
		train = shuffleLabels(train, o.random(forLabels))
	}
	return train, test, nil
}

// shuffleLabels gives every image the label of another one, so that there is
// nothing to learn.
func shuffleLabels(s *mnist.Set, rng *rand.Rand) *mnist.Set {
	shuffled := *s
	shuffled.Labels = make([]byte, s.N)
	for to, from := range rng.Perm(s.N) {
		shuffled.Labels[to] = s.Labels[from]
	}
	return &shuffled
}

// blackInk is what a black pixel is to the network, and white is 0: gonum's
// matrix product skips the zeros of its first operand, and four pixels of five
// are white. Pixels around their mean instead, the usual way, train to the same
// accuracy in more than twice the time. 2 learned better than 1 and 3 did.
const blackInk = 2

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
	b.shuffle(naturalOrder(set.N))
	r.x, r.y = b.batch(0, set.N)
	return r
}

func naturalOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
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
	eng   *cupool.Engine
	set   *mnist.Set
	shift int          // move images by up to so many pixels in x and y
	rng   *rand.Rand   // of the shifts
	ink   [256]float32 // what a pixel's value is to the network
	order []int
	x     []float32 // a batch on its way to the device
	y     []int
}

func newBatcher(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) *batcher {
	b := &batcher{eng: eng, set: set, shift: shift, rng: rng}
	for v := range b.ink {
		b.ink[v] = blackInk * float32(v) / 255
	}
	return b
}

func (b *batcher) shuffle(order []int) { b.order = order }

func (b *batcher) batch(from, to int) (x, y tensor.Tensor) {
	b.x, b.y = b.x[:0], b.y[:0]
	for _, i := range b.order[from:to] {
		dx, dy := 0, 0
		if b.shift > 0 {
			dx, dy = b.rng.IntN(2*b.shift+1)-b.shift, b.rng.IntN(2*b.shift+1)-b.shift
		}
		b.appendImage(b.set.Image(i), dx, dy)
		b.y = append(b.y, int(b.set.Labels[i]))
	}
	return upload(b.eng, b.x, to-from, b.set.Size()), upload(b.eng, b.y, to-from)
}

func (b *batcher) rest() error { return nil }

func (b *batcher) tensors() []tensor.Tensor { return nil }

// appendImage adds an image to b.x, moved to the right by dx and down by dy.
func (b *batcher) appendImage(image []byte, dx, dy int) {
	rows, cols := b.set.Rows, b.set.Cols
	start := len(b.x)
	b.x = slices.Grow(b.x, len(image))[:start+len(image)]
	moved := b.x[start:]
	clear(moved)
	for row := max(0, dy); row < min(rows, rows+dy); row++ {
		from := image[(row-dy)*cols : (row-dy+1)*cols]
		to := moved[row*cols : (row+1)*cols]
		for col := max(0, dx); col < min(cols, cols+dx); col++ {
			to[col] = b.ink[from[col-dx]]
		}
	}
}
