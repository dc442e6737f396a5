package main

// blockMutants are of internal/block, magazine, sizeclass and addrmap.
var blockMutants = []mutant{
	// Blocks (internal/block).
	{
		name: "neighbours that are not free merge",
		old: `
		if next := t.At(b.Next); next.Word().State() == Free {
			n, bytes = 1, next.Size
			free.Remove(b.Next, next)`,
		now: `
		if next := t.At(b.Next); next.Word().State() != Live {
			if n, bytes = 1, next.Size; next.Word().State() == Free {
				free.Remove(b.Next, next)
			}`,
	},
	{
		name: "a block does not merge with the one before",
		old:  `if prev := t.At(b.Prev); prev.Word().State() == Free {`,
		now:  `if prev := t.At(b.Prev); false {`,
	},
	{
		name: "merging leaves the neighbour in the free set",
		old:  `free.Remove(b.Next, next)`,
	},
	{
		name: "the last block of a segment is not known after a merge",
		old: `
	b.Next = next.Next
	if next.Next != 0 {
		slots.Table.At(next.Next).Prev = id
	} else {
		s.Last = id
	}`,
		now: `
	b.Next = next.Next
	if next.Next != 0 {
		slots.Table.At(next.Next).Prev = id
	}`,
	},
	{
		name: "the rest of a split is not linked back",
		old:  `slots.Table.At(b.Next).Prev = restID`,
		now:  `_ = restID`,
	},
	{
		name: "a free of any generation brings a block home",
		old:  `return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`,
		now:  `w = b.Word(); return w.State() == Live && w.Has(Homed) && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`,
	},
	{
		name: "a block is taken from another's home",
		old:  `if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home || uint32(w.Gen()) == b.origin.Load() {`,
		now:  `if State(w&(1<<genShift-1)) != Cached|Homed || uint32(w.Gen()) == b.origin.Load() {`,
	},
	{
		name: "a stay in the magazines does not end",
		old:  `if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home || uint32(w.Gen()) == b.origin.Load() {`,
		now:  `if State(w&(1<<genShift-1)) != Cached|Homed || b.Home() != home {`,
	},
	{
		name: "homes and streams have the same numbers",
		old:  `const homeMark = 1 << 30`,
		now:  `const homeMark = 1`,
		tags: "invariants",
	},
	{
		name: "a block that is taken keeps its generation",
		old:  `w += 1<<genShift + Word(Live) - Word(Cached)`,
		now:  `w = w + Word(Live) - Word(Cached)`,
	},
	{
		name: "a cached block leaves its home without being asked to",
		old:  `if !w.Has(Homed) || w.State() == Cached && !cached {`,
		now:  `if !w.Has(Homed) {`,
	},
	{
		name: "a block leaves its home and keeps the home's number",
		old: `
			b.SetUses(0)
			b.SetOrigin(0)
			return w &^ Homed, int64(w.Gen() - b.HomeGen()), true`,
		now: `
			b.SetOrigin(0)
			return w &^ Homed, int64(w.Gen() - b.HomeGen()), true`,
	},
	{
		name: "half of a generation is remembered at home",
		old:  `return (uint64(b.link[0]) | uint64(b.link[1])<<32) & (1<<genBits - 1)`,
		now:  `return uint64(b.link[0])`,
	},
	{
		name: "best fit looks at one bin only",
		old:  `return f.first(f.nextBin(bin + 1))`,
		now:  `return 0`,
	},
	{
		name: "best fit takes the first that is large enough",
		old:  `best, side = at, 0`,
		now:  `return at`,
	},
	{
		name: "an empty bin stays marked",
		old: `
	if f.roots[bin] == 0 {
		f.clearBin(bin)
	}
}`,
		now: `}`,
	},
	{
		name: "a swept set forgets to count",
		old: `
	f.count--
	f.bytes -= n.Size
	return f.merge(n.link[0], n.link[1])`,
		now: `return f.merge(n.link[0], n.link[1])`,
	},
	{
		name: "equal sizes have no order",
		old: `
	case b.Seg != o.Seg:
		return b.Seg < o.Seg`,
		now: ``,
	},
	{
		name: "fast bins serve any larger size",
		old:  `if more := b.Size - size; more > size>>fastSlack {`,
		now:  `if more := b.Size - size; false {`,
	},
	{
		name: "fast bins serve a smaller size",
		old:  `} else if more >= 0 {`,
		now:  `} else if more >= -512 {`,
	},
	{
		name: "an empty fast bin stays marked",
		old:  `f.words[bin>>6&(fastClasses/64-1)] &^= empty << (bin & 63)`,
		now:  `_ = empty`,
	},
	{
		name: "slot 0 is handed out",
		old: `
		if t.next == 0 {
			t.next = 1 // slot 0 means no block
		}`,
	},
	{
		name: "slots are never given back",
		old: `
		c.Table.giveBack(c.ids[n-2*slotBatch:])
		c.ids = c.ids[:n-2*slotBatch]`,
		now: `c.ids = c.ids[:n-2*slotBatch]`,
	},

	// Magazines (internal/magazine).
	{
		name: "a flush leaves cached blocks at home",
		old:  `case live || c.table.At(id).Word().State() == block.Cached:`,
		now:  `case live:`,
	},
	{
		name: "a block of another size is taken",
		old:  `if b := c.table.At(id); b.Requested() == size && b.Owner() == c.owner {`,
		now:  `if b := c.table.At(id); b.Owner() == c.owner {`,
	},
	{
		name: "a block of another stream is taken",
		old:  `if b := c.table.At(id); b.Requested() == size && b.Owner() == c.owner {`,
		now:  `if b := c.table.At(id); b.Requested() == size {`,
	},
	{
		name: "goroutines that use a processor are not waited for",
		old: `
	for i := range p.list {
		p.list[i].wait()
	}`,
	},
	{
		name: "a closed processor lets in",
		old:  `return h.gate.Load() == 0`,
		now:  `return true`,
	},
	{
		name: "a processor is closed without a barrier",
		old:  `if p.plain.Load() && !barrier() {`,
		now:  `if false {`,
	},
	{
		name: "a barrier that is refused is taken for one",
		old:  `if p.plain.Load() && !barrier() {`,
		now:  `if p.plain.Load() && !barrier() && false {`,
	},
	{
		name: "an evicted block keeps its home",
		old:  `evicted, _ = c.leave(block.ID(s[way].Load()>>32), true)`,
	},
	{
		name: "tags of a set are not written",
		old:  `sh.tags[i].SetOwned(tags)`,
	},

	// The rest.
	{
		name: "sizes are rounded down",
		old:  `return (size + Quantum - 1) &^ (Quantum - 1)`,
		now:  `return max(size&^(Quantum-1), Quantum)`,
	},
	{
		name: "bins do not ascend",
		old:  `return shift<<subBits + int(units>>(shift&63))`,
		now:  `return shift<<subBits + int(units>>(shift&63))&31`,
	},
	{
		name: "an address beyond the map is in it",
		old: `
	if u>>maxBits != 0 {
		return nil
	}`,
	},
	{
		name: "nodes of the address map are made twice",
		old: `
	if c := p.Load(); c != nil {
		return c
	}`,
	},
}
