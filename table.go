package cupool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/lock"
)

// heapTable finds the heaps of a pool. Readers take no lock.
type heapTable struct {
	*pool

	mu       lock.Mutex             // taken to change what follows
	byIndex  published[*streamHeap] // as blocks name them; nil where one was closed
	byStream published[*streamHeap] // by the slots of streams
}

// make returns what the pool holds for a stream, made when there is none. It
// fails with ErrClosed when the stream or the pool is closed.
func (t *heapTable) make(s *Stream) (*streamHeap, error) {
	if h := t.of(s); h != nil {
		return h, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.of(s); h != nil { // another goroutine was faster
		return h, nil
	}
	switch {
	case t.closed.Load():
		return nil, t.closedError()
	case !s.calls.IsOpen(): // from here on Stream.Close would not see the heap
		return nil, s.closedError()
	}
	return t.addLocked(s), nil
}

// of returns what the pool holds for a stream, or nil.
func (t *heapTable) of(s *Stream) *streamHeap {
	if h := t.byStream.At(int(s.slot)); h != nil && h.stream == s {
		return h
	}
	return nil
}

// at returns the heap that blocks name by an index, or nil.
func (t *heapTable) at(index uint32) *streamHeap { return t.byIndex.At(int(index)) }

// addLocked makes a heap for a stream.
func (t *heapTable) addLocked(s *Stream) *streamHeap {
	i := slices.Index(t.byIndex.All(), nil)
	if i < 0 {
		i = len(t.byIndex.All())
	}
	h := t.newHeap(s, i)
	t.byIndex.Set(i, h)
	t.byStream.Set(int(s.slot), h)
	return h
}

// newHeap returns a heap for a stream that blocks will name by an index.
func (t *heapTable) newHeap(s *Stream, index int) *streamHeap {
	h := &streamHeap{c: t.pool, stream: s, lent: map[block.ID]*Stream{}, marks: t.space.Policy.TrackFrees}
	h.putOne = h.putFree
	if t.sanitizer != nil {
		h.putOne = h.put
		h.quarantine = t.sanitizer.NewQueue(s.clock, s.handle)
	}
	h.mu.Init(lock.Heap, uint64(t.id)<<32|uint64(index))
	h.Init(&t.space, uint32(index), &h.mu)
	h.pending.Table, h.pending.Clock = &t.space.Blocks, t.dev.clock
	return h
}

// dropLocked takes out a heap that is empty; its lock is held, too.
func (t *heapTable) dropLocked(h *streamHeap) {
	t.byIndex.Set(int(h.Index()), nil)
	h.dropped = true
	h.Close()
}

// all returns the pool's heaps, those of closed streams too.
func (t *heapTable) all() []*streamHeap {
	return t.byIndex.Without(func(h *streamHeap) bool { return h == nil })
}

// open returns the heaps of the streams that are open.
func (t *heapTable) open() []*streamHeap {
	return slices.DeleteFunc(t.all(), func(h *streamHeap) bool { return t.of(h.stream) != h })
}

// each calls f for all heaps, one after the other with its lock held.
func (t *heapTable) each(f func(*streamHeap)) {
	for _, h := range t.byIndex.All() {
		if h != nil {
			h.locked(f)
		}
	}
}

// lockAll takes the locks of all heaps, in order, and keeps new ones out.
func (t *heapTable) lockAll() (heaps []*streamHeap, unlock func()) {
	t.mu.Lock()
	heaps = t.all()
	for _, h := range heaps {
		h.mu.Lock()
	}
	return heaps, func() {
		for _, h := range heaps {
			h.mu.Unlock()
		}
		t.mu.Unlock()
	}
}

// lockOwner finds the heap of a handle's block and locks it, after which the
// block's state stays, but for the magazines. The handle must be of this pool
// and its block live; else gone is the reason given.
func (t *heapTable) lockOwner(op string, b Block, gone error) (*streamHeap, *block.Block, error) {
	if h, x := t.lockLive(b); h != nil {
		return h, x, nil
	}
	return nil, nil, t.notLive(op, b, gone)
}

// lockLive is lockOwner that returns nil in place of an error.
func (t *heapTable) lockLive(b Block) (*streamHeap, *block.Block) {
	if b.pool() != t.id {
		return nil, nil
	}
	h, x := t.lockBlock(b.id())
	if h == nil {
		return nil, nil
	}
	if w := x.Word(); w.Gen() != b.gen || w.State() != block.Live || t.closed.Load() {
		h.mu.Unlock()
		return nil, nil
	}
	return h, x
}

// lockBlock finds a block that went out once and locks its heap, which is nil where it has
// none. A block that is live or pending has one.
func (t *heapTable) lockBlock(id block.ID) (*streamHeap, *block.Block) {
	x := t.space.Blocks.At(id)
	for {
		owner := x.Owner()
		h := t.at(owner)
		switch {
		case h == nil && x.Owner() != owner: // the block moved before its heap was closed
			continue
		case h == nil:
			return nil, x
		}
		h.mu.Lock()
		if h.owns(x) {
			return h, x
		}
		h.mu.Unlock() // another heap has the slot
	}
}

// lockSegment finds the segment that holds an address and locks its heap.
func (t *heapTable) lockSegment(p Ptr) (*streamHeap, *block.Segment) {
	for {
		e, ok := t.space.Index.Find(uint64(p))
		if !ok {
			return nil, nil
		}
		h := t.at(e.Owner)
		if h == nil {
			continue // the segment has another heap by now, or is gone
		}
		h.mu.Lock()
		if now, ok := t.space.Index.Find(uint64(p)); ok && now.Seg == e.Seg && now.Owner == e.Owner && h.Has(e.Seg) {
			return h, e.Seg
		}
		h.mu.Unlock()
	}
}

// lockStitched locks the heap that has an address in an idle stitched range, or returns nil.
func (t *heapTable) lockStitched(p Ptr) *streamHeap {
	for _, h := range t.all() {
		h.mu.Lock()
		if h.HasIdleAt(uint64(p)) {
			return h
		}
		h.mu.Unlock()
	}
	return nil
}

// blockAt returns the live block that begins at an address, for a free of size bytes.
func (t *heapTable) blockAt(p Ptr, size int64) (Block, error) {
	if p == 0 && size <= 0 {
		return Block{}, nil
	}
	b, err := t.lookup("free", p, size, true)
	if err == nil && size >= 0 && size != b.size {
		err = &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("%d bytes were allocated there", b.size)}
	}
	return b, err
}

