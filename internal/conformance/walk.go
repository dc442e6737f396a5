package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/testkit"
)

var errInjected = errors.New("injected failure")

// Walk runs a long program on devices that open makes: once to count its driver
// calls, and once for each of them, which fails. After every step the books are
// right, and only the errors come back that were injected, or out of memory.
// Later calls work, live blocks keep their contents, and Close gives everything
// back to the device. After an error that says that the device is lost nothing is
// served any more, and frees and books go on. Options are NoContents and WaitsRun. The
// quick form makes some of the runs that there are, and the battery fewer.
func Walk(t *testing.T, open func(*testing.T) cupool.Driver, cfg cupool.Config, opt Options) {
	e := &env{open: open, cfg: cfg, opt: opt}
	e.walks(t, testkit.Choose(1<<20, 10))
	for n := 1; e.closing(t, n, kinds[n%2]); n++ {
	}
}

// testFaults walks the program with a configuration of the battery.
func testFaults(t *testing.T, e *env) {
	if e.opt.Wrap != nil {
		t.Skip("the program makes pools of its own")
	}
	e.walks(t, testkit.Choose(100, 4))
}

// walks makes at most n runs with faults of each sort.
func (e *env) walks(t *testing.T, n int) {
	clean := e.walk(t, "clean", nil)
	require.Zero(t, clean.failures, "the program fails without a fault")
	calls := clean.f.snapshot()
	for _, op := range clean.driverCalls() {
		require.NotZero(t, calls[op], "the program does not reach %s", op)
	}
	total := clean.f.Calls("")
	t.Logf("%d driver calls: %v", total, calls)

	if testkit.Race || lock.Invariants {
		n = max(n/5, 1)
	}
	c := choices(testkit.Seed(t), 0)
	runs := 0
	for _, plans := range faultPlans(c, calls, total) {
		c.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
		for _, faults := range plans[:min(n, len(plans))] {
			e.walk(t, fmt.Sprintf("%+v", faults), faults)
			runs++
		}
	}
	t.Logf("%d runs", runs)
}

// kinds are the errors that calls fail with.
var kinds = []error{errInjected, fmt.Errorf("%w: %w", errInjected, cupool.ErrOutOfMemory)}

var errLost = fmt.Errorf("%w: %w", errInjected, cupool.ErrDeviceLost)

// faultPlans returns what can go wrong in a program with so many calls, by sort: one
// call, many of one kind, two calls, all from one on as the device is lost, and events
// that come late, or not before everything is waited for.
func faultPlans(c chooser, calls map[string]int, total int) [5][][]Fault {
	var one, many, two, lost, late [][]Fault
	for n := range total {
		lost = append(lost, []Fault{{From: n + 1, Err: errLost, Lost: true}})
	}
	for _, err := range kinds {
		for n := range total {
			one = append(one, []Fault{{From: n + 1, Err: err}})
		}
		for _, op := range slices.Sorted(maps.Keys(calls)) {
			for _, x := range []Fault{{From: 1, Every: 1}, {From: calls[op]/2 + 1, Every: 1}, {From: 1, Every: 3}, {From: 2, Every: 2}} {
				x.Call, x.Err = op, err
				many = append(many, []Fault{x})
			}
		}
	}
	for range 300 {
		i, j := 1+c.IntN(total), 1+c.IntN(30)
		two = append(two, []Fault{{From: i, Err: kinds[c.IntN(2)]}, {From: i + j, Err: kinds[c.IntN(2)]}})
	}
	for _, every := range []int{1, 2, 7} {
		late = append(late, []Fault{{Call: "QueryEvent", Every: every, Late: true}})
	}
	return [...][][]Fault{one, many, two, lost, late}
}

// closing fails the nth call of Close, once, and reports whether there was one. No
// memory, stream or event is lost: Close tries it again.
func (e *env) closing(t *testing.T, n int, err error) bool {
	w := e.walker(t, fmt.Sprintf("call %d of Close", n), nil)
	s, u, p := w.stream(), w.stream(), w.pool(cupool.PoolConfig{})
	w.free(w.alloc(w.c, w.whole, s), u)
	w.free(w.alloc(p, 5000, u), s)
	w.free(w.alloc(p, w.whole, u))
	w.alloc(p, 5000, s)
	before := w.f.Calls("")
	w.f.Arm(Fault{From: n, Err: err})
	err = w.c.Close()
	var leaks *cupool.LeakError
	require.ErrorAs(t, err, &leaks, w.name)
	require.NotErrorIs(t, err, errInjected, w.name)
	require.Empty(t, w.f.Leaks(), "%s: the device misses", w.name)
	require.NoError(t, w.device.Close(), w.name)
	return w.f.Calls("")-before >= n
}

