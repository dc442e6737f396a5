package main

// rowMutants are more of featureMutants.
var rowMutants = []mutant{
	{
		name: "features: safe from several threads: TestFreedTwiceAtOnce",
		old:  `if x.Word() != w || x.Owner() != h.Index() || c.closed.Load() {`,
		now:  `if c.closed.Load() {`,
		in:   ".", run: "^TestFreedTwiceAtOnce$",
	},
	{
		name: "features: a lock by part: TestStreamLocks",
		old:  `p, err := c.driver.MemAlloc(size)`,
		now: `
if h != c.def {
c.def.mu.Lock()
defer c.def.mu.Unlock()
}
p, err := c.driver.MemAlloc(size)`,
		in: ".", run: "^TestStreamLocks$",
	},
	{
		name: "features: a threshold from which freed memory goes back: ExampleAllocator_SetAttribute",
		old:  `err = n.d.SetNativePoolAttribute(n.pool, cuda.PoolReleaseThreshold, bytes)`,
		now:  `err = n.d.SetNativePoolAttribute(n.pool, cuda.PoolReleaseThreshold, math.MaxUint64)`,
		in:   "native", run: "^ExampleAllocator_SetAttribute$",
	},
	{
		name: "features: every attribute read and set: ExampleAllocator_SetAttribute",
		old: `
v, err := n.d.NativePoolAttribute(n.pool, a)
return v, n.c.DriverError(err)`,
		now: `
_, err := n.d.NativePoolAttribute(n.pool, a)
return 0, n.c.DriverError(err)`,
		in: "native", run: "^ExampleAllocator_SetAttribute$",
	},
	{
		name: "features: every attribute read and set: TestAttributes",
		old:  `return n.c.DriverError(n.d.SetNativePoolAttribute(n.pool, a, v))`,
		now:  `return nil`,
		in:   "native", run: "^TestAttributes$",
	},
	{
		name: "features: every attribute read and set, high marks: TestAttributes",
		old:  `cuda.PoolUsedCurrent: &st.Used, cuda.PoolUsedHigh: &st.UsedHigh, cuda.PoolReservedCurrent: &st.Reserved, cuda.PoolReservedHigh: &st.ReservedHigh,`,
		now:  `cuda.PoolUsedCurrent: &st.Used, cuda.PoolReservedCurrent: &st.Reserved, cuda.PoolReservedHigh: &st.ReservedHigh,`,
		in:   "native", run: "^TestAttributes$",
	},
	{
		name: "features: trim the driver's pool: ExampleAllocator_SetAttribute",
		old:  `return n.c.DriverError(n.d.TrimNativePool(n.pool, keep))`,
		now:  `return nil`,
		in:   "native", run: "^ExampleAllocator_SetAttribute$",
	},
	{
		name: "features: the raw handle of the driver's pool: ExampleAllocator_SetAttribute",
		old:  `func (n *Allocator) Pool() cuda.NativePool { return n.pool }`,
		now:  `func (n *Allocator) Pool() cuda.NativePool { return 0 }`,
		in:   "native", run: "^ExampleAllocator_SetAttribute$",
	},
	{
		name: "features: properties, handle type: TestConfigErrors",
		old: `
if cfg.Win32 {
return 0, fmt.Errorf("hostdev: %s: %w: Win32 handles are Windows'", op, device.ErrNotSupported)`,
		now: `
if false {
return 0, fmt.Errorf("hostdev: %s: %w: Win32 handles are Windows'", op, device.ErrNotSupported)`,
		in: "native", run: "^TestConfigErrors$",
	},
	{
		name: "features: limits by tenant: TestPoolLimits",
		old:  `if held := p.held.Load(); size > p.Limit-held {`,
		now:  `if held := p.held.Load(); held < 0 {`,
		in:   ".", run: "^TestPoolLimits$",
	},
	{
		name: "features: limits by tenant, all together: TestPoolLimits",
		old:  `if size > d.Limit-d.held {`,
		now:  `if false {`,
		in:   ".", run: "^TestPoolLimits$",
	},
	{
		name: "features: bad device: TestOpen",
		old:  `if o != "device" && o != "managed" && o != "pinned" {`,
		now:  `if false {`,
		in:   ".", run: "^TestOpen$",
	},
	{
		name: "features: bad device, its kind: TestOpen",
		old:  "default:\nreturn fail(name, `must be \"host\", \"host:BYTES\", \"cuda\" or \"cuda:ORDINAL\"`)",
		now: `
default:
n.Host = true`,
		in: ".", run: "^TestOpen$",
	},
	{
		name: "features: bad device, its ordinal: TestOpen",
		old:  `if n.Ordinal, err = strconv.Atoi(arg); err != nil || n.Ordinal < 0 {`,
		now:  `if n.Ordinal, err = strconv.Atoi(arg); err != nil {`,
		in:   ".", run: "^TestOpen$",
	},
	{
		name: "features: no driver: TestWithoutCUDA",
		old:  `func devices() ([]Device, error) { return nil, errNoCUDA("listing CUDA devices") }`,
		now:  `func devices() ([]Device, error) { return nil, nil }`,
		in:   "cuda", run: "^TestWithoutCUDA$",
	},
	{
		name: "features: no driver, how to get it: TestWithoutCUDA",
		old:  `return nil, errNoCUDA(fmt.Sprintf("opening cuda:%d", ordinal))`,
		now:  `return nil, fmt.Errorf("opening cuda:%d: %w", ordinal, device.ErrNotSupported)`,
		in:   "cuda", run: "^TestWithoutCUDA$",
	},
	{
		name: "features: what goes wrong where nothing can be returned is logged: TestLogger",
		old:  `logger.Warn("recording an event failed; freed blocks wait on", "stream", uintptr(s), "error", err)`,
		in:   ".", run: "^TestLogger$",
	},
	{
		name: "features: what goes wrong where nothing can be returned is logged, device lost: TestLogger",
		old:  `d.logger.Error("device lost", "error", err)`,
		in:   ".", run: "^TestLogger$",
	},
	{
		name: "features: a device that fills up runs the garbage collector: TestLifetimesOnASmallDevice",
		old: `
runtime.GC()
awaitCleanups()`,
		now: `awaitCleanups()`,
		in:  ".", run: "^TestLifetimesOnASmallDevice$",
	},
	{
		name: "features: freed by the garbage collector: ExampleWithLifetimes",
		old:  `runtime.AddCleanup(o, e.life.freeLater, b)`,
		now:  `_ = runtime.NumCPU`,
		in:   ".", run: "^ExampleWithLifetimes$",
	},
	{
		name: "features: labels of parts of the program, in statistics: ExamplePool_WithLabel",
		old: `
l.Blocks.take(1)
l.Bytes.take(bytes)`,
		now: `l.Blocks.take(0)`,
		in:  ".", run: "^ExamplePool_WithLabel$",
	},
	{
		name: "features: labels of parts of the program, in snapshots: ExamplePool_Snapshot",
		old:  `b.SetOrigin(h.c.stacks.SetLabel(b.Origin(), *label, b.Requested()))`,
		now:  `h.c.stacks.SetLabel(b.Origin(), *label, b.Requested())`,
		in:   ".", run: "^ExamplePool_Snapshot$",
	},
	{
		name: "features: stacks of allocations: TestRecordStacks",
		old: `
return func(function string) bool {
return function == "runtime.Callers" || strings.HasPrefix(function, allocator+".")
}`,
		now: `return func(function string) bool { return function == "runtime.Callers" }`,
		in:  ".", run: "^TestRecordStacks$",
	},
	{
		name: "features: says who holds memory: TestOOMTable",
		old:  `Fragmentation: st.Fragmentation(), Cause: cause, late: late, Table: c.dev.holders(), Time: time.Now(),`,
		now:  `Fragmentation: st.Fragmentation(), Cause: cause, late: late, Time: time.Now(),`,
		in:   ".", run: "^TestOOMTable$",
	},
	{
		name: "features: device memory by code in pprof: ExamplePool_WriteProfile",
		old:  `v[inuseSpace] += space`,
		in:   ".", run: "^ExamplePool_WriteProfile$",
	},
	{
		name: "features: device memory by code in pprof: TestProfileInPprof",
		old:  `p.addLive(&of[i])`,
		now:  `_ = i`,
		in:   "snapshot", run: "^TestProfileInPprof$",
	},
	{
		name: "features: two snapshots compared: TestDiffTable",
		old:  `return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), cmp.Compare(b.blocks(), a.blocks()))`,
		now:  `return 0`,
		in:   "cmd/cupool", run: "^TestDiffTable$",
	},
	{
		name: "features: OpenTelemetry: ExampleRegister",
		old:  `o.ObserveInt64(of[s.Metric], s.Value, metric.WithAttributes(attributes...))`,
		now:  `_ = attributes`,
		in:   "otelmetrics", run: "^ExampleRegister$",
	},
	{
		name: "features: Prometheus: ExampleNewCollector",
		old:  `to <- prometheus.MustNewConstMetric(c.descs[s.Metric], kind, float64(s.Value), labels...)`,
		now:  `_, _ = kind, labels`,
		in:   "prom", run: "^ExampleNewCollector$",
	},
	{
		name: "features: adaptors: TestConformanceAllocator",
		old:  `if b, failed = f.all[1].Alloc(size, now); failed == nil {`,
		now:  `if b, failed = f.all[0].Alloc(size, now); failed == nil {`,
		in:   "adaptor", run: "^TestConformanceAllocator$",
	},
	{
		name: "features: another allocator when one is full: TestPyTorchMemPoolOnOOM",
		old:  `if b, ok := p.lend(r); ok {`,
		now:  `if b, ok := p.lend(r); ok && c == nil {`,
		in:   "internal/conformance/pytorch", run: "^TestPyTorchMemPoolOnOOM$",
	},
	{
		name: "features: allocate and free in the order of a stream: ExampleStream",
		old: `
h := c.def
if s != nil {
if h = c.findHeap(s); h == nil {`,
		now: `
h := c.def
if s != nil && s.root != c.dev.root {
if h = c.findHeap(s); h == nil {`,
		in: ".", run: "^ExampleStream$",
	},
	{
		name: "features: allocate and free in the order of a stream, freeing: ExampleStream",
		old: `
h.backLocked(b.id(), x)
h.mu.Unlock()
return c.shed(nil)`,
		now: `
h.pending.Record(x, h.stream.clock)
h.backLocked(b.id(), x)
h.mu.Unlock()
return c.shed(nil)`,
		in: ".", run: "^ExampleStream$",
	},
	{
		name: "features: a page of a snapshot: TestView",
		old: `
p, err := replay.AtPeak(ctx, t, replay.Options{})
return []snapshot.Snapshot{p}, err`,
		now: `
_, err = replay.AtPeak(ctx, t, replay.Options{})
return nil, err`,
		in: "cmd/cupool", run: "^TestView$",
	},
	{
		name: "features: a pickle that PyTorch's viewer opens: ExampleWriteTorch",
		old:  `t.text("state", torchStates[b.State])`,
		now:  `t.text("state", "inactive")`,
		in:   "snapshot", run: "^ExampleWriteTorch$",
	},
	{
		name: "features: a pickle that PyTorch's viewer opens: TestViewerFollows",
		old:  `if r.undo(e) {`,
		now:  `if r.undo(e) || true {`,
		in:   "snapshot", run: "^TestViewerFollows$",
	},
	{
		name: "features: PyTorch's pickles are read: TestReadPyTorch",
		old:  `Type: f.text("segment_type"), Virtual: f.truth("is_expandable"), Stitched: f.truth("is_stitched"),`,
		now:  `Type: f.text("segment_type"), Stitched: f.truth("is_stitched"),`,
		in:   "snapshot", run: "^TestReadPyTorch$",
	},
	{
		name: "features: virtual memory joins free pieces: TestStitchOfBothPoolsMoves",
		old:  `if err = m.Map(st.base, st.pieces()); err != nil {`,
		now:  `if err = ErrStitches; err != nil {`,
		in:   ".", run: "^TestStitchOfBothPoolsMoves$",
	},
	{
		name: "features: an iteration placed offline: ExamplePlanner",
		old:  `if l.plan == nil || l.arena.isEmpty() || l.retire {`,
		now:  `if true {`,
		in:   "planner", run: "^ExamplePlanner$",
	},
	{
		name: "features: PyTorch's syntax and names: TestParseAllocConf",
		old:  `{"MaxSplit", "max_split_size_mb", Mebibytes, ""},`,
		now:  `{"MaxSplit", "max_split_mb", Mebibytes, ""},`,
		in:   ".", run: "^TestParseAllocConf$",
	},
	{
		name: "features: what is in effect, and where it came from: TestInfoSettings",
		old:  `s.Source = all[at].from`,
		now:  `s.Source = Program`,
		in:   "cmd/cupool", run: "^TestInfoSettings$",
	},
	{
		name: "features: says why memory lacks: TestOOMReasons",
		old: `
case r.inPieces():
return Fragmentation`,
		now: `
case false:
return Fragmentation`,
		in: ".", run: "^TestOOMReasons$",
	},
	{
		name: "features: says which settings would have helped: TestOOMReasons",
		old:  `return "Limit: " + Expr(enough)`,
		now:  `return "Limit: " + Expr(0)`,
		in:   ".", run: "^TestOOMReasons$",
	},
	{
		name: "features: says who holds memory, why, and which settings would have helped: TestOutOfMemorySaysWhat",
		old:  `return e.refusal().Text(e.Hint, e.late) + oomhint.Table(e.Reason, e.Settings, e.Table)`,
		now:  `return e.refusal().Text(e.Hint, e.late)`,
		in:   "examples/internal/observe", run: "^TestOutOfMemorySaysWhat$",
	},
	{
		name: "features: expvar: ExamplePool_Stats_expvar",
		old:  `func (c *Pool) sum(heaps []*streamHeap) ledger.Totals { return c.space.Book.Sum(ledgers(heaps)) }`,
		now:  `func (c *Pool) sum(heaps []*streamHeap) ledger.Totals { return ledger.Totals{} }`,
		in:   ".", run: "^ExamplePool_Stats_expvar$",
	},
	{
		name: "features: a test of a program fails for what it leaks: TestNoLeaks",
		old: `
if leaks := settled(c, before); leaks != nil {
t.Error(leaks)
}`,
		now: `_ = before`,
		in:  "cupooltest", run: "^TestNoLeaks$",
	},
	{
		name: "features: a live view in a terminal: TestWatch",
		old:  `next.Reset(max(v.interval, idle*a.took))`,
		in:   "cmd/cupool/internal/top", run: "^TestWatch$",
	},
	{
		name: "features: a live page of blocks: TestPaths",
		old:  `func (l *live) snapshot() snapshot.Snapshot     { return l.Snapshot() }`,
		now:  `func (l *live) snapshot() snapshot.Snapshot { return snapshot.Snapshot{} }`,
		in:   "debug", run: "^TestPaths$",
	},
	{
		name: "features: a live page of holders: TestPaths",
		old:  `func (l *live) labels() []cupool.LabelStats     { return l.Labels() }`,
		now:  `func (l *live) labels() []cupool.LabelStats { return nil }`,
		in:   "debug", run: "^TestPaths$",
	},
	{
		name: "features: the program's own alloc and free behind a pool: TestPyTorchMemPoolWithAllocator",
		old:  `p.driver = newUpstream(d.driver, cfg.Alloc, cfg.Free)`,
		now:  `_ = newUpstream(d.driver, cfg.Alloc, cfg.Free)`,
		in:   "internal/conformance/pytorch", run: "^TestPyTorchMemPoolWithAllocator$",
	},
	{
		name: "features: replay across streams: TestReplayExplain",
		old:  `s, err := r.pool.NewStream()`,
		now:  `s, err := r.pool.DefaultStream(), error(nil)`,
		in:   "cmd/cupool", run: "^TestReplayExplain$",
	},
	{
		name: "features: stacks of allocations, told: TestRecordStacks",
		old:  `return callstack.Format(o.stack[:], isOf(allocator)), o.Label()`,
		now:  `return "", o.Label()`,
		in:   ".", run: "^TestRecordStacks$",
	},
}
