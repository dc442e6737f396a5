package program

import (
	"slices"

	"gorgonia.org/tensor"
)

// Gorgonia builds a dense layer of a product, a repeated bias and a sum. Linear
// and LinearBack take their place, rectify.go adds what may follow.

// layer is a product of matrices, z = x·w, and the slots of what is made of it.
// -1: there is no such slot.
type layer struct {
	x, w, z   int
	bias, sum int   // sum = z + bias, in each row
	inside    []int // slots that nothing outside of the layer reads

	back
}

// back is how a layer's gradients are made.
type back struct {
	dz, dw, db int
	dx         int // dz·wᵀ
}

// layers finds the products of matrices, and what is made of each.
func (f *fuser) layers() (ls []layer) {
	for i := range f.instrs {
		if f.isProduct(i, "A × B") && f.floats(i) {
			l := layer{x: f.instrs[i].In[0], w: f.instrs[i].In[1], z: i, bias: -1, sum: -1}
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
	l.bias, l.sum = bias, sum
	l.inside = append(l.inside, l.z, rows)
}

// matchBack finds the gradients of a product, all from one dz. One step makes
// all of them, so its operands have to come before the first gradient.
func (f *fuser) matchBack(l *layer) {
	l.back = back{dz: -1, dw: -1, db: -1, dx: -1}
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
	f.become(l.sum, Linear, l.x, l.w, l.bias)
}

// putBack puts one step in the place of a layer's gradients. The step's own
// result is the gradient by the weights; the other gradients are its parts.
func (f *fuser) putBack(l *layer) {
	if l.dw < 0 {
		return
	}
	f.become(l.dw, LinearBack, l.x, l.w, l.dz)
	f.putParts(l.dw, l.dx, l.db)
}

// putParts has an instruction make other results beside its own, -1 for none. A
// result that is made otherwise already is none of them.
func (f *fuser) putParts(maker int, parts ...int) {
	for i, part := range parts {
		if part >= 0 && f.fused(part) {
			parts[i] = -1
		} else if part >= 0 {
			f.become(part, PartOf, maker)
		}
	}
	f.instrs[maker].Parts = parts
}
