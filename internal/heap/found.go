package heap

import (
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// found remembers blocks by addresses inside them, which are asked for again and
// again where parts of tensors are computed with: to find the block anew is to
// walk its segment with the lock held. An entry may be out of date.
type found [1 << foundBits]atomic.Uint32

const foundBits = 10

// at returns the entry of an address, which those of the same 512 bytes and some
// others have too. Consecutive ones have different entries.
func (f *found) at(addr uint64) *atomic.Uint32 {
	const granule, spread = 9, 0x9E3779B97F4A7C15 // 2⁶⁴ divided by the golden ratio
	return &f[addr>>granule*spread>>(64-foundBits)]
}

// Found returns the block that was last noted for an address, or 0. The block may be
// another by now, and elsewhere.
func (s *Space) Found(addr uint64) block.ID { return block.ID(s.found.at(addr).Load()) }

// NoteFound notes a block that was found around an address.
func (s *Space) NoteFound(addr uint64, id block.ID) { s.found.at(addr).Store(uint32(id)) }
