package main

import (
	"math/rand/v2"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
)

// A feed gives a network's inputs batches of samples, in tensors that stay the
// same. Images that are not shifted are on the device as a whole, and once more
// in the order of an epoch, so that a batch is a part of that.
type feed struct {
	eng     *cupool.Engine
	batcher *training.Batcher
	n       *network
	inputs  samples   // of the network; without y: to test
	hot     []float32 // a batch of y on its way
	inPlace bool      // the network has parts of ordered for its inputs, no copies

	all, ordered samples // on the device, or none
	order        *tensor.Dense
}

// samples are images and the classes that they show, a row each.
type samples struct{ x, y *tensor.Dense }

func (s samples) tensors() (ts []tensor.Tensor) {
	for _, t := range []*tensor.Dense{s.x, s.y} {
		if t != nil {
			ts = append(ts, t)
		}
	}
	return ts
}

// newFeed makes the inputs of a network, in the pool.
func newFeed(eng *cupool.Engine, n *network, set *mnist.Set, shift int, rng *rand.Rand) (f *feed, err error) {
	f = &feed{eng: eng, batcher: training.NewBatcher(set, shift, rng), n: n}
	if f.inputs.x, err = f.input(n.x); err != nil || n.y == nil {
		return f, err
	}
	if f.inputs.y, err = f.input(n.y); err != nil || shift > 0 {
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

// parts gives the network parts of the samples themselves, where there are any
// on the device. The machine has to take tensors that are views.
func (f *feed) parts() { f.inPlace = true }

// upload copies all samples to the device.
func (f *feed) upload() (err error) {
	n := f.batcher.Set.N
	f.batcher.Shuffle(training.NaturalOrder(n))
	images, labels := f.batcher.Batch(0, n)
	f.hot = appendHot(f.hot[:0], labels)
	for _, s := range []struct {
		all, ordered **tensor.Dense
		of           []float32
		like         *tensor.Dense
	}{
		{&f.all.x, &f.ordered.x, images, f.inputs.x},
		{&f.all.y, &f.ordered.y, f.hot, f.inputs.y},
	} {
		shape := s.like.Shape().Clone()
		shape[0] = n
		if *s.all, err = f.eng.FromHost(hostTensor(s.of, shape)); err != nil {
			return err
		}
		if *s.ordered, err = f.eng.Empty(tensor.Float32, shape...); err != nil {
			return err
		}
	}
	return nil
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

// shuffle puts the samples in the order of an epoch.
func (f *feed) shuffle(order []int) (err error) {
	f.batcher.Shuffle(order)
	if f.all.x == nil {
		return nil
	}
	places := hostTensor(order, tensor.Shape{len(order)})
	if f.order == nil {
		f.order, err = f.eng.FromHost(places)
	} else {
		err = f.eng.Copy(f.order, places)
	}
	if err != nil {
		return err
	}
	if _, err := tensor.ByIndices(f.all.x, f.order, 0, tensor.WithReuse(f.ordered.x)); err != nil {
		return err
	}
	_, err = tensor.ByIndices(f.all.y, f.order, 0, tensor.WithReuse(f.ordered.y))
	return err
}

// load gives the inputs the samples with the places [from, to). Rows that are
// left over are zero.
func (f *feed) load(from, to int) error {
	if f.all.x != nil {
		if err := f.take(f.n.x, f.inputs.x, f.ordered.x, from, to); err != nil {
			return err
		}
		return f.take(f.n.y, f.inputs.y, f.ordered.y, from, to)
	}
	images, labels := f.batcher.Batch(from, to)
	x, y := f.inputs.x, f.inputs.y
	if missing := x.Shape().TotalSize() - len(images); missing > 0 {
		images = append(images, make([]float32, missing)...)
	}
	if err := f.eng.Copy(x, hostTensor(images, x.Shape().Clone())); err != nil || y == nil {
		return err
	}
	f.hot = appendHot(f.hot[:0], labels)
	return f.eng.Copy(y, hostTensor(f.hot, y.Shape().Clone()))
}

// take gives an input rows of what is on the device.
func (f *feed) take(n *gorgonia.Node, input, all *tensor.Dense, from, to int) error {
	view, err := all.Slice(tensor.S(from, to))
	if err != nil {
		return err
	}
	part := view.(*tensor.Dense)
	if err := part.Reshape(n.Shape().Clone()...); err != nil { // a single row would be no matrix
		return err
	}
	if f.inPlace {
		return gorgonia.Let(n, part)
	}
	return f.eng.Copy(input, part)
}

// tensors are all that the feed keeps in the pool.
func (f *feed) tensors() []tensor.Tensor {
	ts := slices.Concat(f.inputs.tensors(), f.all.tensors(), f.ordered.tensors())
	if f.order != nil {
		ts = append(ts, f.order)
	}
	return ts
}
