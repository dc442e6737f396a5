package block

import (
	"math/bits"

	"github.com/cupool/cupool/internal/sizeclass"
)

const (
	// FastLimit is the size in bytes of the largest block of a FastBins.
	FastLimit = 2<<20 - sizeclass.Quantum

	fastClasses = 256 // bins up to FastLimit
)

// FastBins holds freed small blocks as they are, not merged with their
// neighbours, so that the next request of about the same size takes one
// without a search, a split or a merge (the fastbins of Lea's malloc,
// http://gee.cs.oswego.edu/dl/html/malloc.html). Each bin is a stack through
// the blocks, which are Cached. The zero value with a Table is empty.
type FastBins struct {
	Table *Table

	words [(fastClasses + 63) / 64]uint64 // bins that are not empty
	heads [fastClasses]ID
	count int
}

// fastSlack is the part of a request, 1/8, by which a block may be larger
// than it and still serve it whole.
const fastSlack = 3

// Len returns the number of blocks.
func (f *FastBins) Len() int { return f.count }

// Push adds a block of at most FastLimit bytes and makes it Cached.
func (f *FastBins) Push(id ID, b *Block) {
	bin := sizeclass.Bin(b.Size)
	b.SetWord(MakeWord(b.Word().Gen(), Cached))
	b.link[0] = f.heads[bin]
	f.heads[bin] = id
	f.words[bin>>6] |= 1 << (bin & 63)
	f.count++
}

// Pop removes a block of at least size bytes, and at most an eighth more,
// or returns 0. Size is at most FastLimit. Within a bin only the last that was
// pushed is looked at.
func (f *FastBins) Pop(size int64) (ID, *Block) {
	bin := sizeclass.Bin(size)
	for range 2 {
		if bin = f.next(bin); bin < 0 {
			break
		}
		id := f.heads[bin]
		b := f.Table.At(id)
		if more := b.Size - size; more > size>>fastSlack {
			break
		} else if more >= 0 {
			f.take(bin, b)
			return id, b
		}
		bin++
	}
	return 0, nil
}

// PopLargest removes a block of the last bin that has any, or returns 0.
func (f *FastBins) PopLargest() (ID, *Block) {
	for w := len(f.words) - 1; w >= 0; w-- {
		if m := f.words[w]; m != 0 {
			bin := w<<6 + 63 - bits.LeadingZeros64(m)
			id := f.heads[bin]
			b := f.Table.At(id)
			f.take(bin, b)
			return id, b
		}
	}
	return 0, nil
}

func (f *FastBins) take(bin int, b *Block) {
	f.count--
	if f.heads[bin] = b.link[0]; f.heads[bin] == 0 {
		f.words[bin>>6] &^= 1 << (bin & 63)
	}
}

// next returns the first bin from bin on that is not empty, or -1.
func (f *FastBins) next(bin int) int {
	for w := bin >> 6; w < len(f.words); w, bin = w+1, 0 {
		if m := f.words[w] >> (bin & 63); m != 0 {
			return w<<6 + bin&63 + bits.TrailingZeros64(m)
		}
	}
	return -1
}
