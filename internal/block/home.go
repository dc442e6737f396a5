package block

import (
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool/internal/lock"
)

// Hook is called where another goroutine may come between two steps, in builds with
// -tags invariants, by tests that have one come there. It is set while nobody uses
// blocks.
var Hook func(Step)

// Step is a place where Hook is called.
type Step string

// The steps.
const (
	Taking  Step = "between the look at a word and its change in TakeHomed"
	Leaving Step = "before LeaveHome looks at the block"
	Looking Step = "before one who goes through a segment or a free set looks at a block"
)

func step(at Step) {
	if Hook != nil {
		Hook(at)
	}
}

// home is what a block has while a magazine refers to it. Any goroutine takes a Cached
// one (TakeHomed) and gives a Live one back (FreeHomed), each by a compare-and-swap of
// home.word, without a lock; with the owner's lock a block gets its home and leaves it.
//
// That what TakeHomed reads between its look at the word and the swap is of the block
// that it takes follows from this: a block becomes Cached and Homed at most once in a
// generation. It does so from Live, and it is Live again in the next generation only.
// So while the word was Cached and Homed in the same generation at the look and at the
// swap, it was so all the time between, and the rest of home is written only while the
// word is something else. A block that was taken, flushed, cut, moved to another heap or
// homed for another size meanwhile has another word, and the swap fails. A generation
// has 56 bits and does not come again.
//
// For the same reason one of several goroutines that free a block, or take it, succeeds,
// and what LeaveHome finds in the word that it swaps is what the block keeps.
//
// capi/hit.c does the same in C: TestHomeLayout has the offsets that it counts on.
type home struct {
	word      atomic.Uint64
	addr      atomic.Uint64
	requested atomic.Int64
	owner     atomic.Uint32
	last      atomic.Uint32
	slot      uint32
	note      uint8
	_         [24]byte // the rest of the cache line
}

// Stay is how long a block has a home: how often it may be taken there, and a byte
// of the caller's.
type Stay struct {
	Takes uint32
	Note  uint8
}

// Long is a Stay that ends when the block is in the way, or after 4 billion takes.
var Long = Stay{Takes: math.MaxUint32}

// SetHome homes a live block that nothing is recorded on, and that has no origin, in a
// slot of the magazines, as Live or Cached. The caller holds the owner's lock.
func (b *Block) SetHome(as State, slot uint32, stay Stay) {
	h, owner, gen := &b.home, b.owner.Load(), b.word.Gen()
	h.slot, h.note = slot, stay.Note
	h.last.Store(uint32(gen) + stay.Takes)
	if h.addr.Load() != b.addr {
		h.addr.Store(b.addr)
	}
	if h.requested.Load() != b.requested {
		h.requested.Store(b.requested)
	}
	if h.owner.Load() != owner {
		h.owner.Store(owner)
	}
	b.word |= Homed
	h.word.Store(uint64(MakeWord(gen, as|Homed)))
	b.owner.Store(owner | homedBit)
}

// LeaveHome ends the time in which a block may change without the owner's lock, which
// the caller holds, where the block is in one of some states. It returns the slot, the
// word that the block has from now on, and how often it went out since HomeGen.
func (b *Block) LeaveHome(states ...State) (slot uint32, w Word, hits int64, ok bool) {
	if lock.Invariants {
		step(Leaving)
	}
	for {
		w = b.Word()
		if !w.Has(Homed) || !slices.Contains(states, w.State()) {
			return 0, w, 0, false
		}
		if b.home.word.CompareAndSwap(uint64(w), uint64(w&^Homed)) {
			hits, b.word = int64(w.Gen()-b.HomeGen()), w&^Homed
			b.owner.Store(b.Owner())
			return b.home.slot, b.word, hits, true
		}
	}
}

// IsHomed reports whether a block is in the magazines.
func (b *Block) IsHomed() bool { return b.owner.Load()&homedBit != 0 }

// HomeGen returns the generation in which a Homed block got its home. The caller holds
// the owner's lock.
func (b *Block) HomeGen() uint64 { return b.word.Gen() }

// Slot returns the slot of a block's home, or of the last that it had. The caller holds
// the owner's lock.
func (b *Block) Slot() uint32 { return b.home.slot }

// SetSlot changes the slot of a Homed block. The caller holds the owner's lock.
func (b *Block) SetSlot(slot uint32) { b.home.slot = slot }

// StayNote returns the note of a Homed block's Stay. The caller holds the owner's lock.
func (b *Block) StayNote() uint8 { return b.home.note }

// FreeHomed makes a block Cached that is Homed and Live in a generation, and
// reports whether it was.
func (b *Block) FreeHomed(gen uint64) bool {
	return b.IsHomed() &&
		b.home.word.CompareAndSwap(uint64(MakeWord(gen, Live|Homed)), uint64(MakeWord(gen, Cached|Homed)))
}

// HomeAt returns the home of a block that is Homed and Live at an address, and its owner.
func (b *Block) HomeAt(addr uint64) (line unsafe.Pointer, owner uint32, ok bool) {
	at, _, _, ok := b.Homed()
	return unsafe.Pointer(&b.home), b.home.owner.Load(), ok && at == addr
}

// Homed returns the address, the requested bytes and the generation of a block that is
// Homed and Live, and else reports false.
func (b *Block) Homed() (addr uint64, requested int64, gen uint64, ok bool) {
	if !b.IsHomed() {
		return 0, 0, 0, false
	}
	h := &b.home
	w := Word(h.word.Load())
	addr, requested = h.addr.Load(), h.requested.Load()
	return addr, requested, w.Gen(), w == MakeWord(w.Gen(), Live|Homed) && Word(h.word.Load()) == w
}

// Cached returns the word of a block that is Cached in its home, of a heap, and was
// requested for size bytes. TakeHomed takes it, unless its Stay ends.
func (b *Block) Cached(owner uint32, size int64) (w Word, ok bool) {
	h := &b.home
	w = Word(h.word.Load())
	return w, w&(1<<genShift-1) == Word(Cached|Homed) && h.requested.Load() == size && h.owner.Load() == owner
}

// Ends reports whether the Stay of a block ends that Cached returned a word of.
func (b *Block) Ends(w Word) bool { return uint32(w.Gen()) == b.home.last.Load() }

// TakeHomed takes a block that Cached returned a word of, and reports whether it did. It
// is live then in the next generation, at the address.
func (b *Block) TakeHomed(w Word) (addr uint64, ok bool) {
	addr = b.home.addr.Load()
	if lock.Invariants {
		step(Taking)
	}
	return addr, b.home.word.CompareAndSwap(uint64(w), uint64(w.taken()))
}

// TakeLast takes a block of the caller's heap, whose lock it holds, for size bytes that
// is Cached in its home and whose Stay ends, and reports whether it did.
func (b *Block) TakeLast(size int64) bool {
	w := b.Word()
	return State(w&(1<<genShift-1)) == Cached|Homed && b.requested == size && b.Ends(w) &&
		b.home.word.CompareAndSwap(uint64(w), uint64(w.taken()))
}

// taken returns the word of a Cached block after it went out.
func (w Word) taken() Word { return w + 1<<genShift + Word(Live) - Word(Cached) }
