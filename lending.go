package cupool

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Idle memory: what a heap holds and does not use.
//
// A heap reuses its own memory in the order of its stream. What idle and closed streams
// cache would be lost to the others, tens of GiB in PyTorch's case. So a miss takes idle
// memory over from other heaps before it asks the device for more, and idle segments
// go back to the device before more is reserved than ever was.
//
// The work of a closed stream was waited for. Of an open stream, memory is taken that is
// free once an event has proven that the stream's work is over. With Config.GrowWait, chunks
// are taken of a stream that is at work, too, once it is past the last free of anything on
// them. Ordering the taker behind that work (StreamWaitEvent) could make streams wait for each
// other in a circle.
//
// Streams that take turns would take the same memory from each other for ever. So a miss
// takes memory of open streams, and gives segments back, only where the pool would
// otherwise reserve more than it ever did. A heap that missed after others took its memory
// lends blocks from then on, which takes no call of the driver to map memory. Others do not
// lend: a block that was lent goes back to its heap by an event, and the borrower misses it
// again.

// lending moves idle memory from heap to heap of a pool, and lends blocks.
type lending struct {
	*pool
	heaps *heapTable

	mu      lock.Mutex             // held while memory moves between heaps; guards what follows
	left    []*streamHeap          // of closed streams, that hold memory
	lenders []*streamHeap          // that one request asks
	of      map[*streamHeap]lender // the heaps that others took memory from
}

// lender is what is remembered of a heap whose idle memory others took.
type lender struct {
	taken bool // memory, since its last miss
	lends bool // it missed that
}

// A pool that holds less than idleFloor bytes keeps idle segments, and its heaps of less
// than takeFloor keep their memory: below that, sharing does not pay.
const (
	idleFloor = 256 << 20
	takeFloor = 32 << 20
)

// provePolls bounds how often one miss asks about events that are not done at once. A GPU
// passes one of an idle stream in a few µs, 64 queries take 10, growing by a chunk 30.
const provePolls = 64

