package gorgoniavm

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// The kernels of operations that gorgonia computes on the CPU, and package nn on a
// device.

// onDevice is a kernel for memory that the CPU cannot touch. Elsewhere, and where an
// operand has a mask, gorgonia computes the operation, unless it is a normalization, whose
// statistics are on the device.
func onDevice(k kernel) kernel {
	return func(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
		if m.e.AllocAccessible() || keyOf(in) == nil && slices.ContainsFunc(args, isMaskedValue) {
			return foreign(m, in, args)
		}
		return k(m, in, args)
	}
}

func isMaskedValue(v gorgonia.Value) bool {
	d, ok := v.(*tensor.Dense)
	return ok && d != nil && d.IsMasked()
}

// functions are gorgonia's functions of one number that package tensor has no
// operation for.
var functions = map[string]nn.Function{
	"sigmoid": nn.Logistic, "sin": nn.Sin, "cos": nn.Cos, "ceil": nn.Ceil, "floor": nn.Floor,
	"log1p": nn.Log1p, "expm1": nn.Expm1, "softplus": nn.Softplus,
}

// function computes a function of each element, in place where it can. Gorgonia
// has Go functions for them.
func function(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	f, known := functions[in.Op.String()]
	d, ok := args[0].(*tensor.Dense)
	if !known || !ok || m.e.AllocAccessible() {
		return elementwise(m, in, args)
	}
	if d.IsMasked() {
		return foreign(m, in, args)
	}
	y := d
	if !m.mayOverwrite(in) {
		var err error
		if y, err = m.destination(in); err != nil {
			return nil, err
		}
	}
	return y, nn.Apply(m.e, f, d, y)
}

// sparsemax is gorgonia's: along the last axis, or one of a matrix. The result for
// its columns is in their order, as rows.
func sparsemax(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	axis := program.Field(in.Op, "axis").Int()
	columns := axis == 0 && ok && d.Dims() == 2
	if !ok || d.Dims() == 0 || axis != -1 && !columns && (axis != 1 || d.Dims() != 2) {
		return foreign(m, in, args)
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if !columns {
		return y, nn.Sparsemax(m.e, d, y)
	}
	turned := d.ShallowClone()
	if err := turned.T(); err != nil {
		return nil, err
	}
	rows := y.ShallowClone()
	if err := rows.Reshape(turned.Shape().Clone()...); err != nil {
		return nil, err
	}
	if err := m.e.Copy(rows, turned); err != nil {
		return nil, err
	}
	return y, nn.Sparsemax(m.e, rows, rows)
}

// sparsemaxBack is the gradient of sparsemax, which gorgonia has for vectors and
// matrices.
func sparsemaxBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	y, dy, err := pair(args)
	if err != nil {
		return nil, err
	}
	if y.Dims() != dy.Dims() || y.Dims() < 1 || y.Dims() > 2 {
		return foreign(m, in, args)
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dx, nn.SparsemaxBack(m.e, y, dy, dx)
}

// diagFlat puts the elements of a tensor on the diagonal of a matrix.
func diagFlat(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error { return nn.DiagFlat(m.e, x, y) })
}

// elementAt copies one element, which is fetched as other scalars are.
func elementAt(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, err := dense(args[0])
	if err != nil {
		return nil, err
	}
	parts := make([]tensor.Slice, d.Dims())
	for i, at := range program.Ints(in.Op, "coordinates") {
		if i >= len(parts) || at < 0 || at >= d.Shape()[i] {
			return foreign(m, in, args) // which says what is wrong
		}
		parts[i] = gorgonia.S(at)
	}
	v, err := d.Slice(parts...)
	if err != nil {
		return nil, err
	}
	if v.Shape().TotalSize() != 1 {
		return foreign(m, in, args)
	}
	one, err := m.empty(in.Dtype, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	from := v.(*tensor.Dense)
	if err := from.Reshape(1); err != nil {
		return nil, err
	}
	return one, m.e.Copy(one, from)
}

// convert turns floats into ints or ints into floats.
func convert(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	types := []tensor.Dtype{in.Dtype}
	if ok {
		types = append(types, d.Dtype())
	}
	floats := slices.Contains(types, tensor.Float32) || slices.Contains(types, tensor.Float64)
	if !ok || !floats || !slices.Contains(types, tensor.Int) {
		return foreign(m, in, args)
	}
	y, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return y, nn.Convert(m.e, d, y)
}

// conv is act(x ∗ w + bias), or that without a bias.
func conv(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layer(in, args, func(x, w *tensor.Dense, bias, y tensor.Tensor) error {
		return nn.Conv2d(m.e, x, w, bias, y, nn.Conv(in.Conv), activationOf(in))
	})
}

// convBack makes the gradients of a convolution.
func convBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return m.layerBack(in, args, func(x, w, dz *tensor.Dense, dx, dw, db tensor.Tensor) error {
		return nn.Conv2dBack(m.e, x, w, dz, dx, dw, db, nn.Conv(in.Conv), activationOf(in))
	})
}

