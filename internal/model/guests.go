package model

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/planner"
)

// A guest is an allocator over a pool: an arena, or a planner. Its blocks are in memory
// that it has of the pool, or are the pool's.
type guest struct {
	cupool.Allocator
	arena *arena.Arena
	plan  *planner.Planner
	pool  *Pool
	on    *Stream // the arena's
	over  bool    // the arena overflows
	finds bool    // the planner finds the iterations

	// ending is held while memory is asked for that the call which ends it all, or an
	// iteration, must not meet.
	ending sync.RWMutex

	state state // guarded by Model.mu, as what follows
	inner []*Block
	given []*Block // in the order in which they were
	marks []mark
	begun bool // an iteration
}

// mark is a mark of an arena.
type mark struct {
	arena.Mark
	given int
	ended bool
}

// memory is the pool of an arena: what the arena has of it is known, too.
type memory struct {
	*Pool
	m *Model
	g *guest
}

func (x memory) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	h, err := x.Pool.Alloc(size, s)
	if err == nil {
		b := &Block{Block: h, pool: x.Pool, on: x.m.streamOf(s), inner: x.g}
		x.m.born(b)
		x.m.mu.Lock()
		defer x.m.mu.Unlock()
		x.g.inner = append(x.g.inner, b)
	}
	return h, err
}

func (x memory) find(h cupool.Block) *Block {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	return x.g.inner[slices.IndexFunc(x.g.inner, func(b *Block) bool { return b.Block == h })]
}

func (x memory) Free(h cupool.Block) error {
	x.m.dies(x.find(h), false)
	return x.Pool.Free(h)
}

func (x memory) RecordStream(h cupool.Block, s *cupool.Stream) error {
	x.m.noteUse(x.find(h), x.m.streamOf(s))
	return x.Pool.RecordStream(h, s)
}

// streamOf returns the stream of a program.
func (m *Model) streamOf(s *cupool.Stream) *Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.streams, func(o *Stream) bool { return o.Stream == s })
	return m.streams[max(i, 0)]
}

// newGuest makes an arena or a planner, or closes one.
func (r *runner) newGuest() {
	p, s, how := r.pickPool(), r.pickStream(), r.n(8)
	if r.opt.Careless {
		return // they have the owner's order
	}
	r.mu.Lock()
	list := slices.Clone(r.guests)
	r.mu.Unlock()
	if len(list) > 2 {
		r.closeGuest(list[how%len(list)])
		return
	}
	defer r.asking(p)()
	p.using.RLock()
	defer p.using.RUnlock()
	r.mu.Lock()
	lends := func(o *Pool) bool { return o.lends } // what is lent is of another pool
	welcome := p.state == open && !p.alone && !p.lends && (p != r.root || !slices.ContainsFunc(r.pools, lends))
	r.mu.Unlock()
	if !welcome {
		return
	}
	g := &guest{pool: p, on: s}
	if how < 5 {
		size := []int64{64 * kib, 100000, mib, 4 * mib}[how%4]
		var err error
		g.over = how%2 == 0
		g.arena, err = arena.New(memory{p, r.Model, g}, arena.Config{Size: size, Stream: s.Stream, Overflow: g.over})
		g.Allocator = g.arena
		want := r.allocReasons(p, s, size)
		if !want.must {
			want.add(false, cupool.ErrOutOfMemory)
		}
		if r.judge("arena.New", err, want); err != nil {
			return
		}
		if st := g.arena.Stats(); st.Size != size || g.arena.Stream() != s.Stream {
			r.fail("books: an arena of %d bytes says %+v", size, st)
		}
	} else {
		var err error
		g.plan, err = planner.New(p.c, planner.Config{Confirm: 1 + how%2, Detect: how == 7, Joint: how == 6, Budget: time.Second, MaxRequests: 64})
		g.Allocator, g.finds = g.plan, how == 7
		if r.judge("planner.New", err, &reasons{}); err != nil {
			return
		}
		if g.plan.Pool() != p.c {
			r.fail("books: a planner is over another pool")
		}
	}
	r.logf(" %s on %d", p.name, s.s.number)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.loose = p.loose || g.plan != nil
	r.guests = append(r.guests, g)
	if g.Driver() != p.Driver() || g.DefaultStream() != r.first.Stream {
		r.failLocked("books: a guest of %s has another device, or another default stream", p.name)
	}
}

