package nn

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Convolutions on the CPU, as Gorgonia computes them: one product of a matrix of
// all windows and the weights, so that the numbers are the same.

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

func convOnHost[T layers.Float](s convSize, act Activation, failed *error) hostStep {
	return func(in, out []*tensor.Dense) {
		rows := s.n * s.Pixels()
		col, y := make([]T, rows*s.Products()), make([]T, rows*s.out)
		layers.Im2Col(operand.Slice[T](in[0]), col, &s.Window)
		if *failed = productOf(col, operand.Slice[T](in[1]), y, rows, s.Products(), s.out, false, true); *failed != nil {
			return
		}
		if in[2] != nil {
			layers.BiasActivate(y, operand.Slice[T](in[2]), layers.Activation(act))
		} else if act != NoActivation {
			layers.Activate(y, layers.Activation(act))
		}
		layers.ChannelsFirst(y, operand.Slice[T](out[0]), s.out, s.Pixels())
	}
}

func convBackOnHost[T layers.Float](s convSize, act Activation, failed *error) hostStep {
	return func(in, out []*tensor.Dense) {
		rows, x, w := s.n*s.Pixels(), operand.Slice[T](in[0]), operand.Slice[T](in[1])
		dz := make([]T, rows*s.out)
		layers.ChannelsFirst(operand.Slice[T](in[2]), dz, s.Pixels(), s.out) // channels last
		col := make([]T, rows*s.Products())
		if dw := operand.Slice[T](out[1]); dw != nil {
			layers.Im2Col(x, col, &s.Window)
			if *failed = productOf(dz, col, dw, s.out, rows, s.Products(), true, false); *failed != nil {
				return
			}
		}
		if db := operand.Slice[T](out[2]); db != nil {
			layers.BiasActivateBack(dz, dz, db, s.out, layers.None)
		}
		if dx := operand.Slice[T](out[0]); dx != nil {
			if *failed = productOf(dz, w, col, rows, s.out, s.Products(), false, false); *failed != nil {
				return
			}
			layers.Col2Im(col, dx, &s.Window)
			layers.BiasActivateBack(x, dx, nil, 0, layers.Activation(act))
		}
	}
}

func columnsOnHost[T layers.Float](s convSize, back bool) hostStep {
	move := layers.Im2Col[T]
	if back {
		move = layers.Col2Im[T]
	}
	return func(in, out []*tensor.Dense) { move(operand.Slice[T](in[0]), operand.Slice[T](out[0]), &s.Window) }
}