// mapAddresses has the heaps keep maps of their blocks by address from now on. The first call
// enters the blocks that there are, in portions.
func (t *heapTable) mapAddresses() {
	if t.space.MapAddresses() {
		w := t.tour(everyBlock)
		w.visit = func(h *streamHeap, id block.ID, b *block.Block) { h.NoteAddress(id, b) }
		w.each(func(*piece) {})
	}
}

// freeAt frees the homed block that begins at an address and is of a size,
// if that is not negative, without a lock. It reports whether there is one.
func (t *heapTable) freeAt(p Ptr, size int64) bool {
	likely := t.space.Policy.KindOf(size)
	return t.freeIn(likely, p, size) || t.freeIn(large-likely, p, size)
}

func (t *heapTable) freeIn(k ledger.Kind, p Ptr, size int64) bool {
	id := t.space.At(k, uint64(p))
	return id != 0 && t.freeHomed(id, p, size)
}

// freeHomed is freeAt of the block of a number.
func (t *heapTable) freeHomed(id block.ID, p Ptr, size int64) bool {
	b := t.space.Blocks.At(id)
	addr, requested, gen, ok := b.Homed()
	return ok && addr == uint64(p) && (size < 0 || size == requested) && b.FreeHomed(gen)
}

// liveAt returns the block of a number if it is live and around an address. It takes a
// lock where the block has no place in the magazines.
func (t *heapTable) liveAt(p Ptr, id block.ID) (Block, bool) {
	if id == 0 || t.closed.Load() {
		return Block{}, false
	}
	addr, size, gen, ok := t.space.Blocks.At(id).Homed()
	if !ok {
		h, b := t.lockBlock(id)
		if h == nil {
			return Block{}, false
		}
		addr, size, gen, ok = b.Addr(), b.Requested(), b.Word().Gen(), b.Word().State() == block.Live
		h.mu.Unlock()
	}
	return newBlock(Ptr(addr), size, gen, id, t.id), ok && p-Ptr(addr) < Ptr(size)
}