// plansLocked sums what planners have of a pool, where no call is under way.
func (m *Model) plansLocked(p *Pool) (sum planner.Stats) {
	for _, g := range m.guests {
		if g.pool == p && g.plan != nil {
			st := g.plan.Stats()
			sum.Arenas += st.Arenas
			sum.ArenaBytes += st.ArenaBytes
		}
	}
	return sum
}

// pickGuest returns a guest that f chooses, or nil.
func (r *runner) pickGuest(f func(*guest) bool) *guest {
	k := int(r.next())
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(r.guests), func(g *guest) bool { return !f(g) })
	if len(list) == 0 {
		return nil
	}
	return list[k%len(list)]
}

// aGuest returns the newest guest, or nil.
func (r *runner) aGuest() *guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.guests) == 0 {
		return nil
	}
	return r.guests[len(r.guests)-1]
}

func (r *runner) hasGuests(p *Pool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.guests, func(g *guest) bool { return g.pool == p })
}

// allocOfGuest has a guest hand out a block.
func (r *runner) allocOfGuest() {
	g, s, size, how := r.pickGuest(func(*guest) bool { return true }), r.pickStream(), r.size(), r.n(8)
	if g != nil {
		r.give(g, s, size, how)
	}
}

// give has a guest hand out a block, which is written unless how is odd.
func (r *runner) give(g *guest, s *Stream, size int64, how int) *Block {
	b := r.given(g, s, size, how)
	if b != nil && how&1 == 0 {
		r.write(b)
	}
	return b
}

