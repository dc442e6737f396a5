package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// Tested is what a program needs of an allocator: the methods of
// cupool.Pool, and those of streams that an allocator answers for.
type Tested interface {
	cupool.Allocator
	AllocContext(context.Context, int64, *cupool.Stream) (cupool.Block, error)
	FreeOn(cupool.Block, *cupool.Stream) error
	FreeLater(cupool.Block)
	Hold(cupool.Block) (release func(), err error)
	Reserve(int64, *cupool.Stream) error
	SetSoftLimit(int64) error
	Configure(string) error
	Trim(int64) (int64, error)
	EmptyCache() error
	ProcessDeferred() (int, error)
	Reset() error
	Sleep(func(cupool.Block) bool) error
	Wake() error
	Sync() error
	Stats() cupool.Stats
	ResetPeak()
	StartHistory(cupool.History) error
	StopHistory()
	Snapshot() cupool.Snapshot
	Check() error
	Err() error
	FirstOOM() *cupool.OOMError
	LastOOM() *cupool.OOMError
	Leaks() *cupool.LeakError
	Name() string
	Pools() []*cupool.Pool
	StreamOf(cupool.Block) *cupool.Stream
	WithLabel(string) cupool.Allocator
	ForgetLabels() int
	Config() cupool.Config
	Settings() []cupool.Setting
	Retire() error
	Close() error

	NewPool(cupool.PoolConfig) (*cupool.Pool, error)
	AdoptStream(cupool.StreamHandle) (*cupool.Stream, error)
	Wait(*cupool.Stream, *cupool.Event) error
	WaitStream(s, o *cupool.Stream) error
	SyncStream(*cupool.Stream) error
}

// caching is a Pool as Tested.
type caching struct{ *cupool.Pool }

func (c caching) Wait(s *cupool.Stream, e *cupool.Event) error { return s.Wait(e) }
func (c caching) WaitStream(s, o *cupool.Stream) error         { return s.WaitStream(o) }
func (c caching) SyncStream(s *cupool.Stream) error            { return s.Sync() }

// Options change how a program runs. The zero Options change nothing.
type Options struct {
	// Device is what a program runs on. It is not closed. nil: a simulated device,
	// as the bytes say.
	Device cupool.Driver
	// Config is that of the allocator, but for its Driver. nil: as the bytes say.
	Config *cupool.Config
	// Order is Config.IdleOrder, beside what the bytes say.
	Order cupool.IdleOrder
	// GrowWait is Config.GrowWait, beside what the bytes say.
	GrowWait time.Duration
	// Careless has streams read blocks on which they are not recorded. Memory may then
	// be reused early on the stream that freed it, and nowhere else. It needs a
	// simulated device.
	Careless bool
	// Together is the number of goroutines. 0: as the bytes say.
	Together int
	// Break puts something between a program and each allocator. nil: nothing.
	Break func(Tested) Tested
	// Next is given what came of a program, and returns the bytes of the one that goes
	// on with the same allocator, all of whose blocks, streams and pools are gone by
	// then. No step closes the allocator. nil bytes: there is no more. nil: one program.
	Next func(Result) []byte
}

