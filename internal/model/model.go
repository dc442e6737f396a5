// Package model is a reference for allocators in stream order, and programs
// that compare the real one with it. The model places no block. It knows
// which memory is in use, by whom, and until when, and says of every answer
// of an allocator whether it can be right:
//
//   - A block overlaps no live block, neither by address nor in physical
//     memory.
//   - Work that was given to a stream before a block's Free may still use the
//     block, where the stream is the block's own or is recorded on it. Memory
//     is handed out for a stream only when all such uses are done, or come
//     before the stream's later work. Vector clocks say so, which follow the
//     events that the device sees.
//   - A block holds what was written to it last, when work runs that reads it.
//   - An error has a reason that the model knows. Out of memory is believed
//     only when what is live could be in the way.
//   - Statistics and snapshots agree with what is live.
//   - After Close the device has everything back.
//
// Most programs run on a simulated device, whose work lags until the program or a
// wait completes it, and which has memory that is looked at when the work runs. On
// another device a program looks at parts of its blocks, by copies.
//
// Files: clock.go has vector clocks, device.go a device that keeps them,
// model.go the model, books.go its comparison with statistics. program.go
// makes programs of bytes, steps.go has what they do; ends.go has the steps that end
// or suspend the life of blocks, asks.go those that look, buffers.go and guests.go those
// of buffers, arenas and planners.
package model

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
)

// Model is what is known of an allocator and its private pools. Its methods
// are safe from several goroutines. None is called by an allocator with the
// model's lock held, but for unmaps.
type Model struct {
	d *Device
	// exact: one goroutine makes all calls, so that an object's state when a
	// call begins is its state when the call ends.
	exact bool
	unit  cupool.Ptr // what addresses are multiples of
	// keeps: sanitizers look at freed blocks before they are free, so that there
	// may be more of them than the program knows.
	keeps  bool
	guards bool // every block has addresses and memory of its own, which are not in the books

	mu      sync.Mutex // guards all below, and the fields of pools, streams and blocks
	streams []*Stream  // the default stream first; also closed ones
	pools   []*Pool    // the root first; also closed ones
	guests  []*guest   // that are open
	held    []*hold    // that have not ended
	live    []*Block
	past    []*tenant // freed memory whose uses may not be done
	errs    []error
}

// state of a pool or stream.
type state int

const (
	open    state = iota
	closing       // Close was called
	closed        // Close has returned
)

// Pool is an allocator: the root, or a private pool.
type Pool struct {
	Tested
	c         *cupool.Pool // below Tested
	number    uint32       // that its blocks have, as far as it lends some; 0: not known
	name      string
	limit     int64 // 0: none of its own
	isolated  bool
	lends     bool
	late      bool         // it was made while the root was being closed
	segments  bool         // no virtual memory
	using     sync.RWMutex // held while work is given to the device that uses its blocks
	asking    sync.RWMutex // held while memory is asked for, which Reset forbids
	turning   sync.Mutex   // guards the beginnings and ends of Sleep and Wake
	state     state
	alone     bool // it takes no guests, as a call is about to end what they hand out
	tried     bool // Close was called; it may have failed
	closes    int  // calls of Close under way that end its blocks
	resetting bool // Reset is under way
	retired   bool
	asleep    bool // from the beginning of Sleep until Wake
	slept     bool // Sleep was called
	turns     int  // calls of Sleep and Wake under way
	held      bool // Hold was called
	loose     bool // memory was taken, or is, that is not in the books here
	resets    int  // beginnings and ends of Reset so far
	lastReset int  // resets after the last one that succeeded
	live      int64
	bytes     int64     // as requested
	allocs    int64     // ever
	asked     int64     // bytes, ever
	later     int       // blocks that FreeLater was given and that may not be free yet
	waiting   []*tenant // that may be pending
	gone      []*tenant // what a call that failed has to take back, if Close fails, too
}

// Stream is a stream that a program made.
type Stream struct {
	*cupool.Stream
	s       *stream
	state   state
	adopted bool // the program made it, and destroys it
}