// lookup finds the live block at an address or, unless exact, around it.
func (t *heapTable) lookup(op string, p Ptr, size int64, exact bool) (Block, error) {
	fail := func(of *Stream, reason error, detail string) (Block, error) {
		e := &BlockError{Op: op, Ptr: p, Size: size, Err: reason, Detail: detail}
		if of != nil {
			e.Stream = of.handle
		}
		return Block{}, e
	}
	t.mapAddresses()
	h, seg := t.lockSegment(p)
	if h != nil {
		defer h.mu.Unlock()
	}
	switch { // Close, which may run beside this, ends blocks after it has set closed
	case t.closed.Load():
		return fail(nil, ErrClosed, "the allocator is closed")
	case h == nil:
		return fail(nil, ErrForeignPointer, "no segment of this allocator holds the address")
	}
	id, b := h.blockAt(seg, p)
	if b == nil || b.Word().State() == block.Gap {
		return fail(h.stream, ErrForeignPointer, "it is an address that this allocator has reserved, but without memory")
	}
	w := b.Word()
	switch {
	case w.State() == block.Live && exact && b.Addr() != uint64(p):
		return fail(h.streamOfLocked(id), ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", uint64(p)-b.Addr(), Ptr(b.Addr()), b.Requested()))
	case w.State() == block.Live:
		return newBlock(Ptr(b.Addr()), b.Requested(), w.Gen(), id, t.id), nil
	case exact && b.Addr() == uint64(p):
		return fail(h.stream, ErrDoubleFree, "no block is live there")
	case exact:
		return fail(h.stream, ErrForeignPointer, fmt.Sprintf("it is inside memory of this allocator that is not live (%s at %v)", b, Ptr(b.Addr())))
	default:
		return fail(h.stream, ErrUseAfterFree, "no block is live there")
	}
}

// notLive says why a handle's block is not live, which it will not be again.
func (t *heapTable) notLive(op string, b Block, gone error) error {
	if b.pool() != t.id || !t.space.Blocks.Known(b.id()) {
		return t.blockError(op, b, nil, ErrForeignPointer)
	}
	if t.closed.Load() {
		return t.blockError(op, b, nil, ErrClosed)
	}
	h, x := t.lockBlock(b.id())
	if h == nil {
		return t.blockError(op, b, nil, gone)
	}
	defer h.mu.Unlock()
	if x.Word().Gen() != b.gen && gone == ErrDoubleFree {
		gone = ErrStaleBlock
	}
	return t.blockError(op, b, h.stream, gone)
}

// flush returns what is free in the magazines and fast bins of all heaps to
// their free sets and reports whether there was anything.
func (t *heapTable) flush() (found bool) {
	t.each(func(h *streamHeap) {
		found = h.Flush() || found
		h.checkLocked()
	})
	return found
}

// free frees a block of the pool that is live, homed or not.
func (t *heapTable) free(b Block) error {
	h, x, err := t.lockOwner("free", b, ErrDoubleFree)
	if err != nil {
		return err
	}
	err = h.freeAndUnlock(b, x)
	if err == nil && t.sanitizer != nil {
		err = t.damage(b)
	}
	return err
}

// collect is collectLocked for all heaps of a pool.
func (t *heapTable) collect() (freed int) {
	t.each(func(h *streamHeap) { freed += h.collectLocked() })
	return freed
}

// settle is settle for all heaps of the pool.
func (t *heapTable) settle(how epoch.Insist) (freed int, err error) {
	for _, h := range t.byIndex.All() {
		if h != nil {
			n, e := h.settle(how)
			freed += n
			err = errors.Join(err, e)
		}
	}
	return freed, err
}

// settleEverything frees what waited for events that are done, of all streams,
// and what FreeLater queued.
func (t *heapTable) settleEverything() error {
	t.dev.drainLater()
	_, err := t.settle(epoch.Ask)
	return onlyLost(err)
}

// drainQuarantines makes all blocks in quarantine free that are done.
func (t *heapTable) drainQuarantines() (freed int) {
	if t.sanitizer == nil {
		return 0
	}
	t.each(func(h *streamHeap) {
		freed += h.drainLocked(0)
		h.checkLocked()
	})
	return freed
}

// inUse reports whether a block of any heap is out or pending.
func (t *heapTable) inUse() bool {
	heaps, unlock := t.lockAll()
	defer unlock()
	return slices.ContainsFunc(heaps, func(h *streamHeap) bool { return h.InUse() })
}

// kept returns how much was reserved on purpose.
func (t *heapTable) kept() (n int64) {
	t.each(func(h *streamHeap) { n += h.Kept() })
	return n
}

// usage returns the bytes of live blocks and of all cached memory, heap by heap,
// without a look at each block.
func (t *heapTable) usage() (live, cached int64) {
	past := t.space.Book.Past()
	live, pending := past[all][ledger.OutBytes].Now(), past[all][ledger.PendingBytes].Now()
	t.each(func(h *streamHeap) {
		l, p, held := h.Usage()
		live, pending, cached = live+l, pending+p, cached+held
	})
	return live, cached - live - pending
}

// sum returns the totals of all ledgers; the heaps are all of the pool's and
// locked.
func (t *heapTable) sum(heaps []*streamHeap) ledger.Totals { return t.space.Book.Sum(ledgers(heaps)) }

// unhold ends a Hold. The block has a heap: it is live or pending.
func (t *heapTable) unhold(b Block) {
	h, x := t.lockBlock(b.id())
	defer h.mu.Unlock()
	t.held.Add(-1)
	x.SetGivenBack(h.stream.clock.Now()) // the stream may only have been told to wait for the holder
	h.pending.Unhold(b.id(), x, h.putOne)
	h.checkLocked()
}

// lend serves a request of another pool from this pool's free blocks.
func (t *heapTable) lend(r *request) (Block, bool) {
	h := t.of(r.h.stream)
	if h == nil {
		return Block{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil {
		return Block{}, false
	}
	id, b := h.Take(r.size, r.rounded, 0) // it finds no home here
	if id == 0 {
		h.collectLocked()
		h.Flush()
		if id, b = h.Take(r.size, r.rounded, 0); id == 0 {
			return Block{}, false
		}
	}
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil
}
