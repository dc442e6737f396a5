package program

// Gorgonia builds a batch normalization of an operation, a product with a scale and
// a sum with a bias, both repeated by three operations each, and its gradients of
// ten more. NormForward and NormBack take their place.

const (
	batchNorm     = "*gorgonia.BatchNormOp"
	batchNormBack = "*gorgonia.batchnormDiffOp"
)

// norm is a batch normalization, with the operation itself, its product with the
// scale, and how that is repeated.
type norm struct{ x, hat, prod, scales, scale int }

// norms finds batch normalizations and their gradients, and puts a step in the place
// of each. The gradients come first, as they read what the normalization made.
func (f *fuser) norms() {
	for i := range f.instrs {
		if f.instrs[i].Name != batchNorm || f.fused(i) || !isFloat(&f.instrs[i]) || f.instrs[i].Shape.TotalSize() == 0 {
			continue
		}
		n := norm{x: f.instrs[i].In[0], hat: i, scale: -1}
		n.prod = f.reader(i, func(r int) bool {
			if !f.isOwn(r, mulOp) {
				return false
			}
			n.scales = f.otherThan(i, r)
			n.scale = f.channels(n.scales, f.instrs[i].Shape)
			return n.scale >= 0
		})
		if n.prod >= 0 {
			f.normBack(&n)
			f.normForward(&n)
		}
	}
}

// normForward fuses a normalization, unless its result without the scale is read
// elsewhere.
func (f *fuser) normForward(n *norm) {
	if !f.onlyFor(n.hat, n.prod) {
		return
	}
	sum := f.reader(n.prod, func(i int) bool { return f.isOwn(i, addOp) })
	if sum < 0 || !f.onlyFor(n.prod, sum) {
		return
	}
	all := f.otherThan(n.prod, sum)
	bias := f.channels(all, f.instrs[sum].Shape)
	if bias < 0 {
		return
	}
	f.remove(n.hat, n.prod)
	f.become(sum, NormForward, n.x, n.scale, bias)
	f.instrs[sum].Op, f.instrs[sum].Name = f.instrs[n.hat].Op, batchNorm
	f.sweep(n.scales, all)
}

// normBack fuses the gradients of a normalization. The step's own result is the one
// by x. Its operands have to come before the first gradient.
func (f *fuser) normBack(n *norm) {
	op := f.instrs[n.hat].Op
	dx := f.reader(n.x, func(i int) bool {
		in := &f.instrs[i]
		return in.Name == batchNormBack && !f.fused(i) && Field(in.Op, "BatchNormOp").Interface() == any(op) && in.In[0] == n.x
	})
	if dx < 0 {
		return
	}
	scaled := f.instrs[dx].In[1]
	if !f.isOwn(scaled, mulOp) || !f.onlyFor(scaled, dx) || f.otherThan(n.scales, scaled) == n.scales {
		return
	}
	dy := f.otherThan(n.scales, scaled)
	if dy == scaled || f.instrs[scaled].In[0] != n.scales && f.instrs[scaled].In[1] != n.scales {
		return
	}
	f.putNormBack(n, dx, scaled, dy)
}

// putNormBack puts a step in the place of the gradients that are made of dy.
func (f *fuser) putNormBack(n *norm, dx, scaled, dy int) {
	gone := []int{scaled}
	dscale, dbias := -1, -1
	if prod := f.reader(n.hat, func(i int) bool { return i != n.prod && f.isOwn(i, mulOp) && f.otherThan(n.hat, i) == dy }); prod >= 0 && len(f.readers[prod]) == 1 && f.hidden(prod) {
		var chain []int
		if dscale, chain = f.channelSums(prod); dscale >= 0 {
			gone = append(append(gone, prod), chain...)
		}
	}
	if sums, chain := f.channelSums(dy); sums >= 0 {
		dbias, gone = sums, append(gone, chain...)
	}
	if min(dx, orLast(dscale), orLast(dbias)) < max(n.x, n.scale, dy) {
		return
	}
	f.become(dx, NormBack, n.x, dy, n.scale)
	f.putParts(dx, dscale, dbias)
	f.remove(gone...)
}
