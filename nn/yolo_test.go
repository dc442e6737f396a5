package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

func TestYOLOBoxes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		o := nn.YOLO{Anchors: [][2]float64{{10, 13}, {33, 23}}, Classes: 1, Stride: 8}
		for _, dt := range floats {
			for _, s := range [][]int{{1, 12, 1, 1}, {2, 12, 3, 4}, {3, 12, 13, 13}, {0, 12, 2, 2}} {
				e.checkBoxes(dt, o, s)
			}
		}
	})
}

func (e *bench) checkBoxes(dt tensor.Dtype, o nn.YOLO, s []int) {
	what := fmt.Sprint(dt, s)
	rows, cols, boxes, attrs := s[2], s[3], len(o.Anchors), 5+o.Classes
	x, y := e.From(random(e.Rand, dt, s...)), must(e.Empty(dt, s[0], rows*cols*boxes, attrs))
	in := e.As64(x)
	var want []float64
	for sample := range s[0] {
		for cell := range rows * cols {
			for box := range boxes {
				at := func(attr int) float64 { return in[((sample*boxes+box)*attrs+attr)*rows*cols+cell] }
				sigmoid := func(attr int) float64 { return 1 / (1 + math.Exp(-at(attr))) }
				want = append(want, (sigmoid(0)+float64(cell%cols))*o.Stride, (sigmoid(1)+float64(cell/cols))*o.Stride,
					math.Exp(at(2))*o.Anchors[box][0], math.Exp(at(3))*o.Anchors[box][1], sigmoid(4), sigmoid(5))
			}
		}
	}
	require.NoError(e.T, o.Boxes(e.Engine, x, y), what)
	e.RequireNear(append([]float64{}, want...), y, what)
	e.FreeAll(x, y)
}

func TestYOLOErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y, m := e.From(random(e.Rand, tensor.Float32, 1, 7, 2, 2)), must(e.Empty(tensor.Float32, 4, 7)), e.From(random(e.Rand, tensor.Float32, 7, 4))
		o := nn.YOLO{Anchors: [][2]float64{{1, 1}}, Classes: 2, Stride: 4}
		many := nn.YOLO{Anchors: make([][2]float64, 17), Classes: 2}
		more := nn.YOLO{Anchors: o.Anchors, Classes: 3}
		require.NoError(t, o.Boxes(e.Engine, x, y))
		failures{
			"nothing":      {o.Boxes(e.Engine, nil, y), cupool.ErrNotSupported},
			"a matrix":     {o.Boxes(e.Engine, m, y), cupool.ErrNotSupported},
			"many anchors": {many.Boxes(e.Engine, x, y), cupool.ErrNotSupported},
			"more classes": {more.Boxes(e.Engine, x, y), cupool.ErrNotSupported},
			"in place":     {o.Boxes(e.Engine, x, x), cupool.ErrNotSupported},
			"to nothing":   {o.Boxes(e.Engine, x, nil), cupool.ErrNotSupported},
		}.require(t)
		e.FreeAll(x, y, m)
	})
}