// Block is a block that a program was given.
type Block struct {
	cupool.Block
	pool    *Pool
	on      *Stream // for which it was allocated
	label   string
	value   byte // what it holds; 0: nothing that can be known
	written use  // what wrote it
	used    []*Stream
	unknown []*Stream // that use it and were not recorded
	pieces  []piece
	before  work // what used it before its pool was put to sleep; nothing may use it from then on
	lost    bool // Sleep did not keep what it held
	dead    bool
	ended   bool // something else than its Free ended its life, or may have
	over    bool // it has ended so
	freed   bool // it was freed after it had ended
	resets  int  // of its pool, before it was freed
	later   bool // FreeLater was given it
	holds   int  // that have not ended

	buffer *cupool.Buffer[byte] // nil: it is none
	via    *guest               // that takes calls for it; nil: its pool
	of     *guest               // whose memory it is in; nil: its pool's
	inner  *guest               // that has it to hand it out in parts; nil: none
}

// work is what may use the memory of a block.
type work struct {
	uses     []use
	careless []use // of streams that were not recorded
}

// tenant is freed memory with the work that may not be done.
type tenant struct {
	b     *Block
	owner *Stream
	heir  *Stream // where the owner was being closed: the default stream, whose the block may be already
	work
}

func newModel(d *Device, exact bool) *Model {
	m := &Model{d: d, exact: exact, unit: 512}
	d.unmaps = m.unmaps
	return m
}

// fail reports that an answer cannot be right.
func (m *Model) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failLocked(format, args...)
}

func (m *Model) failLocked(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

// failures returns what was reported, by the model and by work on the device.
func (m *Model) failures() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(m.d.Faults(), m.errs...)
}

// ownerLocked returns the stream in whose order the memory of a live block is
// reused: the default stream where the block's own was closed, in a pool.
func (m *Model) ownerLocked(b *Block) *Stream {
	if b.on.state == closed && b.of == nil {
		return m.streams[0]
	}
	return b.on
}

// workLocked returns what may use a live block by now.
func (m *Model) workLocked(b *Block) work {
	if b.pool.asleep {
		return b.before
	}
	lastOf := func(streams ...*Stream) (uses []use) {
		for _, s := range streams {
			uses = append(uses, m.d.lastOf(s.s))
		}
		return uses
	}
	return work{append(lastOf(b.on, m.ownerLocked(b)), lastOf(b.used...)...), lastOf(b.unknown...)}
}

// born takes up a block that an allocator returned.
func (m *Model) born(b *Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.pool.state != open { // another goroutine closes the pool
		b.dead, b.ended, b.resets = true, true, b.pool.resets
		b.pool.gone = append(b.pool.gone, &tenant{b: b})
		if b.of == nil {
			b.pool.allocs++
			b.pool.asked += b.Size()
		}
		return
	}
	if b.Ptr() == 0 || b.Ptr()%m.unit != 0 {
		m.failLocked("alignment: %v is not aligned to %d bytes", b, m.unit)
	}
	if !b.pool.asleep {
		m.placeLocked(b)
	}
	for _, o := range m.live {
		if o.inner != nil && o.inner == b.of {
			continue
		}
		if b.Ptr() < o.Ptr()+cupool.Ptr(o.Size()) && o.Ptr() < b.Ptr()+cupool.Ptr(b.Size()) || overlap(b.pieces, o.pieces) {
			m.failLocked("overlap: %v was handed out while %v is live", b, o)
		}
	}
	for _, t := range m.past {
		if !overlap(b.pieces, t.b.pieces) {
			continue
		}
		if t.b.holds > 0 {
			m.failLocked("early reuse: %v was handed out while %v is held", b, t.b)
		}
		uses := t.uses
		if b.on != t.owner && b.on != t.heir { // its own stream may have it sooner
			uses = slices.Concat(uses, t.careless)
		}
		for _, u := range uses {
			if !m.d.before(u, b.on.s) {
				m.failLocked("early reuse: %v was handed out for stream %d, which does not come after work %d of stream %d, which may use %v there", b, b.on.s.number, u.n, u.s.number, t.b)
			}
		}
	}
	m.live = append(m.live, b)
	if p := b.pool; b.of == nil {
		p.live++
		p.bytes += b.Size()
		p.allocs++
		p.asked += b.Size()
	}
}

