package program

import (
	"cmp"
	"slices"
)

// Gorgonia makes the gradient by a matrix that every step of a recurrent network
// uses of one product aᵀ·b for each step, and adds them up. Where the rows of
// all a follow each other in one room, and those of b in another, it is one
// product.

// fewSummands is how many products LinearBack may make one by one.
const fewSummands = 2

// leaveSums leaves the products of long sums to sums.
func (f *fuser) leaveSums() {
	for i := range f.instrs {
		if leaves := f.productSum(i); len(leaves) > fewSummands {
			for _, leaf := range leaves {
				f.taken[leaf] = true
			}
		}
	}
}

// productSum returns what a sum of products aᵀ·b adds up.
func (f *fuser) productSum(i int) []int {
	if f.gone[i] || f.instrs[i].Fused() || len(f.readers[i]) > 0 || !f.is(i, "gorgonia.elemBinOp", addOp) {
		return nil
	}
	leaves, _ := f.summands(i)
	for _, leaf := range leaves {
		if f.instrs[leaf].Fused() || !f.isProduct(leaf, "Aᵀ × B") || !f.floats(leaf) || !f.instrs[leaf].Shape.Eq(f.instrs[i].Shape) {
			return nil
		}
	}
	return leaves
}

// sums puts one product in the place of sums of them.
func (g *grouper) sums() {
	for i := range g.instrs {
		leaves := g.productSum(i)
		if len(leaves) <= fewSummands {
			continue
		}
		a, okA := g.rowsOf(leaves, 0)
		b, okB := g.rowsOf(leaves, 1)
		if !okA || !okB {
			continue
		}
		_, adds := g.summands(i)
		g.remove(append(leaves, adds...)...)
		for _, from := range g.instrs[i].In {
			g.stopReading(from, i)
		}
		in := &g.instrs[i]
		in.replace(Product, a.Slot, b.Slot)
		in.Views = [2]View{a, b}
		g.rank[i] = max(g.rank[i], g.rank[a.Slot]+1, g.rank[b.Slot]+1)
		g.readers[a.Slot] = append(g.readers[a.Slot], i)
		g.readers[b.Slot] = append(g.readers[b.Slot], i)
	}
}

// rowsOf returns where an operand of all products lies as one, the rows of one
// after those of the other. It sorts the products, so that both operands are asked
// for in one order.
func (g *grouper) rowsOf(products []int, operand int) (View, bool) {
	places := make(map[int]View)
	for _, p := range g.placesOf(g.instrs[products[0]].In[operand]) {
		room := p.Slot
		for _, i := range products {
			at := slices.IndexFunc(g.placesOf(g.instrs[i].In[operand]), func(v View) bool { return v.Slot == room })
			if at < 0 {
				break
			}
			places[i] = g.placesOf(g.instrs[i].In[operand])[at]
		}
		if len(places) == len(products) {
			break
		}
		clear(places)
	}
	if len(places) != len(products) {
		return View{}, false
	}
	if operand == 0 {
		slices.SortFunc(products, func(i, j int) int { return cmp.Compare(places[i].Offset, places[j].Offset) })
	}
	v := places[products[0]]
	v.Rows = 0
	for _, i := range products {
		in := g.instrs[i].In[operand]
		if places[i].Offset != v.Offset+v.Rows*v.Columns && v.Rows > 0 {
			return View{}, false
		}
		v.Columns = g.instrs[in].Shape[1]
		v.Stride = v.Columns
		v.Rows += g.instrs[in].Shape[0]
	}
	return v, true
}

// placesOf returns where a slot lies in rooms, as views of their wholes.
func (g *grouper) placesOf(slot int) (vs []View) {
	from := g.seen(all(slot, g.instrs[slot].Shape.TotalSize()))
	if from.Offset != 0 || from.size() != g.instrs[from.Slot].Shape.TotalSize() {
		return nil
	}
	for _, p := range g.placed[from.Slot] {
		at := p.at
		at.Slot = p.slot
		vs = append(vs, at)
	}
	return vs
}
