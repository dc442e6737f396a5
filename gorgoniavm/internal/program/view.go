package program

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// View is a part of a tensor whose elements lie in row-major order: rows that
// are so many elements apart. A stride of 0 repeats one row.
type View struct {
	Slot                          int
	Offset, Rows, Columns, Stride int
}

// all is all of a tensor.
func all(slot, n int) View { return View{Slot: slot, Rows: 1, Columns: n, Stride: n} }

func (v View) size() int { return v.Rows * v.Columns }

// dense reports whether the elements have no gaps between them.
func (v View) dense() bool { return v.Rows == 1 || v.Stride == v.Columns }

// of returns the part v of a part, whose elements v counts from 0 on. false: it
// is not made of rows.
func (v View) of(w View) (View, bool) {
	switch {
	case w.dense():
		v.Slot, v.Offset = w.Slot, w.Offset+v.Offset
		return v, true
	case v.dense() && v.Offset == 0 && v.size() == w.size():
		return w, true
	case (v.Rows == 1 || v.Stride == w.Columns) && v.Offset%w.Columns+v.Columns <= w.Columns:
		v.Slot, v.Offset, v.Stride = w.Slot, w.Offset+v.Offset/w.Columns*w.Stride+v.Offset%w.Columns, w.Stride
		return v, true
	}
	return View{}, false
}

// cutOf returns the part of a tensor that a sliceOp takes, or a sliceIncrOp adds
// to. false: it takes other elements than those between two.
func cutOf(op gorgonia.Op, along int, shape tensor.Shape) (View, bool) {
	s := sliceOf(op)
	if s == nil || along >= len(shape) || s.Start() < 0 || s.End() <= s.Start() || s.End() > shape[along] || s.Step() > 1 && s.End()-s.Start() > 1 {
		return View{}, false
	}
	inner := product(shape[along+1:])
	return View{Offset: s.Start() * inner, Rows: product(shape[:along]), Columns: (s.End() - s.Start()) * inner, Stride: shape[along] * inner}, true
}

// isAll reports whether a sliceOp takes all.
func isAll(op gorgonia.Op) bool {
	s := sliceOf(op)
	return s == nil || s.End() <= s.Start()
}

func product(sizes []int) int {
	n := 1
	for _, size := range sizes {
		n *= size
	}
	return n
}

func sliceOf(op gorgonia.Op) tensor.Slice {
	if s, ok := op.(interface{ IsSlice() tensor.Slice }); ok {
		return s.IsSlice()
	}
	return nil
}