// take gets memory for a request that other heaps leave idle or, with older, that their
// streams, which may be at work, freed long enough ago.
func (l *lending) take(r *request, older bool) (found bool, err error) {
	if l.memory == nil && len(l.heaps.byIndex.All()) == 1 || !l.couldFit(r) {
		return false, nil // what never fits must not take from those that do
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heaps.at(r.h.Index()) != r.h {
		return false, nil // its stream was closed, and another heap may have its number
	}
	if l.of[r.h].taken {
		l.of[r.h] = lender{lends: true}
	}
	polls := provePolls
	if older {
		polls = 0 // streams at work, which were asked again and again before
	}
	for _, from := range l.left {
		n, err := l.takeFrom(r, from, r.h.lacks(r), older, &polls)
		if found = found || n > 0; err != nil {
			return found, err
		}
	}
	_ = l.dropEmptyLocked()
	lenders := l.candidates(r)
	if len(lenders) == 0 {
		return found, nil // the usual pool, of one stream
	}
	need := r.excess(0)
	if need <= 0 {
		return found, nil
	}
	if _, err := l.heaps.settle(epoch.Peek); onlyLost(err) != nil {
		return found, err
	}
	for _, from := range lenders {
		n, err := l.takeFrom(r, from, need, older, &polls)
		if n > 0 {
			found, l.of[from] = true, lender{taken: true, lends: l.of[from].lends}
		}
		if need = r.excess(0); err != nil || need <= 0 {
			return found, err
		}
	}
	return found, nil
}

// couldFit reports whether the pool could hold the block of a request.
func (l *lending) couldFit(r *request) bool {
	d := l.budget.Device
	most := min(l.budget.Limit, max(d.Bound(), d.Held())) // more may be held than a limit that came later allows
	return r.rounded <= most && (l.memory == nil || r.rounded <= l.memory.Capacity)
}

// candidates lists the heaps that idle memory may be taken from, in a list that the pool
// keeps. Beyond the soft limit chunks of the taker's
// other kind may be, too; else the kinds would often take them from each other.
func (l *lending) candidates(r *request) []*streamHeap {
	list := l.lenders[:0]
	for _, h := range l.heaps.byIndex.All() {
		switch {
		case h == nil:
		case h == r.h && (l.memory == nil || !l.budget.Pressed(r.rounded)):
		case h != r.h && !h.stream.calls.IsOpen():
		default:
			list = append(list, h)
		}
	}
	l.lenders = list
	return list
}

// freedPoint is a time of the device at which a heap freed memory.
type freedPoint struct {
	h    *streamHeap
	time uint64
	size int64 // bytes of that
}

// ahead returns what to wait for, by Config.GrowWait, before a request has the pool reserve
// more than it ever did: until the streams have passed when other heaps freed what makes up
// for it. The device has work behind that.
func (l *lending) ahead(r *request) (last []freedPoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	need := r.excess(idleFloor)
	if need <= 0 {
		return nil
	}
	var points []freedPoint
	for _, h := range l.candidates(r) {
		if h == r.h {
			continue
		}
		h.locked(func(h *streamHeap) {
			chunks := h.WholeChunks()
			if chunks.Empty() { // most of many, and all streams are looked at for each
				return
			}
			until := l.dev.order.Ahead(&h.stream.calls, workBehind)
			chunks.EachFreed(func(at uint64, size int64) {
				if at < until {
					points = append(points, freedPoint{h, at, size})
				}
			})
		})
	}
	slices.SortFunc(points, func(a, b freedPoint) int { return cmp.Compare(a.time, b.time) })
	for _, p := range points {
		if need <= 0 {
			break
		}
		need -= p.size
		last = append(slices.DeleteFunc(last, func(o freedPoint) bool { return o.h == p.h }), p)
	}
	if need > 0 || !r.h.trusts() {
		return nil
	}
	return last
}

// takeFrom moves at least need bytes of idle memory to the request's heap, as far as there are
// so many, and returns how many it moved. polls bounds how often the device is asked.
func (l *lending) takeFrom(r *request, from *streamHeap, need int64, older bool, polls *int) (taken int64, err error) {
	defer lockBoth(r.h, from)()
	if need <= 0 || r.h.usableLocked() != nil {
		return 0, nil
	}
	from.Flush()
	before := r.h.Work()
	switch {
	case l.memory == nil:
		taken = l.takeSegment(r, from, polls)
	case l.isolated.Load():
		taken = l.takeHeap(r, from, polls)
	case !from.stream.calls.IsOpen() && from.FreeBytes(r.kind) > 0 && !from.InUse():
		if l.mayTake(r, from) && from.idleLocked(polls) {
			var n int
			n, taken, err = from.MoveRanges(r.kind, &r.h.Heap)
			l.noteMoves(n, taken)
		}
	default:
		taken, err = l.takeChunks(r, from, need, older, polls)
	}
	r.did(before)
	r.h.checkLocked()
	from.checkLocked()
	return taken, err
}

// takeSegment moves the segment that fits a request best. An open stream gives none that is
// much larger than what the device would be asked for: it would soon have to ask for it itself.
func (l *lending) takeSegment(r *request, from *streamHeap, polls *int) int64 {
	most := max(r.segment(), l.space.Policy.SparingSegment(r.rounded))
	if !from.stream.calls.IsOpen() {
		most = r.h.LargestSegment(r.kind, r.rounded)
	}
	seg := from.BestIdle(r.kind, r.rounded, most)
	if seg == nil || !l.mayTake(r, from) || !from.idleLocked(polls) {
		return 0
	}
	from.MoveSegment(seg, &r.h.Heap)
	l.noteMoves(1, seg.Size)
	return seg.Size
}

// takeHeap moves all that a closed stream left, with its addresses, if nothing of it is in use.
func (l *lending) takeHeap(r *request, from *streamHeap, polls *int) int64 {
	if from.stream.calls.IsOpen() || from.InUse() || !l.mayTake(r, from) || !from.idleLocked(polls) {
		return 0
	}
	bytes := from.Held()
	from.moveLocked(r.h)
	l.noteMoves(1, bytes)
	return bytes
}

// takeChunks moves whole free chunks of either kind, or of the same heap's other kind.
func (l *lending) takeChunks(r *request, from *streamHeap, need int64, older bool, polls *int) (int64, error) {
	chunks := from.WholeChunks()
	if from == r.h {
		chunks = chunks.Of(large + small - r.kind)
	}
	if chunks.Empty() || !l.mayTake(r, from) {
		return 0, nil
	}
	if chunks = from.idleChunksLocked(chunks, older, polls); chunks.Empty() {
		return 0, nil
	}
	out, err := from.Yield(chunks, need)
	bytes, e := r.h.Attach(&from.Heap, r.kind, out)
	l.noteMoves(len(out), bytes)
	return bytes, errors.Join(err, e, from.DropGaps(false))
}

// mayTake reports whether a request may take memory of a heap that is idle. The heap is locked.
func (l *lending) mayTake(r *request, from *streamHeap) bool {
	return from.stream.calls.IsClosed() || l.budget.Pressed(r.rounded) ||
		l.budget.Held() >= idleFloor || from.Held() >= takeFloor
}

// borrow serves a large request by a free block of another stream's virtual memory,
// where that stream missed chunks which others took. The block stays in the other
// heap, with the request's stream recorded on it. It serves before the request's own heap
// stitches, as it costs no call to map memory, and before the pool grows beyond its most.
func (l *lending) borrow(r *request) (Block, bool) {
	if l.memory == nil || l.sanitizer != nil || r.kind == small || r.reserving || r.h.stream.clock.Captured() {
		return Block{}, false // a sanitizer fills blocks in the order of their heap's stream
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lenders := slices.DeleteFunc(l.candidates(r), func(h *streamHeap) bool { return !l.of[h].lends })
	if len(lenders) == 0 || l.budget.Held()+r.rounded <= l.budget.Sufficient(0) {
		return Block{}, false
	}
	polls := provePolls
	for _, o := range r.offers(lenders) {
		if b, ok := o.h.lend(r, &polls); ok {
			return b, true
		}
	}
	return Block{}, false
}

// borrowAny serves a request that would be refused otherwise, by a free block of another
// stream whose work is done. With wait it waits for that work.
func (l *lending) borrowAny(r *request, wait bool) (Block, bool) {
	if l.sanitizer != nil || r.reserving || r.h.stream.clock.Captured() {
		return Block{}, false
	}
	for _, o := range r.offers(l.heaps.open()) {
		if o.h.stream.clock.Captured() || wait && o.h.awaitIdle(r.wait) != nil {
			continue
		}
		polls := provePolls
		if b, ok := o.h.lend(r, &polls); ok {
			return b, true
		}
	}
	return Block{}, false
}

// chunksSuffice reports whether the whole free chunks of all heaps, with what the device and the
// limits leave, cover a request, or there is nothing to choose.
func (l *lending) chunksSuffice(r *request) bool {
	if l.memory == nil || len(l.heaps.byIndex.All()) == 1 || r.excess(0) <= 0 {
		return true
	}
	room, _ := l.budget.Room()
	if free, _, err := l.driver.MemInfo(); err == nil {
		room = min(room, free)
	}
	l.heaps.each(func(h *streamHeap) {
		if h != r.h && !h.stream.clock.Captured() {
			h.Flush()
			room += h.WholeChunks().Bytes()
		}
	})
	return r.h.lacks(r) <= room
}

// inherit makes what the pool holds for a stream idle memory, as the stream is closed and its
// work is done. Where blocks are in use, all of it goes to def, the default stream's heap.
// It returns the heap, which is not found by its stream any more, or nil.
func (l *lending) inherit(s *Stream, def *streamHeap) (h *streamHeap, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heaps.mu.Lock()
	defer l.heaps.mu.Unlock()
	if h = l.heaps.of(s); h == nil {
		return nil, nil
	}
	l.heaps.byStream.Set(int(s.slot), nil)
	l.inheritLent(s, def.stream)
	unlock := lockBoth(h, def)
	h.UnhomeAll()
	_ = h.endQuarantineLocked() // what stays goes to the default stream
	h.Magazine.Drop()
	if h.InUse() {
		h.quarantine.MoveTo(def.quarantine) // what a failing call left
		h.moveLocked(def)
	}
	h.MoveKept(&def.Heap)
	h.checkLocked()
	unlock()
	l.left = append(l.left, h)
	return h, l.dropEmptyHeapsLocked()
}

// inheritLent makes the blocks that were lent to a stream, which is closed, those of heir.
func (l *lending) inheritLent(s, heir *Stream) {
	l.heaps.each(func(h *streamHeap) {
		for id, to := range h.lent {
			if to == s {
				h.lent[id] = heir
				h.pending.Record(l.space.Blocks.At(id), heir.clock)
			}
		}
	})
}

// closedHeaps returns the heaps of closed streams.
func (l *lending) closedHeaps() []*streamHeap {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.left)
}

// dropEmpty closes heaps of closed streams that hold no memory any more.
func (l *lending) dropEmpty() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropEmptyLocked()
}

