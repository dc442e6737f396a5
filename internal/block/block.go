// Package block does the arithmetic of the allocator: blocks that tile
// segments, splitting and merging them, and the ordered set of free ones.
// It knows addresses only as numbers: no driver, no lock, no clock.
package block

import (
	"fmt"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/relaxed"
)

// ID names a Block in its Table. 0 is no block.
type ID uint32

// State says what a block is, in the low bits of its Word.
type State uint64

// The states. Free blocks are in a FreeSet, or table slots without memory
// when their size is 0. Live blocks belong to the program. Cached blocks were freed by
// the program and lie in a magazine, ready to go out again as they are.
// Pending blocks were freed but work of another stream may still use them.
// In a range of virtual memory, a Part backs a piece of a stitched block
// that is mapped elsewhere, and a Gap has no memory behind it.
const (
	Free State = iota
	Live
	Cached
	Pending
	Part
	Gap

	stateMask = 7
	// Homed is set while a magazine slot refers to the block: such a block is
	// Live or Cached, and changes between the two without the owner's lock
	// (home.go).
	Homed = 8
	// Used is set on a live block that other streams were recorded on. It is
	// not homed.
	Used = 16

	genShift = 8
	genBits  = 64 - genShift
)

// Word is a block's generation and state, changed as one.
//
// The generation counts the times the block's slot was handed out, so a
// handle that carries it can be told from one of an earlier life, and sums
// of generations count allocations.
type Word uint64

// MakeWord puts a generation and a state with its flags together.
func MakeWord(gen uint64, s State) Word { return Word(gen<<genShift) | Word(s) }

// Gen returns the generation.
func (w Word) Gen() uint64 { return uint64(w) >> genShift }

// State returns the state without flags.
func (w Word) State() State { return State(w) & stateMask }

// Has reports whether the flag (Homed, Used) is set.
func (w Word) Has(flag State) bool { return State(w)&flag != 0 }

// With returns the word in another state, with its flags and generation.
func (w Word) With(s State) Word { return w&^stateMask | Word(s) }

// A Block is a contiguous range of one segment and the unit of allocation.
// It takes 64 bytes, one cache line.
//
// Everything but the atomics is guarded by the lock of the owning stream,
// except that whoever turns a Homed block from Cached to Live may read it.
// Rules checked by Segment.Check and FreeSet.Check:
//
//	B1  blocks in next order tile the segment exactly
//	B2  two neighbours are never both Free
//	B3  a Free block is in its free set; no other block is
//	B4  addresses and sizes are positive multiples of the unit of blocks
//	B5  every block of a segment names it and its owner
type Block struct {
	word relaxed.Uint64
	addr relaxed.Uint64

	Size      int64 // bytes, a multiple of the unit of blocks
	requested relaxed.Uint64

	Prev, Next ID // neighbours in address order; 0 at the segment's ends
	// link holds the children in the free set's tree while Free, and the
	// generation at homing, in two halves, while Homed.
	link [2]ID

	Seg   uint32        // index of the segment in the owner's table
	owner atomic.Uint32 // index of the owning stream
	// uses names the streams recorded on the block. Of a Homed one it is the
	// processor that is its home, with homeMark.
	uses relaxed.Uint32
	// origin is what is remembered of where a block came from, as the allocator
	// numbers it. Of a Homed one it is the last generation, in its low half, in which
	// it may be taken.
	origin relaxed.Uint32
}

// Origin returns the number of what is remembered of a block's origin. 0: nothing.
func (b *Block) Origin() uint32 {
	if b.Word().Has(Homed) {
		return 0
	}
	return b.origin.Load()
}

// SetOrigin changes the number of the origin of a block that is not Homed.
func (b *Block) SetOrigin(n uint32) { b.origin.SetOwned(n) }

// Addr returns the address.
func (b *Block) Addr() uint64 { return b.addr.Load() }

// Requested returns the bytes that the program asked for, while the block is
// Live, Cached or Pending.
func (b *Block) Requested() int64 { return int64(b.requested.Load()) }

// SetRequested changes the bytes that the program asked for.
func (b *Block) SetRequested(n int64) { b.requested.SetOwned(uint64(n)) }

// IdleSince returns the tick at which a Free block became what it is, where the heap
// notes that.
func (b *Block) IdleSince() uint64 { return b.requested.Load() }

// SetIdleSince changes the tick of a Free block.
func (b *Block) SetIdleSince(tick uint64) { b.requested.SetOwned(tick) }

// Word returns the generation and state.
func (b *Block) Word() Word { return Word(b.word.Load()) }

// SetWord stores the generation and state of a block that is not Homed.
func (b *Block) SetWord(w Word) { b.word.SetOwned(uint64(w)) }

// MarkUsed sets Used on a live block that is not Homed.
func (b *Block) MarkUsed() { b.SetWord(b.Word() | Used) }

// Owner returns the index of the owning stream.
func (b *Block) Owner() uint32 { return b.owner.Load() }

// SetOwner changes the owner. It stores only a change: slots are recycled
// within a stream, and an atomic store costs more than a load.
func (b *Block) SetOwner(o uint32) {
	if b.owner.Load() != o {
		b.owner.Store(o)
	}
}

// Uses returns the streams recorded on a block that is not Homed, as the
// allocator names them. 0: none.
func (b *Block) Uses() uint32 { return b.uses.Load() }

// SetUses changes the streams recorded on a block that is not Homed. What names
// them is less than 1<<30 or at least 1<<31; the numbers between are of homes.
func (b *Block) SetUses(u uint32) { b.uses.SetOwned(u) }

// String prints the state and size: "Live 2M".
func (b *Block) String() string {
	return fmt.Sprintf("%s %s", b.Word().State(), bytesize.Exact(b.Size))
}

var stateNames = [...]string{"Free", "Live", "Cached", "Pending", "Part", "Gap"}

// String names the state.
func (s State) String() string {
	if i := int(s & stateMask); i < len(stateNames) {
		return stateNames[i]
	}
	return fmt.Sprintf("State(%d)", uint64(s))
}
