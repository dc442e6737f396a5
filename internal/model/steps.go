package model

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cupool/cupool"
)

// A step is what a program can do. The weight says how many of the values of
// a byte, modulo the sum of all weights, mean it.
type step struct {
	name   string
	weight int
	do     func(*runner)
}

var steps = []step{
	{"alloc", 40, (*runner).alloc},
	{"free", 22, (*runner).free},
	{"complete", 16, (*runner).complete},
	{"read", 12, (*runner).readBlock},
	{"free on", 8, (*runner).freeOn},
	{"copy", 8, (*runner).copyBlock},
	{"record stream", 6, (*runner).recordStream},
	{"record event", 6, (*runner).recordEvent},
	{"wait for an event", 8, (*runner).waitEvent},
	{"look at an event", 4, (*runner).lookAtEvent},
	{"wait for a stream", 8, (*runner).waitStream},
	{"synchronize", 4, (*runner).sync},
	{"new stream", 5, (*runner).newStream},
	{"close a stream", 4, (*runner).closeStream},
	{"new pool", 4, (*runner).newPool},
	{"end a pool", 3, (*runner).endPool},
	{"trim", 5, (*runner).trim},
	{"process deferred", 4, (*runner).processDeferred},
	{"empty the cache", 4, (*runner).emptyCache},
	{"reserve", 3, (*runner).reserve},
	{"free later", 4, (*runner).freeLater},
	{"free by address", 6, (*runner).freePtr},
	{"sleep or wake", 8, (*runner).sleepOrWake},
	{"compare", 10, (*runner).compareNow},
	{"mistake", 12, (*runner).mistake},
	{"pass", 6, (*runner).pass},
	{"close", 1, (*runner).close},
	{"hold or release", 4, (*runner).holdOrRelease},
	{"reset", 2, (*runner).reset},
	{"set the soft limit", 2, (*runner).setSoftLimit},
	{"start or stop the history", 1, (*runner).history},
	{"look at a pool", 4, (*runner).lookAtPool},
	{"synchronize all", 1, (*runner).syncAll},
	{"adopt a stream", 2, (*runner).adoptStream},
	{"look at a stream", 2, (*runner).lookAtStream},
	{"copy in or out", 3, (*runner).copyInOrOut},
	{"new buffer", 3, (*runner).newBuffer},
	{"use a buffer", 4, (*runner).useBuffer},
	{"new guest", 1, (*runner).newGuest},
	{"alloc of a guest", 3, (*runner).allocOfGuest},
	{"end what a guest handed out", 2, (*runner).endOfGuest},
	{"iterate", 1, (*runner).iterate},
}

// chooseStep returns the step that a byte means.
func chooseStep(v byte) step {
	sum := 0
	for _, s := range steps {
		sum += s.weight
	}
	n := int(v) % sum
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}

// size returns a size, in bytes. Some sizes recur, so that magazines are used.
func (r *runner) size() int64 {
	if r.fine {
		if k := r.n(16); k < 13 {
			return []int64{1, 512, 1000, 1000, 2048, 3000, 3001, 4096, 6000, 7168, 9000, 20000, 100000}[k]
		}
		return 1 + int64(r.next())*40 + int64(r.next())
	}
	if k := r.n(20); k < 17 {
		return []int64{5000, 5000, 512, 1, 70000, 70000, 300 * kib, mib, mib + 1, 2 * mib, 2 * mib, 3 * mib, 10*mib - 512, 12*mib + 7, 20 * mib, 24 * mib, 48 * mib}[k]
	}
	return 1 + int64(r.next())*int64(r.next())*256 + int64(r.next())
}

func (r *runner) alloc() {
	p, s := r.pickPool(), r.pickStream()
	size := r.size()
	how := r.n(16)
	r.allocate(p, s, size, how)
}

