package program

import (
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// Gorgonia builds a convolution of six operations, the largest of which copies
// each element of the image as often as the kernel covers it (im2col), and its
// gradients of eight more. ConvForward and ConvBack take their place.

// Conv is how a kernel moves over images, in rows and columns.
type Conv struct{ Kernel, Pad, Stride, Dilation [2]int }

// convOf returns the Conv of an im2colOp, or of a col2imOp, which has one.
func convOf(in *Instr) Conv {
	field := func(name string) int { return int(Field(in.Op, name).Int()) }
	return Conv{
		Kernel:   [2]int{field("h"), field("w")},
		Pad:      [2]int{field("padH"), field("padW")},
		Stride:   [2]int{field("strideH"), field("strideW")},
		Dilation: [2]int{field("dilationH"), field("dilationW")},
	}
}

// patches are the images x as im2col copies them, a row for each place of the
// kernel: the slots of im2col and of its result as a matrix.
type patches struct{ x, cols, rows int }

// convs finds convolutions and their gradients, and puts a step in the place
// of each.
func (f *fuser) convs() {
	for i := range f.instrs {
		if f.instrs[i].Name != "gorgonia.im2colOp" || !isFloat(&f.instrs[i]) {
			continue
		}
		for _, rows := range slices.Clone(f.readers[i]) {
			if f.isReshape(rows) && len(f.instrs[rows].Shape) == 2 {
				f.convsOf(patches{f.instrs[i].In[0], i, rows})
			}
		}
	}
}

// convsOf fuses what is made of patches. The gradients come first, as they are
// found by what the convolutions read.
func (f *fuser) convsOf(p patches) {
	products := slices.Clone(f.readers[p.rows])
	for _, i := range products {
		if f.isProduct(i, "Aᵀ × B") && f.instrs[i].In[1] == p.rows {
			f.convBack(p, i, products)
		}
	}
	for _, i := range products {
		if f.isProduct(i, "A × Bᵀ") && f.instrs[i].In[0] == p.rows {
			f.convForward(p, i)
		}
	}
	f.sweep(p.rows)
}

// filterOf returns the filter that a matrix is made of, or -1.
func (f *fuser) filterOf(p patches, matrix int) int {
	if !f.isReshape(matrix) {
		return -1
	}
	w, x, c := f.instrs[matrix].In[0], f.instrs[p.x].Shape, f.instrs[p.cols].Conv
	if s := f.instrs[w].Shape; len(s) != 4 || !s.Eq(tensor.Shape{s[0], x[1], c.Kernel[0], c.Kernel[1]}) {
		return -1
	}
	return w
}

// convForward fuses the convolution whose product is z, with a bias.
func (f *fuser) convForward(p patches, z int) {
	matrix := f.instrs[z].In[1]
	w := f.filterOf(p, matrix)
	if w < 0 || len(f.readers[z]) != 1 || !f.hidden(z) {
		return
	}
	grid := f.readers[z][0]
	if !f.isReshape(grid) || len(f.readers[grid]) != 1 || !f.hidden(grid) {
		return
	}
	out := f.readers[grid][0]
	if !f.isTranspose(out, 0, 3, 1, 2) {
		return
	}
	f.remove(grid, z)
	f.become(out, ConvForward, p.x, w)
	f.instrs[out].Conv = f.instrs[p.cols].Conv
	f.sweep(matrix)
	f.convBias(out)
}

// convBias adds to a convolution the bias that follows it.
func (f *fuser) convBias(out int) {
	sum := f.reader(out, func(i int) bool { return f.isOwn(i, addOp) })
	if sum < 0 || !f.onlyFor(out, sum) {
		return
	}
	all := f.otherThan(out, sum)
	bias := f.channels(all, f.instrs[out].Shape)
	if bias < 0 {
		return
	}
	x, w := f.instrs[out].In[0], f.instrs[out].In[1]
	f.remove(out)
	f.become(sum, ConvForward, x, w, bias)
	f.instrs[sum].Conv = f.instrs[out].Conv
	f.sweep(all)
}

// convBack fuses the gradients of a convolution, of which dw is the one by the
// filter. One step makes all of them, so its operands have to come before the
// first gradient.
func (f *fuser) convBack(p patches, dw int, products []int) {
	rows := f.instrs[dw].In[0] // dz as a matrix
	if !f.isReshape(rows) || !f.isTranspose(f.instrs[rows].In[0], 0, 2, 3, 1) {
		return
	}
	dz := f.instrs[f.instrs[rows].In[0]].In[0]
	matrix, dx, chain := f.imageGradient(p, rows, dw)
	if matrix < 0 {
		matrix = f.anyFilter(p, dw, products)
	}
	if matrix < 0 {
		return
	}
	w := f.filterOf(p, matrix)
	db, sums := f.channelSums(dz)
	if min(dw, orLast(dx), orLast(db)) < max(p.x, w, dz) {
		return
	}
	f.become(dw, ConvBack, p.x, w, dz)
	f.instrs[dw].Conv = f.instrs[p.cols].Conv
	f.putParts(dw, dx, db)
	f.remove(append(chain, sums...)...)
	f.sweep(rows)
	f.sweep(matrix)
}

// orLast returns a slot, or for none a number after all slots.
func orLast(slot int) int {
	if slot < 0 {
		return math.MaxInt
	}
	return slot
}

// imageGradient finds the gradient by the images that is made of dz, and the
// filter as the matrix with which it is made. The chain leads from there to the
// gradient. dx is -1 if the gradient by the patches goes elsewhere too.
func (f *fuser) imageGradient(p patches, dz, dw int) (matrix, dx int, chain []int) {
	prod := f.reader(dz, func(i int) bool {
		return f.isProduct(i, "A × B") && f.instrs[i].In[0] == dz && f.isFilter(p, f.instrs[i].In[1], dw)
	})
	if prod < 0 {
		return -1, -1, nil
	}
	matrix = f.instrs[prod].In[1]
	if len(f.readers[prod]) != 1 {
		return matrix, -1, nil
	}
	grid := f.readers[prod][0]
	if !f.isReshape(grid) || !f.onlyFor(prod, grid) || len(f.readers[grid]) != 1 {
		return matrix, -1, nil
	}
	dx = f.readers[grid][0]
	in := &f.instrs[dx]
	if in.Name != "gorgonia.col2imOp" || !f.onlyFor(grid, dx) || in.Conv != f.instrs[p.cols].Conv || !in.Shape.Eq(f.instrs[p.x].Shape) {
		return matrix, -1, nil
	}
	return matrix, dx, []int{prod, grid}
}

// isFilter reports whether a matrix is a filter, and dw has its shape.
func (f *fuser) isFilter(p patches, matrix, dw int) bool {
	return f.filterOf(p, matrix) >= 0 && f.instrs[matrix].Shape.Eq(f.instrs[dw].Shape)
}

// anyFilter returns the matrix of a filter that is as large as dw, or -1. Where
// the gradient by the images is not wanted, the filter is read for its size alone.
func (f *fuser) anyFilter(p patches, dw int, products []int) int {
	for _, i := range products {
		if f.isProduct(i, "A × Bᵀ") && f.instrs[i].In[0] == p.rows && f.isFilter(p, f.instrs[i].In[1], dw) {
			return f.instrs[i].In[1]
		}
	}
	return -1
}
