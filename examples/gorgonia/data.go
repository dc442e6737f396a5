package main

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
)

// A source has samples: rows of numbers that go into a network, and rows with a
// 1 at the class that is wanted. A sample may have several of each.
type source interface {
	// len is the number of samples.
	len() int

	// varies reports whether a sample is another one each time.
	varies() bool

	// shuffle makes the order of the samples known.
	shuffle(order []int)

	// batch returns size samples from a place in that order on, as a network
	// wants them, until the next call. Samples past the last are zeros.
	batch(from, size int) (x, y []float32)

	// rows returns which rows of a batch of all samples in their natural order
	// make batches of a size in another order, one after the other.
	rows(order []int, size int) []int
}

// A feed gives a network's inputs batches of samples, in tensors that stay the
// same. Samples that do not vary are on the device as a whole, and once more in
// the order of an epoch, so that a batch is a part of that.
type feed struct {
	eng     *cupool.Engine
	from    source
	size    int // of a batch, in samples
	n       *network
	inputs  pair      // of the network; without y: to test
	wanted  []float32 // the last batch's y in Go's memory
	inPlace bool      // the network has parts of ordered for its inputs, no copies

	all, ordered pair // on the device, or none
	order        *tensor.Dense
}

// pair are rows that go in, and rows that are wanted.
type pair struct{ x, y *tensor.Dense }

func (p pair) tensors() (ts []tensor.Tensor) {
	for _, t := range []*tensor.Dense{p.x, p.y} {
		if t != nil {
			ts = append(ts, t)
		}
	}
	return ts
}

// newFeed makes the inputs of a network, in the pool.
func newFeed(eng *cupool.Engine, n *network, from source, size int) (f *feed, err error) {
	f = &feed{eng: eng, from: from, size: size, n: n}
	if f.inputs.x, err = f.input(n.x); err != nil || n.y == nil {
		return f, err
	}
	if f.inputs.y, err = f.input(n.y); err != nil || from.varies() {
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
	n := f.from.len()
	f.from.shuffle(training.NaturalOrder(n))
	x, y := f.from.batch(0, n)
	for _, s := range []struct {
		all, ordered **tensor.Dense
		of           []float32
		like         *tensor.Dense
	}{
		{&f.all.x, &f.ordered.x, x, f.inputs.x},
		{&f.all.y, &f.ordered.y, y, f.inputs.y},
	} {
		shape := s.like.Shape().Clone()
		shape[0] = len(s.of) / shape[1:].TotalSize()
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

// shuffle puts the samples in the order of an epoch.
func (f *feed) shuffle(order []int) (err error) {
	f.from.shuffle(order)
	if f.all.x == nil {
		return nil
	}
	rows := f.from.rows(order, f.size)
	places := hostTensor(rows, tensor.Shape{len(rows)})
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

// load gives the inputs the batch with a number.
func (f *feed) load(i int) error {
	if f.all.x != nil {
		if err := f.take(f.n.x, f.inputs.x, f.ordered.x, i); err != nil {
			return err
		}
		return f.take(f.n.y, f.inputs.y, f.ordered.y, i)
	}
	x, y := f.from.batch(i*f.size, f.size)
	f.wanted = y
	if err := f.eng.Copy(f.inputs.x, hostTensor(x, f.inputs.x.Shape().Clone())); err != nil || f.inputs.y == nil {
		return err
	}
	return f.eng.Copy(f.inputs.y, hostTensor(y, f.inputs.y.Shape().Clone()))
}

// take gives an input the rows of a batch of what is on the device.
func (f *feed) take(n *gorgonia.Node, input, all *tensor.Dense, i int) error {
	rows := n.Shape()[0]
	view, err := all.Slice(tensor.S(i*rows, (i+1)*rows))
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

// recognized compares the network's output with the last batch that was loaded,
// which was not on the device before: of so many rows in which something was
// wanted, right have the largest number there.
func (f *feed) recognized() (right, rows int, err error) {
	out, err := f.eng.ToHost(f.n.out.Value().(tensor.Tensor))
	if err != nil {
		return 0, 0, err
	}
	width := out.Shape()[1]
	for i := 0; i < len(f.wanted); i += width {
		class := slices.Index(f.wanted[i:i+width], 1)
		if class < 0 {
			continue // behind the last sample
		}
		rows++
		if class == largest(out.Float32s()[i:i+width]) {
			right++
		}
	}
	return right, rows, nil
}

// largest returns where the largest value is.
func largest(values []float32) (at int) {
	for i, v := range values {
		if v > values[at] {
			at = i
		}
	}
	return at
}

// tensors are all that the feed keeps in the pool.
func (f *feed) tensors() []tensor.Tensor {
	ts := slices.Concat(f.inputs.tensors(), f.all.tensors(), f.ordered.tensors())
	if f.order != nil {
		ts = append(ts, f.order)
	}
	return ts
}
