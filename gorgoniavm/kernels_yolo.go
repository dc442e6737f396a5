package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// yolo is gorgonia's YOLOv3 of float32 and square grids, without targets. Gorgonia
// refuses float64, and its loss with targets has no gradient. It takes the first
// anchors, whichever the masks name.
func yolo(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	if !ok || program.Field(in.Op, "trainMode").Bool() || d.Dims() != 4 || d.Dtype() != tensor.Float32 || d.Shape()[2] != d.Shape()[3] || d.Shape()[2] == 0 {
		return foreign(m, in, args)
	}
	anchors := program.Field(in.Op, "anchors")
	o := nn.YOLO{Classes: int(program.Field(in.Op, "numClasses").Int()), Stride: float64(int(program.Field(in.Op, "dimensions").Int()) / d.Shape()[2])}
	for i, mask := range program.Ints(in.Op, "masks") {
		if mask >= anchors.Len()/2 || 2*i+1 >= anchors.Len() {
			return foreign(m, in, args) // which says what is wrong
		}
		o.Anchors = append(o.Anchors, [2]float64{anchors.Index(2 * i).Float(), anchors.Index(2*i + 1).Float()})
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return y, o.Boxes(m.e, d, y)
}
