package main

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
)

// Samples are what a network learns from, or is tested with: rows of numbers that
// go into it, and rows with a 1 at the class that is wanted.
type samples struct {
	n      int
	rows   int  // of each sample
	varies bool // a sample is another one each time

	// batch returns the samples of an order, as a network wants a batch of so
	// many. Those that are missing are zeros.
	batch func(order []int, size int) (x, y []float32)
}

// openImages reads MNIST. The images to train on are moved by up to -shift
// pixels.
func openImages(o *options) (train, test samples, err error) {
	trainSet, testSet, err := training.LoadData(&o.Options)
	if err != nil {
		return train, test, err
	}
	if trainSet.Size() != pixels {
		return train, test, fmt.Errorf("images of %d × %d pixels, and not of %d × %d", trainSet.Rows, trainSet.Cols, side, side)
	}
	train = images(training.NewBatcher(trainSet, o.Shift, o.Random(training.ForShifts)))
	train.varies = o.Shift > 0
	return train, images(training.NewBatcher(testSet, 0, nil)), nil
}

func images(b *training.Batcher) samples {
	return samples{
		n:    b.Set.N,
		rows: 1,
		batch: func(order []int, size int) (x, y []float32) {
			b.Order = order
			x, labels := b.Batch(0, len(order))
			y = make([]float32, size*classes)
			for i, label := range labels {
				y[i*classes+label] = 1
			}
			return append(x, make([]float32, size*pixels-len(x))...), y
		},
	}
}

// A feed gives a network's inputs batches of the samples to train on. Samples that
// do not vary are on the device as a whole, and once more in the order of an
// epoch: a batch is a part of that, and nothing is copied.
type feed struct {
	eng     *cupool.Engine
	from    samples
	size    int // of a batch, in samples
	order   []int
	all     rows // of samples that do not vary
	ordered rows
	input   rows // of others: a batch, which is copied there
}

// Rows are those that go in and those that are wanted, on the device.
type rows struct{ x, y *tensor.Dense }

func newFeed(eng *cupool.Engine, from samples, size int) (f *feed, err error) {
	f = &feed{eng: eng, from: from, size: size}
	if from.varies {
		x, y := from.batch(nil, size)
		f.input, err = upload(eng, x, y, size*from.rows)
		return f, err
	}
	x, y := from.batch(training.NaturalOrder(from.n), from.n)
	if f.all, err = upload(eng, x, y, from.n*from.rows); err != nil {
		return f, err
	}
	f.ordered, err = upload(eng, x, y, from.n*from.rows)
	return f, err
}

func upload(eng *cupool.Engine, x, y []float32, n int) (r rows, err error) {
	if r.x, err = eng.FromHost(matrix(x, n)); err != nil {
		return r, err
	}
	r.y, err = eng.FromHost(matrix(y, n))
	return r, err
}

// matrix is a tensor of n rows, in Go's memory.
func matrix[T float32 | int](values []T, n int) *tensor.Dense {
	return tensor.New(tensor.WithBacking(values), tensor.WithShape(n, len(values)/n))
}

// shuffle puts the samples in the order of an epoch.
func (f *feed) shuffle(order []int) error {
	f.order = order
	if f.from.varies {
		return nil
	}
	// In all a row of each sample comes first, then the second ones. So they do
	// in each batch.
	var from []int
	for i := 0; i < len(order); i += f.size {
		for row := range f.from.rows {
			for _, sample := range order[i:min(i+f.size, len(order))] {
				from = append(from, row*f.from.n+sample)
			}
		}
	}
	at, err := f.eng.FromHost(tensor.New(tensor.WithBacking(from)))
	if err != nil {
		return err
	}
	for to, of := range map[*tensor.Dense]*tensor.Dense{f.ordered.x: f.all.x, f.ordered.y: f.all.y} {
		if _, err := tensor.ByIndices(of, at, 0, tensor.WithReuse(to)); err != nil {
			return err
		}
	}
	return f.eng.FreeTensor(at)
}

// load gives networks the batch with a number.
func (f *feed) load(i int, to ...*network) error {
	in, first := f.input, 0
	if f.from.varies {
		x, y := f.from.batch(f.order[i*f.size:(i+1)*f.size], f.size)
		if err := f.eng.Copy(in.x, matrix(x, in.x.Shape()[0])); err != nil {
			return err
		}
		if err := f.eng.Copy(in.y, matrix(y, in.y.Shape()[0])); err != nil {
			return err
		}
	} else {
		in, first = f.ordered, i*f.size*f.from.rows
	}
	for _, n := range to {
		for input, all := range map[*node]*tensor.Dense{n.x: in.x, n.y: in.y} {
			part, err := all.Slice(tensor.S(first, first+f.size*f.from.rows))
			if err != nil {
				return err
			}
			if err := part.Reshape(input.Shape().Clone()...); err != nil {
				return err
			}
			if err := gorgonia.Let(input, part); err != nil {
				return err
			}
		}
	}
	return nil
}
