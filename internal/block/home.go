package block

// What homed blocks do. Anybody may free one, by a compare-and-swap, so that of
// several that do one is right. Whoever is inside of its home, which is one
// goroutine at a time (magazine.Procs), takes it by a plain store when it is
// Cached: nobody else changes it then.

// SetHome homes a live block that nothing is recorded on. The caller is inside
// of the home, a processor, and holds the owner's lock.
func (b *Block) SetHome(home int) {
	w := b.Word()
	b.SetUses(uint32(home) + 1)
	b.SetHomeGen(w.Gen())
	b.SetWord(w | Homed)
}

// Home returns the processor that is the home of a Homed block.
func (b *Block) Home() int { return int(b.uses.Load()) - 1 }

// SetHomeGen remembers the generation up to which what the block did at home
// is booked.
func (b *Block) SetHomeGen(gen uint64) { b.link = [2]ID{ID(gen), ID(gen >> 32)} }

// HomeGen returns what SetHomeGen remembered.
func (b *Block) HomeGen() uint64 { return uint64(b.link[0]) | uint64(b.link[1])<<32 }

// FreeHomed makes a block Cached that is Homed and live in a generation, and
// reports whether it was.
func (b *Block) FreeHomed(gen uint64) bool {
	w := MakeWord(gen, Live|Homed)
	return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))
}

// TakeHomed makes a Cached block live in a new generation, which it returns, or
// 0 when it is not Cached or has another home. The caller is inside of home. A
// block that is Cached keeps its home, and home is given to none meanwhile: so
// the word has to be read first.
func (b *Block) TakeHomed(home int) (gen uint64) {
	w := b.Word()
	if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home {
		return 0
	}
	w += 1<<genShift + Word(Live) - Word(Cached)
	b.SetWord(w)
	return w.Gen()
}

// LeaveHome ends the time in which a block may change without the owner's
// lock, which the caller holds. Where cached is false, it does so only for a
// live one; else the caller is inside of its home. It returns the word that the
// block has from now on, how often it went out since HomeGen, and whether it left.
func (b *Block) LeaveHome(cached bool) (w Word, hits int64, ok bool) {
	for {
		w = b.Word()
		if !w.Has(Homed) || w.State() == Cached && !cached {
			return w, 0, false
		}
		if b.word.CompareAndSwap(uint64(w), uint64(w&^Homed)) {
			b.SetUses(0)
			return w &^ Homed, int64(w.Gen() - b.HomeGen()), true
		}
	}
}
