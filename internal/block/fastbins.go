package block

import (
	"math/bits"

	"github.com/cupool/cupool/internal/sizeclass"
)

const (
	// FastLimit is the size in bytes of the largest block of a FastBins, or twice
	// that of a Fine one.
	FastLimit = 2<<20 - sizeclass.Quantum

	fastClasses = 256 // bins up to FastLimit
)

// FastBins holds freed small blocks as they are, not merged with their
// neighbours, so that the next request of about the same size takes one
// without a search, a split or a merge (the fastbins of Lea's malloc,
// http://gee.cs.oswego.edu/dl/html/malloc.html). Each bin is a stack through
// the blocks, which are Cached; each block knows the largest size below it in the
// stack. The zero value with a Table is empty.
type FastBins struct {
	Table *Table
	// Fine bins are for blocks in units of half a quantum, so that each of the small
	// sizes has a bin of its own. 0: no. 1: yes.
	Fine uint8

	words [fastClasses/64 + 1]uint64 // bins that are not empty; the last is 0
	heads [fastClasses]ID
	most  [fastClasses]uint32 // the size of the largest block of the bin
	count int
}

// fastSlack is the part of a request, 1/8, by which a block may be larger
// than it and still serve it whole.
const fastSlack = 3

// Len returns the number of blocks.
func (f *FastBins) Len() int { return f.count }

func (f *FastBins) bin(size int64) int { return sizeclass.Bin(size << (f.Fine & 1)) }

// Push adds a block of at most FastLimit bytes, or half of it, and makes it Cached.
func (f *FastBins) Push(id ID, b *Block) {
	bin := f.bin(b.Size)
	b.SetWord(MakeWord(b.Word().Gen(), Cached))
	b.link = [2]ID{f.heads[bin], ID(f.most[bin])}
	f.heads[bin] = id
	f.most[bin] = max(f.most[bin], uint32(b.Size))
	f.words[bin>>6] |= 1 << (bin & 63)
	f.count++
}

// Pop removes a block of at least size bytes, and at most an eighth more,
// or returns 0. Size is at most FastLimit. Within a bin only the last that was
// pushed is looked at, and no more than two bins.
func (f *FastBins) Pop(size int64) (ID, *Block) {
	first := f.bin(size)
	bins := f.window(first)
	for range 2 {
		if bins == 0 {
			break
		}
		bin := first + bits.TrailingZeros64(bins)
		id := f.heads[bin&(fastClasses-1)]
		b := f.Table.At(id)
		if more := b.Size - size; more > size>>fastSlack {
			break
		} else if more >= 0 {
			f.take(bin, b)
			return id, b
		}
		bins &= bins - 1
	}
	return 0, nil
}

// window returns which of the 64 bins from bin on are not empty. The sizes of
// the last are more than an eighth larger than those of the first.
func (f *FastBins) window(bin int) uint64 {
	w := bin >> 6 & (fastClasses/64 - 1)
	return f.words[w]>>(bin&63) | f.words[w+1]<<(63-bin&63)<<1
}

// PopLargest removes a block of the last bin that has any, or returns 0.
func (f *FastBins) PopLargest() (ID, *Block) {
	bin := f.lastBin()
	if bin < 0 {
		return 0, nil
	}
	id := f.heads[bin&(fastClasses-1)]
	b := f.Table.At(id)
	f.take(bin, b)
	return id, b
}

// Largest returns the size of the largest block, 0 for none.
func (f *FastBins) Largest() int64 {
	bin := f.lastBin()
	if bin < 0 {
		return 0
	}
	return int64(f.most[bin&(fastClasses-1)])
}

// lastBin returns the last bin that has any blocks, or -1.
func (f *FastBins) lastBin() int {
	for w := len(f.words) - 1; w >= 0; w-- {
		if m := f.words[w]; m != 0 {
			return w<<6 + 63 - bits.LeadingZeros64(m)
		}
	}
	return -1
}

// take removes the last block that was pushed to a bin.
func (f *FastBins) take(bin int, b *Block) {
	f.count--
	f.heads[bin&(fastClasses-1)], f.most[bin&(fastClasses-1)] = b.link[0], uint32(b.link[1])
	empty := uint64(0)
	if b.link[0] == 0 {
		empty = 1
	}
	f.words[bin>>6&(fastClasses/64-1)] &^= empty << (bin & 63)
}
