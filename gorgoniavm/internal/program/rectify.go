package program

// Gorgonia computes Rectify by a comparison with 0, whose result it keeps, and a
// product with that. Its gradient is a product with it again. Both are one step
// each, and often part of the step before.

// rectified puts steps in the place of Rectify and of its gradients.
func (f *fuser) rectified() {
	for mask := range f.instrs {
		if !f.isOwn(mask, positiveOp) || !isFloat(&f.instrs[mask]) || !f.hidden(mask) || !f.isZero(f.instrs[mask].In[1]) {
			continue
		}
		x := f.instrs[mask].In[0]
		out, gradients := f.matchRectify(x, mask)
		if out < 0 {
			continue
		}
		f.become(out, Rectify, x)
		for _, i := range gradients {
			f.become(i, RectifyBack, out, f.otherThan(mask, i))
		}
		f.remove(mask)
		f.rectifyBehind(out)
		for _, i := range gradients {
			f.rectifyBackBehind(i)
			f.rectifyBackBefore(i)
		}
	}
}

// isOwn reports whether an instruction is an elementwise operation of two
// tensors or numbers, and nothing has taken its place.
func (f *fuser) isOwn(i int, op string) bool {
	return !f.fused(i) && f.is(i, "gorgonia.elemBinOp", op)
}

// otherThan returns the operand of an operation that slot is not.
func (f *fuser) otherThan(slot, i int) int {
	in := f.instrs[i].In
	if in[0] == slot {
		return in[1]
	}
	return in[0]
}

// matchRectify returns the product of x with a mask of x ≥ 0, and the products
// of gradients with it. out is -1 where something else reads the mask too.
func (f *fuser) matchRectify(x, mask int) (out int, gradients []int) {
	out = -1
	for _, i := range f.readers[mask] {
		if !f.isOwn(i, mulOp) || f.otherThan(mask, i) == mask || !f.instrs[i].Shape.Eq(f.instrs[mask].Shape) {
			return -1, nil
		}
		switch {
		case out < 0 && f.otherThan(mask, i) == x:
			out = i
		case f.instrs[f.otherThan(mask, i)].Scalar:
			return -1, nil
		default:
			gradients = append(gradients, i)
		}
	}
	for _, i := range gradients {
		if i < out {
			return -1, nil
		}
	}
	return out, gradients
}

// rectifyBehind has the step that makes the operand of a Rectify do that too.
func (f *fuser) rectifyBehind(out int) {
	x := f.instrs[out].In[0]
	in := &f.instrs[x]
	step := in.Step
	switch {
	case !f.onlyFor(x, out) || in.Rectify:
		return
	case step == Linear || step == ConvForward || step == NormForward:
	case step == Own && f.isProduct(x, "A × B") && f.floats(x):
		step = Linear
	default:
		return
	}
	f.remove(x)
	f.become(out, step, in.In...)
	to := &f.instrs[out]
	to.Op, to.Name, to.Conv, to.Rectify = in.Op, in.Name, in.Conv, true
}

// rectifyBackBehind has the step that makes d, a gradient by the result of a
// Rectify, go on to that by its operand.
func (f *fuser) rectifyBackBehind(i int) {
	out, d := f.instrs[i].In[0], f.instrs[i].In[1]
	switch in := &f.instrs[d]; {
	case !f.onlyFor(d, i):
	case in.Step == PartOf:
		f.rectifyPart(i, out, d)
	case in.Step == Own && in.Name == "*gorgonia.maxPoolDiffOp" && in.In[0] == out:
		f.remove(d)
		f.become(i, Own, in.In...)
		f.instrs[i].Op, f.instrs[i].Name, f.instrs[i].Rectify = in.Op, in.Name, true
	}
}

// rectifyBackBefore has the gradient of a normalization take the slope of the
// Rectify that follows it.
func (f *fuser) rectifyBackBefore(i int) {
	in := &f.instrs[i]
	if in.Step != RectifyBack || len(f.readers[i]) != 1 || !f.hidden(i) {
		return
	}
	y, dy, dx := in.In[0], in.In[1], f.readers[i][0]
	back, forward := &f.instrs[dx], &f.instrs[y]
	if back.Step != NormBack || forward.Step != NormForward || back.In[1] != i || len(back.In) != 3 ||
		back.In[0] != forward.In[0] || back.In[2] != forward.In[1] {
		return
	}
	f.remove(i)
	f.become(dx, NormBack, back.In[0], dy, back.In[2], y)
	back.Rectify = true
}

// rectifyPart is rectifyBackBehind for a d that a layer's gradients have for a part.
func (f *fuser) rectifyPart(i, out, d int) {
	maker := f.instrs[d].In[0]
	in := &f.instrs[maker]
	if in.Step != LinearBack && in.Step != ConvBack || in.Parts[0] != d || in.In[0] != out {
		return
	}
	f.remove(d)
	f.become(i, PartOf, maker)
	in.Parts[0], in.Rectify = i, true
}

// isZero reports whether a slot is the constant 0.
func (f *fuser) isZero(slot int) bool {
	in := &f.instrs[slot]
	if in.Kind != Constant || in.Node.Value() == nil {
		return false
	}
	x := in.Node.Value().Data()
	return x == float32(0) || x == float64(0)
}
