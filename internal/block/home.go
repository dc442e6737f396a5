package block

import (
	"math"

	"github.com/cupool/cupool/internal/atomic"
)

// Hook is called where another goroutine may come between two steps, in builds with
// -tags invariants, by tests that have one come there. It is set while nobody uses
// blocks.
var Hook func(Step)

// Step is a place where Hook is called.
type Step string

// The steps.
const (
	Taking  Step = "between the loads of TakeHomed"
	Leaving Step = "before LeaveHome looks at the block"
)

func step(at Step) {
	if Hook != nil {
		Hook(at)
	}
}

// Homed blocks change without a lock. Any goroutine may free one, by a
// compare-and-swap, so that one of several that do so succeeds. The one goroutine
// that is inside of the block's home (magazine.Procs) takes a Cached block by a plain
// store, as nobody else changes it.

// Stay is how long a block has a home: how often it may be taken there, and a byte
// of the caller's.
type Stay struct {
	Takes uint32
	Note  uint8
}

// Long is a Stay that ends when the block is in the way, or after 4 billion takes.
var Long = Stay{Takes: math.MaxUint32}

// SetHome homes a live block that nothing is recorded on, and that has no origin. The
// caller is inside of the home, a processor, and holds the owner's lock.
func (b *Block) SetHome(home int, stay Stay) {
	w := b.Word()
	b.SetUses(homeMark | uint32(home))
	b.origin.SetOwned(uint32(w.Gen()) + stay.Takes)
	b.link = homeLink(w.Gen(), stay.Note)
	b.SetWord(w | Homed)
}

// homeLink puts a generation and a Stay's note together.
func homeLink(gen uint64, note uint8) [2]ID {
	return [2]ID{ID(gen), ID(gen>>32) | ID(note)<<(genBits-32)}
}

// StayNote returns the note of a Homed block's Stay.
func (b *Block) StayNote() uint8 { return uint8(b.link[1] >> (genBits - 32)) }

// homeMark makes the number of a processor in Block.uses none that names streams.
const homeMark = 1 << 30

// Home returns the processor that is the home of a Homed block. For another
// block it returns the number of no processor.
func (b *Block) Home() int { return int(b.uses.Load()) - homeMark }

// HomeGen returns the generation up to which what the block did at home is booked.
func (b *Block) HomeGen() uint64 {
	return (uint64(b.link[0]) | uint64(b.link[1])<<32) & (1<<genBits - 1)
}

// FreeHomed makes a block Cached that is Homed and live in a generation, and
// reports whether it was.
func (b *Block) FreeHomed(gen uint64) bool {
	w := MakeWord(gen, Live|Homed)
	return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))
}

// TakeHomed makes a Cached block live in a new generation, which it returns, or
// 0 when the block is not Cached, has another home, or its stay ends. The caller is inside of home,
// so no block gets that home meanwhile. A block that has the home when Block.uses is
// read therefore had it when the word was read, and nobody else changes a Cached
// block of that home. The uses of a block that lost its home may name streams by
// then; no stream has the number of a home.
func (b *Block) TakeHomed(home int) (gen uint64) {
	w := b.Word()
	if atomic.Invariants {
		step(Taking)
	}
	if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home || uint32(w.Gen()) == b.origin.Load() {
		return 0
	}
	return b.take(w)
}

// Ends reports whether the block is cached in its home and its stay ends.
func (b *Block) Ends() bool {
	w := b.Word()
	return State(w&(1<<genShift-1)) == Cached|Homed && uint32(w.Gen()) == b.origin.Load()
}

// TakeLast is TakeHomed of a block whose stay ends, and of no other.
func (b *Block) TakeLast(home int) (gen uint64) {
	w := b.Word()
	if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home || uint32(w.Gen()) != b.origin.Load() {
		return 0
	}
	return b.take(w)
}

// take makes a Cached block live.
func (b *Block) take(w Word) (gen uint64) {
	w += 1<<genShift + Word(Live) - Word(Cached)
	b.SetWord(w)
	return w.Gen()
}

// LeaveHome ends the time in which a block may change without the owner's
// lock, which the caller holds. Where cached is false, it does so only for a
// live one; else the caller is inside of its home. It returns the word that the
// block has from now on, how often it went out since HomeGen, and whether it left.
func (b *Block) LeaveHome(cached bool) (w Word, hits int64, ok bool) {
	if atomic.Invariants {
		step(Leaving)
	}
	for {
		w = b.Word()
		if !w.Has(Homed) || w.State() == Cached && !cached {
			return w, 0, false
		}
		if b.word.CompareAndSwap(uint64(w), uint64(w&^Homed)) {
			b.SetUses(0)
			b.SetOrigin(0)
			return w &^ Homed, int64(w.Gen() - b.HomeGen()), true
		}
	}
}
