package block

import (
	"fmt"
	"math/bits"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/sizeclass"
)

const binWords = (sizeclass.Bins + 63) / 64

// FreeSet holds the free blocks of one pool, ordered by size and address.
//
// It is an array of bins by size class with a two-level bitmap of those that
// are not empty (as in TLSF, Masmano et al. 2004), each bin a treap (Seidel
// and Aragon 1996) through the blocks themselves. So the best fit is exact,
// its cost does not grow with the number of blocks in other bins, and the
// set needs no memory of its own. Priorities are a hash of the slot: the
// same calls build the same trees.
type FreeSet struct {
	Table *Table

	summary uint64 // bit i: words[i] != 0
	words   [binWords]uint64
	roots   [sizeclass.Bins]ID

	count int
	bytes int64

	// From a FirstFit to the next Sweep each block knows the first of its subtree, and the
	// first of each group of bins is known.
	firsts bool
	groups [sizeclass.Bins / groupBins]ID
}

// groupBins is how many bins a group has.
const groupBins = 16

// Len returns the number of free blocks.
func (f *FreeSet) Len() int { return f.count }

// Bytes returns the sum of the sizes of the free blocks.
func (f *FreeSet) Bytes() int64 { return f.bytes }

func priority(id ID) uint32 { return uint32(id) * 0x9E3779B1 }

// before orders blocks by size, then by address, with segments in the order
// of their numbers: so placement is the same wherever the device puts them.
func (b *Block) before(o *Block) bool {
	if b.Size != o.Size {
		return b.Size < o.Size
	}
	return b.precedes(o)
}

// precedes orders blocks by segment number, then by address.
func (b *Block) precedes(o *Block) bool {
	return b.Seg < o.Seg || b.Seg == o.Seg && b.addr < o.addr
}

// side returns the index of the subtree of n that a block is or belongs in.
func (n *Block) side(b *Block) int {
	if b.before(n) {
		return 0
	}
	return 1
}

// Insert adds a free block.
func (f *FreeSet) Insert(id ID, b *Block) {
	bin := sizeclass.Bin(b.Size)
	b.link = [2]ID{}
	f.count++
	f.bytes += b.Size
	root := &f.roots[bin]
	if *root == 0 {
		*root = id
		f.words[bin>>6] |= 1 << (bin & 63)
		f.summary |= 1 << (bin >> 6)
		b.setFirst(id)
	} else {
		f.insertAt(root, id, b)
	}
	if f.firsts {
		g := &f.groups[bin/groupBins]
		*g = f.earlier(*g, id)
	}
}

// insertAt descends to the place where the heap order of priorities wants
// the block and splits what was there into its two subtrees.
func (f *FreeSet) insertAt(at *ID, id ID, b *Block) {
	pri := priority(id)
	for *at != 0 && priority(*at) >= pri {
		n := f.Table.At(*at)
		if f.firsts && b.precedes(f.Table.At(n.first())) {
			n.setFirst(id)
		}
		at = &n.link[n.side(b)]
	}
	rest := *at
	*at = id
	b.setFirst(id)
	if rest == 0 {
		return
	}
	ends := [2]*ID{&b.link[0], &b.link[1]} // of what comes before b, and after it
	for rest != 0 {
		n := f.Table.At(rest)
		side := n.side(b)
		*ends[side^1], ends[side^1] = rest, &n.link[side]
		rest = n.link[side]
	}
	*ends[0], *ends[1] = 0, 0
	if f.firsts {
		f.noteFirsts(id, b)
	}
}

// Remove takes a block out of the set.
func (f *FreeSet) Remove(id ID, b *Block) {
	bin := sizeclass.Bin(b.Size)
	at, noted := &f.roots[bin], false
	for *at != id {
		n := f.Table.At(*at)
		noted = noted || f.firsts && n.first() == id
		at = &n.link[n.side(b)]
	}
	lo, hi := b.link[0], b.link[1]
	if *at = lo | hi; lo != 0 && hi != 0 {
		*at, noted = f.merge(lo, hi), true
	}
	f.count--
	f.bytes -= b.Size
	root := f.roots[bin]
	if root == 0 {
		f.clearBin(bin)
	}
	if f.firsts {
		if root != 0 && noted {
			f.noteFirsts(root, b)
		}
		if g := bin / groupBins; f.groups[g] == id {
			f.groups[g] = f.firstOfGroup(g)
		}
	}
}

// Sweep takes the n blocks out of the set that are not Free any more, in one
// pass over all of it. Where all of them stay or none does, no block is looked
// at.
func (f *FreeSet) Sweep(n int) {
	switch n {
	case 0:
		return
	case f.count:
		*f = FreeSet{Table: f.Table}
		return
	}
	f.firsts = false
	for bin := f.nextBin(0); bin >= 0; bin = f.nextBin(bin + 1) {
		if f.roots[bin] = f.sweep(f.roots[bin]); f.roots[bin] == 0 {
			f.clearBin(bin)
		}
	}
}

