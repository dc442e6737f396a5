package cupool

import (
	"errors"
	"fmt"
	"sync"
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
// An order that the program makes itself proves the same without an event
// query: after s.Wait(e), everything that e's epoch covers is over for s
// (vector clocks; Lamport 1978, Mattern 1988).

// maxInFlight bounds the events of one stream that are recorded ahead. More
// of them free memory sooner, fewer cost less.
const maxInFlight = 4

// crossedRest is how many blocks a stream gives no home after one had to
// wait for another stream: a home is of no use to blocks that always do.
const crossedRest = 64

// An event is recorded at once for a block of eagerBytes or more, and else
// when batchBlocks were freed since the last one. Fewer wait until somebody
// misses them: the event is then later than it might be, by what the stream
// was given meanwhile, and thousands of small frees cost few driver calls.
const (
	eagerBytes  = 2 << 20
	batchBlocks = 16
)

// waiter is a block that waits for an epoch of a stream; id 0: no more.
type waiter struct {
	id    block.ID
	epoch uint64
}

// mark is a recorded event and the epoch that it closed.
type mark struct {
	event EventHandle
	epoch uint64
}

// waitList holds the blocks that wait for one stream, by epoch.
type waitList struct {
	mu       sync.Mutex
	tick     uint64 // the open epoch
	done     uint64 // every epoch up to this one is over
	fifo     []waiter
	head     int    // of fifo
	inFlight []mark // oldest first
	closed   bool

	open int // blocks stamped since an event was last recorded
}

// eventPool recycles the device's events.
type eventPool struct {
	driver Driver
	mu     sync.Mutex
	free   []EventHandle
	made   []EventHandle
}

func (p *eventPool) get() (EventHandle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e, nil
	}
	e, err := p.driver.NewEvent()
	if err == nil {
		p.made = append(p.made, e)
	}
	return e, err
}

func (p *eventPool) put(e EventHandle) {
	p.mu.Lock()
	p.free = append(p.free, e)
	p.mu.Unlock()
}

func (p *eventPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, e := range p.made {
		errs = append(errs, p.driver.DestroyEvent(e))
	}
	p.made, p.free = nil, nil
	return errors.Join(errs...)
}

// pendLocked makes a freed block wait for the streams recorded on it, those
// that are not closed, and so done.
func (s *Stream) pendLocked(id block.ID, b *block.Block) {
	c, set := s.c, &s.uses[b.Uses-1]
	w := b.Word()
	b.SetWord(block.MakeWord(w.Gen(), block.Pending))
	k := c.kindOfSize(b.Size)
	s.notePending(k, b.Size, b.Requested())
	c.waiting.Add(1)
	s.crossed = crossedRest
	for _, u := range set.streams {
		if u.addWaiter(id, b.Size) {
			set.waiting++
		}
	}
	if set.waiting == 0 {
		s.doneLocked(id, b)
	}
}

// doneLocked returns a Pending block that waits for nothing to its pool.
func (s *Stream) doneLocked(id block.ID, b *block.Block) {
	s.dropUsesLocked(b)
	s.c.waiting.Add(-1)
	s.releaseLocked(id, b)
}

// finishUses notes that one stream is done with Pending blocks and returns
// how many that made free. Blocks of one owner in a row share its lock.
func (c *Caching) finishUses(done []waiter) (freed int) {
	for len(done) > 0 {
		s := c.stream(c.blocks.At(done[0].id).Owner())
		s.mu.Lock()
		n := 0
		for n < len(done) && c.blocks.At(done[n].id).Owner() == s.index {
			if s.finishUseLocked(done[n].id) {
				freed++
			}
			n++ // stays 0 when the owner was closed before it was locked
		}
		s.checkLocked()
		s.mu.Unlock()
		done = done[n:]
	}
	return freed
}

// finishUseLocked notes that one stream is done with a Pending block and
// reports whether that made it free.
func (s *Stream) finishUseLocked(id block.ID) bool {
	b := s.c.blocks.At(id)
	if b.Word().State() != block.Pending {
		return false // the allocator was closed meanwhile
	}
	set := &s.uses[b.Uses-1]
	if set.waiting--; set.waiting > 0 {
		return false
	}
	s.doneLocked(id, b)
	return true
}

// addWaiter makes a block wait for the open epoch. It reports false when the
// stream is closed and so has nothing left to wait for. A failing event
// leaves the block waiting, which is safe, until a later one succeeds.
func (u *Stream) addWaiter(id block.ID, size int64) bool {
	l := &u.waits
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.fifo = append(l.fifo, waiter{id: id, epoch: l.tick})
	l.open++
	if (size >= eagerBytes || l.open >= batchBlocks) && len(l.inFlight) < maxInFlight {
		_ = u.recordLocked()
	}
	return true
}

// recordLocked closes the open epoch with an event; waits.mu is held.
func (u *Stream) recordLocked() error {
	c, l := u.c, &u.waits
	e, err := c.events.get()
	if err == nil {
		if err = c.driver.RecordEvent(e, u.handle); err != nil {
			c.events.put(e)
		}
	}
	if err != nil {
		c.books.eventFailures.Add(1)
		c.cfg.Logger.Warn("recording an event failed; freed blocks wait on", "stream", uintptr(u.handle), "error", err)
		return c.driverError(fmt.Errorf("cupool: recording an event on stream 0x%x: %w", uintptr(u.handle), err))
	}
	c.books.eventsRecorded.Add(1)
	l.inFlight = append(l.inFlight, mark{event: e, epoch: l.tick})
	l.tick++
	l.open = 0
	return nil
}

