package gorgoniavm

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// What a cross entropy looks like in a graph of gorgonia's, and what fuse makes
// of it: the losses of the rows and the gradient by the logits, in one step
// (Engine.ScaledCrossEntropy). The CPU adds up the losses, on their way to it.

// crossEntropy is the sum of y ⊙ log SoftMax(z), and the gradient by z of that
// sum times a scalar.
type crossEntropy struct {
	z, y, scale      int
	logs, prod, grad int // log SoftMax(z), y ⊙ that, and scale·y, the gradient by that
	sum, dz          int
}

// losses finds cross entropies and puts a step in the place of each.
func (f *fuser) losses() {
	for i := range f.instrs {
		if c, ok := f.matchLoss(i); ok {
			f.remove(c.logs, c.prod, c.grad)
			f.instrs[c.dz].replace(lossBack, c.z, c.y, c.scale)
			f.instrs[c.dz].parts = []int{c.sum}
			sum := &f.instrs[c.sum]
			sum.replace(partOf, c.dz)
			sum.shape, sum.losses = tensor.Shape{f.instrs[c.z].shape[0]}, true
			f.readers[c.y] = append(f.readers[c.y], c.dz)
			f.readers[c.scale] = append(f.readers[c.scale], c.dz)
		}
	}
}

// matchLoss finds what the gradient dz of a log SoftMax belongs to.
func (f *fuser) matchLoss(dz int) (c crossEntropy, ok bool) {
	if f.instrs[dz].name != "*gorgonia.softmaxDiffOp" || !f.isLogOfRows(dz) {
		return c, false
	}
	in := f.instrs[dz].in
	c = crossEntropy{z: in[0], logs: in[1], grad: in[2], dz: dz}
	logs, grad := &f.instrs[c.logs], &f.instrs[c.grad]
	if logs.name != "*gorgonia.softmaxOp" || !f.isLogOfRows(c.logs) || logs.in[0] != c.z || !f.hidden(c.logs) || len(f.readers[c.logs]) != 2 ||
		!grad.fused || grad.name != "gorgonia.elemBinOp" || !f.onlyFor(c.grad, dz) {
		return c, false
	}
	c.y, c.scale = grad.in[0], grad.in[1]
	c.prod = f.reader(c.logs, func(i int) bool {
		return f.is(i, "gorgonia.elemBinOp", mulOp, c.y, c.logs) || f.is(i, "gorgonia.elemBinOp", mulOp, c.logs, c.y)
	})
	if c.prod < 0 || len(f.readers[c.prod]) != 1 {
		return c, false
	}
	c.sum = f.readers[c.prod][0]
	sum := &f.instrs[c.sum]
	return c, f.onlyFor(c.prod, c.sum) && sum.name == "gorgonia.sumOp" && sum.scalar && len(sum.derivOf) == 0 && f.isNumber(c.scale, make(map[int]bool))
}

// isLogOfRows reports whether an operation of the SoftMax family has to do with
// the logarithm of that of a matrix's rows.
func (f *fuser) isLogOfRows(i int) bool {
	in := &f.instrs[i]
	axis := int(field(in.op, "axis").Int())
	return field(in.op, "isLog").Bool() && (axis == -1 || axis == 1) && len(in.shape) == 2 &&
		(in.dt == tensor.Float32 || in.dt == tensor.Float64)
}

// isNumber reports whether a slot is a scalar that no tensor is needed for, the
// sum least of all: that is made later than the gradient now.
func (f *fuser) isNumber(slot int, known map[int]bool) bool {
	if known[slot] {
		return true
	}
	known[slot] = f.instrs[slot].scalar && !slices.ContainsFunc(f.instrs[slot].in, func(from int) bool { return !f.isNumber(from, known) })
	return known[slot]
}

// lossBack makes the gradient of a cross entropy, and the losses of the rows for
// a part.
func lossBack(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	z, y, err := m.matrices(in, args)
	if err != nil {
		return nil, err
	}
	by, err := floatOf(args[2])
	if err != nil {
		return nil, err
	}
	losses, err := m.destination(&m.prog.instrs[in.parts[0]])
	if err != nil {
		return nil, err
	}
	m.slots[in.parts[0]], m.dst = m.dst, held{}
	dz, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dz, m.e.ScaledCrossEntropy(z, y, losses, dz, -by)
}

// sumOfLogs returns the sum that the losses of rows are parts of: each is a part
// of it with the other sign.
func sumOfLogs(losses *tensor.Dense) (gorgonia.Value, error) {
	switch rows := losses.Data().(type) {
	case []float64:
		return gorgonia.NewF64(-sumOf(rows)), nil
	case []float32:
		return gorgonia.NewF32(float32(-sumOf(rows))), nil
	}
	return nil, fmt.Errorf("losses of %v: %w", losses.Dtype(), ErrOperand)
}

func sumOf[T float32 | float64](xs []T) (sum float64) {
	for _, x := range xs {
		sum += float64(x)
	}
	return sum
}