// placeLocked notes the physical memory of a block.
func (m *Model) placeLocked(b *Block) {
	b.pieces = m.d.place(b.Ptr(), b.Size())
	mapped := int64(0)
	for _, x := range b.pieces {
		mapped += x.hi - x.lo
	}
	if mapped < b.Size() {
		m.failLocked("overlap: %d bytes of %v are no memory of the device", b.Size()-mapped, b)
	}
}

func overlap(a, b []piece) bool {
	return slices.ContainsFunc(a, func(x piece) bool { return slices.ContainsFunc(b, x.overlaps) })
}

// dies takes out a live block that will be freed.
func (m *Model) dies(b *Block, later bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := b.pool
	b.resets = p.resets
	if later {
		b.later = true
		p.later++
	}
	if b.dead { // with its pool, or others
		b.freed = true
		return
	}
	t := m.leaveLocked(b)
	if b.of != nil {
		return // its memory waits with its guest
	}
	p.waiting = append(p.waiting, t) // perhaps it is on memory that another stream lent
}

// leaveLocked takes a block out of those that are live.
func (m *Model) leaveLocked(b *Block) *tenant {
	t := &tenant{b: b, owner: m.ownerLocked(b), work: m.workLocked(b)}
	if b.on.state == closing && b.of == nil {
		t.heir = m.streams[0]
	}
	m.past = slices.DeleteFunc(m.past, m.done)
	m.past = append(m.past, t)
	m.live = slices.DeleteFunc(m.live, func(o *Block) bool { return o == b })
	b.dead = true
	if b.of == nil {
		b.pool.live--
		b.pool.bytes -= b.Size()
	}
	return t
}

func (m *Model) done(t *tenant) bool {
	under := func(u use) bool { return !m.d.over(u) }
	return t.b.holds == 0 && !slices.ContainsFunc(t.uses, under) && !slices.ContainsFunc(t.careless, under)
}

// unmaps is told of addresses that are about to lose their memory: nothing may
// use them any more, unless the device waits for all work.
func (m *Model) unmaps(p cupool.Ptr, n int64, waits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	inside := func(b *Block) bool { return b.Ptr() < p+cupool.Ptr(n) && p < b.Ptr()+cupool.Ptr(b.Size()) }
	for _, t := range m.past {
		if inside(t.b) && t.b.holds > 0 {
			m.failLocked("early reuse: the memory of %v, which is held, is given back to the device", t.b)
		}
		if inside(t.b) && !waits && !m.done(t) {
			m.failLocked("early reuse: the memory of %v is given back to the device while work of streams may use it", t.b)
		}
	}
	for _, b := range m.live {
		if !inside(b) {
			continue
		}
		if !b.pool.asleep {
			m.failLocked("overlap: the memory of %v, which is live, is given back to the device", b)
		}
		for _, u := range m.workLocked(b).uses {
			if !waits && !m.d.over(u) {
				m.failLocked("early reuse: the memory of %v is given back to the device while work of stream %d may use it", b, u.s.number)
			}
		}
	}
}

// ends takes out the blocks that f chooses of a pool, live ones and those that a Close
// would give back that fails, since a call is about to end them, and returns them.
// Nothing more uses them.
func (m *Model) ends(p *Pool, f func(*Block) bool) (list []*tenant) {
	p.using.Lock() // no work that uses its blocks comes any more
	defer p.using.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range slices.Clone(m.live) {
		if b.pool == p && f(b) {
			b.ended, b.resets = true, p.resets
			list = append(list, m.leaveLocked(b))
		}
	}
	p.gone = slices.DeleteFunc(p.gone, func(t *tenant) bool {
		if f(t.b) {
			list = append(list, t)
			return true
		}
		return false
	})
	return list
}

// over says that a call has ended blocks.
func (m *Model) over(what string, list []*tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range list {
		if t.b.over = true; t.b.holds > 0 {
			m.failLocked("errors: %s has succeeded while %v was held", what, t.b)
		}
	}
}

