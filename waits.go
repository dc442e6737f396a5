package cupool

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
)

// Frees that wait for other streams.
//
// A stream's life is cut into epochs: recording an event closes the open
// one. A block that is freed while a stream may still use it is stamped
// with that stream's open epoch and waits until an event of that epoch or a
// later one is done. So one event serves every block that was freed since
// the last, and a block that is freed while enough events are in flight
// costs no driver call at all; the event that covers it is recorded when an
// earlier one completes, or when somebody needs the memory.
//
// The stamp needs no lock of the stream that is waited for: an epoch is
// closed before its event is recorded, so whoever still reads its number has
// submitted his work before the event. The blocks wait in a list of their
// own stream, under its lock, until that stream looks how far the other is.
//
// An order that the program makes itself proves the same without an event
// query: after s.Wait(e), everything that e's epoch covers is over for s
// (vector clocks; Lamport 1978, Mattern 1988).

// crossedRest is how many blocks a stream gives no home after one had to
// wait for another stream: a home is of no use to blocks that always do.
const crossedRest = 64

// An event is recorded at once for a block of eagerBytes or more, and else
// when batchBlocks of one stream were freed since the last one. Fewer wait
// until somebody misses them: the event is then later than it might be, by
// what the stream was given meanwhile, and thousands of small frees cost few
// driver calls.
const (
	eagerBytes  = 2 << 20
	batchBlocks = 32
)

// A miss asks for an event where blocks wait without one, unless little
// memory does: then growing by some blocks, once, makes every event serve
// many of them from there on. Little is whatever waits in a reserve of less
// than patientBytes, and this part of a larger one.
const (
	patientBytes = 64 << 20
	patientPart  = 512
)

// waiter is a block that waits for an epoch of a stream.
type waiter struct {
	id    block.ID
	epoch uint64
}

// waitList holds the blocks of one stream that wait for another, by epoch.
// Guarded by the lock of the blocks' stream.
type waitList struct {
	user *Stream
	fifo []waiter
	head int // of fifo
	open int // how many have the epoch of the last one
}

// pendLocked makes a freed block wait for the streams recorded on it, those
// that are not closed, and so done.
func (s *Stream) pendLocked(id block.ID, b *block.Block) {
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Pending))
	s.notePending(s.c.kindOfSize(b.Size), b.Size, b.Requested())
	s.waiting += b.Size
	s.crossed = crossedRest
	waits := 0
	if set := s.setLocked(b); set == nil {
		waits = s.awaitLocked(s.base.c.stream(b.Uses()-1), id, b.Size)
	} else {
		for _, u := range set.streams {
			set.waiting += s.awaitLocked(u, id, b.Size)
		}
		waits = set.waiting
	}
	if waits == 0 {
		s.doneLocked(id, b)
	}
}

// doneLocked returns a Pending block that waits for nothing to its pool.
func (s *Stream) doneLocked(id block.ID, b *block.Block) {
	s.dropUsesLocked(b)
	s.waiting -= b.Size
	s.releaseLocked(id, b)
}

// awaitLocked makes a block wait for the open epoch of u, and returns how many
// waits that makes: none when u is closed. A failing event leaves the block
// waiting, which is safe, until a later one succeeds.
func (s *Stream) awaitLocked(u *Stream, id block.ID, size int64) int {
	if u.clock.ended.Load() {
		return 0 // no later than this its lists are emptied, under this lock
	}
	epoch := u.clock.stamp()
	l := s.waitListLocked(u)
	if n := len(l.fifo); n == l.head || l.fifo[n-1].epoch != epoch {
		l.open = 0
	}
	l.fifo = append(l.fifo, waiter{id, epoch})
	if l.open++; size >= eagerBytes || l.open >= batchBlocks {
		u.recordAhead()
	}
	return 1
}

// findWaitsLocked returns the list of blocks that wait for u, or nil.
func (s *Stream) findWaitsLocked(u *Stream) *waitList {
	for i := range s.waits {
		if s.waits[i].user == u {
			return &s.waits[i]
		}
	}
	return nil
}

// waitListLocked is findWaitsLocked, and makes the list when there is none.
func (s *Stream) waitListLocked(u *Stream) *waitList {
	if l := s.findWaitsLocked(u); l != nil {
		return l
	}
	s.waits = append(s.waits, waitList{user: u})
	return &s.waits[len(s.waits)-1]
}

// eachWaiterLocked calls f for all that waits, and what it waits for.
func (s *Stream) eachWaiterLocked(f func(u *Stream, w waiter)) {
	for i := range s.waits {
		l := &s.waits[i]
		for _, w := range l.fifo[l.head:] {
			f(l.user, w)
		}
	}
}

// finishUseLocked notes that one stream is done with a Pending block and
// reports whether that made it free.
func (s *Stream) finishUseLocked(id block.ID) bool {
	b := s.c.blocks.At(id)
	if set := s.setLocked(b); set != nil {
		if set.waiting--; set.waiting > 0 {
			return false
		}
	}
	s.doneLocked(id, b)
	return true
}

