package cupool

import (
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// parts remembers blocks by addresses inside them, which are asked for again and
// again where parts of tensors are computed with: to find the block anew is to
// walk its segment with the lock held. An entry may be out of date.
type parts [1 << partBits]atomic.Uint32

const partBits = 10

// at returns the entry of an address, which those of the same 512 bytes and some
// others have too. Consecutive ones have different entries.
func (ps *parts) at(p Ptr) *atomic.Uint32 {
	const granule, spread = 9, 0x9E3779B97F4A7C15 // 2⁶⁴ divided by the golden ratio
	return &ps[uint64(p)>>granule*spread>>(64-partBits)]
}

// liveAround returns the live block that was last found at an address, if that is
// inside it still, without a lock.
func (c *Caching) liveAround(p Ptr) (Block, bool) {
	id := block.ID(c.parts.at(p).Load())
	if id == 0 || c.closed.Load() {
		return Block{}, false
	}
	b := c.space.Blocks.At(id)
	w := b.Word()
	h := newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, c.id)
	return h, w.State() == block.Live && p >= h.ptr && p-h.ptr < Ptr(h.size) && b.Word() == w
}

// found remembers where a look-up ended.
func (c *Caching) found(p Ptr, b Block) {
	if b.pool() == c.id {
		c.parts.at(p).Store(uint32(b.id()))
	}
}
