package gorgoniavm

import (
	"slices"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// On a device, what takes the time of a small graph is to start its operations
// one by one. Gorgonia builds a dense layer of seven, and of five more to go
// back through it, for which the engine has one step each (Engine.Linear and
// LinearBack). fuse finds them among the instructions and puts those in their
// place. It takes away only what has no other reader and what the program
// cannot want to see.

// fuser replaces instructions of a program that has not been compiled to the
// end. Slots are the numbers of instructions before anything is replaced.
type fuser struct {
	instrs  []instr
	readers [][]int // of each slot
	gone    []bool  // instructions that others do the work of
	taken   []bool  // gradients of weights that a layer has
}

// layer is a product of matrices, z = x·w, with what is made of it. Slots that
// are not there are -1.
type layer struct {
	x, w, z   int
	bias, sum int // sum = z + bias, in each row
	mask, out int // out = sum ⊙ mask, mask = sum ≥ 0
	inside    []int

	back
}

// back is how a layer's gradients are made.
type back struct {
	dz, dw, db int
	dx         int // dz·wᵀ
	masked     int // dx ⊙ the mask of the layer that made x
}

// fuse returns the instructions with fused steps among them.
func fuse(instrs []instr) []instr {
	f := &fuser{instrs: instrs, readers: make([][]int, len(instrs)), gone: make([]bool, len(instrs)), taken: make([]bool, len(instrs))}
	for i := range instrs {
		for _, from := range instrs[i].in {
			f.readers[from] = append(f.readers[from], i)
		}
	}
	f.sizes()
	f.scales()
	layers := f.layers()
	f.matchRectified(layers)
	for i := range layers {
		f.putForward(&layers[i])
		f.putBack(&layers[i], layers)
	}
	return f.ordered()
}

// hidden reports whether nobody wants to see what an instruction computes.
func (f *fuser) hidden(i int) bool {
	in := &f.instrs[i]
	return !in.keep && len(in.derivOf) == 0
}

// onlyFor reports whether a result is for one reader.
func (f *fuser) onlyFor(i, reader int) bool {
	return f.hidden(i) && len(f.readers[i]) == 1 && f.readers[i][0] == reader
}

// is reports whether an instruction is an operation of gorgonia's, on slots if
// there are any.
func (f *fuser) is(i int, name, op string, in ...int) bool {
	at := &f.instrs[i]
	return at.name == name && at.op.String() == op && (len(in) == 0 || slices.Equal(at.in, in))
}

func (f *fuser) isProduct(i int, op string, in ...int) bool {
	return f.is(i, "gorgonia.linAlgBinOp", op, in...) && len(f.instrs[i].shape) == 2
}

// reader returns the reader of a slot that fits, or -1.
func (f *fuser) reader(slot int, fits func(i int) bool) int {
	if i := slices.IndexFunc(f.readers[slot], fits); i >= 0 {
		return f.readers[slot][i]
	}
	return -1
}

// stopReading takes a reader from a slot.
func (f *fuser) stopReading(slot, reader int) {
	i := slices.Index(f.readers[slot], reader)
	f.readers[slot] = slices.Delete(f.readers[slot], i, i+1)
}

// sizes makes numbers of the sizes of tensors, so that no tensor is kept or
// computed for its size.
func (f *fuser) sizes() {
	for i := range f.instrs {
		in := &f.instrs[i]
		if in.name != "gorgonia.sizeOp" || f.instrs[in.in[0]].scalar {
			continue
		}
		of := &f.instrs[in.in[0]]
		axis := intsOf(in.op, "axis")[0]
		v, err := sizeAs(of.dt, of.shape, axis)
		if err != nil {
			continue
		}
		f.stopReading(in.in[0], i)
		in.replace(func(*VM, *instr, []gorgonia.Value) (gorgonia.Value, error) { return v, nil })
	}
}

// sizeAs returns a size as gorgonia has it, in the type of the elements.
func sizeAs(dt tensor.Dtype, shape tensor.Shape, axis int) (gorgonia.Value, error) {
	if axis < len(shape) {
		switch dt {
		case tensor.Float64:
			return gorgonia.NewF64(float64(shape[axis])), nil
		case tensor.Float32:
			return gorgonia.NewF32(float32(shape[axis])), nil
		}
	}
	return nil, ErrOperand
}

// scales finds products of a tensor with one that is a scalar, repeated: the
// gradients of a mean.
func (f *fuser) scales() {
	for i := range f.instrs {
		if !f.is(i, "gorgonia.elemBinOp", mulOp) || f.instrs[i].scalar {
			continue
		}
		for arg, from := range f.instrs[i].in {
			if scalar, chain := f.repeated(from, i); scalar >= 0 {
				f.remove(chain...)
				f.instrs[i].replace(scale, f.instrs[i].in[1-arg], scalar)
				f.readers[scalar] = append(f.readers[scalar], i)
				break
			}
		}
	}
}

// repeated returns the scalar that a tensor for one reader is made of, by
// reshaping and repeating it, and how; or -1.
func (f *fuser) repeated(slot, reader int) (scalar int, chain []int) {
	for !f.instrs[slot].scalar {
		in := &f.instrs[slot]
		if in.name != "*gorgonia.repeatOp" && in.name != "gorgonia.reshapeOp" || !f.onlyFor(slot, reader) {
			return -1, nil
		}
		chain = append(chain, slot)
		slot, reader = in.in[0], slot
	}
	if len(chain) == 0 {
		return -1, nil
	}
	return slot, chain
}

const (
	mulOp      = "⊙ false"
	addOp      = "+ false"
	positiveOp = ">= true"
)

// layers finds the products of matrices, and what is made of each.
func (f *fuser) layers() (ls []layer) {
	for i := range f.instrs {
		if f.isProduct(i, "A × B") && f.floats(i) {
			l := layer{x: f.instrs[i].in[0], w: f.instrs[i].in[1], z: i, bias: -1, sum: -1, mask: -1, out: -1}
			f.matchBias(&l)
			f.matchBack(&l)
			ls = append(ls, l)
		}
	}
	return ls
}

// floats reports whether the engine's fused steps are made for a product.
func (f *fuser) floats(i int) bool {
	in := &f.instrs[i]
	return (in.dt == tensor.Float32 || in.dt == tensor.Float64) && in.shape.TotalSize() > 0 &&
		len(f.instrs[in.in[0]].shape) == 2 && len(f.instrs[in.in[1]].shape) == 2
}

// matchBias finds the sum of a product with a row that is repeated.
func (f *fuser) matchBias(l *layer) {
	sum := f.reader(l.z, func(i int) bool { return f.is(i, "gorgonia.elemBinOp", addOp) })
	if sum < 0 || !f.onlyFor(l.z, sum) {
		return
	}
	in := f.instrs[sum].in
	rows := in[0]
	if rows == l.z {
		rows = in[1]
	}
	repeat := &f.instrs[rows]
	if rows == l.z || repeat.name != "*gorgonia.repeatOp" || repeat.axes[0] != 0 || !f.onlyFor(rows, sum) {
		return
	}
	bias := repeat.in[0]
	if shape := f.instrs[bias].shape; len(shape) != 2 || shape[0] != 1 || shape[1] != f.instrs[l.z].shape[1] {
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
		mask := f.reader(l.sum, func(i int) bool { return f.is(i, "gorgonia.elemBinOp", positiveOp) && f.isZero(f.instrs[i].in[1]) })
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
	if in.kind != constant || in.node.Value() == nil {
		return false
	}
	x := in.node.Value().Data()
	return x == float32(0) || x == float64(0)
}

// matchBack finds the gradients of a product, all from one dz. What they are
// made of has to be there before the first of them, as they are made at once.
func (f *fuser) matchBack(l *layer) {
	l.back = back{dz: -1, dw: -1, db: -1, dx: -1, masked: -1}
	b := l.back
	if b.dw, b.dx = f.gradients(l); b.dw < 0 {
		return
	}
	b.dz = f.instrs[b.dw].in[1]
	b.db = f.reader(b.dz, func(i int) bool {
		return f.instrs[i].name == "gorgonia.sumOp" && slices.Equal(f.instrs[i].axes, []int{0})
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
// Where there are several by a w of that shape, it is the one whose dz has one
// by x too.
func (f *fuser) gradients(l *layer) (dw, dx int) {
	dw = -1
	for _, i := range f.readers[l.x] {
		if f.taken[i] || !f.isProduct(i, "Aᵀ × B") || f.instrs[i].in[0] != l.x || !f.instrs[i].shape.Eq(f.instrs[l.w].shape) {
			continue
		}
		dz := f.instrs[i].in[1]
		if dx := f.reader(l.w, func(i int) bool { return f.isProduct(i, "A × Bᵀ", dz, l.w) }); dx >= 0 {
			return i, dx
		}
		if dw < 0 && len(f.instrs[dz].shape) == 2 {
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
	act := cupool.NoActivation
	if l.mask >= 0 {
		act = cupool.Rectify
	}
	f.remove(l.inside...)
	f.instrs[l.out].replace(linear(act), l.x, l.w, l.bias)
}

// putBack puts one step in the place of a layer's gradients. It is that of the
// weights' which the others are parts of.
func (f *fuser) putBack(l *layer, ls []layer) {
	if l.dw < 0 {
		return
	}
	act, dx := cupool.NoActivation, l.dx
	if l.masked >= 0 {
		act, dx = cupool.Rectify, l.masked
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
	in.replace(linearBack(act), l.x, l.w, l.dz)
	in.parts = []int{dx, db}
	for _, part := range in.parts {
		if part >= 0 {
			f.instrs[part].replace(partOf, l.dw)
		}
	}
}

func (f *fuser) fused(i int) bool { return f.gone[i] || f.instrs[i].fused }

// remove takes instructions away, which are computed by others.
func (f *fuser) remove(is ...int) {
	for _, i := range is {
		f.gone[i] = true
		for _, from := range f.instrs[i].in {
			f.stopReading(from, i)
		}
	}
}

// replace has an instruction computed otherwise, of other slots.
func (in *instr) replace(k kernel, slots ...int) {
	in.run, in.in, in.fused = k, slots, true
}

// ordered returns the instructions that are left, each after those whose
// results it reads, otherwise in the order as before, under new numbers.
func (f *fuser) ordered() []instr {
	left := make([]instr, 0, len(f.instrs))
	slot := make([]int, len(f.instrs))
	for i := range slot {
		slot[i] = -1
	}
	var put func(i int)
	put = func(i int) {
		if slot[i] >= 0 {
			return
		}
		for _, from := range f.instrs[i].in {
			put(from)
		}
		slot[i] = len(left)
		left = append(left, f.instrs[i])
	}
	for i := range f.instrs {
		if !f.gone[i] {
			put(i)
		}
	}
	for i := range left {
		in := &left[i]
		in.out = i
		for _, slots := range [][]int{in.in, in.parts} {
			for j, from := range slots {
				if from >= 0 {
					slots[j] = slot[from]
				}
			}
		}
	}
	return left
}
