package main

// heapMutants are of internal/heap.
var heapMutants = []mutant{
	{
		name: "a range that is stitched of chunks in use is used again",
		old: `if c.listed != h.listing {
		return 0, 0
	}`,
		now: `if c.listed != h.listing {
		return c.size, c.size
	}`,
		in:  ".",
		run: stitching,
	},
	{
		name: "what a heap noted of chunks holds for another heap that has them",
		old:  `h.listing = h.space.marks.Add(1)`,
		now:  `h.listing++`,
		run:  "^TestMarksOfAnotherHeap$",
	},
	{
		name: "the pieces of a freed stitched block stay taken",
		old:  `h.insert(p.r.seg, p.id, h.space.Blocks.At(p.id))`,
		now:  `_ = p`,
		in:   ".",
		run:  stitching,
	},
	{
		name: "chunks leave that stitched ranges are mapped to",
		old: `
	if err := h.unmapSecond(r, x.lo, hi); err != nil {
		return nil, err
	}`,
		in:  ".",
		run: "^TestStitch|" + stitching,
	},
	{
		name: "stitched ranges stay behind when all moves",
		old: `
	to.stitches = append(to.stitches, h.stitches...)
	h.stitches = nil`,
		now: `h.stitches = nil`,
		in:  ".",
		run: "^Test(ForgettingStitches|Stitch)",
	},
	{
		name: "stitched ranges stay behind when their chunks move",
		old:  `if moves(st.chunks[0]) {`,
		now:  `if moves(st.chunks[0]) && false {`,
		in:   ".",
		run:  "^TestStitch",
	},
	{
		name: "address ranges that hold memory are given back",
		old:  `if r.gaps < r.seg.Size || r == newest {`,
		now:  `if r == newest {`,
		in:   ".",
		run:  pools,
	},
	{
		name: "a gap that was filled counts as one",
		old:  `r.gaps -= fill.size`,
	},
	{
		name: "a segment that the device would not have is lost",
		old: `
	for i := range out[n:] {
		h.reattach(out[n+i].Seg)
	}`,
		in:  ".",
		run: "^TestRefusedRelease$",
	},
	{
		name: "a released segment stays in the index",
		old:  `h.space.Index.removeIdle(out)`,
		in:   ".",
		run:  "^Test(RefusedRelease|TakenWhileReleasing|AllocationWhileReleasing)$",
	},
	{
		name: "the index does not know who has a segment that moved",
		old:  `h.space.Index.setOwner(seg, to.index)`,
		in:   ".",
		run:  "^Test(Stranded|Stream|Lookup)",
	},
	{
		name: "blocks that moved name their first heap",
		old:  `b.SetOwner(to.index)`,
		in:   ".",
		run:  "^TestStranded$",
	},
	{
		name: "pieces that merged are still counted",
		old: `
	if merged > 0 {
		h.Ledger.Unsplit(k, merged, mergedBytes)
	}`,
		now: `_, _ = merged, mergedBytes`,
	},
	{
		name: "a block that is kept whole serves small requests",
		old:  `if below != math.MaxInt64 && id != 0 && h.space.Blocks.At(id).Size >= below {`,
		now:  `if false {`,
	},
	{
		name: "a block is not found by its address",
		old:  `h.space.byAddr[wanted].Set(b.Addr(), uint32(id))`,
	},
	{
		name: "a block that had an address before is found by it",
		old:  `if id, b = i, x; x.Word().State() == block.Live {`,
		now:  `if id, b = i, x; true {`,
	},
	{
		name: "a large segment's block counts as small",
		old:  `if h.space.Policy.NoSplit || h.keeps { // a small request may have a large block`,
		now:  `if false {`,
	},
	{
		name: "small requests are not served from what was reserved",
		old:  `if b.Size >= rounded && h.segs[b.Seg].Kept {`,
		now:  `if false {`,
		in:   ".",
		run:  "^TestReserveStays$",
	},
	{
		name: "a range that begins inside of a chunk has its block at the chunk's beginning",
		old:  `st.seg = &block.Segment{Base: uint64(st.base) + uint64(st.skip), Size: need, Large: true, Stitched: true}`,
		now:  `st.seg = &block.Segment{Base: uint64(st.base), Size: need, Large: true, Stitched: true}`,
	},
	{
		name: "a stitched block uses all of the first chunk, where it begins inside",
		old:  `c := cut{p.r, p.off + skip, min(need, p.size-skip)}`,
		now:  `c := cut{p.r, p.off + 0*skip, min(need, p.size)}`,
	},
	{
		name: "a chunk that is in a range twice backs two pieces of a block",
		old: `if c.window == h.window {
				head = 0
			}`,
		now: ``,
	},
	{
		name: "a range becomes longer by chunks that its window has",
		old: `c.window = h.window
		}
		off += c.size
	}
	for _, r := range runs {`,
		now: `_ = c
		}
		off += c.size
	}
	for _, r := range runs {`,
	},
	{
		name: "free parts of chunks are not counted",
		old:  `if total += front.front + back.back; total >= need || !allow.SmallChunks {`,
		now: `
	_, _ = front, back
	if total >= need || !allow.SmallChunks {`,
	},
	{
		name: "a fragmented heap begins ranges inside of chunks",
		old:  `if front && fragmented && next != nil {`,
		now:  `if false {`,
	},
	{
		name: "no heap is fragmented",
		old:  `h.fragmented = true`,
		now:  `h.fragmented = false`,
	},
	{
		name: "a fragmented heap grows in place of every stitch",
		old:  `return held+rounded-tail <= h.most+h.most/aheadFraction`,
		now:  `return held > 0`,
	},
	{
		name: "a heap grows ahead for a big request whatever stays free",
		old:  `return h.isBig(rounded, held) && idle-tail <= held/aheadFraction`,
		now:  `return h.isBig(rounded, held)`,
	},
	{
		name: "a heap grows ahead for any request",
		old:  `return h.isBig(rounded, held) && idle-tail <= held/aheadFraction`,
		now:  `return idle-tail <= held/aheadFraction`,
	},
	{
		name: "handles for big requests are no larger",
		old:  `if k != ledger.Large || h.fragmented || !h.isBig(request, have) {`,
		now:  `if true {`,
	},
	{
		name: "a fragmented heap grows by small chunks",
		old:  `part, most = fragmentedChunkFraction, fragmentedMaxChunk`,
		now:  `part, most = chunkFraction, fragmentedMaxChunk`,
	},
	{
		name: "blocks that die soon are kept out of large segments, too",
		old:  `return l.fragmented && float64(l.served)*float64(c.out) > float64(l.most)*float64(c.served)`,
		now:  `return l.fragmented && c.out > 0`,
	},
	{
		name: "blocks that live long lie in any large segment that is in use",
		old:  `if seg := h.segs[b.Seg]; b.Size >= size && (seg.Size <= most || seg.Kept) {`,
		now:  `if seg := h.segs[b.Seg]; b.Size >= size && (seg.Size <= most || seg.Kept || !b.IsWhole()) {`,
	},
	{
		name: "what a heap knows about lifetimes stays behind when all moves",
		old:  `to.lives.join(&h.lives)`,
	},
}

