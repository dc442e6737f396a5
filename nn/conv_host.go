package nn

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Convolutions on the CPU, as Gorgonia computes them: one product of a matrix of
// all windows and the weights, so that the numbers are the same.

// elements returns the elements of a tensor, none for nil.
func elements[T layers.Float](d *tensor.Dense) []T {
	if d == nil {
		return nil
	}
	return operand.Slice[T](d)
}

// productOf sets c to the product of a, rows×inner, and b, inner×cols. Either may
// lie there as its transpose.
func productOf[T layers.Float](a, b, c []T, rows, inner, cols int, turnA, turnB bool) error {
	if rows*cols == 0 || inner == 0 {
		clear(c)
		return nil
	}
	return tensor.StdEng{}.MatMul(matrixOf(a, rows, inner, turnA), matrixOf(b, inner, cols, turnB), matrixOf(c, rows, cols, false))
}

// matrixOf returns a matrix over a slice that has it, or its transpose.
func matrixOf[T layers.Float](data []T, rows, cols int, turned bool) *tensor.Dense {
	if turned {
		return operand.Transposed(matrixOf(data, cols, rows, false))
	}
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(data))
}

func convOnHost[T layers.Float](s convSize, in, out []*tensor.Dense, act layers.Activation) error {
	rows := s.n * s.Pixels()
	col, y := make([]T, rows*s.Products()), make([]T, rows*s.out)
	layers.Im2Col(elements[T](in[0]), col, &s.Window)
	if err := productOf(col, elements[T](in[1]), y, rows, s.Products(), s.out, false, true); err != nil {
		return err
	}
	if in[2] != nil {
		layers.BiasActivate(y, elements[T](in[2]), act)
	} else if act != layers.None {
		layers.Activate(y, act)
	}
	layers.ChannelsFirst(y, elements[T](out[0]), s.out, s.Pixels())
	return nil
}

func convBackOnHost[T layers.Float](s convSize, in, out []*tensor.Dense, act layers.Activation) error {
	rows, x, w := s.n*s.Pixels(), elements[T](in[0]), elements[T](in[1])
	dz := make([]T, rows*s.out)
	layers.ChannelsFirst(elements[T](in[2]), dz, s.Pixels(), s.out) // channels last
	col := make([]T, rows*s.Products())
	if dw := elements[T](out[1]); dw != nil {
		layers.Im2Col(x, col, &s.Window)
		if err := productOf(dz, col, dw, s.out, rows, s.Products(), true, false); err != nil {
			return err
		}
	}
	if db := elements[T](out[2]); db != nil {
		layers.BiasActivateBack(dz, dz, db, s.out, layers.None)
	}
	if dx := elements[T](out[0]); dx != nil {
		if err := productOf(dz, w, col, rows, s.out, s.Products(), false, false); err != nil {
			return err
		}
		layers.Col2Im(col, dx, &s.Window)
		layers.BiasActivateBack(x, dx, nil, 0, act)
	}
	return nil
}

func columnsOnHost[T layers.Float](s convSize, from, to *tensor.Dense, back bool) {
	if back {
		layers.Col2Im(elements[T](from), elements[T](to), &s.Window)
	} else {
		layers.Im2Col(elements[T](from), elements[T](to), &s.Window)
	}
}