// driverCalls lists the operations of a Driver that the allocator uses.
func (w *walker) driverCalls() []string {
	ops := []string{"MemAlloc", "MemFree", "MemInfo", "NewStream", "DestroyStream", "SyncStream", "NewEvent", "DestroyEvent",
		"RecordEvent", "QueryEvent", "SyncEvent", "StreamWaitEvent", "Copy", "CopyIn", "CopyOut", "Memset"}
	if w.virtual {
		ops = append(ops, "AddressReserve", "AddressFree", "MemCreate", "MemRelease", "MemMap", "MemSetAccess", "MemUnmap")
	}
	return ops
}

// walker is one run of the program.
type walker struct {
	t        *testing.T
	name     string // of the run, for messages
	device   cupool.Driver
	f        *Failing
	c        *cupool.Pool
	pools    []*cupool.Pool // that are open, the root first
	live     []held
	failures int
	remains  bool // a pool could not be closed as a whole: what it held is not in the books
	contents bool
	virtual  bool  // memory is virtual
	whole    int64 // bytes of a segment of its own
}

// held is a block that the program holds, and what it holds at its two ends.
type held struct {
	cupool.Block
	mark byte
}

const markBytes = 64

func (e *env) walk(t *testing.T, name string, faults []Fault) *walker {
	w := e.walker(t, name, faults)
	w.run()
	if len(faults) == 0 && w.virtual {
		st := w.c.Stats()
		require.NotZero(t, st.Stitches, "the program does not stitch")
		require.True(t, st.Moves > 0 || e.opt.WaitsRun, "nor moves memory between streams")
	}
	if w.f.Lost() {
		w.endLost()
		return w
	}
	w.again()
	w.end()
	return w
}

// walker makes the allocator of a run.
func (e *env) walker(t *testing.T, name string, faults []Fault) *walker {
	w := &walker{t: t, name: name, device: e.open(t), contents: !e.opt.NoContents}
	w.f = NewFailing(w.device)
	cfg := e.cfg
	cfg.Driver = w.f
	w.whole, w.virtual = wholeOf(&cfg), granularityOf(&cfg) > 0
	cfg.Limit, cfg.SoftLimit, cfg.Fraction = max(6*w.whole, 96*mib), 2*w.whole, 0.9
	w.f.Arm(faults...)
	c, err := cupool.New(cfg)
	if err != nil {
		w.only("new", err)
		w.f.Heal()
		require.Empty(t, w.f.Leaks(), "%s: New leaks", name)
		c, err = cupool.New(cfg)
		require.NoError(t, err, name)
	}
	w.c, w.pools = c, []*cupool.Pool{c}
	return w
}

// only fails the test for an error that nothing explains.
func (w *walker) only(what string, err error) {
	if err == nil || w.f.Lost() && errors.Is(err, cupool.ErrAsleep) { // it sleeps for ever
		return
	}
	if w.failures++; !errors.Is(err, errInjected) && !errors.Is(err, cupool.ErrOutOfMemory) {
		w.t.Fatalf("%s: %s: %v", w.name, what, err)
	}
	if msg := err.Error(); len(msg) < len("cupool: ") || !bytes.Contains([]byte(msg), []byte("cupool: ")) {
		w.t.Fatalf("%s: %s: the error does not say whose it is: %v", w.name, what, err)
	}
}

// step checks what must hold after every call, and reports whether it succeeded.
func (w *walker) step(what string, err error) bool {
	w.only(what, err)
	var reserved, live int64
	for _, c := range w.pools {
		if e := c.Check(); e != nil {
			w.t.Fatalf("%s: after %s: %v", w.name, what, e)
		}
		st := c.Stats()
		reserved += st.All.ReservedBytes.Current
		live += st.All.Allocation.Current
	}
	if live != int64(len(w.live)) {
		w.t.Fatalf("%s: after %s the books have %d live blocks, the program has %d", w.name, what, live, len(w.live))
	}
	if n := w.f.Held(); n < reserved || n > reserved && !w.remains && w.f.Failed("MemRelease")+w.f.Failed("MemUnmap")+w.f.Failed("MemFree") == 0 {
		w.t.Fatalf("%s: after %s the device has given %d bytes, the books say %d", w.name, what, n, reserved)
	}
	return err == nil
}