// revive takes back what ends said of a pool, since the call has failed.
func (m *Model) revive(p *Pool, list []*tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.state == closed { // by another goroutine: it has ended them
		return
	}
	if p.state == closing || p.resetting { // another goroutine's Close or Reset may end them
		p.gone = append(p.gone, list...)
		return
	}
	for _, t := range list {
		b := t.b
		if b.resets < p.lastReset { // Reset has ended it meanwhile
			continue
		}
		b.ended = false
		if b.freed {
			p.waiting = append(p.waiting, t)
			continue
		}
		m.past = slices.DeleteFunc(m.past, func(o *tenant) bool { return o == t })
		m.live = append(m.live, b)
		b.dead = false
		b.lost = b.lost || !m.exact && p.slept // perhaps while this was not known to live
		if b.pieces == nil && !p.asleep {
			m.placeLocked(b)
		}
		if b.of == nil {
			p.live++
			p.bytes += b.Size()
		}
	}
}

// heldLocked returns what is held in pools.
func (m *Model) heldLocked(pools ...*Pool) (list []*hold) {
	for _, h := range m.held {
		if slices.Contains(pools, h.b.pool) {
			list = append(list, h)
		}
	}
	return list
}

// whileHeld returns what a call that Hold forbids may fail with, and has to where
// something was held from its beginning to its end.
func (m *Model) whileHeld(before []*hold, pools ...*Pool) *reasons {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reasons{}
	now := m.heldLocked(pools...)
	for _, h := range before {
		r.add(slices.Contains(now, h), cupool.ErrNotSupported)
	}
	if !m.exact && slices.ContainsFunc(pools, func(p *Pool) bool { return p.held }) {
		r.add(false, cupool.ErrNotSupported)
	}
	return r
}

// closedPool says that Close of a pool has returned.
func (m *Model) closedPool(p *Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.state, p.waiting, p.gone = closed, nil, nil
}

// reasons are the errors that a call may end with; with must, it has to end
// with one of them. They are asked for after the call: where several goroutines
// make calls, the ends of objects are noted before they are called for, and then
// are reasons that need not show.
type reasons struct {
	errs []error
	must bool
}

func (r *reasons) add(must bool, errs ...error) {
	r.errs = append(r.errs, errs...)
	r.must = r.must || must
}

// and adds other reasons.
func (r *reasons) and(o *reasons) *reasons {
	r.add(o.must, o.errs...)
	return r
}

// ended adds the reason of an object that Close was called for.
func (m *Model) ended(r *reasons, s state, errs ...error) {
	if s != open {
		r.add(m.exact, errs...)
	}
}

// allow returns what a call on an allocator may fail with because of the
// allocator's state.
func (m *Model) allow(p *Pool) *reasons {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reasons{}
	m.ended(r, p.state, cupool.ErrClosed)
	if p.tried && !m.exact {
		r.add(false, cupool.ErrClosed)
	}
	m.rootEnded(r)
	return r
}

// rootEnded adds the reason of a root that Close was called for.
func (m *Model) rootEnded(r *reasons) {
	m.ended(r, m.pools[0].state, cupool.ErrClosed)
	if m.pools[0].tried && !m.exact {
		r.add(false, cupool.ErrClosed)
	}
}

// onStream adds what work of a stream may fail with.
func (r *reasons) onStream(m *Model, s *Stream) *reasons {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended(r, s.state, cupool.ErrClosed)
	m.rootEnded(r)
	return r
}

// onStream returns what work of a stream may fail with.
func (m *Model) onStream(s *Stream) *reasons { return (&reasons{}).onStream(m, s) }

// judge compares the error of a call with the reasons that there are.
func (m *Model) judge(what string, err error, r *reasons) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeLocked(what, err, r)
}

func (m *Model) judgeLocked(what string, err error, r *reasons) {
	switch {
	case err == nil && r.must:
		m.failLocked("errors: %s succeeded, want %v", what, r.errs)
	case err != nil && !slices.ContainsFunc(r.errs, func(e error) bool { return errors.Is(err, e) }):
		m.failLocked("errors: %s: %v, want %v", what, err, append([]error{nil}[:min(1, btoi(!r.must))], r.errs...))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