// im2col copies each element of images as often as a kernel covers it.
func im2col(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, col *tensor.Dense) error { return nn.Im2Col(m.e, x, col, nn.Conv(in.Conv)) })
}

// col2im adds up what im2col copied from one element.
func col2im(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(col, x *tensor.Dense) error { return nn.Col2Im(m.e, col, x, nn.Conv(in.Conv)) })
}

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

// statsOf returns the statistics of an operation and what they are used for now.
func (m *VM) statsOf(in *program.Instr) nn.BatchStats {
	n := m.norms[keyOf(in)]
	s := n.stats
	s.Evaluate = n.batch != nil && !isTraining(n.batch)
	return s
}

// isTraining reports whether an operation is in the mode of training.
func isTraining(op *gorgonia.BatchNormOp) bool { return program.Field(op, "training").Bool() }

// batchNorm is *gorgonia.BatchNormOp. The scale and the bias are operations of
// their own.
func batchNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.BatchNorm(m.e, x, nil, nil, y, m.statsOf(in), nn.NoActivation)
	})
}

// batchNormBack is *gorgonia.batchnormDiffOp, of the input and the gradient by
// the result. Where it evaluates images, gorgonia takes deviations of batches
// for those that it has normalized with, which gives another gradient.
func batchNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, err := dense(args[1])
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.BatchNormBack(m.e, x, nil, dy, nil, dx, nil, nil, m.statsOf(in), nn.NoActivation)
	})
}

// scaledNorm is act(batchNorm(x)·scale + bias).
func scaledNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	scale, bias, err := pair(args[1:])
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.BatchNorm(m.e, x, scale, bias, y, m.statsOf(in), activationOf(in))
	})
}

// scaledNormBack makes the gradients of scaledNorm, of x, the gradient by the
// result, the scale and, where it is rectified, the result. That by x is its result;
// those by the scale and the bias, where they are wanted, are its parts.
func scaledNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, scale, err := pair(args[1:])
	if err != nil {
		return nil, err
	}
	var y tensor.Tensor
	if in.Rectify {
		if y, err = dense(args[3]); err != nil {
			return nil, err
		}
	}
	parts, err := m.parts(in)
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.BatchNormBack(m.e, x, y, dy, scale, dx, parts[0], parts[1], m.statsOf(in), activationOf(in))
	})
}

// groupNorm is *gorgonia.GroupNormOp. Of groups of 264 elements and more,
// gorgonia puts the moments together wrongly, and has other numbers.
func groupNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	s := m.statsOf(in)
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.GroupNorm(m.e, x, y, s.Mean, s.Inverse, groupsOf(in.Op), s.Epsilon)
	})
}

// groupNormBack is *gorgonia.groupNormDiffOp, of the input and the gradient by the
// result.
func groupNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, err := dense(args[1])
	if err != nil {
		return nil, err
	}
	s := m.statsOf(in)
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.GroupNormBack(m.e, x, dy, dx, s.Mean, s.Inverse, groupsOf(in.Op))
	})
}

func groupsOf(op gorgonia.Op) int { return int(program.Field(op, "numGroups").Int()) }

// ctcLoss is gorgonia's CTCLoss. Where lengths or classes are out of range, the
// loss is NaN, as looking at them would wait for the device. Gorgonia has the loss of
// a sample without targets with the other sign.
func ctcLoss(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	logProbs, t, err := transcripts(args)
	if err != nil {
		return nil, err
	}
	loss, err := m.empty(in.Dtype, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	mean := gorgonia.Reduction(program.Field(in.Op, "reduction").Uint()) == gorgonia.ReductionMean
	return loss, nn.CTCLoss(m.e, logProbs, t, loss, mean)
}

// ctcLossBack is its gradient: gorgonia's is that of the sum, of means as well.
// Behind a sample's length, where gorgonia has −Inf, it is 0.
func ctcLossBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	logProbs, t, err := transcripts(args)
	if err != nil {
		return nil, err
	}
	by, err := floatOf(args[4])
	if err != nil {
		return nil, err
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dx, nn.CTCLossBack(m.e, logProbs, t, dx, by)
}

// transcripts returns the first four operands of CTCLoss and its gradient.
func transcripts(args []gorgonia.Value) (logProbs *tensor.Dense, t nn.Transcripts, err error) {
	var ds [4]*tensor.Dense
	for i := range ds {
		if ds[i], err = dense(args[i]); err != nil {
			return nil, t, err
		}
	}
	return ds[0], nn.Transcripts{Targets: ds[1], Lengths: ds[2], TargetLengths: ds[3]}, nil
}

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
