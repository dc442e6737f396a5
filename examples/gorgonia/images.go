package main

import (
	"fmt"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/mnist"
)

// The sizes of MNIST, which networks of images are made for.
const (
	side    = 28
	pixels  = side * side
	classes = mnist.Classes
)

// images are samples of MNIST: a row of pixels each, and the class that it
// shows.
type images struct {
	*training.Batcher
	moved bool // by random shifts
	hot   []float32
}

// openImages reads MNIST. The images to train on are moved by up to -shift
// pixels.
func openImages(o *options) (train, test source, err error) {
	trainSet, testSet, err := training.LoadData(&o.Options)
	if err != nil {
		return nil, nil, err
	}
	if trainSet.Size() != pixels {
		return nil, nil, fmt.Errorf("images of %d × %d pixels, and not of %d × %d", trainSet.Rows, trainSet.Cols, side, side)
	}
	return &images{Batcher: training.NewBatcher(trainSet, o.Shift, o.Random(training.ForShifts)), moved: o.Shift > 0},
		&images{Batcher: training.NewBatcher(testSet, 0, nil)}, nil
}

func (s *images) len() int { return s.Set.N }

func (s *images) varies() bool { return s.moved }

func (s *images) shuffle(order []int) { s.Shuffle(order) }

func (s *images) batch(from, size int) (x, y []float32) {
	x, labels := s.Batch(from, min(from+size, s.Set.N))
	s.hot = appendHot(s.hot[:0], labels)
	return fill(x, size*pixels), fill(s.hot, size*classes)
}

func (s *images) rows(order []int, _ int) []int { return order }

// appendHot adds a row for each label, with a 1 at its place.
func appendHot(rows []float32, labels []int) []float32 {
	for _, label := range labels {
		rows = append(rows, make([]float32, classes)...)
		rows[len(rows)-classes+label] = 1
	}
	return rows
}

// fill adds zeros until there are n values.
func fill(values []float32, n int) []float32 {
	return append(values, make([]float32, n-len(values))...)
}