// dropEmptyLocked is dropEmpty with the lock held.
func (l *lending) dropEmptyLocked() error {
	l.heaps.mu.Lock()
	defer l.heaps.mu.Unlock()
	return l.dropEmptyHeapsLocked()
}

// dropEmptyHeapsLocked is dropEmpty with the heap table's lock held, too.
func (l *lending) dropEmptyHeapsLocked() (err error) {
	l.left = slices.DeleteFunc(l.left, func(h *streamHeap) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.Held() > 0 {
			return false
		}
		err = errors.Join(err, h.DropGaps(true))
		if !h.IsEmpty() {
			return false
		}
		l.heaps.dropLocked(h)
		delete(l.of, h)
		return true
	})
	return err
}

// excess returns the bytes that a request lacks beyond a sufficient reserve of at least floor.
func (r *request) excess(floor int64) int64 {
	budget, lacks := &r.h.c.budget, r.h.lacks(r)
	return min(lacks, budget.Held()+lacks-budget.Sufficient(floor))
}

// lacks returns the bytes that the device would be asked for, 0 when the heap has enough.
func (h *streamHeap) lacks(r *request) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c.memory == nil {
		if h.FitSize(r.kind, r.rounded) > 0 {
			return 0
		}
		return r.segment()
	}
	return sizeclass.RoundTo(h.Missing(r.kind, r.rounded, r.allow()), h.c.memory.Granularity)
}

