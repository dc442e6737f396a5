package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// floatsOnDevice is onDevice for elements that are floats. Gorgonia computes
// others.
func floatsOnDevice(k kernel) kernel {
	k = onDevice(k)
	return func(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
		if in.Dtype != tensor.Float32 && in.Dtype != tensor.Float64 {
			return foreign(m, in, args)
		}
		return k(m, in, args)
	}
}

// windowOf returns the windows of a pooling operation. Where gorgonia is given
// four paddings, it takes the second of an axis for the first one.
func windowOf(op gorgonia.Op) nn.Window {
	field := func(name string) int { return int(program.Field(op, name).Int()) }
	w := nn.Window{Size: [2]int{field("h"), field("w")}, Stride: [2]int{field("strideH"), field("strideW")}}
	w.Pad = [2]int{field("padNorth"), field("padWest")}
	if program.Field(op, "explicitPadding").Bool() {
		w.Pad = [2]int{field("padSouth"), field("padEast")}
	}
	for d, both := range []int{field("padNorth") + field("padSouth"), field("padWest") + field("padEast")} {
		w.Extra[d] = both - 2*w.Pad[d]
	}
	return w
}

// toResult calls a step with an operation's first operand and its result.
func toResult(m *VM, in *program.Instr, args []gorgonia.Value, step func(x, y *tensor.Dense) error) (gorgonia.Value, error) {
	x, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return y, step(x, y)
}

// maxPool is *gorgonia.maxPoolOp.
func maxPool(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error { return nn.MaxPool2d(m.e, x, y, windowOf(in.Op)) })
}

// maxPoolBack is *gorgonia.maxPoolDiffOp, of the input, the result and the
// gradient by it, and goes on to the gradient by what the input was rectified from. Gorgonia has kept which elements it took; they are found again.
func maxPoolBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	y, dy, err := pair(args[1:])
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.MaxPool2dBack(m.e, x, y, dy, dx, windowOf(in.Op), activationOf(in))
	})
}

// avgPool is *gorgonia.avgPoolOp, which divides by the width of the image.
func avgPool(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.AvgPool2d(m.e, x, y, windowOf(in.Op), float64(x.Shape()[3]))
	})
}

// avgPoolBack is *gorgonia.avgPoolDiffOp, of the input, the result and the
// gradient by it.
func avgPoolBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args[2:], func(dy, dx *tensor.Dense) error { return nn.GorgoniaAvgPool2dBack(m.e, dy, dx, windowOf(in.Op)) })
}

// globalAvgPool is *gorgonia.globalAveragePoolOp.
func globalAvgPool(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.AvgPool2d(m.e, x, y, nn.Window{Size: [2]int{x.Shape()[2], x.Shape()[3]}}, 0)
	})
}

// upsample is *gorgonia.upsampleOp.
func upsample(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error { return nn.Upsample2d(m.e, x, y, scaleOf(in.Op)) })
}

// upsampleBack is *gorgonia.upsampleDiffOp, of the input, the result and the
// gradient by it.
func upsampleBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args[2:], func(dy, dx *tensor.Dense) error { return nn.Upsample2dBack(m.e, dy, dx, scaleOf(in.Op)) })
}

func scaleOf(op gorgonia.Op) int { return int(program.Field(op, "stride").Int()) + 1 }