// popLocked finishes the uses of a list up to an epoch and returns how many
// blocks came free.
func (s *Stream) popLocked(l *waitList, upTo uint64) (freed int) {
	for l.head < len(l.fifo) && l.fifo[l.head].epoch <= upTo {
		l.head++
		if s.finishUseLocked(l.fifo[l.head-1].id) {
			freed++
		}
	}
	l.compact()
	return freed
}

// compact drops what was taken from the front of the list.
func (l *waitList) compact() {
	if l.head == len(l.fifo) {
		l.fifo, l.head = l.fifo[:0], 0
	} else if l.head > len(l.fifo)/2 {
		l.fifo = append(l.fifo[:0], l.fifo[l.head:]...)
		l.head = 0
	}
}

// collectLocked frees the blocks whose waits are known to be over and
// returns their number.
func (s *Stream) collectLocked() (freed int) {
	for i := range s.waits {
		l := &s.waits[i]
		freed += s.popLocked(l, l.user.clock.done.Load())
	}
	return freed
}

// collectAll is collectLocked for all streams of the family.
func (c *Caching) collectAll() (freed int) {
	for _, m := range c.family.list() {
		for _, s := range *m.streams.Load() {
			s.mu.Lock()
			freed += s.collectLocked()
			s.checkLocked()
			s.mu.Unlock()
		}
	}
	return freed
}

// settle asks how far the streams are that the blocks of s wait for, frees
// those whose wait is over, and returns their number.
func (s *Stream) settle(how insist) (freed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.waits {
		if l := &s.waits[i]; l.head < len(l.fifo) {
			err = errors.Join(err, l.user.advance(how))
		}
	}
	freed = s.collectLocked()
	s.checkLocked()
	return freed, err
}

// settleAll is settle for all streams.
func (c *Caching) settleAll(how insist) (freed int, err error) {
	for _, s := range *c.streams.Load() {
		n, e := s.settle(how)
		freed += n
		err = errors.Join(err, e)
	}
	return freed, err
}

// patient reports whether so little of the stream's memory waits that a miss
// should rather grow than ask for an event.
func (s *Stream) patient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	reserved := s.c.reserved.Load()
	return reserved < patientBytes || s.waiting < reserved/patientPart
}

// endWaits frees what waits for a stream that is closed and whose work is
// done, and forgets its lists.
func (c *Caching) endWaits(u *Stream) {
	u.clock.ended.Store(true)
	for _, m := range c.family.list() {
		for _, s := range *m.streams.Load() {
			s.mu.Lock()
			if i := slices.IndexFunc(s.waits, func(l waitList) bool { return l.user == u }); i >= 0 {
				s.popLocked(&s.waits[i], math.MaxUint64)
				s.waits = slices.Delete(s.waits, i, i+1)
			}
			s.checkLocked()
			s.mu.Unlock()
		}
	}
}

// moveWaitsLocked hands the stream's lists to another that took its blocks.
func (s *Stream) moveWaitsLocked(heir *Stream) {
	for _, l := range s.waits {
		if l.head == len(l.fifo) {
			continue
		}
		to := heir.waitListLocked(l.user)
		to.fifo = append(to.fifo, l.fifo[l.head:]...)
		slices.SortStableFunc(to.fifo[to.head:], func(a, b waiter) int { return cmp.Compare(a.epoch, b.epoch) })
	}
	heir.waiting += s.waiting
	s.waits, s.waiting = nil, 0
}

// ProcessDeferred frees the blocks whose wait for other streams is over and
// returns their number. The allocator does so by itself before it asks the
// device for memory. An error of the device leaves the blocks concerned
// waiting.
func (c *Caching) ProcessDeferred() (freed int, err error) {
	c.drainLater()
	return c.settleAll(force)
}

// laterQueue holds handles that FreeLater was given: a stack that any
// goroutine, even a cleanup of the garbage collector, pushes without a lock.
type laterQueue struct{ head atomic.Pointer[laterNode] }

type laterNode struct {
	h    Block
	next *laterNode
}

// FreeLater queues a block to be freed by one of the next calls that miss
// the cache, or by ProcessDeferred. It takes no lock and calls no driver, so
// it may be used in a runtime.AddCleanup. A block that was freed otherwise
// in the meantime is passed over. Before a request is refused Go's collector
// runs, whose cleanups may give blocks back, but for a tenth of the time at
// most where it found nothing the last 8 times.
func (c *Caching) FreeLater(h Block) {
	n := &laterNode{h: h}
	for {
		n.next = c.later.head.Load()
		if c.later.head.CompareAndSwap(n.next, n) {
			return
		}
	}
}

// drainLater frees what FreeLater queued and returns the number.
func (c *Caching) drainLater() (freed int) {
	for n := c.later.head.Swap(nil); n != nil; n = n.next {
		if c.Free(n.h) == nil {
			freed++
		}
	}
	return freed
}