// Result is what came of a program.
type Result struct {
	// Log has a line for each step, and says how the allocator's memory looked
	// at the end. It is the same for the same bytes, unless the program runs on
	// several goroutines.
	Log string
	// Steps counts the steps that were made.
	Steps int
	// Stats are those of the allocator before it was closed.
	Stats cupool.Stats
	// Errs says what cannot be right.
	Errs []error
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// maxSteps bounds a program, whatever its length.
const maxSteps = 500

// plan is how a program runs: what its first four bytes say.
type plan struct {
	cfg       cupool.Config
	device    simdev.Config
	together  int // goroutines; 1: the program is exact
	fine      bool
	callbacks bool
}

// newPlan reads the bytes that come before the steps.
func newPlan(b *bytecode) plan {
	p := plan{together: 1}
	p.device.ManualEvents = true
	flags := b.next()
	if flags&1 != 0 {
		p.cfg.Backing = cupool.BackingSegments
	}
	if flags&2 != 0 {
		p.cfg.MagazineBytes = -1
	}
	if flags&4 != 0 {
		p.device.ManualEvents = false
	}
	if flags&8 != 0 { // sizes of which a few fill a segment
		p.fine = true
		p.cfg.SmallLimit, p.cfg.SmallSegment, p.cfg.LargeSegment, p.cfg.LargeLimit, p.cfg.SegmentRounding, p.cfg.MinSplit = 3000, 10*512, 9*kib, 7*kib, 512, 1024
	}
	p.device.FreshAddresses = flags&16 != 0
	p.callbacks = flags&32 != 0
	if flags&192 == 192 {
		p.together = 2 + b.n(3)
	}
	p.device.Capacity = []int64{256 * mib, 64 * mib, 24 * mib, 1024 * mib}[b.n(4)]
	limits := b.n(8)
	if limits&1 != 0 {
		p.cfg.Limit = p.device.Capacity / 2
	}
	if limits&2 != 0 {
		p.cfg.SoftLimit = p.device.Capacity / 4
	}
	p.device.IdleEvents = limits >= 6 // so that streams take memory from each other
	if limits == 4 {
		p.cfg.Fraction = 0.75
	}
	p.cfg.Strategy = cupool.Strategy(b.n(16) % 7 % 4) // more often the first ones
	switch b.n(16) {
	case 1:
		p.cfg.GrowthFactor = 2
	case 2:
		p.cfg.GrowthFactor = 1
	case 3:
		p.cfg.History = &cupool.History{SampleBytes: 1}
	case 4:
		p.cfg.GarbageCollectionThreshold = 0.3
	case 5:
		p.cfg.MagazineBytes = 64 * kib
	case 6:
		p.cfg.InitialSize = 4 * mib
	case 7:
		p.cfg.MinBlock, p.cfg.SmallSegment, p.cfg.LargeSegment = 2048, 2*mib, 20*mib
		p.cfg.SmallLimit, p.cfg.SegmentRounding, p.cfg.LargeLimit, p.cfg.MinSplit = 0, 0, 0, 0
	case 10:
		p.cfg.MinBlock = 256
	case 11:
		p.cfg.IdleOrder = cupool.DeviceOrder
	case 8:
		p.cfg.MaxSplit, p.cfg.Backing = 32*mib, cupool.BackingSegments
	case 9:
		if p.cfg.Strategy != cupool.PowerOfTwo {
			p.cfg.Divisions = cupool.SameDivisions(4)
		}
	}
	return p
}

// bytecode makes choices of bytes. Where they end, all choices are 0.
type bytecode struct{ data []byte }

func (b *bytecode) more() bool { return len(b.data) > 0 }

func (b *bytecode) next() byte {
	if len(b.data) == 0 {
		return 0
	}
	v := b.data[0]
	b.data = b.data[1:]
	return v
}

// n returns a number in [0, n), for n up to 256.
func (b *bytecode) n(n int) int { return int(b.next()) % n }

// world is what the goroutines of a program share.
type world struct {
	plan
	*Model
	opt   Options
	d     *Device
	root  *Pool
	first *Stream // the default stream

	exchange chan *Block
}

// runner runs the steps that bytes make, on one goroutine.
type runner struct {
	*world
	*bytecode
	log    strings.Builder
	steps  int
	blocks []*Block // live, and this runner's to use
	old    []*Block // freed
	events []*Event

	witness *witness // nil on a simulated device
}

// Event is an event of a program.
type Event struct {
	*cupool.Event
	on     *Stream
	order  Clock // what it comes after, at the least
	last   use
	closed bool
}

// Random returns the bytes of a random program.
func Random(rng *rand.Rand) []byte {
	data := make([]byte, 40+rng.IntN(600))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

// Run runs the program that bytes make. The first four say how: with which
// Config, device, and on how many goroutines. It changes GOMAXPROCS for a single
// program on one goroutine, as memory is kept by processor.
func Run(data []byte, opts ...Options) Result {
	b := &bytecode{data}
	w := &world{plan: newPlan(b)}
	for _, o := range opts {
		w.opt = o
	}
	if w.opt.Together > 0 {
		w.together = w.opt.Together
	}
	if w.together == 1 && w.opt.Next == nil {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	if err := w.open(); err != nil {
		return Result{Errs: []error{err}}
	}
	for data := b.data; ; {
		runners, err := w.runners(data)
		if err != nil {
			return Result{Errs: []error{err}}
		}
		var wg sync.WaitGroup
		for _, r := range runners[1:] {
			wg.Go(r.run)
		}
		runners[0].run()
		wg.Wait()
		if w.opt.Next == nil || !w.restart(runners) {
			return w.end(runners)
		}
		res := w.result(runners)
		res.Stats = w.root.Stats()
		if data = w.opt.Next(res); data == nil {
			return w.end(nil)
		}
	}
}

// open makes the device and the root.
func (w *world) open() error {
	if w.opt.Careless {
		w.device.IdleEvents = true // or memory that is not waited for would hardly move
	}
	below := w.opt.Device
	if below == nil {
		below = simdev.New(w.device)
	}
	if w.opt.Config != nil {
		w.cfg, w.fine = *w.opt.Config, false
	}
	w.d = NewDevice(below)
	w.Model = newModel(w.d, w.together == 1)
	w.exchange = make(chan *Block, 8)
	w.cfg.Driver = w.d
	w.cfg.IdleOrder, w.cfg.GrowWait = max(w.cfg.IdleOrder, w.opt.Order), max(w.cfg.GrowWait, w.opt.GrowWait)
	if w.callbacks {
		w.cfg.OnRelease = func(int64) { _ = w.root.Stats() }
		w.cfg.BeforeGrow = func(int64) { _ = w.root.Stats() }
		w.cfg.OnOutOfMemory = func(int64) bool { return w.root.EmptyCache() == nil }
	}
	cfg := w.cfg
	if w.callbacks { // the first memory is asked for before there is a root
		cfg.InitialSize = 0
	}
	c, err := cupool.New(cfg)
	if err != nil {
		return fmt.Errorf("errors: New: %w", err)
	}
	w.cfg = c.Config()
	w.unit = cupool.Ptr(min(w.cfg.MinBlock, 512))
	w.keeps, w.guards = w.cfg.Sanitize != (cupool.Sanitizers{}), w.cfg.Sanitize.Guard
	w.root = &Pool{Tested: w.tested(caching{c}), c: c, name: "the root", segments: w.cfg.Backing == cupool.BackingSegments}
	w.pools = []*Pool{w.root}
	w.first = &Stream{Stream: c.DefaultStream(), s: w.d.stream(0)}
	w.streams = []*Stream{w.first}
	return nil
}

// tested returns an allocator, broken where that was asked for.
func (w *world) tested(t Tested) Tested {
	if w.opt.Break != nil {
		return w.opt.Break(t)
	}
	return t
}

// runners divides bytes among goroutines.
func (w *world) runners(data []byte) (list []*runner, err error) {
	each := (len(data) + w.together - 1) / w.together
	for range w.together {
		n := min(each, len(data))
		r := &runner{world: w, bytecode: &bytecode{data[:n]}}
		if w.d.sim == nil {
			if r.witness, err = newWitness(w.opt.Device); err != nil {
				return nil, fmt.Errorf("errors: the device: %w", err)
			}
		}
		list = append(list, r)
		data = data[n:]
	}
	return list, nil
}

// run makes the steps.
func (r *runner) run() {
	for r.more() && r.steps < maxSteps && len(r.failures()) == 0 {
		s := chooseStep(r.next())
		r.steps++
		r.logf("%d %s", r.steps, s.name)
		s.do(r)
		r.log.WriteByte('\n')
	}
}

func (r *runner) logf(format string, args ...any) {
	if r.exact {
		fmt.Fprintf(&r.log, format, args...)
	}
}

// result returns the log and the steps of runners.
func (w *world) result(runners []*runner) (res Result) {
	for _, r := range runners {
		res.Log += r.log.String()
		res.Steps += r.steps
	}
	return res
}

// restart frees and closes all that a program made, compares the books, and forgets
// the program. It reports whether another one may go on.
func (w *world) restart(runners []*runner) bool {
	if len(w.failures()) > 0 {
		return false
	}
	for w.release(0) {
	}
	for _, p := range w.openPools() {
		if p != w.root {
			w.closePool(p)
		}
	}
	w.closeGuests(w.root)
	w.root.alone = false
	for _, b := range slices.Clone(w.live) {
		w.dies(b, false)
		w.judge("Free", b.pool.Free(b.Block), &reasons{})
	}
	if w.root.asleep {
		if w.root.Wake() != nil {
			return false // there is no memory: the allocator sleeps until it is closed
		}
		w.root.asleep = false
	}
	w.root.StopHistory()
	if w.cfg.History != nil {
		w.judge("StartHistory", w.root.StartHistory(*w.cfg.History), &reasons{})
	}
	if w.root.Config().SoftLimit != w.cfg.SoftLimit {
		w.judge("SetSoftLimit", w.root.SetSoftLimit(w.cfg.SoftLimit), &reasons{})
	}
	for _, r := range runners {
		for _, e := range r.events {
			if !e.closed {
				w.judge("Event.Close", e.Close(), &reasons{})
			}
		}
	}
	for _, s := range w.streams[1:] {
		if s.state == open {
			w.judge("Stream.Close", s.Close(), &reasons{})
			s.state = closed
			w.destroyAdopted(s)
		}
	}
	w.settle()
	w.compare()
	for _, r := range runners {
		if r.witness != nil {
			r.witness.close(w.Model)
			r.witness = nil
		}
	}
	if len(w.failures()) > 0 {
		return false
	}
	w.past = nil
	if w.root.loose {
		st := w.root.Stats().All
		w.root.allocs, w.root.asked = st.Allocation.Allocated, st.RequestedBytes.Allocated
	}
	w.root.later, w.root.slept, w.root.held, w.root.loose, w.root.tried = 0, false, false, false, false
	w.pools, w.streams = w.pools[:1], w.streams[:1]
	w.exchange = make(chan *Block, cap(w.exchange))
	w.d.forget()
	return true
}

// end compares the books, closes what is open, and has the device checked.
func (w *world) end(runners []*runner) Result {
	res := w.result(runners)
	for w.release(0) {
	}
	if w.root.state == open && len(w.failures()) == 0 {
		w.settle()
		w.compare()
		res.Log += w.root.Snapshot().Layout()
		res.Stats = w.root.Stats()
		w.closePool(w.root)
	}
	if w.d.sim == nil {
		if err := w.d.CompleteAll(); err != nil {
			w.fail("errors: the device: %v", err)
		}
		for _, r := range runners {
			if r.witness != nil {
				r.witness.close(w.Model)
			}
		}
	}
	if len(w.failures()) > 0 {
		_ = w.d.CompleteAll() // what work sees says more
		res.Errs = w.failures()
		return res
	}
	for _, s := range w.streams {
		if s.state != closed { // with the root
			w.destroyAdopted(s)
		}
	}
	if leaks := w.d.Leaks(); leaks != "" {
		w.fail("leak: after Close the device has %s", leaks)
	}
	if d, ok := w.d.Driver.Driver.(interface{ Check() error }); ok {
		if err := d.Check(); err != nil {
			w.fail("device: %v", err)
		}
	}
	if w.opt.Device == nil {
		_ = w.d.Close()
	}
	res.Errs = w.failures()
	return res
}

// settle has all work done and all frees that waited for it.
func (w *world) settle() {
	for range 2 { // asking makes events, which are work themselves
		if err := w.d.CompleteAll(); err != nil {
			w.fail("errors: the device: %v", err)
		}
		for _, p := range w.openPools() {
			if _, err := p.ProcessDeferred(); err != nil {
				w.fail("errors: ProcessDeferred: %v", err)
			}
			w.drained(p)
		}
	}
	for _, p := range w.openPools() {
		if st := p.Stats(); !w.keeps && (st.BlocksPending != 0 || st.PendingBytes != 0) {
			w.fail("books: %s says %d blocks of %d bytes are pending when all work is done", p.name, st.BlocksPending, st.PendingBytes)
		}
		w.mu.Lock()
		p.waiting = nil
		w.mu.Unlock()
	}
}

// drained says that what FreeLater was given is free.
func (w *world) drained(p *Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.exact {
		return // another goroutine may have given it more
	}
	p.later = 0
	for _, t := range p.waiting {
		t.b.later = false
	}
}

// closePool closes a pool that is open, and looks at what it says of leaks.
func (w *world) closePool(p *Pool) {
	pools := []*Pool{p}
	if p == w.root {
		w.mu.Lock()
		for _, o := range w.pools {
			if o != p && o.state != closed { // another goroutine may be about to close it
				pools = append(pools, o)
			}
		}
		w.mu.Unlock()
	}
	for _, p := range pools {
		w.closeGuests(p)
	}
	w.mu.Lock()
	before := w.heldLocked(pools...)
	for _, p := range pools {
		p.state, p.tried = closing, true
		p.closes++
	}
	w.mu.Unlock()
	var gone [][]*tenant
	var leaks []*Block
	for _, p := range pools {
		list := w.ends(p, everything)
		gone = append(gone, list)
		for _, t := range list {
			if t.b.of == nil {
				leaks = append(leaks, t.b)
			}
		}
	}
	err := p.Close()
	want := w.whileHeld(before, pools...)
	switch {
	case errors.Is(err, cupool.ErrNotSupported) && len(want.errs) > 0:
		w.mu.Lock()
		for _, p := range pools {
			p.closes--
		}
		w.mu.Unlock()
		for i, p := range pools {
			w.reopened(p, gone[i])
		}
		for _, o := range w.allPools() {
			if p == w.root && o.late && !slices.Contains(pools, o) {
				w.reopened(o, nil)
			}
		}
		return
	case want.must:
		w.fail("errors: Close of %s while blocks are held: %v", p.name, err)
	case err == nil && len(leaks) > 0 && w.exact:
		w.fail("errors: Close of %s says nothing of %d leaks", p.name, len(leaks))
	case err != nil:
		w.judgeLeaks(p, err, leaks)
	}
	for i, p := range pools {
		w.over("Close of "+p.name, gone[i])
		w.closedPool(p)
	}
}

// reopened says that Close of a pool has failed, or of the root, which may have closed
// the pool before.
func (w *world) reopened(p *Pool, gone []*tenant) {
	w.mu.Lock()
	under := p.closes > 0 // in another goroutine, whose Close says what becomes of the blocks
	if under {
		p.gone = append(p.gone, gone...)
	}
	w.mu.Unlock()
	if under {
		return
	}
	if !w.exact && errors.Is(p.Err(), cupool.ErrClosed) {
		w.closedPool(p)
		return
	}
	p.turning.Lock()
	asleep := errors.Is(p.Err(), cupool.ErrAsleep)
	w.mu.Lock()
	p.state, p.alone = open, false
	if !w.exact && p.turns == 0 {
		p.asleep = asleep
	}
	gone, p.gone = append(gone, p.gone...), nil
	w.mu.Unlock()
	p.turning.Unlock()
	w.revive(p, gone)
}

func everything(*Block) bool { return true }

// judgeLeaks compares the error of Close with what was live.
func (w *world) judgeLeaks(p *Pool, err error, leaks []*Block) {
	want := map[cupool.Ptr]int64{}
	for _, b := range leaks {
		want[b.Ptr()] = b.Size()
	}
	got := 0
	for _, e := range leakErrors(err) {
		for _, l := range e.Leaks {
			if size, ok := want[l.Ptr]; w.exact && p.later == 0 && (!ok || size != l.Size) {
				w.fail("errors: Close of %s says that %d bytes at %v leaked, which are not live", p.name, l.Size, l.Ptr)
			}
			got++
		}
	}
	if w.exact && p.later == 0 && got != len(leaks) {
		w.fail("errors: Close of %s says %d leaks, there are %d: %v", p.name, got, len(leaks), err)
	}
	if got == 0 && !(errors.Is(err, cupool.ErrClosed) && (p.retired || !w.exact)) {
		w.fail("errors: Close of %s: %v", p.name, err)
	}
}

// leakErrors returns the LeakErrors that an error joins.
func leakErrors(err error) (list []*cupool.LeakError) {
	switch e := err.(type) {
	case *cupool.LeakError:
		return []*cupool.LeakError{e}
	case interface{ Unwrap() []error }:
		for _, x := range e.Unwrap() {
			list = append(list, leakErrors(x)...)
		}
	case interface{ Unwrap() error }:
		return leakErrors(e.Unwrap())
	}
	return list
}

// pickStream returns a stream, most often an open one.
func (r *runner) pickStream() *Stream {
	k := r.n(16)
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.streams
	if k < 14 {
		list = slices.DeleteFunc(slices.Clone(r.streams), func(s *Stream) bool { return s.state != open })
		if len(list) == 0 {
			list = r.streams[:1]
		}
	}
	return list[k%len(list)]
}

// pickPool returns a pool, most often an open one.
func (r *runner) pickPool() *Pool {
	k := r.n(16)
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.pools
	if k < 15 {
		list = slices.DeleteFunc(slices.Clone(r.pools), func(p *Pool) bool { return p.state != open })
		if len(list) == 0 {
			list = r.pools[:1]
		}
	}
	if k < 8 { // the root most of all
		return r.root
	}
	return list[k%len(list)]
}

// allPools returns the root and the private pools, also closed ones.
func (m *Model) allPools() []*Pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pools)
}

// isOpen returns whether the state of a pool or stream is open, which another
// goroutine may change at once.
func (r *runner) isOpen(s *state) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *s == open
}

// pickBlock returns a live block, or nil.
func (r *runner) pickBlock() *Block {
	r.blocks = slices.DeleteFunc(r.blocks, func(b *Block) bool { return r.isDead(b) })
	if len(r.blocks) == 0 {
		return nil
	}
	return r.blocks[int(r.next())%len(r.blocks)]
}

func (r *runner) isDead(b *Block) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return b.dead
}

// drop takes a block from those that are live, and has the model know.
func (r *runner) drop(b *Block, later bool) {
	r.dies(b, later)
	r.blocks = slices.DeleteFunc(r.blocks, func(o *Block) bool { return o == b })
	r.old = append(r.old, b)
	if len(r.old) > 64 {
		r.old = r.old[32:]
	}
}

// String says what is known of a block.
func (b *Block) String() string {
	return fmt.Sprintf("%v of %s for stream %d", b.Block, b.pool.name, b.on.s.number)
}
