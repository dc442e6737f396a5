package cupool

import (
	"github.com/cupool/cupool/internal/block"
)

// Mint makes the Blocks of an Allocator outside this package, which takes one Mint. A
// Mint is a plain value that may be copied and used from several goroutines.
//
// What else such an allocator needs to know of the one below it is said by
// Stream.Pool, Stream.Closed, Pool.Config and Pool.Err.
type Mint struct{ number uint32 }

// NewMint returns a Mint whose blocks are foreign to all other allocators.
func NewMint() Mint { return Mint{pools.Add(1)} }

// Number tells this Mint from all others. It is the Maker of its blocks.
func (m Mint) Number() uint32 { return m.number }

// Block makes a handle of size bytes at p. id and gen are the allocator's own:
// most often the place where it keeps the block, and how many blocks it has
// kept there.
func (m Mint) Block(p Ptr, size int64, gen uint64, id uint32) Block {
	return newBlock(p, size, gen, block.ID(id), m.number)
}

// Open returns what the handle was made with. ok is false for the handles of
// other allocators and for the empty Block.
func (m Mint) Open(b Block) (id uint32, gen uint64, ok bool) {
	return uint32(b.id()), b.gen, b.pool() == m.number && !b.IsEmpty()
}

// Maker returns the number of the Mint or Pool that made the handle, 0 for
// the empty Block.
func (b Block) Maker() uint32 { return b.pool() }