func (f *FreeSet) sweep(at ID) ID {
	n := f.Table.At(at)
	for side, below := range n.link {
		if below != 0 {
			n.link[side] = f.sweep(below)
		}
	}
	if n.Word().State() == Free {
		return at
	}
	f.count--
	f.bytes -= n.Size
	return f.merge(n.link[0], n.link[1])
}

// merge joins two trees of which every node of lo precedes every node of hi.
func (f *FreeSet) merge(lo, hi ID) ID {
	var root ID
	at := &root
	for lo != 0 && hi != 0 {
		if priority(lo) >= priority(hi) {
			*at, at = lo, &f.Table.At(lo).link[1]
			lo = *at
		} else {
			*at, at = hi, &f.Table.At(hi).link[0]
			hi = *at
		}
	}
	*at = lo | hi
	return root
}

func (f *FreeSet) clearBin(bin int) {
	if f.words[bin>>6] &^= 1 << (bin & 63); f.words[bin>>6] == 0 {
		f.summary &^= 1 << (bin >> 6)
	}
}

// BestFit returns the smallest block of at least size bytes, the one at the
// lowest address among equals, or 0. It stays in the set.
func (f *FreeSet) BestFit(size int64) ID {
	bin := sizeclass.Bin(size)
	if id := f.ceiling(f.roots[bin], size); id != 0 {
		return id
	}
	return f.first(f.nextBin(bin + 1))
}

// FirstFit returns the block of at least size and less than below bytes that
// comes first by segment number and address, or 0. It stays in the set. It looks at the
// blocks of few bins, but at all blocks the first time.
func (f *FreeSet) FirstFit(size, below int64) (first ID) {
	if !f.firsts {
		f.firsts = true
		for bin := f.nextBin(0); bin >= 0; bin = f.nextBin(bin + 1) {
			f.noteFirsts(f.roots[bin], nil)
		}
		for g := range f.groups {
			f.groups[g] = f.firstOfGroup(g)
		}
	}
	from, to := sizeclass.Bin(size), sizeclass.Bin(below)
	for bin := f.nextBin(from); bin >= 0 && bin <= to; {
		g := bin / groupBins
		id, next := f.groups[g], (g+1)*groupBins
		if g == from/groupBins || g == to/groupBins {
			id, next = f.firstOfBin(bin, size, below), bin+1
		}
		first = f.earlier(first, id)
		bin = f.nextBin(next)
	}
	return first
}

// firstOfBin returns the first block of a bin that has at least size and less than below bytes, or 0.
func (f *FreeSet) firstOfBin(bin int, size, below int64) ID {
	if lock.Invariants {
		step(Looking)
	}
	if bin == sizeclass.Bin(size) || bin == sizeclass.Bin(below) {
		return f.firstOf(f.roots[bin], size, below)
	}
	return f.Table.At(f.roots[bin]).first()
}

// firstOfGroup returns the first block of a group of bins, or 0.
func (f *FreeSet) firstOfGroup(g int) (first ID) {
	for bin := f.nextBin(g * groupBins); bin >= 0 && bin/groupBins == g; bin = f.nextBin(bin + 1) {
		first = f.earlier(first, f.firstOfBin(bin, 0, 0))
	}
	return first
}

// firstOf returns the first block of a tree that has at least size and less than below
// bytes, by segment number and address, or 0. A bound that is 0 holds for the whole tree.
func (f *FreeSet) firstOf(at ID, size, below int64) ID {
	if at == 0 {
		return 0
	}
	if lock.Invariants {
		step(Looking)
	}
	n := f.Table.At(at)
	switch {
	case size == 0 && below == 0:
		return n.first()
	case n.Size < size:
		return f.firstOf(n.link[1], size, below)
	case below != 0 && n.Size >= below:
		return f.firstOf(n.link[0], size, below)
	}
	return f.earlier(at, f.earlier(f.firstOf(n.link[0], size, 0), f.firstOf(n.link[1], 0, below)))
}

// noteFirsts notes at the nodes of a tree what the first of their subtrees is: at those that
// the insertion or removal of a block changed, or at all of them.
func (f *FreeSet) noteFirsts(at ID, changed *Block) {
	if lock.Invariants {
		step(Looking)
	}
	n, first := f.Table.At(at), at
	for side, below := range n.link {
		if below == 0 {
			continue
		}
		if changed == nil || changed == n || n.side(changed) == side {
			f.noteFirsts(below, changed)
		}
		first = f.earlier(first, f.Table.At(below).first())
	}
	n.setFirst(first)
}