// allocate asks for memory, and has it written, unless how is odd.
func (r *runner) allocate(p *Pool, s *Stream, size int64, how int) *Block {
	alloc := p.Alloc
	label := ""
	ctx := context.Background()
	switch {
	case how >= 12:
		label = []string{"weights", "gradients"}[how%2]
		alloc = p.WithLabel(label).Alloc
	case how >= 8:
		if how >= 10 {
			ctx = cancelled
		}
		alloc = func(size int64, s *cupool.Stream) (cupool.Block, error) { return p.AllocContext(ctx, size, s) }
	}
	arg := s.Stream
	if s == r.first && how&2 != 0 {
		arg = nil
	}
	r.logf(" %d for %s on %d", size, p.name, s.s.number)
	b := r.ask(p, s, size, ctx, func() (cupool.Block, error) { return alloc(size, arg) })
	if b == nil {
		return nil
	}
	b.label = label
	if how&1 == 0 {
		r.write(b)
	}
	return b
}

// cancelled is a context that is done.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// ask makes a call that allocates, and returns the block, which is the runner's then, or nil.
func (r *runner) ask(p *Pool, s *Stream, size int64, ctx context.Context, call func() (cupool.Block, error)) *Block {
	defer r.asking(p)()
	h, err := call()
	if err == errUnusable {
		return nil
	}
	want := r.allocReasons(p, s, size)
	if ctx.Err() != nil {
		want.add(false, ctx.Err())
	}
	if errors.Is(err, cupool.ErrOutOfMemory) && !want.must {
		if why := r.couldFit(p, r.cfg, size); why != nil && ctx.Err() == nil {
			r.fail("errors: false out of memory: %w: %w", err, why)
		}
		r.isLastOOM(err)
		r.drained(p)
		r.logf(": out of memory")
		if len(r.failures()) > 0 {
			for _, o := range r.allPools() {
				r.logf("\n%s %+v: %s %s", o.name, o.state, o.Snapshot().Layout(), func() string {
					if o.retired {
						return "retired"
					}
					if o.asleep {
						return "asleep"
					}
					return ""
				}())
			}
		}
		return nil
	}
	r.judge("Alloc", err, want)
	if err != nil || h.IsEmpty() {
		return nil
	}
	r.logf(": %v", h)
	b := &Block{Block: h, pool: r.poolOf(p, h), on: s}
	if h.Size() != size {
		r.fail("books: a block of %d bytes was asked for, %v came", size, h)
	}
	r.born(b)
	r.blocks = append(r.blocks, b)
	return b
}

// asking says that memory is asked for until done is called. It comes from the pool, or
// for the root from one that lends.
func (r *runner) asking(p *Pool) (done func()) {
	var list []*Pool
	for _, o := range r.allPools() { // in one order
		if o == p || p == r.root && o.lends {
			o.asking.RLock()
			list = append(list, o)
		}
	}
	return func() {
		for _, o := range list {
			o.asking.RUnlock()
		}
	}
}

// poolOf returns the pool that a block is of: the one that was asked, or for
// the root one that lends its memory.
func (r *runner) poolOf(p *Pool, h cupool.Block) *Pool {
	for _, o := range r.allPools() {
		if o.lends && p == r.root && o.number == h.Maker() {
			return o
		}
	}
	return p
}

func (r *runner) allocReasons(p *Pool, s *Stream, size int64) *reasons {
	want := r.allow(p).onStream(r.Model, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sleepsLocked(want, p)
	if p.retired {
		want.add(r.exact, cupool.ErrClosed)
	}
	if size < 0 || size > 1<<60 {
		want.add(true, cupool.ErrInvalidSize)
	}
	if size == 0 {
		want.must = false
	}
	return want
}

// use runs f, which gives work to the device that uses a block, unless the
// block has no memory any more. It returns whether that succeeded.
func (r *runner) use(b *Block, s *Stream, what string, f func() error) bool {
	return r.useAll([]*Block{b}, s, what, f)
}

// useAll is use for work that uses several blocks.
func (r *runner) useAll(blocks []*Block, s *Stream, what string, f func() error) bool {
	for _, p := range r.allPools() { // in one order
		if slices.ContainsFunc(blocks, func(b *Block) bool { return b.pool == p }) {
			p.using.RLock()
			defer p.using.RUnlock()
		}
	}
	r.mu.Lock()
	usable := r.root.state == open && !slices.ContainsFunc(blocks, func(b *Block) bool { return b.pool.state != open || b.pool.asleep || b.dead })
	r.mu.Unlock()
	if !usable {
		return false
	}
	err := f()
	r.judge(what, err, r.onStream(s))
	return err == nil
}

// errUnusable says that no call was made, as memory could not have been used.
var errUnusable = errors.New("unusable")

func (r *runner) owner(b *Block) *Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ownerLocked(b)
}