func (r *runner) given(g *guest, s *Stream, size int64, how int) *Block {
	p := g.pool
	defer r.asking(p)()
	g.ending.RLock()
	defer g.ending.RUnlock()
	p.using.RLock()
	defer p.using.RUnlock()
	r.mu.Lock()
	usable := g.state == open && p.state == open && !p.alone
	r.mu.Unlock()
	if !usable {
		return nil
	}
	r.logf(" %d for a guest of %s on %d", size, p.name, s.s.number)
	align := int64(1)
	var h cupool.Block
	var err error
	var room int64
	if g.arena != nil && how&2 != 0 {
		align = 4096
		room = r.roomOf(g)
		h, err = g.arena.AllocAligned(size, align, s.Stream)
	} else {
		room = r.roomOf(g)
		h, err = g.Alloc(size, s.Stream)
	}
	want := r.giveReasons(g, s, size)
	if errors.Is(err, cupool.ErrOutOfMemory) && (!want.must || g.arena != nil) {
		if r.exact && g.arena != nil && !g.over && size+max(align, 512) <= room {
			r.fail("errors: false out of memory: %w; the arena has %d bytes", err, room)
		}
		return nil
	}
	if r.judge("Alloc of a guest", err, want); err != nil || h.IsEmpty() {
		return nil
	}
	b := &Block{Block: h, pool: p, on: s, via: g}
	if g.arena != nil || p.StreamOf(h) == nil {
		b.of = g
	}
	r.logf(": %v", h)
	if h.Size() != size || h.Ptr()%cupool.Ptr(align) != 0 {
		r.fail("books: a block of %d bytes, aligned to %d, was asked for, %v came", size, align, h)
	}
	r.born(b)
	r.blocks = append(r.blocks, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.of != nil {
		g.given = append(g.given, b)
	}
	return b
}

// roomOf returns the bytes that are left in an arena.
func (r *runner) roomOf(g *guest) int64 {
	if g.arena == nil {
		return 0
	}
	st := g.arena.Stats()
	return st.Size - st.Used
}

// giveReasons is allocReasons for a guest.
func (r *runner) giveReasons(g *guest, s *Stream, size int64) *reasons {
	want := r.allocReasons(g.pool, s, size)
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.arena != nil {
		r.ended(want, g.on.state, cupool.ErrClosed)
	}
	// An arena and a plan may have the memory, whatever is of the pool.
	wrong := size < 0 || size > 1<<60
	want.must = size != 0 && (wrong || r.exact && (s.state != open || g.plan != nil && g.pool.asleep))
	return want
}

// endOfGuest ends what an arena has handed out since a mark, or looks at a planner.
func (r *runner) endOfGuest() {
	g, how := r.pickGuest(func(*guest) bool { return true }), r.n(6)
	if g == nil {
		return
	}
	r.lookAtGuest(g)
	if g.arena == nil {
		return
	}
	g.ending.Lock()
	defer g.ending.Unlock()
	r.mu.Lock()
	usable := g.state == open
	marks := len(g.marks)
	r.mu.Unlock()
	switch {
	case !usable:
	case how < 2 && marks < 8:
		g.marks = append(g.marks, mark{Mark: g.arena.Mark(), given: len(g.given)})
	case how < 5 && marks > 0:
		r.releaseMark(g, how%marks)
	default:
		r.endSince(g, 0, "Arena.Reset", g.arena.Reset, &reasons{})
	}
}

func (r *runner) releaseMark(g *guest, k int) {
	m := g.marks[k]
	want := &reasons{}
	if m.ended {
		want.add(true, cupool.ErrUseAfterFree)
		m.given = len(g.given)
	}
	if !r.endSince(g, m.given, "Arena.Release", func() error { return g.arena.Release(m.Mark) }, want) {
		return
	}
	for i := k; i < len(g.marks); i++ {
		g.marks[i].ended = true
	}
}

// endSince makes a call that ends the blocks of an arena from the n-th on.
func (r *runner) endSince(g *guest, n int, what string, call func() error, want *reasons) bool {
	since := g.given[n:]
	list := r.ends(g.pool, func(b *Block) bool { return slices.Contains(since, b) })
	err := call()
	r.mu.Lock()
	must := want.must
	r.ended(want, g.on.state, cupool.ErrClosed) // which cannot wait
	r.rootEnded(want)
	if !r.exact { // or be waited for, while it is being closed
		want.add(false, cupool.ErrClosed)
	}
	want.must = must
	r.mu.Unlock()
	if r.judge(what, err, want); err != nil {
		r.revive(g.pool, list)
		return false
	}
	r.over(what, list)
	g.given = g.given[:n]
	if n == 0 && what == "Arena.Reset" {
		for i := range g.marks {
			g.marks[i].ended = true
		}
	}
	return true
}

// lookAtGuest compares the books of a guest with what is live.
func (r *runner) lookAtGuest(g *guest) {
	var got int64
	if g.arena != nil {
		got = g.arena.Stats().Blocks
	} else {
		got = g.plan.Stats().LiveBlocks
		if err := g.plan.Check(); err != nil {
			r.fail("books: %v", err)
		}
	}
	if !r.exact {
		return
	}
	want := int64(0)
	for _, b := range r.live {
		if b.of == g {
			want++
		}
	}
	if got != want {
		r.fail("books: a guest of %s says %d live blocks, there are %d", g.pool.name, got, want)
	}
}

// closeGuests closes the guests of a pool, which takes no others.
func (w *world) closeGuests(p *Pool) {
	p.using.Lock()
	w.mu.Lock()
	p.alone = true
	w.mu.Unlock()
	p.using.Unlock()
	w.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(w.guests), func(g *guest) bool { return g.pool != p })
	w.mu.Unlock()
	for _, g := range list {
		w.closeGuest(g)
	}
}