// uncovered reports whether a block waits for an epoch that no event in
// flight covers; mu is held.
func (l *waitList) uncovered() bool {
	n, covered := len(l.fifo), l.done
	if k := len(l.inFlight); k > 0 {
		covered = max(covered, l.inFlight[k-1].epoch)
	}
	return n > l.head && l.fifo[n-1].epoch > covered
}

// closeEpoch ends the open epoch without an event and returns it.
func (l *waitList) closeEpoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	return l.tick - 1
}

// completed notes that everything up to an epoch is over.
func (l *waitList) completed(epoch uint64) {
	l.mu.Lock()
	l.done = max(l.done, epoch)
	l.mu.Unlock()
}

// collectBatch is how many blocks collect takes from a list at once, so that
// it needs no memory of its own.
const collectBatch = 64

// collect frees the blocks whose wait for u is over, asking the device about
// events in flight. With force the open epoch is closed first, however many
// those are, so that everything that is over comes free. It returns the
// number of blocks that did.
func (c *Caching) collect(u *Stream, force bool) (freed int, err error) {
	var batch [collectBatch]waiter
	for {
		n, e := u.nextDone(batch[:], force)
		freed += c.finishUses(batch[:n])
		if err = errors.Join(err, e); n < len(batch) {
			return freed, err
		}
	}
}

// nextDone takes waiters whose epoch is over from the list.
func (u *Stream) nextDone(out []waiter, force bool) (n int, err error) {
	l := &u.waits
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == len(l.fifo) {
		return 0, nil
	}
	if l.uncovered() && (force || len(l.inFlight) == 0) {
		err = u.recordLocked()
	}
	err = errors.Join(err, u.queryLocked())
	for l.head < len(l.fifo) && n < len(out) && l.fifo[l.head].epoch <= l.done {
		if w := l.fifo[l.head]; w.id != 0 {
			out[n] = w
			n++
		}
		l.head++
	}
	l.compact()
	if l.uncovered() && len(l.inFlight) < maxInFlight {
		err = errors.Join(err, u.recordLocked())
	}
	return n, err
}

// queryLocked asks about the events in flight, oldest first, up to the first
// that is not done.
func (u *Stream) queryLocked() error {
	c, l := u.c, &u.waits
	for len(l.inFlight) > 0 {
		m := l.inFlight[0]
		if m.epoch > l.done {
			c.books.eventQueries.Add(1)
			done, err := c.driver.QueryEvent(m.event)
			if err != nil {
				c.books.eventFailures.Add(1)
				return c.driverError(fmt.Errorf("cupool: querying an event of stream 0x%x: %w", uintptr(u.handle), err))
			}
			if !done {
				return nil
			}
			l.done = m.epoch
		}
		c.events.put(m.event)
		l.inFlight = append(l.inFlight[:0], l.inFlight[1:]...)
	}
	return nil
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

// take removes the waiters of one owner up to an epoch, wherever they are.
func (l *waitList) take(c *Caching, owner uint32, upTo uint64) (taken []waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.head; i < len(l.fifo) && l.fifo[i].epoch <= upTo; i++ {
		if w := l.fifo[i]; w.id != 0 && c.blocks.At(w.id).Owner() == owner {
			taken = append(taken, w)
			l.fifo[i].id = 0
		}
	}
	return taken
}

// close ends the list of a stream whose work is done and returns the rest.
func (l *waitList) close() (rest []waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, w := range l.fifo[l.head:] {
		if w.id != 0 {
			rest = append(rest, w)
		}
	}
	l.fifo, l.head = nil, 0
	return rest
}

// waitEpoch waits on the host until an epoch of u is over.
func (c *Caching) waitEpoch(u *Stream, epoch uint64) error {
	l := &u.waits
	l.mu.Lock()
	if l.done >= epoch || l.closed {
		l.mu.Unlock()
		return nil
	}
	var m mark
	for _, m = range l.inFlight {
		if m.epoch >= epoch {
			break
		}
	}
	if m.epoch < epoch {
		if err := u.recordLocked(); err != nil {
			l.mu.Unlock()
			return err
		}
		m = l.inFlight[len(l.inFlight)-1]
	}
	l.mu.Unlock()
	// The event may be recycled meanwhile; then it was done.
	if err := c.driver.SyncEvent(m.event); err != nil {
		return c.driverError(fmt.Errorf("cupool: waiting for an event of stream 0x%x: %w", uintptr(u.handle), err))
	}
	l.completed(m.epoch)
	return nil
}

// pendingEpoch returns the newest epoch that a block waits for on u, or 0.
func (u *Stream) pendingEpoch() uint64 {
	l := &u.waits
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.fifo); n > l.head {
		return l.fifo[n-1].epoch
	}
	return 0
}

// ProcessDeferred frees the blocks whose wait for other streams is over and
// returns their number. The allocator does so by itself before it asks the
// device for memory. An error of the device leaves the blocks concerned
// waiting.
func (c *Caching) ProcessDeferred() (freed int, err error) {
	c.drainLater()
	if c.waiting.Load() == 0 {
		return 0, nil
	}
	for _, u := range c.openStreams() {
		n, e := c.collect(u, true)
		freed += n
		err = errors.Join(err, e)
	}
	return freed, err
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
// in the meantime is passed over.
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
