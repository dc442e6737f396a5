package program

import (
	"slices"

	"gorgonia.org/tensor"
)

// Gorgonia builds a dense layer of a product, a repeated bias, a sum, a comparison
// with 0 and a product with its result. Linear and LinearBack take their place.

// layer is a product of matrices, z = x·w, and the slots of what is made of it.
// -1: there is no such slot.
type layer struct {
	x, w, z   int
	bias, sum int   // sum = z + bias, in each row
	mask, out int   // out = sum ⊙ mask, mask = sum ≥ 0
	inside    []int // slots that nothing outside of the layer reads

	back
}

// back is how a layer's gradients are made.
type back struct {
	dz, dw, db int
	dx         int // dz·wᵀ
	masked     int // dx ⊙ the mask of the layer that made x
}

// layers finds the products of matrices, and what is made of each.
func (f *fuser) layers() (ls []layer) {
	for i := range f.instrs {
		if f.isProduct(i, "A × B") && f.floats(i) {
			l := layer{x: f.instrs[i].In[0], w: f.instrs[i].In[1], z: i, bias: -1, sum: -1, mask: -1, out: -1}
			f.matchBias(&l)
			f.matchBack(&l)
			ls = append(ls, l)
		}
	}
	return ls
}

// floats reports whether the engine's fused steps can compute a product.
func (f *fuser) floats(i int) bool {
	in := &f.instrs[i]
	return (in.Dtype == tensor.Float32 || in.Dtype == tensor.Float64) && in.Shape.TotalSize() > 0 &&
		len(f.instrs[in.In[0]].Shape) == 2 && len(f.instrs[in.In[1]].Shape) == 2
}

// matchBias finds the sum of a product with a row that is repeated.
func (f *fuser) matchBias(l *layer) {
	sum := f.reader(l.z, func(i int) bool { return f.is(i, "gorgonia.elemBinOp", addOp) })
	if sum < 0 || !f.onlyFor(l.z, sum) {
		return
	}
	in := f.instrs[sum].In
	rows := in[0]
	if rows == l.z {
		rows = in[1]
	}
	repeat := &f.instrs[rows]
	if rows == l.z || repeat.Name != "*gorgonia.repeatOp" || repeat.Axes[0] != 0 || !f.onlyFor(rows, sum) {
		return
	}
	bias := repeat.In[0]
	if shape := f.instrs[bias].Shape; len(shape) != 2 || shape[0] != 1 || shape[1] != f.instrs[l.z].Shape[1] {
		return
	}
	l.bias, l.sum, l.out = bias, sum, sum
	l.inside = append(l.inside, l.z, rows)
}

// matchRectified finds the layers whose sum is rectified, and the gradients
// that go back through that. Where something else reads the mask too, nothing
// is taken away.
func (f *fuser) matchRectified(ls []layer) {
	for i := range ls {
		l := &ls[i]
		if l.sum < 0 || !f.hidden(l.sum) || len(f.readers[l.sum]) != 2 {
			continue
		}
		mask := f.reader(l.sum, func(i int) bool { return f.is(i, "gorgonia.elemBinOp", positiveOp) && f.isZero(f.instrs[i].In[1]) })
		if mask < 0 || !f.hidden(mask) {
			continue
		}
		out := f.reader(l.sum, func(i int) bool { return f.is(i, "gorgonia.elemBinOp", mulOp, l.sum, mask) })
		if out < 0 || !f.matchMasked(ls, out, mask) {
			continue
		}
		l.mask, l.out = mask, out
		l.inside = append(l.inside, l.sum, mask)
	}
}

// matchMasked finds the gradients by layers' inputs x that are multiplied by
// the mask that x was made with; false: the mask is read elsewhere too.
func (f *fuser) matchMasked(ls []layer, x, mask int) bool {
	masked := make(map[int]*layer)
	for i := range ls {
		l := &ls[i]
		if l.x != x || l.dx < 0 || len(f.readers[l.dx]) != 1 || !f.hidden(l.dx) {
			continue
		}
		if m := f.readers[l.dx][0]; f.is(m, "gorgonia.elemBinOp", mulOp, mask, l.dx) || f.is(m, "gorgonia.elemBinOp", mulOp, l.dx, mask) {
			masked[m] = l
		}
	}
	for _, r := range f.readers[mask] {
		if masked[r] == nil && r != x {
			return false
		}
	}
	for m, l := range masked {
		l.masked = m
	}
	return true
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

// matchBack finds the gradients of a product, all from one dz. One step makes
// all of them, so its operands have to come before the first gradient.
func (f *fuser) matchBack(l *layer) {
	l.back = back{dz: -1, dw: -1, db: -1, dx: -1, masked: -1}
	b := l.back
	if b.dw, b.dx = f.gradients(l); b.dw < 0 {
		return
	}
	b.dz = f.instrs[b.dw].In[1]
	b.db = f.reader(b.dz, func(i int) bool {
		return f.instrs[i].Name == "gorgonia.sumOp" && slices.Equal(f.instrs[i].Axes, []int{0})
	})
	for _, made := range []int{b.dw, b.db, b.dx} {
		if made >= 0 && made < max(l.x, l.w, b.dz) {
			return
		}
	}
	f.taken[b.dw] = true
	l.back = b
}

// gradients returns the products that are a layer's gradients by w and by x.
// Where several products could be the gradient by w, it takes the one whose dz
// has a gradient by x too.
func (f *fuser) gradients(l *layer) (dw, dx int) {
	dw = -1
	for _, i := range f.readers[l.x] {
		if f.taken[i] || !f.isProduct(i, "Aᵀ × B") || f.instrs[i].In[0] != l.x || !f.instrs[i].Shape.Eq(f.instrs[l.w].Shape) {
			continue
		}
		dz := f.instrs[i].In[1]
		if dx := f.reader(l.w, func(i int) bool { return f.isProduct(i, "A × Bᵀ", dz, l.w) }); dx >= 0 {
			return i, dx
		}
		if dw < 0 && len(f.instrs[dz].Shape) == 2 {
			dw = i
		}
	}
	return dw, -1
}

// putForward puts one step in the place of a layer with a bias.
func (f *fuser) putForward(l *layer) {
	if l.bias < 0 {
		return
	}
	f.remove(l.inside...)
	f.instrs[l.out].replace(Linear, l.x, l.w, l.bias)
	f.instrs[l.out].Rectify = l.mask >= 0
}

// putBack puts one step in the place of a layer's gradients. The step's own
// result is the gradient by the weights; the other gradients are its parts.
func (f *fuser) putBack(l *layer) {
	if l.dw < 0 {
		return
	}
	dx := l.dx
	if l.masked >= 0 {
		dx = l.masked
		f.remove(l.dx)
	}
	db := l.db
	if db >= 0 && f.fused(db) {
		db = -1
	}
	if dx >= 0 && f.fused(dx) {
		dx = -1
	}
	in := &f.instrs[l.dw]
	in.replace(LinearBack, l.x, l.w, l.dz)
	in.Rectify = l.masked >= 0
	in.Parts = []int{dx, db}
	for _, part := range in.Parts {
		if part >= 0 {
			f.instrs[part].replace(PartOf, l.dw)
		}
	}
}

func (f *fuser) fused(i int) bool { return f.gone[i] || f.instrs[i].Fused() }
