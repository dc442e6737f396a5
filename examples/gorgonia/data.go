package main

import (
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
)

// A feed puts batches of samples into the tensors that a network's inputs
// have, which stay the same. Images that are not shifted come from a copy of
// all of them on the device.
type feed struct {
	eng     *cupool.Engine
	batcher *training.Batcher
	x, y    *tensor.Dense // of the network; without y: to test
	hot     []float32     // a batch of y on its way

	allX, allY, order *tensor.Dense // on the device, or nil
}

// newFeed makes the inputs of a network, in the pool.
func newFeed(eng *cupool.Engine, n *network, set *mnist.Set, shift int, rng *rand.Rand) (f *feed, err error) {
	f = &feed{eng: eng, batcher: training.NewBatcher(set, shift, rng)}
	if f.x, err = f.input(n.x); err != nil || n.y == nil {
		return f, err
	}
	if f.y, err = f.input(n.y); err != nil || shift > 0 {
		return f, err
	}
	return f, f.upload()
}

func (f *feed) input(n *gorgonia.Node) (*tensor.Dense, error) {
	t, err := f.eng.Empty(tensor.Float32, n.Shape().Clone()...)
	if err != nil {
		return nil, err
	}
	return t, gorgonia.Let(n, t)
}

// upload copies all samples to the device.
func (f *feed) upload() (err error) {
	n := f.batcher.Set.N
	f.batcher.Shuffle(training.NaturalOrder(n))
	images, labels := f.batcher.Batch(0, n)
	f.hot = appendHot(f.hot[:0], labels)
	shapeX, shapeY := f.x.Shape().Clone(), f.y.Shape().Clone()
	shapeX[0], shapeY[0] = n, n
	if f.allX, err = f.eng.FromHost(hostTensor(images, shapeX)); err != nil {
		return err
	}
	f.allY, err = f.eng.FromHost(hostTensor(f.hot, shapeY))
	return err
}

func hostTensor[T float32 | int](values []T, shape tensor.Shape) *tensor.Dense {
	return tensor.New(tensor.WithBacking(values), tensor.WithShape(shape...))
}

// appendHot adds a row for each label, with a 1 at its place.
func appendHot(rows []float32, labels []int) []float32 {
	for _, label := range labels {
		rows = append(rows, make([]float32, classes)...)
		rows[len(rows)-classes+label] = 1
	}
	return rows
}

// shuffle makes the order of an epoch's samples known.
func (f *feed) shuffle(order []int) (err error) {
	f.batcher.Shuffle(order)
	if f.allX == nil {
		return nil
	}
	if f.order == nil {
		f.order, err = f.eng.FromHost(hostTensor(order, tensor.Shape{len(order)}))
		return err
	}
	return f.eng.Copy(f.order, hostTensor(order, tensor.Shape{len(order)}))
}

// load puts the samples with the places [from, to) into the inputs. Rows that
// are left over are zero.
func (f *feed) load(from, to int) error {
	if f.allX != nil {
		return f.pick(from, to)
	}
	images, labels := f.batcher.Batch(from, to)
	if missing := f.x.Shape().TotalSize() - len(images); missing > 0 {
		images = append(images, make([]float32, missing)...)
	}
	if err := f.eng.Copy(f.x, hostTensor(images, f.x.Shape().Clone())); err != nil || f.y == nil {
		return err
	}
	f.hot = appendHot(f.hot[:0], labels)
	return f.eng.Copy(f.y, hostTensor(f.hot, f.y.Shape().Clone()))
}

// pick is load on the device.
func (f *feed) pick(from, to int) error {
	picks, err := f.order.Slice(tensor.S(from, to))
	if err != nil {
		return err
	}
	if _, err := tensor.ByIndices(f.allX, picks, 0, tensor.WithReuse(f.x)); err != nil {
		return err
	}
	_, err = tensor.ByIndices(f.allY, picks, 0, tensor.WithReuse(f.y))
	return err
}

// tensors are all that the feed keeps in the pool.
func (f *feed) tensors() (ts []tensor.Tensor) {
	for _, t := range []*tensor.Dense{f.x, f.y, f.allX, f.allY, f.order} {
		if t != nil {
			ts = append(ts, t)
		}
	}
	return ts
}