func (w *walker) alloc(from cupool.Allocator, size int64, s *cupool.Stream) cupool.Block {
	b, err := from.Alloc(size, s)
	if err == nil {
		w.hold(b)
	}
	w.step(fmt.Sprintf("alloc of %d bytes", size), err)
	return b
}

// hold marks a block, past the faults.
func (w *walker) hold(b cupool.Block) {
	for _, o := range w.live {
		if b.Ptr() < o.Ptr()+cupool.Ptr(o.Size()) && o.Ptr() < b.Ptr()+cupool.Ptr(b.Size()) {
			w.t.Fatalf("%s: %v overlaps %v", w.name, b, o.Block)
		}
	}
	h := held{b, byte(len(w.live) + 1)}
	if w.contents {
		data := bytes.Repeat([]byte{h.mark}, int(min(b.Size(), markBytes)))
		require.NoError(w.t, w.device.CopyIn(b.Ptr(), data, 0))
		require.NoError(w.t, w.device.CopyIn(b.Ptr()+cupool.Ptr(b.Size()-int64(len(data))), data, 0))
	}
	w.live = append(w.live, h)
}

// drop takes a block off the live ones and verifies what it holds.
func (w *walker) drop(b cupool.Block) bool {
	i := slices.IndexFunc(w.live, func(h held) bool { return h.Block == b })
	if i < 0 {
		return false
	}
	w.verify(w.live[i])
	w.live = slices.Delete(w.live, i, i+1)
	return true
}

func (w *walker) verify(h held) {
	if !w.contents {
		return
	}
	data := make([]byte, min(h.Size(), markBytes))
	for _, p := range []cupool.Ptr{h.Ptr(), h.Ptr() + cupool.Ptr(h.Size()-int64(len(data)))} {
		require.NoError(w.t, w.device.CopyOut(data, p, 0))
		require.Equal(w.t, bytes.Repeat([]byte{h.mark}, len(data)), data, "%s: what %v holds", w.name, h.Block)
	}
}

// free frees a block that is live. It always succeeds: where events fail the
// block waits on.
func (w *walker) free(b cupool.Block, users ...*cupool.Stream) {
	if !w.drop(b) {
		return
	}
	for _, u := range users {
		require.NoError(w.t, w.c.RecordStream(b, u), w.name)
	}
	require.NoError(w.t, w.c.Free(b), w.name)
	w.step("free", nil)
}

func (w *walker) stream() *cupool.Stream {
	s, err := w.c.NewStream()
	if !w.step("new stream", err) {
		return w.c.DefaultStream()
	}
	return s
}

func (w *walker) pool(cfg cupool.PoolConfig) *cupool.Pool {
	p, err := w.c.NewPool(cfg)
	if err == nil {
		w.pools = append(w.pools, p)
	}
	if !w.step("new pool", err) {
		return w.c
	}
	return p
}

// closePool closes a private pool, whose live blocks are leaks.
func (w *walker) closePool(p *cupool.Pool) {
	if p == w.c {
		return
	}
	live := p.Stats().All.Allocation.Current
	err := p.Close()
	var leaks *cupool.LeakError
	require.Equal(w.t, live > 0, errors.As(err, &leaks), "%s: closing a pool: %v", w.name, err)
	if leaks != nil {
		require.EqualValues(w.t, live, len(leaks.Leaks), w.name)
		w.live = slices.DeleteFunc(w.live, func(h held) bool {
			return slices.ContainsFunc(leaks.Leaks, func(l cupool.Leak) bool { return l.Ptr == h.Ptr() })
		})
		if !errors.Is(err, errInjected) {
			err = nil
		}
	}
	w.remains = w.remains || err != nil
	w.gone(p)
	w.step("close a pool", err)
}

func (w *walker) gone(p *cupool.Pool) {
	w.pools = slices.DeleteFunc(w.pools, func(c *cupool.Pool) bool { return c == p })
}