// closeGuest closes a guest, unless it is closed.
func (w *world) closeGuest(g *guest) {
	g.ending.Lock()
	defer g.ending.Unlock()
	w.mu.Lock()
	was := g.state
	g.state = max(was, closing)
	w.mu.Unlock()
	if was == closed {
		return
	}
	list := w.ends(g.pool, func(b *Block) bool { return b.of == g })
	var err error
	if g.arena != nil {
		err = g.arena.Close()
	} else {
		err = g.plan.Close()
	}
	if leaks := leakErrors(err); g.plan != nil && len(list) > 0 && w.exact {
		if len(leaks) != 1 || len(leaks[0].Leaks) != len(list) {
			w.fail("errors: Close of a planner with %d live blocks: %v", len(list), err)
		}
	} else if len(leaks) == 0 || g.arena != nil {
		want := w.allow(g.pool)
		want.must = false // Close of the pool comes after it
		w.judge("Close of a guest", err, want)
	}
	w.Model.over("Close of a guest", list)
	w.mu.Lock()
	defer w.mu.Unlock()
	g.state = closed
	w.guests = slices.DeleteFunc(w.guests, func(o *guest) bool { return o == g })
}

// patterns are the sizes that the requests of an iteration have.
var patterns = [][]int64{
	{5000, 70000, 512, 70000},
	{mib, 300 * kib, mib, 5000, 5000},
	{2 * mib, 2 * mib, 512},
	{70000, 70000, 3 * mib, 70000},
}

// iterate makes an iteration of a program that repeats itself, or not quite, on a
// planner.
func (r *runner) iterate() {
	g := r.pickGuest(func(g *guest) bool { return g.plan != nil })
	pattern, kink, s, o := patterns[r.n(len(patterns))], r.n(16), r.pickStream(), r.pickStream()
	if g == nil {
		return
	}
	for range 3 {
		r.border(g, "BeginIteration", (*planner.Planner).BeginIteration, true)
		r.requests(g, pattern, kink, s, o)
		if kink != 5 {
			r.border(g, "EndIteration", (*planner.Planner).EndIteration, false)
		}
		ctx := context.Background()
		if kink == 6 && !r.exact {
			ctx = cancelled
		}
		if err := g.plan.Wait(ctx); err != nil && ctx.Err() == nil {
			r.fail("errors: Wait of a planner: %v", err)
		}
	}
}

// requests makes the requests of an iteration.
func (r *runner) requests(g *guest, pattern []int64, kink int, s, o *Stream) {
	var list []*Block
	for i, size := range pattern {
		switch {
		case kink == i:
			size += 512
		case kink == 8 && i == 1:
			s, o = o, s
		}
		if b := r.give(g, s, size, i%2); b != nil {
			list = append(list, b)
		}
		if len(list) > 2 {
			r.endRequest(list[0], kink, o)
			list = list[1:]
		}
	}
	if kink == 4 && len(list) > 0 {
		list = list[1:] // it outlives the iteration
	}
	for _, b := range list {
		r.endRequest(b, kink, o)
	}
}

func (r *runner) endRequest(b *Block, kink int, o *Stream) {
	if r.isDead(b) || !slices.Contains(r.blocks, b) {
		return
	}
	if kink == 7 {
		r.read(b, o)
	}
	r.freeBlock(b, 0)
}

// border begins or ends an iteration.
func (r *runner) border(g *guest, what string, call func(*planner.Planner) error, begins bool) {
	g.ending.Lock() // the program orders it with its requests
	defer g.ending.Unlock()
	r.mu.Lock()
	usable := g.state == open && g.pool.state == open
	r.mu.Unlock()
	if !usable {
		return
	}
	err := call(g.plan)
	want := r.allow(g.pool)
	r.mu.Lock()
	defer r.mu.Unlock()
	want.add(false, planner.ErrIteration)
	if begins { // it may ask for memory
		r.sleepsLocked(want, g.pool)
		if g.pool.retired || slices.ContainsFunc(r.streams, func(s *Stream) bool { return s.state != open }) {
			want.add(false, cupool.ErrClosed)
		}
	}
	want.must = g.finds || g.begun == begins
	if r.judgeLocked(what, err, want); err == nil {
		g.begun = begins
	}
}
