package main

import (
	"fmt"
	"math/rand/v2"

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

// MNIST's mean and standard deviation, of pixels from 0 to 1.
const pixelMean, pixelSigma = 0.1307, 0.3081

// A batcher copies samples into tensors of the pool.
type batcher struct {
	eng   *cupool.Engine
	set   *mnist.Set
	shift int          // move images by up to so many pixels in x and y
	rng   *rand.Rand   // of the shifts
	ink   [256]float32 // what a pixel's value is to the network
	x, y  []float32    // a batch on its way to the device
}

func newBatcher(eng *cupool.Engine, set *mnist.Set, shift int, rng *rand.Rand) *batcher {
	b := &batcher{eng: eng, set: set, shift: shift, rng: rng}
	for v := range b.ink {
		b.ink[v] = (float32(v)/255 - pixelMean) / pixelSigma
	}
	return b
}

// batch returns the samples with the given indices as new tensors: the
// images, one a row, and the labels, one-hot.
func (b *batcher) batch(samples []int) (x, y tensor.Tensor) {
	b.x, b.y = b.x[:0], b.y[:0]
	for _, i := range samples {
		dx, dy := 0, 0
		if b.shift > 0 {
			dx, dy = b.rng.IntN(2*b.shift+1)-b.shift, b.rng.IntN(2*b.shift+1)-b.shift
		}
		b.appendImage(b.set.Image(i), dx, dy)
		var hot [mnist.Classes]float32
		hot[b.set.Labels[i]] = 1
		b.y = append(b.y, hot[:]...)
	}
	x = upload(b.eng, b.x, len(samples), b.set.Size())
	y = upload(b.eng, b.y, len(samples), mnist.Classes)
	return x, y
}

// appendImage adds an image to b.x, moved to the right by dx and down by dy.
func (b *batcher) appendImage(image []byte, dx, dy int) {
	for row := range b.set.Rows {
		for col := range b.set.Cols {
			pixel := byte(0)
			if r, c := row-dy, col-dx; r >= 0 && r < b.set.Rows && c >= 0 && c < b.set.Cols {
				pixel = image[r*b.set.Cols+c]
			}
			b.x = append(b.x, b.ink[pixel])
		}
	}
}