// run is the program. It uses every call of a Driver.
func (w *walker) run() {
	c, whole := w.c, w.whole
	s, u := w.stream(), w.stream()
	streams := []*cupool.Stream{c.DefaultStream(), s, u}

	// Small and large blocks, hits, and work on them.
	a, b := w.alloc(c, 5000, s), w.alloc(c, 3*mib, s)
	for range 3 {
		w.free(w.alloc(c, 700, s))
	}
	x, y := w.alloc(c, 4096, u), w.alloc(c, 4096, u)
	if !x.IsEmpty() && !y.IsEmpty() { // their marks stay: the work is between them
		w.step("memset", u.Memset(x.Ptr()+1024, 1, 100))
		w.step("copy in", u.CopyIn(x.Ptr()+1024, make([]byte, 8)))
		w.step("copy", u.Copy(y.Ptr()+1024, x.Ptr()+1024, 512))
		w.step("copy out", u.CopyOut(make([]byte, 8), y.Ptr()+1024))
	}

	// Blocks that other streams use.
	w.free(a, u)
	w.free(b, u, c.DefaultStream())
	w.step("process deferred", testkit.Second(c.ProcessDeferred()))
	if ev, err := u.Record(); w.step("record", err) {
		w.step("wait", s.Wait(ev))
		w.step("sync event", ev.Sync())
		w.step("done", testkit.Second(ev.Done()))
		require.NoError(w.t, ev.Close())
	}
	w.step("wait stream", s.WaitStream(u))
	if b := w.alloc(c, whole, s); w.drop(b) {
		require.NoError(w.t, c.FreeOn(b, u))
		w.step("free on", nil)
	}
	for _, s := range streams { // what is idle may be taken from here on
		w.step("sync", s.Sync())
	}

	// Private pools of all kinds.
	own := cupool.PoolConfig{Name: "own", Alloc: w.f.MemAlloc, Free: func(p cupool.Ptr, _ int64) error { return w.f.MemFree(p) }}
	plain, lender := w.pool(cupool.PoolConfig{Limit: 2 * whole}), w.pool(cupool.PoolConfig{UseOnOOM: true})
	whollys, mine := w.pool(cupool.PoolConfig{NoSplit: true}), w.pool(own)
	for _, p := range []*cupool.Pool{plain, lender, whollys, mine} {
		k := w.alloc(p, 60000, s)
		l := w.alloc(p, 2*mib, u)
		w.free(k, u)
		if p != lender {
			w.free(l, s)
		}
	}
	w.free(w.alloc(lender, whole, s))
	w.step("trim", testkit.Second(plain.Trim(0)))
	kept := w.alloc(plain, 9000, s)
	w.free(w.alloc(plain, whole, s), u) // a pool's own limit is near

	// Memory runs out, and is found elsewhere.
	q := w.alloc(c, 2*whole, nil)
	w.free(q, u)
	w.free(w.alloc(c, 3*whole, s), u)
	w.free(w.alloc(c, 2*whole, u), s)
	w.free(w.alloc(c, 2*whole, nil))
	w.step("reserve", c.Reserve(3*mib, s))

	w.stitch(s, u)
	w.sleep()
	w.engine()

	// Streams and pools end, with blocks that are live.
	left := w.alloc(c, 7000, u)
	w.free(w.alloc(c, 2*mib, u), s)
	if u != c.DefaultStream() {
		if !w.step("close stream", u.Close()) {
			u.Close() //nolint:errcheck // it is closed, or open still: both are fine
		}
		u = c.DefaultStream()
	}
	w.free(left)
	if mine != c {
		w.alloc(mine, 8000, s) // leaks
	}
	w.closePool(mine)
	if whollys != c {
		err := whollys.Retire()
		if !slices.Contains(c.Pools(), whollys) {
			w.gone(whollys)
		}
		w.remains = w.remains || err != nil
		w.step("retire", err)
	}
	w.free(kept, u)
	w.step("empty cache", c.EmptyCache())
	w.regone()
	v := w.stream() // in the place of the closed one
	w.free(w.alloc(c, 100000, v), s)
	w.step("sync", v.Sync())
	w.step("trim", testkit.Second(c.Trim(whole)))
	w.regone()
	w.step("sync all", c.Sync())
}

// regone takes pools off that were retired and are closed.
func (w *walker) regone() {
	open := append(w.c.Pools(), w.c)
	w.pools = slices.DeleteFunc(w.pools, func(c *cupool.Pool) bool { return !slices.Contains(open, c) })
}

// stitch joins free memory, where it is virtual.
func (w *walker) stitch(s, u *cupool.Stream) {
	if !w.virtual {
		return
	}
	w.step("empty cache", w.c.EmptyCache()) // so that there is nothing else to take
	g := w.f.VMMGranularity()
	var x [4]cupool.Block
	for i := range x {
		x[i] = w.alloc(w.c, 2*g, s)
	}
	w.free(x[0])
	w.free(x[2])
	for range 2 {
		w.free(w.alloc(w.c, 4*g, s), u)
		w.step("sync", u.Sync())
	}
	w.free(x[1])
	w.free(x[3])
}