// write has a block written by its own stream, where nobody reads it.
func (r *runner) write(b *Block) {
	s := r.owner(b)
	if !r.exact && !r.afterReaders(b, s) { // what it held may have been forgotten while it was read
		return
	}
	value := r.fresh(b)
	ok := r.use(b, s, "Memset", func() (err error) {
		r.content(b) // what Sleep lost is written again
		for _, x := range r.parts(b) {
			err = errors.Join(err, s.Memset(b.Ptr()+cupool.Ptr(x.lo), value, x.hi-x.lo))
		}
		return err
	})
	r.wrote(b, value, s, ok)
}

// fresh returns what a block may hold next.
func (r *runner) fresh(b *Block) byte {
	return byte(1 + (uint64(b.Ptr())>>9+uint64(r.steps)*37)%255)
}

// wrote notes what work of a stream has written to a block, if the call succeeded.
func (r *runner) wrote(b *Block, value byte, s *Stream, ok bool) {
	if ok {
		b.value, b.written = value, r.d.lastOf(s.s)
	}
}

// copied notes what work of a stream has written to a block from another one.
func (r *runner) copied(dst, src *Block, value byte, s *Stream, ok bool) {
	if r.opt.Careless && s != r.owner(src) {
		value = 0 // the source's memory may be another block's by the time that it is read
	}
	r.wrote(dst, value, s, ok)
}

// afterReaders has a stream wait for the others that read a block.
func (r *runner) afterReaders(b *Block, s *Stream) bool {
	for _, u := range b.used {
		if !r.waitFor(s, u) {
			return false
		}
	}
	return true
}

// content returns what a block holds, 0 when that is not known.
func (r *runner) content(b *Block) byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.lost {
		b.value, b.lost = 0, false
	}
	return b.value
}

// parts are what is written and looked at of a block: on a simulated device all of
// it, on another one its ends and something in every chunk of virtual memory.
func (r *runner) parts(b *Block) []piece {
	if r.d.sim != nil || b.Size() <= partBytes {
		return []piece{{hi: b.Size()}}
	}
	list := []piece{{lo: b.Size() - partBytes, hi: b.Size()}}
	for at := int64(0); at < b.Size()-partBytes; at += granularity {
		list = append(list, piece{lo: at, hi: min(at+partBytes, b.Size()-partBytes)})
	}
	return list
}

// comeAfter has work of a stream wait for what wrote a block.
func (r *runner) comeAfter(b *Block, s *Stream) bool {
	return b.written.s == nil || r.d.before(b.written, s.s) || r.waitFor(s, r.owner(b)) && r.d.before(b.written, s.s)
}

// record says that a stream uses a block.
func (r *runner) record(b *Block, s *Stream) bool {
	if r.opt.Careless {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.unknown = append(b.unknown, s)
		return true
	}
	r.noteUse(b, s)
	err := r.below(b).RecordStream(b.Block, s.Stream)
	want := r.freeReasons(b).onStream(r.Model, s)
	want.must = false // what a closed stream was given is done
	r.judge("RecordStream", err, want)
	return err == nil
}

func (r *Model) noteUse(b *Block, s *Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != r.ownerLocked(b) && !slices.Contains(b.used, s) {
		b.used = append(b.used, s)
	}
}

// readBlock has work read a block, on its own stream or on another.
func (r *runner) readBlock() {
	b, s := r.pickBlock(), r.pickStream()
	if b == nil {
		return
	}
	if r.n(3) == 0 {
		s = r.owner(b)
	}
	r.read(b, s)
}

func (r *runner) read(b *Block, s *Stream) {
	if r.content(b) == 0 {
		r.write(b)
	}
	if b.value == 0 || !r.comeAfter(b, s) || s != r.owner(b) && !r.record(b, s) {
		return
	}
	r.logf(" %v on %d", b.Block, s.s.number)
	d := r.d
	if d.sim == nil {
		r.look(b, s)
		return
	}
	careless := r.opt.Careless && s != r.owner(b)
	r.use(b, s, "Launch", func() error {
		value := r.content(b)
		if value == 0 {
			return nil
		}
		return s.Launch(func() {
			if careless { // its owner may write it again already
				d.read(b.Ptr(), b.Size())
			} else {
				d.Read(b, b.Ptr(), b.Size(), value)
			}
		})
	})
}