// earlier returns which of two blocks comes first by segment number and address; 0 comes last.
func (f *FreeSet) earlier(x, y ID) ID {
	if x == 0 || y == 0 {
		return x | y
	}
	if f.Table.At(x).precedes(f.Table.At(y)) {
		return x
	}
	return y
}

// Largest returns the last block in the order, or 0.
func (f *FreeSet) Largest() ID {
	if f.summary == 0 {
		return 0
	}
	w := 63 - bits.LeadingZeros64(f.summary)
	id := f.roots[w<<6+63-bits.LeadingZeros64(f.words[w])]
	for n := f.Table.At(id); n.link[1] != 0; n = f.Table.At(id) {
		id = n.link[1]
	}
	return id
}

// ceiling returns the first block of a tree with at least size bytes.
func (f *FreeSet) ceiling(at ID, size int64) (best ID) {
	for at != 0 {
		n := f.Table.At(at)
		side := 1
		if n.Size >= size {
			best, side = at, 0
		}
		at = n.link[side]
	}
	return best
}

// nextBin returns the first non-empty bin from bin on, or -1.
func (f *FreeSet) nextBin(bin int) int {
	w := bin >> 6
	if w >= binWords {
		return -1
	}
	if m := f.words[w] >> (bin & 63); m != 0 {
		return bin + bits.TrailingZeros64(m)
	}
	m := f.summary >> (w + 1)
	if m == 0 {
		return -1
	}
	w += 1 + bits.TrailingZeros64(m)
	return w<<6 + bits.TrailingZeros64(f.words[w])
}

func (f *FreeSet) first(bin int) ID {
	if bin < 0 {
		return 0
	}
	id := f.roots[bin]
	for n := f.Table.At(id); n.link[0] != 0; n = f.Table.At(id) {
		id = n.link[0]
	}
	return id
}

// Each calls fn for every block in ascending order until it returns false.
func (f *FreeSet) Each(fn func(ID, *Block) bool) { f.EachFrom(0, fn) }

// EachFrom is Each for the blocks of at least size bytes, and some that are
// a little smaller.
func (f *FreeSet) EachFrom(size int64, fn func(ID, *Block) bool) {
	for bin := f.nextBin(sizeclass.Bin(size)); bin >= 0; bin = f.nextBin(bin + 1) {
		if !f.walk(f.roots[bin], fn) {
			return
		}
	}
}

func (f *FreeSet) walk(at ID, fn func(ID, *Block) bool) bool {
	if at == 0 {
		return true
	}
	n := f.Table.At(at)
	lo, hi := n.link[0], n.link[1]
	return f.walk(lo, fn) && fn(at, n) && f.walk(hi, fn)
}

// Check verifies rule B3 as far as the set sees it, the order, the bitmaps
// and the sums.
func (f *FreeSet) Check() error {
	var err error
	var prev *Block
	count, sum := 0, int64(0)
	f.Each(func(id ID, b *Block) bool {
		count, sum = count+1, sum+b.Size
		switch {
		case b.Word().State() != Free:
			err = fmt.Errorf("B3: block %d in the free set is %s", id, b)
		case prev != nil && !prev.before(b):
			err = fmt.Errorf("B3: free set out of order at block %d (%s)", id, b)
		}
		prev = b
		return err == nil
	})
	for bin := f.nextBin(0); f.firsts && bin >= 0 && err == nil; bin = f.nextBin(bin + 1) {
		_, err = f.checkFirsts(f.roots[bin])
	}
	for g := 0; f.firsts && g < len(f.groups) && err == nil; g++ {
		if first := f.firstOfGroup(g); f.groups[g] != first {
			err = fmt.Errorf("B3: group %d has block %d for its first, which is %d", g, f.groups[g], first)
		}
	}
	if err == nil && (count != f.count || sum != f.bytes) {
		err = fmt.Errorf("B3: free set holds %d blocks, %d bytes; its books say %d, %d", count, sum, f.count, f.bytes)
	}
	return err
}

// checkFirsts returns the first block of a tree by segment number and address, and fails
// where a node has another one.
func (f *FreeSet) checkFirsts(at ID) (first ID, err error) {
	if at == 0 {
		return 0, nil
	}
	n := f.Table.At(at)
	first = at
	for _, below := range n.link {
		x, e := f.checkFirsts(below)
		if e != nil {
			return 0, e
		}
		first = f.earlier(first, x)
	}
	if n.first() != first {
		err = fmt.Errorf("B3: block %d (%s) has %d for the first of its subtree, which is %d", at, n, n.first(), first)
	}
	return first, err
}
