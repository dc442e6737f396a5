package main

// featureMutants make rows of docs/features.md false, one for each test or Example
// that a row links, which has to see it. A name is the row, and the test.
var featureMutants = []mutant{
	{
		name: "features: freed memory serves again without the driver: TestHitPath",
		old: `
		if x.FreeHomed(b.gen) {
		return nil
	}
	w := x.Word()`,
		now: `
		if true {
		return nil
	}
	w := x.Word()`,
		in:  ".",
		run: "^TestHitPath$",
	},
	{
		name: "features: best fit: TestStrategies",
		old:  `id := h.free[k].BestFit(size)`,
		now: `
		id := h.free[k].Largest()
	if id != 0 && h.space.Blocks.At(id).Size < size {
		id = 0
	}`,
		in:  ".",
		run: "^TestStrategies$",
	},
	{
		name: "features: first fit: TestStrategies",
		old:  `if h.space.Policy.FirstFit || h.fragmented && k == ledger.Large {`,
		now:  `if h.fragmented && k == ledger.Large {`,
		in:   ".",
		run:  "^TestStrategies$",
	},
	{
		name: "features: segregated sizes, powers of two: ExampleStrategy",
		old:  `} else if powers {`,
		now:  `} else if false {`,
		in:   ".",
		run:  "^ExampleStrategy$",
	},
	{
		name: "features: a number of sizes between two powers of two: ExampleDivisions",
		old:  `if shift < quantumBits {`,
		now:  `if true {`,
		in:   ".",
		run:  "^ExampleDivisions$",
	},
	{
		name: "features: a number of sizes between two powers of two: TestDivisionsRoundAsPyTorch",
		old:  `size = RoundClass(size, int(n))`,
		now:  `size = RoundClass(size, int(n)+1)`,
		in:   ".",
		run:  "^TestDivisionsRoundAsPyTorch$",
	},
	{
		name: "features: blocks kept by exact size: TestHitPath",
		old:  `return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`,
		now:  `return w == 0`,
		in:   ".",
		run:  "^TestHitPath$",
	},
	{
		name: "features: free neighbours merge: ExamplePool",
		old:  `id, b, merged, mergedBytes := seg.Coalesce(id, b, &h.free[k], &h.slots)`,
		now: `
		merged, mergedBytes := int64(0), int64(0)
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Free))`,
		in:  ".",
		run: "^ExamplePool$",
	},
	{
		name: "features: pools for small, medium and large blocks: ExampleBySize",
		old:  `i, _ := slices.BinarySearch(s.max, size)`,
		now:  `i, _ := slices.BinarySearch(s.max, 0)`,
		in:   "adaptor",
		run:  "^ExampleBySize$",
	},
	{
		name: "features: pools for small, medium and large blocks: TestPoolConfiguredSizes",
		old:  `case rounded <= cfg.SmallLimit && cfg.GrowthFactor != 1:`,
		now:  `case rounded <= 1<<20 && cfg.GrowthFactor != 1:`,
		in:   ".",
		run:  "^TestPoolConfiguredSizes$",
	},
	{
		name: "features: one region with a moving offset, everything freed at once: ExampleArena",
		old:  `if err := r.goBackLocked(point{}); err != nil {`,
		now:  `if err := r.goBackLocked(point{off: r.off, blocks: len(r.blocks), over: len(r.over)}); err != nil {`,
		in:   "arena",
		run:  "^ExampleArena$",
	},
	{
		name: "features: one region with a moving offset, everything freed at once: TestArena",
		old:  `r.off = min(at+sizeclass.Round(size), r.cfg.Size)`,
		in:   "arena",
		run:  "^TestArena$",
	},
	{
		name: "features: nested marks: ExampleArena_Release",
		old:  `to := r.marks[m.depth]`,
		now:  `to := point{}`,
		in:   "arena",
		run:  "^ExampleArena_Release$",
	},
	{
		name: "features: streams of an arena: TestStreams",
		old:  `if err := r.s.WaitStream(u); err != nil {`,
		now:  `if err := error(nil); err != nil {`,
		in:   "arena",
		run:  "^TestStreams$",
	},
	{
		name: "features: overflow of an arena: TestOverflow",
		old:  `if !r.cfg.Overflow {`,
		now:  `if r.cfg.Size > 0 {`,
		in:   "arena",
		run:  "^TestOverflow$",
	},
	{
		name: "features: memory reserved ahead: ExamplePool_Reserve",
		old:  `b, err := c.AllocContext(reserving, size, s)`,
		now:  `b, err := c.AllocContext(reserving, 0*size, s)`,
		in:   ".",
		run:  "^ExamplePool_Reserve$",
	},
	{
		name: "features: memory reserved ahead: TestReserveStays",
		old:  `h.KeepSegment(h.SegmentOf(x))`,
		now:  `_ = x`,
		in:   ".",
		run:  "^TestReserveStays$",
	},
	{
		name: "features: growth: fixed, as requested, by a factor: TestGrowthFactor",
		old:  `extra = h.Extra(cfg.SegmentRounding)`,
		now:  `_ = cfg`,
		in:   ".",
		run:  "^TestGrowthFactor$",
	},
	{
		name: "features: growth: fixed, as requested, by a factor: TestGrowthFactorVirtual",
		old:  `for _, more := range [...]int64{h.Extra(h.space.Memory.Granularity), h.growthStep(k, need)} {`,
		now:  `for _, more := range [...]int64{h.growthStep(k, need)} {`,
		in:   ".",
		run:  "^TestGrowthFactorVirtual$",
	},
	{
		name: "features: minimum block size: TestMinBlock",
		old:  `return RoundTo(size, c.unit)`,
		now:  `return size`,
		in:   ".",
		run:  "^TestMinBlock$",
	},
	{
		name: "features: minimum block size: TestMinBlockSaves",
		old:  `size = (size + c.fine - 1) &^ (c.fine - 1)`,
		now:  `size = Round(size)`,
		in:   ".",
		run:  "^TestMinBlockSaves$",
	},
	{
		name: "features: large blocks kept whole: TestMaxSplit",
		old:  `return p.MaxSplit > 0 && k == ledger.Large && size >= p.MaxSplit`,
		now:  `return false`,
		in:   ".",
		run:  "^TestMaxSplit$",
	},
	{
		name: "features: bound on what is reserved: TestLimits",
		old: `
		if limit <= 0 {
		limit = math.MaxInt64
	}
	if fraction > 0 {`,
		now: `
		limit = math.MaxInt64
	if fraction > 0 {`,
		in:  ".",
		run: "^TestLimits$",
	},
	{
		name: "features: a free waits for events of other streams: ExamplePool_RecordStream",
		old:  `if h.pending.Record(x, s.clock); x.Uses() != 0 {`,
		now:  `if x.Uses() != 0 {`,
		in:   ".",
		run:  "^ExamplePool_RecordStream$",
	},
	{
		name: "features: free on another stream: ExamplePool_FreeOn",
		old:  `h, x, err := c.recordUse("free", b, s)`,
		now:  `h, x, err := c.recordUse("free", b, c.StreamOf(b))`,
		in:   ".",
		run:  "^ExamplePool_FreeOn$",
	},
	{
		name: "features: free on another stream: TestFreePtrOn",
		old: `
			if err != nil {
		return err
	}
	return c.FreeOn(b, s)`,
		now: `
			if err != nil {
		return err
	}
	return c.Free(b)`,
		in:  ".",
		run: "^TestFreePtrOn$",
	},
	{
		name: "features: deferred frees processed on demand: ExamplePool_ProcessDeferred",
		old: `
		c.drainLater()
	return c.settleAll(epoch.Force)`,
		now: `
		c.drainLater()
	return 0, nil`,
		in:  ".",
		run: "^ExamplePool_ProcessDeferred$",
	},
	{
		name: "features: pools by stream: TestStreamPools",
		old: `
		h := c.def
	if s != nil {
		if h = c.findHeap(s); h == nil {`,
		now: `
		h := c.def
	if s != nil && s.root != c.dev.root {
		if h = c.findHeap(s); h == nil {`,
		in:  ".",
		run: "^TestStreamPools$",
	},
	{
		name: "features: memory of idle and closed streams serves others: TestStranded",
		old:  `case c.memory == nil && len(c.heaps.All()) == 1:`,
		now:  `case c.memory == nil:`,
		in:   ".",
		run:  "^TestStranded$",
	},
	{
		name: "features: trim to a size: ExamplePool_Trim",
		old:  `return c.trim(keep, c.budget.Held)`,
		now:  `return c.trim(keep, func() int64 { return 0 })`,
		in:   ".",
		run:  "^ExamplePool_Trim$",
	},
	{
		name: "features: trim to a size: TestTrimUnused",
		old: `
		_, unused := c.usage()
		return unused`,
		now: `return c.budget.Held()`,
		in:  ".",
		run: "^TestTrimUnused$",
	},
	{
		name: "features: give back all that is free: ExamplePool_EmptyCache",
		old:  `return errors.Join(c.emptyCache(), c.sanitizer.Findings())`,
		now:  `return c.sanitizer.Findings()`,
		in:   ".",
		run:  "^ExamplePool_EmptyCache$",
	},
	{
		name: "features: give back everything at once: TestReset",
		old: `
		_, err := c.releaseHeaps()
	clear(c.idle.regrets)`,
		now: `
		var err error
	clear(c.idle.regrets)`,
		in:  ".",
		run: "^TestReset$",
	},
	{
		name: "features: give back everything at once: TestClose",
		old: `
		leaks, err := c.releaseHeaps()
	if err != nil {`,
		now: `
		var leaks []Leak
	if err != nil {`,
		in:  ".",
		run: "^TestClose$",
	},
	{
		name: "features: give back everything at once: ExamplePool_NewPool",
		old: `
		leaks, err := c.releaseHeaps()
	if err != nil {`,
		now: `
		var leaks []Leak
	if err != nil {`,
		in:  ".",
		run: "^ExamplePool_NewPool$",
	},
	{
		name: "features: a threshold from which freed memory goes back: TestSetSoftLimit",
		old:  `c.afterFree.Store(&shed)`,
		now:  `_ = shed`,
		in:   ".",
		run:  "^TestSetSoftLimit$",
	},
	{
		name: "features: what was idle longest goes first: TestTrimOldest",
		old:  `if oldest {`,
		now:  `if false {`,
		in:   ".",
		run:  "^TestTrimOldest$",
	},
	{
		name: "features: what was idle longest goes first: TestGarbageCollectionThreshold",
		old:  `_, err := c.releaseUnkept(need, heap.OldestFirst)`,
		now:  `_, err := c.releaseUnkept(need, heap.LargestFirst)`,
		in:   ".",
		run:  "^TestGarbageCollectionThreshold$",
	},
	{
		name: "features: memory idle for some time goes back: TestDecay",
		old: `
		c.startDecay()
	return c, nil`,
		now: `return c, nil`,
		in:  ".",
		run: "^TestDecay$",
	},
	{
		name: "features: memory goes to other programs for a while: ExamplePool_Sleep",
		old: `
		slept, err := h.Sleep()
		c.asleepBytes.Add(slept)`,
		now: `_, err := h, error(nil)`,
		in:  ".",
		run: "^ExamplePool_Sleep$",
	},
	{
		name: "features: several attempts before out of memory: TestLadder",
		old:  `freed, err := step.climb(c, r)`,
		now:  `freed, err := step.grows, error(nil)`,
		in:   ".",
		run:  "^TestLadder$",
	},
	{
		name: "features: another allocator when one is full: ExampleFallback",
		old: `
		b, err := f.all[0].Alloc(size, s)
	if !errors.Is(err, cupool.ErrOutOfMemory) {`,
		now: `
		b, err := f.all[0].Alloc(size, s)
	if f != nil {`,
		in:  "adaptor",
		run: "^ExampleFallback$",
	},
	{
		name: "features: callback: out of memory: TestLadderAsksTheProgram",
		old:  `if c.cfg.OnOutOfMemory == nil || !c.cfg.OnOutOfMemory(r.size) {`,
		now:  `if c.cfg.OnOutOfMemory == nil || true {`,
		in:   ".",
		run:  "^TestLadderAsksTheProgram$",
	},
	{
		name: "features: callback: out of memory: ExampleFailureCallback",
		old:  `if !errors.Is(err, cupool.ErrOutOfMemory) || !f.ask(Failure{Size: size, Stream: s, Attempt: attempt, Err: err}) {`,
		now:  `if attempt > 0 {`,
		in:   "adaptor",
		run:  "^ExampleFailureCallback$",
	},
	{
		name: "features: callbacks: before growing, after release: TestBeforeGrow",
		old:  `c.cfg.BeforeGrow(r.rounded)`,
		now:  `_ = r`,
		in:   ".",
		run:  "^TestBeforeGrow$",
	},
	{
		name: "features: callbacks: before growing, after release: TestOnRelease",
		old:  `c.cfg.OnRelease(released)`,
		in:   ".",
		run:  "^TestOnRelease$",
	},
	{
		name: "features: the device: ExampleOpen",
		old:  `return OpenHost(HostConfig{Capacity: n.Capacity})`,
		now:  `return OpenHost(HostConfig{Capacity: 1 << 20})`,
		in:   ".",
		run:  "^ExampleOpen$",
	},
	{
		name: "features: size, initial size and growth from the environment: TestConfigFromEnv",
		old: `
		merged, found, err := settings.Environ(cfg)
	if err != nil {`,
		now: `
		merged, found, err := settings.Environ(cfg)
	merged = cfg
	if err != nil {`,
		in:  ".",
		run: "^TestConfigFromEnv$",
	},
	{
		name: "features: default and custom pools: TestDefaultPool",
		old:  `n.pool, err = d.DefaultNativePool()`,
		now:  `n.pool, err = d.NewNativePool(cuda.NativePoolConfig{})`,
		in:   "native",
		run:  "^TestDefaultPool$",
	},
	{
		name: "features: default and custom pools: ExampleNew",
		old:  `n.pool, err = d.NewNativePool(*cfg.Pool)`,
		now:  `n.pool, err = d.DefaultNativePool()`,
		in:   "native",
		run:  "^ExampleNew$",
	},
	{
		name: "features: properties: TestMaxSize",
		old:  `n.own, n.maxSize = true, cfg.Pool.MaxSize`,
		now: `
		n.own = true
		cfg.Pool = &cuda.NativePoolConfig{}`,
		in:  "native",
		run: "^TestMaxSize$",
	},
	{
		name: "features: shared with other processes: ExampleAllocator_Send",
		old:  `n.exported = true`,
		in:   "native",
		run:  "^ExampleAllocator_Send$",
	},
	{
		name: "features: shared with other processes: TestShare",
		old:  `data, err := n.d.ExportNativePointer(h.Ptr())`,
		now:  `data, err := n.d.ExportNativePointer(0)`,
		in:   "native",
		run:  "^TestShare$",
	},
	{
		name: "features: bytes allocated and reserved: TestStats",
		old:  `h.Ledger.Out(k, b.Size, size)`,
		now:  `h.Ledger.Out(k, size, size)`,
		in:   ".",
		run:  "^TestStats$",
	},
	{
		name: "features: bytes reserved: TestStats",
		old:  `l.add(k, ReservedBytes, size)`,
		now:  `l.add(k, ReservedBytes, size/2)`,
		in:   ".",
		run:  "^TestStats$",
	},
	{
		name: "features: their peaks, and reset of these: TestResetPeak",
		old:  `c.space.Book.ResetPeaks(ledgers(heaps))`,
		now:  `_ = heaps`,
		in:   ".",
		run:  "^TestResetPeak$",
	},
	{
		name: "features: counts of allocations and frees: TestStats",
		old:  `p[OutBlocks].Added++`,
		now:  `p[OutBlocks].Added += 2`,
		in:   ".",
		run:  "^TestStats$",
	},
	{
		name: "features: free blocks: TestFreeBlocks",
		old:  `st.FreeBlocks += got[k].Idles() + got[k].Cached`,
		now:  `st.FreeBlocks += got[k].Cached`,
		in:   ".",
		run:  "^TestFreeBlocks$",
	},
	{
		name: "features: fragmentation: TestStats",
		old:  `return 1 - float64(s.LargestFree)/float64(s.CachedBytes)`,
		now:  `return 0`,
		in:   ".",
		run:  "^TestStats$",
	},
	{
		name: "features: printed for people: TestWriteStats",
		old:  `r := poolstats.Ratios{Hits: s.HitRatio(), Fragmentation: s.Fragmentation()}`,
		now:  `r := poolstats.Ratios{}`,
		in:   ".",
		run:  "^TestWriteStats$",
	},
	{
		name: "features: leak check at the end: ExampleLeakError",
		old:  `errs = append(errs, newLeakError(leaks))`,
		in:   ".",
		run:  "^ExampleLeakError$",
	},
	{
		name: "features: the blocks that are live, on demand: ExampleTracking",
		old:  `t.live[b] = o`,
		in:   "adaptor",
		run:  "^ExampleTracking$",
	},
	{
		name: "features: stacks of allocations: TestTracking",
		old:  `runtime.Callers(2, o.pc[:])`,
		now:  `runtime.Callers(99, o.pc[:])`,
		in:   "adaptor",
		run:  "^TestTracking$",
	},
	{
		name: "features: adaptors: statistics: ExampleStatistics",
		old:  `s.count(b, (*Counters).add)`,
		in:   "adaptor",
		run:  "^ExampleStatistics$",
	},
	{
		name: "features: adaptors: tracking: ExampleTracking",
		old:  `delete(t.live, b) // its generation tells it from every other block`,
		in:   "adaptor",
		run:  "^ExampleTracking$",
	},
	{
		name: "features: adaptors: logging: ExampleLogging",
		old:  `l.log.LogAttrs(ctx, level, call, all...)`,
		in:   "adaptor",
		run:  "^ExampleLogging$",
	},
	{
		name: "features: limits by tenant: Example",
		old:  `if size > l.limit-used {`,
		now:  `if size < 0 {`,
		in:   "adaptor",
		run:  "^Example$",
	},
	{
		name: "features: recording, and replay across streams: ExampleRecording",
		old:  `r.writeLocked(trace.Use, id, 0, s)`,
		now:  `_, _ = id, s`,
		in:   "adaptor",
		run:  "^ExampleRecording$",
	},
	{
		name: "features: labels of parts of the program: ExampleEngine_ScopeLabeled",
		old:  `s := e.openScopeLocked(a.WithLabel(name))`,
		now:  `s := e.openScopeLocked(a.WithLabel(""))`,
		in:   ".",
		run:  "^ExampleEngine_ScopeLabeled$",
	},
	{
		name: "features: pools of a scope: ExampleEngine_ScopeIn",
		old: `
		e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	return e.openScopeLocked(pool), nil`,
		now: `
		e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	return e.openScopeLocked(nil), nil`,
		in:  ".",
		run: "^ExampleEngine_ScopeIn$",
	},
	{
		name: "features: a history of events: ExamplePool_StartHistory",
		old: `
		c.dev.history.Start(history.Settings(*set))
	c.dev.logger.Info("history started", "events", set.Events, "sample_bytes", set.SampleBytes)`,
		now: `c.dev.logger.Info("history started", "events", set.Events, "sample_bytes", set.SampleBytes)`,
		in:  ".",
		run: "^ExamplePool_StartHistory$",
	},
	{
		name: "features: a snapshot of all segments and blocks: ExamplePool_Snapshot",
		old:  `s := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: p.Segments(packagePath)}`,
		now: `
		_ = p
	s := Snapshot{Device: c.driver.Name(), Pool: c.name}`,
		in:  ".",
		run: "^ExamplePool_Snapshot$",
	},
	{
		name: "features: a snapshot of all segments and blocks: TestSnapshotJSON",
		old:  `s := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: p.Segments(packagePath)}`,
		now: `
		_ = p
	s := Snapshot{Device: c.driver.Name(), Pool: c.name}`,
		in:  ".",
		run: "^TestSnapshotJSON$",
	},
	{
		name: "features: freed when a scope ends: ExampleEngine_Scope",
		old:  `case !s.keepsLocked(b.Block):`,
		now:  `case false:`,
		in:   ".",
		run:  "^ExampleEngine_Scope$",
	},
	{
		name: "features: freed by the garbage collector: ExamplePool_FreeLater",
		old:  `func (c *Pool) FreeLater(b Block) { c.later.Push(b) }`,
		now:  `func (c *Pool) FreeLater(b Block) {}`,
		in:   ".",
		run:  "^ExamplePool_FreeLater$",
	},
	{
		name: "features: a device that fills up runs the garbage collector: TestDue",
		old:  `if full < from {`,
		now:  `if full < 2 {`,
		in:   "internal/gcpressure",
		run:  "^TestDue$",
	},
	{
		name: "features: out of memory is no crash: ExampleOOMError",
		old:  `return Block{}, c.oomError(r, refused, late)`,
		now: `
		_ = late
	return Block{}, refused`,
		in:  ".",
		run: "^ExampleOOMError$",
	},
	{
		name: "features: double free told apart: ExampleBlockError",
		old: `
		if h := c.heapAt(x.Owner()); h != nil {
		return c.blockError(op, b, h.stream, gone)`,
		now: `
		if h := c.heapAt(x.Owner()); h != nil {
		return c.blockError(op, b, h.stream, ErrForeignPointer)`,
		in:  ".",
		run: "^ExampleBlockError$",
	},
	{
		name: "features: interior pointers told apart: ExampleBlockError",
		old:  `case w.State() == block.Live && exact && b.Addr() != uint64(p):`,
		now:  `case false:`,
		in:   ".",
		run:  "^ExampleBlockError$",
	},
	{
		name: "features: use after free told apart: TestFreeErrors",
		old:  `case x.Word().Gen() != b.gen && gone == ErrDoubleFree:`,
		now:  `case false:`,
		in:   ".",
		run:  "^TestFreeErrors$",
	},
	{
		name: "features: rules that the books are checked against: TestCheck",
		old:  `err := d.budget.Check(held)`,
		now:  `_, err := held, error(nil)`,
		in:   ".",
		run:  "^TestCheck$",
	},
	{
		name: "features: a path without locks: TestHitTakesNoLock",
		old: `
		id, b, gen, misses := hits.Get(size)
	if id != 0 {
		return newBlock(Ptr(b.Addr()), size, gen, id, c.id), nil
	}
	return c.allocSlow(context.Background(), size, s, misses)`,
		now: `
		c.def.mu.Lock()
	id, b, gen, misses := hits.Get(size)
	c.def.mu.Unlock()
	if id != 0 {
		return newBlock(Ptr(b.Addr()), size, gen, id, c.id), nil
	}
	return c.allocSlow(context.Background(), size, s, misses)`,
		in:  ".",
		run: "^TestHitTakesNoLock$",
	},
	{
		name: "features: a path without locks, freeing: TestHitTakesNoLock",
		old: `
		x := c.space.Blocks.At(b.id())
	if x.FreeHomed(b.gen) {`,
		now: `
		x := c.space.Blocks.At(b.id())
	c.def.mu.Lock()
	c.def.mu.Unlock()
	if x.FreeHomed(b.gen) {`,
		in:  ".",
		run: "^TestHitTakesNoLock$",
	},
}