// copyBlock has a stream copy a block to a new one, and often frees the source
// while the copy has not begun.
func (r *runner) copyBlock() {
	src, s := r.pickBlock(), r.pickStream()
	how := r.n(8)
	if src == nil {
		return
	}
	if r.content(src) == 0 {
		r.write(src)
	}
	dst := r.allocate(r.root, s, src.Size(), 1)
	if dst == nil || src.value == 0 || !r.comeAfter(src, s) || s != r.owner(src) && !r.record(src, s) {
		return
	}
	var value byte
	ok := r.useAll([]*Block{src, dst}, s, "Copy", func() error {
		value = r.content(src)
		for _, x := range r.parts(src) {
			if err := s.Copy(dst.Ptr()+cupool.Ptr(x.lo), src.Ptr()+cupool.Ptr(x.lo), x.hi-x.lo); err != nil {
				return err
			}
		}
		return nil
	})
	r.copied(dst, src, value, s, ok)
	if how&1 == 0 {
		r.freeBlock(src, how>>1)
	}
}

func (r *runner) free() {
	if b := r.pickBlock(); b != nil {
		r.freeBlock(b, r.n(4))
	}
}

// freeReasons are those of a call that frees a live block.
func (r *runner) freeReasons(b *Block) *reasons {
	want := r.allow(b.pool)
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.via != nil && b.via.state != open {
		want.add(false, cupool.ErrClosed)
	}
	if len(want.errs) > 0 {
		want.add(want.must, cupool.ErrForeignPointer)
	}
	if b.ended || b.dead && b.resets != b.pool.resets { // before it came to this call
		want.add(false, cupool.ErrDoubleFree, cupool.ErrUseAfterFree, cupool.ErrForeignPointer)
	}
	return want
}

// below returns what calls for a block go to.
func (r *runner) below(b *Block) cupool.Allocator {
	if b.via != nil {
		return b.via
	}
	return b.pool
}

// freeBlock frees a live block, through its pool or the root.
func (r *runner) freeBlock(b *Block, how int) {
	r.logf(" %v", b.Block)
	r.drop(b, false)
	p := r.below(b)
	if how == 3 && b.via == nil {
		p = r.root
	}
	r.judge("Free", p.Free(b.Block), r.freeReasons(b))
}

func (r *runner) freeOn() {
	b, s := r.pickBlock(), r.pickStream()
	if b == nil {
		return
	}
	if r.n(2) == 0 {
		r.read(b, s)
	}
	if b.via != nil {
		return
	}
	r.logf(" %v, %d", b.Block, s.s.number)
	r.noteUse(b, s)
	r.drop(b, false)
	err := b.pool.FreeOn(b.Block, s.Stream)
	want := r.freeReasons(b).onStream(r.Model, s)
	want.must = want.must && r.isOpen(&s.state) // as in record
	r.judge("FreeOn", err, want)
}

func (r *runner) freePtr() {
	b := r.pickBlock()
	size := int64(-1)
	if b == nil {
		return
	}
	if r.n(2) == 0 {
		size = b.Size()
	}
	r.logf(" %v", b.Block)
	b.pool.using.RLock() // another goroutine may end it, and get a block at the address
	defer b.pool.using.RUnlock()
	if r.isDead(b) {
		return
	}
	r.drop(b, false)
	r.judge("FreePtr", r.below(b).FreePtr(b.Ptr(), size), r.freeReasons(b))
}

func (r *runner) freeLater() {
	if b := r.pickBlock(); b != nil && b.via == nil {
		r.drop(b, true)
		b.pool.FreeLater(b.Block)
	}
}

func (r *runner) recordStream() {
	b, s := r.pickBlock(), r.pickStream()
	if b != nil {
		r.record(b, s)
	}
}

// complete has the device do some of its work.
func (r *runner) complete() {
	s := r.pickStream()
	how := r.n(8)
	if !r.exact && how < 7 || r.exact && r.root.state != open {
		how = 7 // another goroutine may close the stream
	}
	if r.exact && s.state != open {
		return
	}
	switch {
	case r.d.sim == nil:
		r.delay(s)
	case how < 5:
		r.d.sim.CompleteNext(s.Handle())
	case how < 7:
		r.d.sim.CompleteStream(s.Handle())
	default:
		r.d.sim.CompleteAll()
	}
}

