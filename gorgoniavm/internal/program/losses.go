package program

import (
	"slices"

	"gorgonia.org/tensor"
)

// Gorgonia computes a cross entropy by five operations. LossBack computes the
// losses of the rows and the gradient by the logits in one step. The CPU adds up
// the losses when it reads them.

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
			f.become(c.dz, LossBack, c.z, c.y, c.scale)
			f.putParts(c.dz, c.sum)
			sum := &f.instrs[c.sum]
			sum.Shape, sum.Losses = tensor.Shape{f.instrs[c.z].Shape[0]}, true
		}
	}
}

// matchLoss finds what the gradient dz of a log SoftMax belongs to.
func (f *fuser) matchLoss(dz int) (c crossEntropy, ok bool) {
	if f.instrs[dz].Name != "*gorgonia.softmaxDiffOp" || !f.isLogOfRows(dz) {
		return c, false
	}
	in := f.instrs[dz].In
	c = crossEntropy{z: in[0], logs: in[1], grad: in[2], dz: dz}
	logs, grad := &f.instrs[c.logs], &f.instrs[c.grad]
	if logs.Name != "*gorgonia.softmaxOp" || !f.isLogOfRows(c.logs) || logs.In[0] != c.z || !f.hidden(c.logs) || len(f.readers[c.logs]) != 2 ||
		!grad.Fused() || grad.Name != "gorgonia.elemBinOp" || !f.onlyFor(c.grad, dz) {
		return c, false
	}
	c.y, c.scale = grad.In[0], grad.In[1]
	c.prod = f.reader(c.logs, func(i int) bool {
		return f.is(i, "gorgonia.elemBinOp", mulOp, c.y, c.logs) || f.is(i, "gorgonia.elemBinOp", mulOp, c.logs, c.y)
	})
	if c.prod < 0 || len(f.readers[c.prod]) != 1 {
		return c, false
	}
	c.sum = f.readers[c.prod][0]
	sum := &f.instrs[c.sum]
	return c, f.onlyFor(c.prod, c.sum) && sum.Name == "gorgonia.sumOp" && sum.Scalar && len(sum.DerivOf) == 0 && f.isNumber(c.scale, make(map[int]bool))
}

// isLogOfRows reports whether an operation of the SoftMax family is for the
// logarithm of SoftMax, over the rows of a matrix.
func (f *fuser) isLogOfRows(i int) bool {
	in := &f.instrs[i]
	axis := int(Field(in.Op, "axis").Int())
	return Field(in.Op, "isLog").Bool() && (axis == -1 || axis == 1) && len(in.Shape) == 2 &&
		(in.Dtype == tensor.Float32 || in.Dtype == tensor.Float64)
}

// isNumber reports whether a slot is a scalar that is computed of scalars alone.
// A scale that needs a tensor may need the sum, which LossBack makes only
// together with the gradient.
func (f *fuser) isNumber(slot int, known map[int]bool) bool {
	if known[slot] {
		return true
	}
	known[slot] = f.instrs[slot].Scalar && !slices.ContainsFunc(f.instrs[slot].In, func(from int) bool { return !f.isNumber(from, known) })
	return known[slot]
}