// epochMutants are of internal/epoch.
var epochMutants = []mutant{
	{
		name: "an event is recorded before its epoch ends: recordLocked",
		old: `
	epoch := k.Mark() // before the event: see the package's comment
	e, err := k.events.Record(k.stream)`,
		now: `
	e, err := k.events.Record(k.stream)
	epoch := k.Mark()`,
	},
	{
		name: "any event in flight is waited for, not the one that is needed",
		old: `
		if m.epoch >= epoch {
			break
		}
	}
	if m.epoch < epoch {`,
		now: `
		break
	}
	if m.event == 0 {`,
	},
	{
		name: "an event is never recorded",
		old: `
	if err = p.device.RecordEvent(e, s); err != nil {
		p.Put(e)
		return 0, err
	}`,
	},
	{
		name: "an epoch that was over is open again",
		old: `
	for old := p.Load(); old < v && !p.CompareAndSwap(old, v); {
		old = p.Load()
	}`,
		now: `p.Store(v)`,
	},
	{
		name: "a clock ends while an event is recorded",
		old: `
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended.Store(true)`,
		now: `
	k.ended.Store(true)`,
	},
	{
		name: "events in flight are lost with their stream",
		old: `
	for _, m := range k.inFlight {
		k.events.Put(m.event)
	}
	k.inFlight = nil`,
	},
	{
		name: "a stream that has ended is waited for",
		old:  `if k.done.Load() >= epoch || k.Ended() {`,
		now:  `if k.done.Load() >= epoch {`,
	},
	{
		name: "an event is recorded on a stream that is captured",
		old:  `if k.Captured() || k.Ended() {`,
		now:  `if k.Ended() {`,
	},
	{
		name: "an event is recorded on a stream that has ended",
		old:  `if k.Captured() || k.Ended() {`,
		now:  `if k.Captured() {`,
	},
	{
		name: "a stream that has ended is recorded on a block",
		old:  `case b.Uses() == k.slot+1 || k.Ended():`,
		now:  `case b.Uses() == k.slot+1:`,
	},
	{
		name: "a block waits for a stream that has ended",
		old: `
	if k.Ended() {
		return 0 // no later than this its lists are emptied, under this lock
	}`,
	},
	{
		name: "the second stream that uses a block is forgotten",
		old: `
	if set := p.set(b); !slices.Contains(set.clocks, k) {
		set.clocks = append(set.clocks, k)
		p.carry(k.slot, 1)
	}`,
		now: `_ = slices.Contains[[]*Clock]`,
	},
	{
		name: "the first stream that is done with a block frees it",
		old:  `if set.waiting--; set.waiting > 0 {`,
		now:  `if set.waiting--; false {`,
	},
	{
		name: "waits that move are not sorted",
		old:  `slices.SortStableFunc(into.fifo[into.head:], func(a, b waiter) int { return cmp.Compare(a.epoch, b.epoch) })`,
		now:  `_ = cmp.Compare[int]`,
	},
	{
		name: "a block that moves keeps the number of its set",
		old:  `b.SetUses(uint32(len(to.sets)) | manyUses)`,
	},
	{
		name: "a stream is not named by the block that moved",
		old: `
		p.carry(b.Uses()-1, -1)
		to.carry(b.Uses()-1, 1)`,
		now: `p.carry(b.Uses()-1, -1)`,
	},
	{
		name: "the epoch that is over keeps its blocks",
		old:  `for l.head < len(l.fifo) && l.fifo[l.head].epoch <= upTo {`,
		now:  `for l.head < len(l.fifo) && l.fifo[l.head].epoch < upTo {`,
	},
}