// delay makes a stream late, where the device runs functions.
func (r *runner) delay(s *Stream) {
	err := s.Launch(func() { time.Sleep(200 * time.Microsecond) })
	if !errors.Is(err, cupool.ErrNotSupported) {
		r.judge("Launch", err, r.onStream(s))
	}
}

func (r *runner) recordEvent() {
	s := r.pickStream()
	e := &Event{on: s, order: r.d.orderOf(s.s), last: r.d.lastOf(s.s)}
	var err error
	e.Event, err = s.Record()
	if r.judge("Record", err, r.onStream(s)); err == nil {
		r.events = append(r.events, e)
	}
}

func (r *runner) pickEvent() *Event {
	if len(r.events) == 0 {
		return nil
	}
	return r.events[int(r.next())%len(r.events)]
}

// waitEvent has a stream wait for an event.
func (r *runner) waitEvent() {
	e, s := r.pickEvent(), r.pickStream()
	if e == nil {
		return
	}
	err := r.root.Wait(s.Stream, e.Event)
	want := r.onStream(s)
	if e.closed {
		want.add(true, cupool.ErrClosed)
	}
	if r.judge("Wait", err, want); err == nil && !r.d.orderOf(s.s).Covers(e.order) {
		r.fail("order: stream %d waits for an event of stream %d, and the device does not know it", s.s.number, e.on.s.number)
	}
}

// lookAtEvent asks for an event, waits for it on the host, or closes it.
func (r *runner) lookAtEvent() {
	e := r.pickEvent()
	if e == nil {
		return
	}
	closed := e.closed
	switch r.n(4) {
	case 0:
		err := e.Close()
		e.closed = true
		r.judge("Event.Close", err, r.eventReasons(closed))
	case 1:
		err := e.Sync()
		if r.judge("Event.Sync", err, r.eventReasons(closed)); err == nil && !r.d.over(e.last) {
			r.fail("order: Event.Sync has returned, and work %d of stream %d is not done", e.last.n, e.on.s.number)
		}
	default:
		done, err := e.Done()
		if r.judge("Event.Done", err, r.eventReasons(closed)); done && !r.d.over(e.last) {
			r.fail("order: Event.Done is true, and work %d of stream %d is not done", e.last.n, e.on.s.number)
		}
	}
}

// eventReasons are those of a call on an event that was closed before it, or not. What a
// closed allocator leaves to the device may succeed.
func (r *runner) eventReasons(closed bool) *reasons {
	want := &reasons{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended(want, r.root.state, cupool.ErrInvalidHandle)
	r.rootEnded(want)
	want.must = false
	if closed {
		want.add(true, cupool.ErrClosed)
	}
	return want
}

func (r *runner) waitStream() {
	s, o := r.pickStream(), r.pickStream()
	r.waitFor(s, o)
}

// waitFor has a stream wait for another.
func (r *runner) waitFor(s, o *Stream) bool {
	order := r.d.orderOf(o.s)
	err := r.root.WaitStream(s.Stream, o.Stream)
	if r.judge("WaitStream", err, r.onStream(s).onStream(r.Model, o)); err == nil && !r.d.orderOf(s.s).Covers(order) {
		r.fail("order: stream %d waits for stream %d, and the device does not know it", s.s.number, o.s.number)
	}
	return err == nil
}

func (r *runner) sync() {
	s := r.pickStream()
	last := r.d.lastOf(s.s)
	err := r.root.SyncStream(s.Stream)
	if r.judge("Sync", err, r.onStream(s)); err == nil && !r.d.over(last) {
		r.fail("order: Sync of stream %d has returned, and its work %d is not done", s.s.number, last.n)
	}
}

func (r *runner) newStream() {
	r.mu.Lock()
	n := len(r.streams)
	r.mu.Unlock()
	if n > 24 {
		return
	}
	from := cupool.Allocator(r.root)
	g := r.aGuest()
	if g != nil && n%2 == 0 {
		from = g
	}
	s, err := from.NewStream()
	want := r.allow(r.root)
	if g != nil { // its pool may be closed
		want.add(false, cupool.ErrClosed)
	}
	if r.judge("NewStream", err, want); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.streams = append(r.streams, &Stream{Stream: s, s: r.d.stream(s.Handle())})
	}
}

