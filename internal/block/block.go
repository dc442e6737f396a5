// Package block does the arithmetic of the allocator: blocks that tile
// segments, splitting and merging them, and the ordered set of free ones.
// It knows addresses only as numbers: no driver, no lock, no clock.
package block

import (
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/internal/bytesize"
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

// A Block is a contiguous range of one segment and the unit of allocation. It takes
// two cache lines of 64 bytes.
//
// The lock below is that of the heap which the owner names. It guards the block, but
// for what is read without it, which has types of sync/atomic. "Homed": with the flag
// Homed, in state Live or Cached.
//
//	field       states            meaning                          written               read
//	word        all but Homed     generation and state             lock                  lock
//	            Homed             what it was when homed           lock                  lock
//	addr        all               first address                    lock                  lock
//	Size        all               bytes; 0: a slot without memory  lock                  lock
//	requested   Live to Pending   bytes that the program wants     lock                  lock
//	            Free              tick since when it is idle       lock                  lock
//	Prev, Next  all with memory   neighbours by address; 0: none   lock                  lock
//	link        Free              children in the free set's tree  lock                  lock
//	            Cached, no home   the next of the fast bin, and    lock                  lock
//	                              the largest size of these
//	            Pending           when it was given back           lock                  lock
//	Seg         all with memory   the segment in the heap's table  lock                  lock
//	uses        Live, Pending     streams recorded on it; 0: none  lock                  lock
//	            Free              the first of its subtree         lock                  lock
//	origin      Live, Pending     what is remembered of its birth  lock                  lock
//	owner       all               the heap, and whether it is      lock, of both heaps   anyone
//	                              Homed; nobody: in the Table      where it changes
//	home.word   Homed             generation and state             compare-and-swap      anyone
//	home.addr,  Homed             as addr and requested, and the   lock, in SetHome      who has seen
//	 requested,                   heap's index; the generation,                          home.word, and
//	 owner,                       in its low half, in which it                           sees it again
//	 last                         is not taken any more
//	home.note,  Homed             the Stay's note and the slot of  lock                  lock
//	 slot                         the magazine that refers to it
//
// Rules checked by Segment.Check and FreeSet.Check:
//
//	B1  blocks in next order tile the segment exactly
//	B2  two neighbours are never both Free
//	B3  a Free block is in its free set; no other block is
//	B4  addresses and sizes are positive multiples of the unit of blocks
//	B5  every block of a segment names it and its owner
type Block struct {
	home home // a line of its own, which goroutines change at once

	word       Word
	addr       uint64
	Size       int64
	requested  int64
	Prev, Next ID
	link       [2]ID
	Seg        uint32
	owner      atomic.Uint32
	uses       uint32
	origin     uint32
}

// Origin returns the number of what is remembered of a block's origin. 0: nothing.
func (b *Block) Origin() uint32 { return b.origin }

// SetOrigin changes the number of the origin.
func (b *Block) SetOrigin(n uint32) { b.origin = n }

// Addr returns the address.
func (b *Block) Addr() uint64 { return b.addr }

// Requested returns the bytes that the program asked for.
func (b *Block) Requested() int64 { return b.requested }

// SetRequested changes the bytes that the program asked for.
func (b *Block) SetRequested(n int64) { b.requested = n }

// GivenBack returns the device's time at which a Pending block counts as given back: when the
// program freed it, or later.
func (b *Block) GivenBack() uint64 { return uint64(b.link[1])<<32 | uint64(b.link[0]) }

// SetGivenBack changes that time.
func (b *Block) SetGivenBack(time uint64) { b.link = [2]ID{ID(time), ID(time >> 32)} }

// IdleSince returns the tick at which a Free block became what it is, where the heap
// notes that.
func (b *Block) IdleSince() uint64 { return uint64(b.requested) }

// SetIdleSince changes the tick of a Free block.
func (b *Block) SetIdleSince(tick uint64) { b.requested = int64(tick) }

// Word returns the generation and state, which of a Homed block may change at any time.
func (b *Block) Word() Word {
	if b.word.Has(Homed) {
		return Word(b.home.word.Load())
	}
	return b.word
}

// SetWord changes the generation and state of a block that is not Homed.
func (b *Block) SetWord(w Word) { b.word = w }

// MarkUsed sets Used on a live block that is not Homed.
func (b *Block) MarkUsed() { b.word |= Used }

const (
	homedBit = 1 << 31
	nobody   = homedBit - 1
)

// Owner returns the index of the owning heap. It needs no lock; who has the lock of that
// heap and sees the same owner again has that of the block.
func (b *Block) Owner() uint32 { return b.owner.Load() &^ homedBit }

// SetOwner changes the owner of a block that is not Homed. It stores only a change: slots
// are recycled within a heap, and an atomic store costs more than a load.
func (b *Block) SetOwner(o uint32) {
	if b.owner.Load() != o {
		b.owner.Store(o)
	}
}

// Uses returns the streams recorded on a block, as the allocator names them. 0: none.
func (b *Block) Uses() uint32 { return b.uses }

// SetUses changes the streams recorded on a block.
func (b *Block) SetUses(u uint32) { b.uses = u }

// first returns which of a Free block's subtree comes first by segment number and address.
func (b *Block) first() ID { return ID(b.uses) }

func (b *Block) setFirst(id ID) { b.uses = uint32(id) }

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
