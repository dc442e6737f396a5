package main

// rootMutants are of package cupool.
var rootMutants = []mutant{
	// Streams and events.
	{
		name: "what was reserved on purpose makes room for others",
		old:  `found = slices.DeleteFunc(found, func(f heap.Idle) bool { return f.Seg.Kept })`,
		run:  "^TestReserveStays$",
	},
	{
		name: "an event is recorded before its epoch ends: Stream.Record",
		old: `
		epoch := s.clock.Mark() // before the event: see package epoch
		h, err := s.root.dev.events.Record(s.handle)`,
		now: `
		h, err := s.root.dev.events.Record(s.handle)
		epoch := s.clock.Mark()`,
		run: "^TestFreedWhileRecording$",
	},
	{
		name: "a stream is synchronized before its epoch ends",
		old: `
	upTo := s.clock.Mark()
	if err := s.device.Driver.SyncStream(s.handle); err != nil {
		return err
	}
	s.clock.Over(upTo)`,
		now: `
	if err := s.device.Driver.SyncStream(s.handle); err != nil {
		return err
	}
	s.clock.Over(s.clock.Mark())`,
		in:  ".",
		run: "^TestFreedWhileSynchronizing$",
	},
	{
		name: "a slot is used again while a block names it",
		old:  `if !d.named(uint32(d.look)) {`,
		now:  `if true {`,
		run:  "^TestSlotOfClosedStream$",
	},
	{
		name: "an event proves something of the stream that took its stream's slot",
		old:  `if number, k := at(slot); number == x.Stream {`,
		now:  `if _, k := at(slot); k != nil {`,
		in:   ".",
		run:  "^TestSlotOfClosedStream$",
	},
	{
		name: "what is known of a stream counts for the next one in its slot",
		old:  `if x.Stream == own || x.Stream < was.Stream || x.Stream == was.Stream && x.Epoch <= was.Epoch {`,
		now:  `if x.Stream == own || x.Epoch <= was.Epoch {`,
		in:   ".",
		run:  "^TestSlotOfClosedStream$",
	},
	{
		name: "what an event's stream saw is not passed on",
		old: `
	for slot, x := range seen {
		note(uint32(slot), x)
	}`,
		in:  ".",
		run: "^TestWaits$",
	},
	{
		name: "a lost device leaves the magazines open",
		old: `
	for _, c := range d.open() {
		c.space.Procs.Shut()
	}`,
		run: "^TestNothingServedByLostDevice$",
	},

	// The ends of streams and pools.
	{
		name: "a stream is closed before its work is done",
		old: `
	if err := s.calls.Submitted("synchronize", s.calls.Finish(ctx)); err != nil {
		s.calls.Reopen()
		return err
	}`,
		now: `_ = ctx`,
		run: "^Test(Close|ClosingStream|StreamClose)",
	},
	{
		name: "a stream's memory serves others before its work is done",
		old: `
	if err := s.calls.Submitted("synchronize", s.calls.Finish(ctx)); err != nil {
		s.calls.Reopen()
		return err
	}
	d.ended(s)
	var errs []error
	for _, c := range d.open() {
		errs = append(errs, c.leave(s))
	}`,
		now: `
	var errs []error
	for _, c := range d.open() {
		errs = append(errs, c.leave(s))
	}
	if err := s.calls.Submitted("synchronize", s.calls.Finish(ctx)); err != nil {
		s.calls.Reopen()
		return err
	}
	d.ended(s)`,
		run: "^TestClosingStreamLendsNothing$",
	},
	{
		name: "a stream's slot is vacant before its memory is idle",
		old: `
	var errs []error
	for _, c := range d.open() {
		errs = append(errs, c.leave(s))
	}
	return errors.Join(append(errs, s.destroy())...) // another stream may have its slot then`,
		now: `
	errs := []error{s.destroy()}
	for _, c := range d.open() {
		errs = append(errs, c.leave(s))
	}
	return errors.Join(errs...)`,
		run: "^TestSlotWhileStreamCloses$",
	},
	{
		name: "what waits for a closed stream waits on",
		old:  `d.ended(s)`,
		run:  "^Test(SlotOfClosedStream|StreamClose|StreamsWith)",
	},
	{
		name: "the clock of a closed stream goes on",
		old: `
	s.clock.End()
	for _, c := range d.open() {`,
		now: `
	for _, c := range d.open() {`,
		run: "^Test(SlotOfClosedStream|StreamClose|StreamsWith)",
	},
	{
		name: "streams and pools are closed at once",
		old: `
	d.closing.Lock()
	defer d.closing.Unlock()
	if s.root.closed.Load() || !s.calls.Close() {`,
		now: `
	if s.root.closed.Load() || !s.calls.Close() {`,
		run: "^TestStreamThatClosesBesidePool$",
	},
	{
		name: "calls that are under way on a stream that closes are not waited for",
		old: `
	s.running.Lock()
	//lint:ignore SA2001 to have waited is all
	s.running.Unlock()`,
		run: "^TestCloseWaitsForCalls$",
	},
	{
		name: "a stream that closes gets a heap",
		old: `
	case !s.calls.IsOpen(): // from here on Stream.Close would not see the heap
		return nil, s.closedError()`,
		run: "^Test(ClosedStreamServesNothing|StreamsWithoutEnd)$",
	},
	{
		name: "a pool is closed under the work of streams",
		old: `
	err := d.syncAll(ctx)
	if err != nil { // a failure may pass
		err = d.syncAll(ctx)
	}`,
		now: `var err error`,
		run: "^TestCloseWaitsForEveryStream$",
	},
	{
		name: "a program's own Free is called under work",
		old: `
	if c.ownMemory {
		err = h.stream.calls.WaitIdle(context.Background())
	}`,
		now: `_ = context.Background`,
		run: "^TestOwnFreeWaits$",
	},
	{
		name: "what a closed pool could not give back is not counted",
		old:  `if c.holdsMemory() {`,
		now:  `if false {`,
		run:  "^TestClosedPoolThatHoldsMemory$",
	},

	// Blocks that others use.
	{
		name: "a use that cannot be recorded keeps the lock",
		old: `
	if !h.Unhome(b.id(), x) {
		h.mu.Unlock()
		return nil, nil, c.blockError(op, b, h.stream, ErrUseAfterFree)`,
		now: `
	if !h.Unhome(b.id(), x) {
		return nil, nil, c.blockError(op, b, h.stream, ErrUseAfterFree)`,
		run: "^TestRecordBesideFree$", tags: "invariants",
	},
	{
		name: "a lent block is free before its borrower is done",
		old:  `h.pending.Record(b, r.h.stream.clock)`,
		now:  ``,
		run:  "^TestLen",
	},
	{
		name: "a call that begins when its stream closes is made",
		old: `
	if !s.IsOpen() { // Close waits for no more calls
		s.running.RUnlock()
		return false
	}`,
		run: "^TestEnter$",
	},
	{
		name: "a loan empties the borrower's magazines",
		old:  `const firstBorrowing, firstLending, firstReclaiming, firstReleasing, lastLending = 1, 2, 7, 8, 15`,
		now:  `const firstBorrowing, firstLending, firstReclaiming, firstReleasing, lastLending = 2, 1, 7, 8, 15`,
		run:  "^TestLendingLeavesMagazines$",
	},
	{
		name: "memory that an allocator keeps ends with its last handle",
		old:  `released, err := h.CutLast(x)`,
		now:  `released, err := int64(0), error(nil)`,
		run:  "^TestAllocExact",
	},
	{
		name: "a busy stream lends",
		old:  `if h.usableLocked() != nil || !h.Fits(r.kind, r.rounded) || !h.stream.calls.Idle(polls) {`,
		now:  `if h.usableLocked() != nil || !h.Fits(r.kind, r.rounded) {`,
		run:  "^TestLen",
	},
	{
		name: "a block that others use is free at once",
		old: `
	if b.Uses() == 0 {
		h.put(id, b)
	} else {
		delete(h.lent, id)
		h.Pend(b)`,
		now: `
	if true {
		h.put(id, b)
	} else {
		delete(h.lent, id)
		h.Pend(b)`,
		run: "^Test(Waits|Record)",
	},
	{
		name: "the handle of another generation frees a block",
		old:  `if w&^block.Used != block.MakeWord(b.gen, block.Live) {`,
		now:  `if w.State() != block.Live || w.Has(block.Homed) {`,
		run:  "^TestFree",
	},
	{
		name: "two free the same block",
		old:  `if x.Word() != w || x.Owner() != h.Index() || c.closed.Load() {`,
		now:  `if x.Owner() != h.Index() || c.closed.Load() {`,
		run:  "^TestFreedTwiceAtOnce$",
	},
	{
		name: "a block of another generation is found by its handle",
		old:  `if w := x.Word(); w.Gen() != b.gen || w.State() != block.Live || c.closed.Load() {`,
		now:  `if w := x.Word(); w.State() != block.Live || c.closed.Load() {`,
		run:  "^Test(Free|Record|Lookup)",
	},

	// Limits.
	{
		name: "the limit of all pools is not kept",
		old:  `if size > d.Limit-d.held {`,
		now:  `if false {`,
		in:   ".",
		run:  "^Test(PoolLimits|PoolFamily|Limits)$",
	},
	{
		name: "what the device refused counts as reserved",
		old:  `c.budget.Cancel(size)`,
		run:  "^Test(Ladder|Limits|OOM|PoolFailing)",
	},
	{
		name: "the most that was reserved is not known",
		old:  `c.budget.Keep()`,
		run:  "^Test(Stranded|Release|Stream)",
	},
	{
		name: "memory that went back to the device is not noticed",
		old:  `p.Device.Returns.Add(1)`,
		in:   ".",
		run:  "^Test(AllocWaits|MissWaits|Segments)",
	},

	// Idle memory.
	{
		name: "two heaps are locked in the order in which they are given",
		old: `
	if a.Index() > b.Index() {
		a, b = b, a
	}`,
		run: "^TestHeapsAreLockedInOrder$",
	},
	{
		name: "peaks are not settled after memory moved",
		old:  `a.c.space.Book.Settle(&a.Ledger, &b.Ledger)`,
		run:  "^TestPeaks",
	},
	{
		name: "peaks are kept while memory moves",
		old: `
	a.Ledger.Quiet()
	b.Ledger.Quiet()`,
		run: "^TestPeaks",
	},
	{
		name: "a stream that is lent from need not be done",
		old:  `return s.calls.Idle(polls)`,
		now:  `return true`,
		run:  "^Test(Stranded|ClosingStream|SoftLimit)",
	},
	{
		name: "the working sets of small programs change hands",
		old:  `case c.budget.Held() < idleFloor && from.Held() < takeFloor:`,
		now:  `case false:`,
		run:  "^Test(Stranded|Streams|SoftLimit)",
	},
	{
		name: "large requests take the small chunks of small programs",
		old:  `SmallChunks: c.budget.Held() >= idleFloor, MoreStitches: r.h.stream.clock.Captured(), Growth: !c.budget.Pressed(r.rounded),`,
		now:  `SmallChunks: true, MoreStitches: r.h.stream.clock.Captured(), Growth: !c.budget.Pressed(r.rounded),`,
		run:  "^TestSmallChunksOfSmallPrograms$",
	},
	{
		name: "fragmented heaps grow beyond the soft limit while memory is free",
		old:  `SmallChunks: c.budget.Held() >= idleFloor, MoreStitches: r.h.stream.clock.Captured(), Growth: !c.budget.Pressed(r.rounded),`,
		now:  `SmallChunks: c.budget.Held() >= idleFloor, MoreStitches: r.h.stream.clock.Captured(), Growth: true,`,
		run:  "^TestFragmentedSoftLimit$",
	},
	{
		name: "segments are spared beyond the soft limit",
		old:  `if r.kind == small || c.memory != nil || !c.budget.Pressed(r.rounded) && !h.stream.clock.Captured() {`,
		now:  `if r.kind == small || c.memory != nil || !h.stream.clock.Captured() {`,
		run:  "^TestSparedServes$",
	},
	{
		name: "a pool that wastes much comes to rest as soon as others",
		old:  `return regretLimit + wastefulRegrets*bits.Len64(uint64(r.h.Served()>>30))`,
		now:  `return regretLimit`,
		run:  "^TestRegretsOfWaste$",
	},
	{
		name: "segments that were taken meanwhile go back to the device",
		old:  `here := h.StillIdle(found)`,
		now:  `here := found`,
		run:  "^TestTakenWhileReleasing$",
	},
	{
		name: "the smallest segments go first",
		old: `
	if bytes > need {
		slices.SortFunc(found, order)
	}`,
		now: `_ = bytes`,
		run: "^Test(Trim|GarbageCollectionThreshold)",
	},
	{
		name: "chunks are unmapped under work",
		old: `
		if err := s.calls.WaitIdle(ctx); err != nil {
			return 0, err
		}`,
		run: "^TestConformance$/^(host|sim_manual)$/^default$|^Test(Trim|Sleep|Pool)",
	},
	{
		name: "stitched ranges are forgotten under the stream's work",
		old: `
		if err = h.stream.calls.WaitIdle(ctx); err == nil {
			err = h.DropIdleStitches()
		}`,
		now: `
		if _ = ctx; err != nil {
			err = h.DropIdleStitches()
		}`,
		run: "^TestForgettingStitchesWaits$",
	},
	{
		name: "Sleep does not wait for streams",
		old:  `err = c.dev.syncAll(ctx)`,
		now:  `_ = ctx`,
		run:  "^TestSleepWaitsForEveryStream$",
	},
	{
		name: "blocks are handed out from the magazines of an allocator that sleeps",
		old: `
	c.asleep.Store(true)
	for _, h := range heaps {
		h.UnhomeAll() // a block in a magazine comes and goes without asking
	}`,
		now: `
	c.asleep.Store(true)
	_ = heaps`,
		run: "^TestNothingServedAsleep$",
	},
	{
		name: "memory on its way to the device is not waited for",
		old: `
	if c.reclaim.LockUntil(r.wait) {
		c.reclaim.Unlock()
	}`,
		run: "^TestAllocWaits",
	},
	{
		name: "isolated pools give memory to others",
		old:  `if m == c || m.isolated || released >= need {`,
		now:  `if m == c || released >= need {`,
		run:  "^TestPoolIsolated$",
	},
}