// closeStream closes a stream, the default stream too.
func (r *runner) closeStream() {
	s := r.pickStream()
	want := r.onStream(s)
	if s == r.first {
		want = &reasons{[]error{cupool.ErrNotSupported}, true}
	}
	r.mu.Lock()
	mine := s.state == open && s != r.first
	if mine {
		s.state = closing
	}
	r.mu.Unlock()
	last := r.d.lastOf(s.s)
	err := s.Close()
	if !r.exact {
		want.errs, want.must = append(want.errs, cupool.ErrClosed), false
	}
	r.judge("Stream.Close", err, want)
	if err == nil && !r.d.over(last) {
		r.fail("order: stream %d is closed, and its work %d is not done", s.s.number, last.n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if mine {
		s.state = closed
		r.destroyAdopted(s)
	}
}

func (r *runner) newPool() {
	kind, limit := r.n(8), r.n(4)
	n := len(r.allPools())
	if n > 8 {
		return
	}
	cfg := cupool.PoolConfig{}
	p := &Pool{name: "pool " + string(rune('0'+n)), segments: r.root.segments}
	switch kind {
	case 1:
		cfg.NoSplit, p.segments = true, true
	case 2:
		cfg.Isolated, p.isolated = true, true
	case 3:
		r.root.asking.Lock() // it may lend before the program knows it
		defer r.root.asking.Unlock()
		cfg.UseOnOOM = !r.hasGuests(r.root)
		p.lends = cfg.UseOnOOM
	case 4:
		cfg.Alloc = r.d.MemAlloc
		cfg.Free = func(at cupool.Ptr, size int64) error {
			r.unmaps(at, size, false) // before the device waits
			return r.d.MemFree(at)
		}
		p.segments = true
	}
	if limit == 1 {
		cfg.Limit, p.limit = 8*mib, 8*mib
	}
	cfg.Name = p.name
	c, err := r.root.NewPool(cfg)
	if r.judge("NewPool", err, r.allow(r.root)); err == nil {
		p.Tested, p.c = r.tested(caching{c}), c
		r.learnNumber(p)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.root.state != open {
			p.state, p.late = closing, true // with the root, whose Close another goroutine called
		}
		r.pools = append(r.pools, p)
	}
}

// learnNumber learns which number the blocks of a pool have that lends.
func (r *runner) learnNumber(p *Pool) {
	if !p.lends {
		return
	}
	h, err := p.Alloc(1, nil)
	if errors.Is(err, cupool.ErrOutOfMemory) {
		p.lends = false // without memory it lends none
		r.judge("Close", p.Close(), &reasons{})
		p.state = closed
		return
	}
	want := r.allow(r.root)
	if r.judge("Alloc", err, want); err != nil {
		return
	}
	p.number, p.allocs, p.asked = h.Maker(), 1, 1
	r.judge("Free", p.Free(h), r.allow(r.root))
}

// endPool closes or retires a private pool.
func (r *runner) endPool() {
	p, how := r.pickPool(), r.n(3)
	if p == r.root {
		want := &reasons{[]error{cupool.ErrNotSupported}, true}
		r.judge("Retire", p.Retire(), want)
		return
	}
	if how == 0 {
		r.retire(p)
		return
	}
	r.closeOnce(p)
}

// retire retires a pool. It is closed when the last of its blocks is freed, at
// a moment that is not known, so that the program leaves it alone but for that.
func (r *runner) retire(p *Pool) {
	r.mu.Lock()
	again := p.retired
	p.retired = true
	r.mu.Unlock()
	err := p.Retire()
	want := r.allow(p)
	if again {
		want.add(r.exact, cupool.ErrClosed)
	}
	r.judge("Retire", err, want)
}

// house are the reasons of calls that give memory back.
func (r *runner) house(p *Pool) *reasons {
	want := r.allow(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sleepsLocked(want, p)
	if p.retired {
		want.add(false, cupool.ErrClosed)
	}
	return want
}

// sleepsLocked adds the reason of a pool that sleeps.
func (m *Model) sleepsLocked(want *reasons, p *Pool) {
	if p.asleep || !m.exact && p.slept {
		want.add(m.exact, cupool.ErrAsleep)
	}
}

func (r *runner) trim() {
	p := r.pickPool()
	keep := int64(r.n(8)) * r.device.Capacity / 32
	before := p.Stats().All.ReservedBytes.Current
	released, err := p.Trim(keep)
	r.judge("Trim", err, r.house(p))
	if err != nil || !r.exact {
		return
	}
	r.drained(p)
	after := p.Stats().All.ReservedBytes.Current
	if p.state == open && !p.retired && !r.guards && before-after != released {
		r.fail("books: Trim says that it released %d bytes; %d were reserved before it and %d after", released, before, after)
	}
}

func (r *runner) emptyCache() {
	p := r.pickPool()
	err := p.EmptyCache()
	r.judge("EmptyCache", err, r.house(p))
	if err != nil || !r.exact {
		return
	}
	r.drained(p)
	st := p.Stats()
	p.waiting = slices.DeleteFunc(p.waiting, func(t *tenant) bool { return t.b.holds == 0 })
	switch held := int64(len(p.waiting)); {
	case r.keeps:
	case st.BlocksPending > held:
		r.fail("books: %d blocks are pending after EmptyCache, %d are held", st.BlocksPending, held)
	case p.live == 0 && held == 0 && !p.loose && st.All.ReservedBytes.Current != 0:
		r.fail("books: %d bytes are reserved after EmptyCache, and nothing is live", st.All.ReservedBytes.Current)
	}
}

func (r *runner) processDeferred() {
	p := r.pickPool()
	_, err := p.ProcessDeferred()
	want := r.allow(p)
	want.must = false
	r.judge("ProcessDeferred", err, want)
	r.drained(p)
}

func (r *runner) reserve() {
	p, s := r.pickPool(), r.pickStream()
	size := r.size()
	defer r.asking(p)()
	before := r.allocations()
	err := p.Reserve(size, s.Stream)
	want := r.allocReasons(p, s, size)
	if errors.Is(err, cupool.ErrOutOfMemory) && !want.must {
		if why := r.couldFit(p, r.cfg, size); why != nil {
			r.fail("errors: false out of memory: %w: %w", err, why)
		}
		r.isLastOOM(err)
		return
	}
	r.judge("Reserve", err, want)
	if err != nil {
		return
	}
	for o, n := range r.allocations() {
		if o.lends && p == r.root && n > before[o] { // it lent the memory
			p = o
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.exact && p == r.root { // or it did
		for _, o := range r.pools {
			o.loose = o.loose || o.lends
			p.loose = p.loose || o.lends
		}
	}
	p.allocs++
	p.asked += size
}

// allocations returns how many each of the pools that are open has made, for
// programs in which pools lend.
func (r *runner) allocations() map[*Pool]int64 {
	made := map[*Pool]int64{}
	if r.exact {
		for _, o := range r.openPools() {
			made[o] = o.Stats().All.Allocation.Allocated
		}
	}
	return made
}

// room returns the bytes that a pool can have more, as long as nobody gives any
// back.
func (r *runner) room(p *Pool) int64 {
	free, _, _ := r.d.MemInfo()
	var reserved int64
	for _, o := range r.openPools() {
		reserved += o.Stats().All.ReservedBytes.Current
	}
	if limit := r.root.Stats().Limit; limit > 0 {
		free = min(free, limit-reserved)
	}
	if p.limit > 0 {
		free = min(free, p.limit-p.Stats().All.ReservedBytes.Current)
	}
	return free
}

// compareNow compares the books, where nothing else is under way.
func (r *runner) compareNow() {
	how := r.n(4)
	if r.exact {
		r.compare()
		return
	}
	p := r.pickPool()
	switch how {
	case 0:
		if err := p.Check(); err != nil {
			r.fail("books: %v", err)
		}
	case 1:
		if st := p.Stats(); st.All.ReservedBytes.Current != st.LiveBytes+st.PendingBytes+st.CachedBytes-st.AsleepBytes {
			r.fail("books: reserved is not live + pending + cached: %+v", st)
		}
	default:
		_ = p.Snapshot()
		_ = p.Stats().String()
		_ = p.ForgetLabels()
		_ = p.Settings()
	}
}

// mistake makes a call that must fail and change nothing.
func (r *runner) mistake() {
	kind := r.n(10)
	r.logf(" %d", kind)
	switch kind {
	case 0, 1, 2:
		r.useDead(kind)
	case 3:
		size := []int64{-1, math.MinInt64, 1<<61 + 1, math.MaxInt64, 0}[r.n(5)]
		r.allocate(r.pickPool(), r.pickStream(), size, 1)
	default:
		r.wrongAddress(kind)
	}
}

// useDead uses a block that was freed.
func (r *runner) useDead(kind int) {
	if len(r.old) == 0 {
		return
	}
	b := r.old[int(r.next())%len(r.old)]
	if b.later {
		return // it may be live yet
	}
	var err error
	switch {
	case kind == 2 && b.buffer != nil:
		err = b.buffer.Memset(0)
	case kind == 2:
		err = r.below(b).RecordStream(b.Block, r.pickStream().Stream)
	case kind == 1 && b.via == nil:
		err = r.root.Free(b.Block)
	case b.buffer != nil:
		err = b.buffer.Free()
	default:
		err = r.below(b).Free(b.Block)
	}
	want := r.freeReasons(b)
	if kind == 2 {
		want.add(true, cupool.ErrUseAfterFree)
	} else {
		want.add(true, cupool.ErrDoubleFree)
	}
	if b.via != nil { // a planner forgets the streams that were closed
		want.add(true, cupool.ErrForeignPointer)
	}
	if b.pool.retired { // it may be closed by now
		want.add(true, cupool.ErrForeignPointer, cupool.ErrClosed)
	}
	r.judge("a call on a freed block", err, want)
}

// wrongAddress asks for an address that is not what it is said to be, or is
// it.
func (r *runner) wrongAddress(kind int) {
	b := r.pickBlock()
	if b == nil {
		return
	}
	inside := b.Ptr() + cupool.Ptr(int64(r.next())*b.Size()/256)
	b.pool.using.RLock() // another goroutine may end it, and get a block at the address
	defer b.pool.using.RUnlock()
	if r.isDead(b) {
		return
	}
	switch {
	case kind == 4 && b.Size() > 1:
		err := r.below(b).FreePtr(max(inside, b.Ptr()+1), -1)
		want := r.freeReasons(b)
		want.add(true, cupool.ErrInteriorPointer)
		r.judge("FreePtr inside a block", err, want)
	case kind == 5:
		err := r.below(b).FreePtr(b.Ptr(), b.Size()+1)
		want := r.freeReasons(b)
		want.add(true, cupool.ErrSizeMismatch)
		r.judge("FreePtr of another size", err, want)
	case kind == 6:
		err := r.below(b).FreePtr(64, -1)
		r.judge("FreePtr of nothing", err, &reasons{[]error{cupool.ErrForeignPointer, cupool.ErrClosed}, true})
	default:
		got, err := r.below(b).Lookup(inside)
		if r.judge("Lookup", err, r.freeReasons(b)); err == nil && got != b.Block {
			r.fail("books: Lookup of %v, inside %v, found %v", inside, b, got)
		}
	}
}

// pass hands a block to another goroutine, or takes one.
func (r *runner) pass() {
	b := r.pickBlock()
	if b == nil {
		return
	}
	select {
	case o := <-r.exchange:
		r.blocks = append(r.blocks, o)
	default:
		select {
		case r.exchange <- b:
			r.blocks = slices.DeleteFunc(r.blocks, func(o *Block) bool { return o == b })
		default:
		}
	}
}

// close closes the root, unless another program goes on with it.
func (r *runner) close() {
	if r.opt.Next == nil {
		r.closeOnce(r.root)
	}
}

// closeOnce closes a pool, unless another goroutine does.
func (r *runner) closeOnce(p *Pool) {
	r.mu.Lock()
	mine := p.state == open
	if mine {
		p.state = closing
	}
	r.mu.Unlock()
	switch {
	case mine:
		r.closePool(p)
	case r.exact:
		r.judge("Close", p.Close(), &reasons{[]error{cupool.ErrClosed}, true})
	}
}