// sleep gives everything back for a time. What is live keeps its contents.
func (w *walker) sleep() {
	keep := w.alloc(w.c, 20000, nil)
	err := w.c.Sleep(func(cupool.Block) bool { return true })
	if errors.Is(err, cupool.ErrNotSupported) {
		w.free(keep)
		return
	}
	w.step("sleep", err)
	for range 3 {
		if w.step("wake", w.c.Wake()) {
			w.free(keep)
			return
		}
	}
	if w.f.Lost() {
		w.contents = false // what is live has no memory any more
	} else {
		w.f.Heal()
		require.NoError(w.t, w.c.Wake(), w.name)
	}
	w.free(keep)
}

// engine uses the allocator as the memory of tensors.
func (w *walker) engine() {
	e, err := cupool.NewEngine(w.c)
	if err != nil {
		return // no kernels for the device
	}
	if x, err := e.Alloc(40000); w.tensorStep("engine alloc", err) {
		w.tensorStep("engine memset", e.Memset(x, float32(0)))
		if y, err := e.Alloc(40000); w.tensorStep("engine alloc", err) {
			w.tensorStep("engine memcpy", e.Memcpy(y, x))
			w.tensorStep("engine sync", e.Sync())
			require.NoError(w.t, e.Free(y, 40000), w.name)
		}
		if e.AllocAccessible() {
			w.tensorStep("accessible", testkit.Second(e.Accessible(x)))
		}
		require.NoError(w.t, e.Free(x, 40000), w.name)
	}
	w.step("engine", nil)
}

func (w *walker) tensorStep(what string, err error) bool {
	w.only(what, err)
	require.NoError(w.t, w.c.Check(), w.name)
	return err == nil
}

// again heals the device: everything works, and nothing was lost.
func (w *walker) again() {
	t := w.t
	w.f.Heal()
	for _, h := range slices.Clone(w.live) {
		w.free(h.Block)
	}
	for range 3 {
		for _, c := range w.pools {
			require.NoError(t, testkit.Second(c.ProcessDeferred()), w.name)
		}
	}
	for _, c := range slices.Backward(w.pools) {
		require.NoError(t, c.EmptyCache(), w.name)
	}
	w.regone()
	for _, c := range w.pools {
		st := c.Stats()
		require.Zero(t, st.BlocksPending, "%s: a block is lost", w.name)
		require.Zero(t, st.All.ReservedBytes.Current, "%s: memory is lost", w.name)
	}
	require.Zero(t, w.f.Held(), "%s: the device does not have its memory back", w.name)
	failures := w.failures
	w.failures = 0
	s := w.stream()
	b := w.alloc(w.c, 4*w.whole, s)
	w.free(b, w.c.DefaultStream())
	w.free(w.alloc(w.c, 5000, s))
	require.Zero(t, w.failures, w.name)
	w.failures = failures
}

// end closes the allocator. The device has everything back then.
func (w *walker) end() {
	require.NoError(w.t, w.c.Close(), w.name)
	require.Empty(w.t, w.f.Leaks(), "%s: the device misses", w.name)
	if d, ok := w.device.(interface{ Check() error }); ok {
		require.NoError(w.t, d.Check(), w.name)
	}
	require.NoError(w.t, w.device.Close(), w.name)
}

// endLost uses and closes an allocator whose device is lost: it serves nothing more, also
// not what is cached, says the first reason, and frees and books go on.
func (w *walker) endLost() {
	for _, size := range []int64{512, 5000, 3 * mib, w.whole} {
		for _, err := range []error{testkit.Second(w.c.Alloc(size, nil)), w.c.Reserve(size, nil)} {
			if !errors.Is(err, cupool.ErrAsleep) {
				require.ErrorIs(w.t, err, errLost, "%s: %d bytes", w.name, size)
			}
		}
	}
	for _, h := range slices.Clone(w.live) {
		w.free(h.Block)
		require.ErrorIs(w.t, w.c.Free(h.Block), cupool.ErrDoubleFree, w.name)
	}
	for _, c := range slices.Backward(w.pools) {
		require.Zero(w.t, c.Stats().LiveBytes, w.name)
		w.only("close", c.Close())
	}
	_ = w.device.Close() // it may have memory that it was not asked for
}