// memoryMutants are of internal/ledger and internal/vmem.
var memoryMutants = []mutant{
	{
		name: "a ledger changes without the book's knowledge",
		old: `
	l.touch()
	p := &l.pools[k]`,
		now: `
	p := &l.pools[k]`,
	},
	{
		name: "the book forgets the ledger that changed before",
		old:  `b.behind = append(b.behind, old)`,
	},
	{
		name: "a ledger does not get the rooms of the one before it",
		old:  `l.rooms = old.rooms`,
	},
	{
		name: "what a ledger did beside the current one is not measured",
		old:  `if old == nil || l.strayed {`,
		now:  `if old == nil {`,
	},
	{
		name: "the book forgets a third ledger when two exchange memory",
		old:  `if old := b.current.Load(); old != nil && old != x && old != y {`,
		now:  `if old := b.current.Load(); false && old != nil {`,
	},
	{
		name: "a ledger stays quiet",
		old:  `l.quiet, l.rest = false, 0`,
		now:  `l.rest = 0`,
	},
	{
		name: "room that was measured before memory moved is used",
		old:  `b.current.Store(nil) // the next change measures the room anew`,
	},
	{
		name: "blocks that wait are not active",
		old: `
	if l.book.crossed.Load() {
		left |= l.activeRoom[k].take(size) | l.activeRoom[All].take(size)
	}`,
	},
	{
		name: "mapping that fails leaves what it mapped",
		old:  `undo := m.giveBack(leftover{base: at, mapped: int64(p - at)})`,
		now:  `var undo error`,
	},
	{
		name: "memory is released that is still mapped",
		old:  `if i < mapped {`,
		now:  `if false {`,
	},
	{
		name: "memory that could not be had counts as reserved",
		old:  `m.budget.Cancel(total)`,
	},
	{
		name: "the most memory that was mapped is not known",
		old:  `m.budget.Keep()`,
	},
	{
		name: "what is left over is not given back before new memory is mapped",
		old: `
	m.retry()
	handles = make([]Handle, len(sizes))`,
		now: `handles = make([]Handle, len(sizes))`,
	},
	{
		name: "what is left over is in the way of a mapping",
		old: `
	m.retry()
	p, total := at, int64(0)`,
		now: `p, total := at, int64(0)`,
	},
	{
		name: "what was left over is given back twice",
		old:  `m.left = rest`,
		now:  `_ = rest`,
	},
	{
		name: "memory that is removed stays counted",
		old: `
	err := m.giveBack(leftover{base: at, mapped: p.Size, handle: p.Handle})
	m.budget.Return(p.Size)`,
		now: `err := m.giveBack(leftover{base: at, mapped: p.Size, handle: p.Handle})`,
	},
}
