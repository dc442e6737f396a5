package program

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// correct gives an instruction the shape that its value has, where Gorgonia infers
// another: it leaves out what is left of a slice behind its last whole step. What
// is computed of such a slice has other shapes, too.
func (p *Program) correct(in *Instr) {
	if in.Kind != Operation || in.Scalar {
		return
	}
	operands := make([]gorgonia.DimSizer, len(in.In))
	wrong := in.Name == "*gorgonia.sliceOp"
	for i, from := range in.In {
		operand := &p.Instrs[from]
		operands[i] = operand.Shape
		wrong = wrong || !operand.Scalar && !slices.Equal(operand.Shape, operand.Node.Shape())
	}
	if !wrong {
		return
	}
	shape, err := inferShape(in, operands)
	if err == nil && shape.TotalSize() != in.Shape.TotalSize() {
		in.Shape = shape
	}
}

func inferShape(in *Instr, operands []gorgonia.DimSizer) (tensor.Shape, error) {
	s := sliceOf(in.Op)
	if s == nil || in.Name != "*gorgonia.sliceOp" {
		return in.Op.InferShape(operands...)
	}
	of := operands[0].(tensor.Shape)
	parts := make([]tensor.Slice, len(of))
	parts[in.Axes[0]] = s
	ap := tensor.MakeAP(of.Clone(), of.CalcStrides(), 0, 0)
	cut, _, _, err := ap.S(of.TotalSize(), parts...)
	return cut.Shape(), err
}
