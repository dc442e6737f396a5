package main

// A change takes a mechanism of placement or reclaim out of the sources, or makes one of
// its constants another one.
type change struct {
	rule    string // which mechanism or constant
	to      string // what it becomes
	backing string // that has it; "": both have
	edits   []edit
}

// An edit replaces a text that a file has once.
type edit struct{ file, old, new string }

// without is a change that takes a mechanism out.
func without(rule, backing string, edits ...edit) []change {
	return []change{{rule, "none", backing, edits}}
}

// constant returns changes of a constant, which the file declares with this text, to others.
func constant(rule, backing, file, declared, value string, others ...string) (list []change) {
	for _, to := range others {
		list = append(list, change{rule, to, backing, []edit{{file, declared + value, declared + to}}})
	}
	return list
}

const (
	segments = "segments"
	vmm      = "vmm"

	ranges        = "internal/heap/ranges.go"
	fragmentation = "internal/heap/fragmentation.go"
	stitches      = "internal/heap/stitch.go"
	reuse         = "internal/heap/reuse.go"
	take          = "internal/heap/take.go"
	lifetimes     = "internal/heap/lifetimes.go"
	lending       = "lending.go"
	ladder        = "ladder.go"
	config        = "config.go"
)

// changes are all of them.
func changes() (list []change) {
	add := func(more []change) { list = append(list, more...) }

	add(constant("part of the pool that a chunk is", vmm, ranges, "chunkFraction = ", "128", "64", "256"))
	add(constant("largest chunk, MiB", vmm, config, "defaultMaxChunk        = ", "32 << 20", "16 << 20", "64 << 20"))
	add(without("larger handles for large requests", vmm, edit{ranges, "return powerOfTwo(min(need, request/handlesOfRequest", "return 0 * powerOfTwo(min(need, request/handlesOfRequest"}))
	add(constant("handles of a request", vmm, ranges, "handlesOfRequest = ", "10", "5", "20"))
	add(constant("part that small ranges grow by", vmm, ranges, "smallGrowth = ", "1024", "512", "2048", "(1 << 50)"))
	add(without("a fragmented heap", vmm, edit{fragmentation, "\t\th.fragmented = true", ""}))
	add([]change{{"best fit of large blocks", "first fit", vmm, []edit{{take, " || h.fragmented && k == ledger.Large", " || h.space.Memory != nil && k == ledger.Large"}}}})
	add(constant("stitches for each GiB", vmm, fragmentation, "stitchesPerGiB = ", "50", "25", "100"))
	add(without("the pool's chunks among these", vmm, edit{fragmentation, "> has+", "> 0*has+"}))
	add(without("fragmented: first fit", vmm, edit{take, " || h.fragmented && k == ledger.Large", ""}))
	add(without("fragmented: larger chunks", vmm, edit{ranges, "\tif h.fragmented && have", "\tif false && have"}))
	add(constant("fragmented: part that a chunk is", vmm, fragmentation, "fragmentedChunkFraction = ", "24", "12", "48"))
	add(constant("fragmented: largest chunk, MiB", vmm, fragmentation, "fragmentedMaxChunk      = ", "10 << 20", "4 << 20", "16 << 20"))
	add(without("stitched ranges serve again", vmm, edit{reuse, "h.reuseWindow(h.bestWindow(need))", "nil"}, edit{reuse, "w := h.endWindow()", "w := window{}"}))
	add(without("stitched ranges become longer", vmm, edit{reuse, "w := h.endWindow()", "w := window{}"}))
	add(constant("addresses beside it", vmm, reuse, "addressesBeside = ", "2", "1", "4"))
	add(constant("stitched ranges that are kept", vmm, stitches, "maxStitches = ", "512", "256", "1024"))
	add(without("parts of chunks in stitched ranges", vmm,
		edit{stitches, "		if x.size+x.front", "		x.front, x.back = 0, 0\n		if x.size+x.front"}))
	add(constant("least free block that a stitch takes of", vmm, stitches, "h.free[k].EachFrom(", "h.space.Memory.Granularity", "256<<10", "1<<20"))
	add(without("two parts where whole chunks are too few", vmm,
		edit{stitches, "if total += front.front + back.back;", "if total += 0 * (front.front + back.back);"}))
	add(without("chunks of small ranges in stitched ones", vmm, edit{ladder, "SmallChunks: c.budget.Held() >= idleFloor", "SmallChunks: false"}))
	add(without("small blocks among large ones", vmm, edit{take, "case m != nil && len(h.ranges[ledger.Small]) > 0 && h.free[ledger.Large].Bytes()", "case false && h.free[ledger.Large].Bytes()"}))
	add(constant("part that is free for large blocks", vmm, take, "sparePart = ", "32", "16", "64"))
	add(without("longest rows first", vmm, edit{stitches, "cmp.Compare(b.size, a.size), ", ""}))
	add(without("stitched ranges map what others took", vmm, edit{"internal/heap/extents.go", "return h.detachUpTo(runs, need, true)", "return h.detachUpTo(runs, need, false)"}))

	add(without("memory of open streams", "", edit{lending, "if need <= 0 {\n\t\treturn found, nil", "if true {\n\t\treturn found, nil"}))
	add(constant("floor of the pool, MiB", "", lending, "idleFloor = ", "256 << 20", "128 << 20", "512 << 20", "0"))
	add(constant("floor of a heap, MiB", "", lending, "takeFloor = ", "32 << 20", "16 << 20", "64 << 20", "0"))

	add(without("idle segments go back", segments, edit{ladder, "if c.memory != nil || c.isolated.Load() || !c.reclaim.TryLock() { // growing", "if true || !c.reclaim.TryLock() { // growing"}))
	add(without("largest first", segments, edit{ladder, "c.reclaim.unkeptLocked(m.atOnce(), need, heap.LargestFirst)", "c.reclaim.unkeptLocked(m.atOnce(), need, func(a, b heap.Idle) int { return heap.LargestFirst(b, a) })"}))
	add(without("segments that are asked for again stay", segments, edit{ladder, "Size: m.segment()}, m.regrets())", "Size: m.segment()}, 1<<30)"}))
	add(constant("regrets until segments stay", segments, ladder, "regretLimit        = ", "4", "2", "8"))
	add(constant("more regrets for each doubling of what was served", segments, ladder, "regretsPerDoubling = ", "8", "0", "4", "16"))
	add(without("… for each doubling of what was served", segments, edit{ladder, "regretsPerDoubling*bits.Len64(uint64(h.Served()>>30))", "regretsPerDoubling*5*min(1, bits.Len64(uint64(h.Served())))"}))
	add(without("blocks that live long", segments, edit{lifetimes, "return l.fragmented && c.until", "return false && c.until"}))
	add(constant("part that is wasted", segments, lifetimes, "wastedFraction = ", "2", "1", "3"))
	add(constant("times what was in use, to live long", segments, lifetimes, "longLived      = ", "2", "1", "4"))
	add(without("segments of up to that from other streams", segments, edit{lending, "max(r.segment(), l.space.Policy.SparingSegment(r.rounded))", "r.segment()"}))
	add(without("blocks lent to other streams", vmm, edit{lending, "!l.of[h].lends", "true"}))
	add(without("of those the smallest that fits", vmm, edit{lending, "slices.SortFunc(list, func", "_ = slices.SortedFunc(slices.Values(list), func"}))
	add(without("blocks lent before chunks are stitched", vmm, edit{lending, "l.budget.Held()+r.rounded <= l.budget.Sufficient(0)", "r.excess(0) <= 0"}))
	add(constant("times its size", segments, lifetimes, "spareFactor    = ", "3", "2", "6"))
	add(without("… or the size that small blocks share", segments, edit{take, "return max(spareFactor*rounded, p.SharedSegment)", "return spareFactor * rounded"}))

	add(constant("magazines of a stream, MiB", "", config, "defaultMagazineBytes   = ", "64 << 20", "32 << 20", "128 << 20", "256 << 20"))
	add(constant("blocks of the fast bins that a miss merges", "", take, "const fewMerges = ", "4", "2", "8", "(1 << 30)"))
	add(constant("small segment, MiB", "", config, "defaultSmallSegment    = ", "2 << 20", "1 << 20", "4 << 20"))
	add(constant("shared segment, MiB", segments, config, "defaultLargeSegment    = ", "20 << 20", "10 << 20", "40 << 20"))
	add(constant("requests that share one, MiB", segments, config, "defaultLargeLimit      = ", "10 << 20", "5 << 20", "20 << 20"))
	add(constant("unit of segments, MiB", segments, config, "defaultSegmentRounding = ", "2 << 20", "1 << 20", "4 << 20"))
	add(constant("least rest, MiB", segments, config, "defaultMinSplit        = ", "1<<20 + sizeclass.Quantum", "1 << 19", "2 << 20", "512"))
	return list
}
