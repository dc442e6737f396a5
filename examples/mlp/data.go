package main

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
)

// A share says which part of the work of all ranks one does. A rank without
// others is {0, 1}.
type share struct{ rank, size int }

// part returns the rank's part of [from, to). The parts of all ranks follow each
// other, and differ by one at most.
func (s share) part(from, to int) (first, last int) {
	n := to - from
	return from + s.rank*n/s.size, from + (s.rank+1)*n/s.size
}

// Samples are images, one a row, and the classes they show, in the pool.
type samples struct{ x, y *tensor.Dense }

// upload copies samples of a batcher to the device.
func upload(eng *cupool.Engine, b *training.Batcher, first, last int) (s samples, err error) {
	x, y := b.Batch(first, last)
	n := last - first
	if s.x, err = eng.FromHost(tensor.New(tensor.WithBacking(x), tensor.WithShape(n, b.Set.Size()))); err != nil {
		return s, err
	}
	s.y, err = eng.FromHost(tensor.New(tensor.WithBacking(y), tensor.WithShape(n)))
	return s, err
}

// uploadAll copies a set to the device as it is.
func uploadAll(eng *cupool.Engine, set *mnist.Set) (samples, error) {
	return upload(eng, training.NewBatcher(set, 0, nil), 0, set.N)
}

// part returns the samples [from, to) in place.
func (s samples) part(from, to int) (part samples, err error) {
	rows := func(t *tensor.Dense) (*tensor.Dense, error) {
		v, err := t.Slice(tensor.S(from, to))
		if err != nil {
			return nil, err
		}
		shape := t.Shape().Clone()
		shape[0] = to - from
		return v.(*tensor.Dense), v.Reshape(shape...) // or one sample would lose a dimension
	}
	if part.x, err = rows(s.x); err != nil {
		return part, err
	}
	part.y, err = rows(s.y)
	return part, err
}

// A source gives a rank its part of every batch.
type source interface {
	// shuffle makes the order of an epoch's samples known.
	shuffle(order []int) error
	// batch returns the rank's part of the samples with the places [from, to) in
	// that order.
	batch(from, to int) (samples, error)
}

// newSource returns a source of images that are moved by up to -shift pixels, or
// of those that stay where they are.
func newSource(eng *cupool.Engine, set *mnist.Set, of share, o *options) (source, error) {
	if o.Shift > 0 {
		return &stream{eng, of, training.NewBatcher(set, o.Shift, o.Random(training.ForShifts))}, nil
	}
	r := &resident{eng: eng, share: of}
	var err error
	if r.all, err = uploadAll(eng, set); err != nil {
		return nil, err
	}
	r.ordered, err = uploadAll(eng, set)
	return r, err
}

// A stream copies samples to the device, a batch at a time.
type stream struct {
	eng *cupool.Engine
	share
	made *training.Batcher
}

func (s *stream) shuffle(order []int) error {
	s.made.Order = order
	return nil
}

func (s *stream) batch(from, to int) (samples, error) {
	first, last := s.part(from, to)
	s.made.Skip(first - from)
	defer s.made.Skip(to - last)
	return upload(s.eng, s.made, first, last)
}

// A resident set is on the device as a whole, and once more in the order of an
// epoch: a batch is a part of that, and nothing is copied.
type resident struct {
	eng *cupool.Engine
	share
	all, ordered samples
}

func (r *resident) shuffle(order []int) error {
	at, err := r.eng.FromHost(tensor.New(tensor.WithBacking(order)))
	if err != nil {
		return err
	}
	if _, err := tensor.ByIndices(r.all.x, at, 0, tensor.WithReuse(r.ordered.x)); err != nil {
		return err
	}
	if _, err := tensor.ByIndices(r.all.y, at, 0, tensor.WithReuse(r.ordered.y)); err != nil {
		return err
	}
	return r.eng.FreeTensor(at) // at once, though the device may not have come that far
}

func (r *resident) batch(from, to int) (samples, error) {
	return r.ordered.part(r.share.part(from, to))
}