// offer is a free block of a heap that fits a request.
type offer struct {
	h    *streamHeap
	size int64 // bytes
}

// offers lists the blocks that other heaps could lend for the request, one of each, the
// smallest first. Before that a heap frees what streams are done with.
func (r *request) offers(heaps []*streamHeap) (list []offer) {
	for _, h := range heaps {
		if h == r.h {
			continue
		}
		h.mu.Lock()
		_, _ = h.settleLocked(epoch.Ask) // what it cannot free stays pending
		size := h.FitSize(r.kind, r.rounded)
		h.mu.Unlock()
		if size > 0 {
			list = append(list, offer{h, size})
		}
	}
	slices.SortFunc(list, func(a, b offer) int { return cmp.Compare(a.size, b.size) })
	return list
}

// lend serves a request of another stream, if a free block fits and the heap's own
// stream has nothing left to do.
func (h *streamHeap) lend(r *request, polls *int) (Block, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil || h.FitSize(r.kind, r.rounded) == 0 || !h.idleLocked(polls) {
		return Block{}, false
	}
	if !r.h.stream.calls.Enter() { // a Take cannot be undone, so the stream must stay open
		return Block{}, false
	}
	defer r.h.stream.calls.Leave()
	id, b := h.Take(r.size, r.rounded, 0) // it finds no home here
	if id == 0 {
		return Block{}, false
	}
	h.pending.Record(b, r.h.stream.clock)
	b.MarkUsed()
	h.lent[id] = r.h.stream
	out, err := h.handleLocked(r.ctx, id, b)
	return out, err == nil
}

// moveLocked moves everything that a heap holds to another one of the pool.
func (h *streamHeap) moveLocked(to *streamHeap) {
	h.Each(func(_ *block.Segment, _ block.ID, b *block.Block) {
		if st := b.Word().State(); st == block.Live || st == block.Pending {
			h.pending.MoveBlock(b, &to.pending)
		}
	})
	h.pending.MoveWaits(&to.pending)
	h.MoveAll(&to.Heap)
	maps.Copy(to.lent, h.lent)
	clear(h.lent) // the heap stays while the device is given a segment of it
	to.checkLocked()
}

func (p *pool) noteMoves(n int, bytes int64) {
	p.moves.Add(int64(n))
	p.movedBytes.Add(bytes)
}
