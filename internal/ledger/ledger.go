// Package ledger counts blocks, bytes and segments.
//
// Each heap has a Ledger, which is written and read under the heap's lock. All
// ledgers of a pool share a Book, which keeps the peaks of their sum.
package ledger

import (
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool/internal/lock"
)

// Kind says which of a heap's two sets of blocks is meant.
type Kind int

// The kinds. All is the sum of both.
const (
	Small Kind = iota
	Large
	All
)

// KindOf returns Large or Small.
func KindOf(isLarge bool) Kind {
	if isLarge {
		return Large
	}
	return Small
}

// Quantity is what is counted, of each kind.
type Quantity int

// The quantities. "Out" blocks left the free sets: live blocks, and blocks that
// are cached in magazines. Stats tells these apart when it is read, so that the
// lock-free path counts nothing. Blocks that are out or pending are active; of
// these there are only peaks.
const (
	OutBlocks Quantity = iota
	OutBytes
	RequestedBytes
	Segments
	ReservedBytes
	Splits
	SplitBytes
	PendingBlocks
	PendingBytes
	PendingRequested
	MagazineHits
	Quantities

	ActiveBlocks    = Quantities
	ActiveBytes     = ActiveBlocks + 1
	ActiveRequested = ActiveBytes + 1
	Peaks           = ActiveRequested + 1
)

// Tally is how much of a quantity came and went.
type Tally struct{ Added, Taken int64 }

// Now returns how much there is.
func (t Tally) Now() int64 { return t.Added - t.Taken }

// Totals are tallies of the small and large blocks and of both.
type Totals [3][Quantities]Tally

// add adds the tallies of one ledger.
func (t *Totals) add(pools *[2][Quantities]Tally) {
	for k := range pools {
		for q, x := range pools[k] {
			for _, sum := range [...]*Tally{&t[k][q], &t[All][q]} {
				sum.Added += x.Added
				sum.Taken += x.Taken
			}
		}
	}
}

// now returns what the peaks are kept of.
func (t *Totals) now(k Kind) (n amounts) {
	for q, x := range t[k] {
		n[q] = x.Now()
	}
	n[ActiveBlocks] = n[OutBlocks] + n[PendingBlocks]
	n[ActiveBytes] = n[OutBytes] + n[PendingBytes]
	n[ActiveRequested] = n[RequestedBytes] + n[PendingRequested]
	return n
}

// amounts are present amounts by quantity, or their peaks.
type amounts [Peaks]int64

// Ledger counts for one heap. The lock that Open was given guards it.
type Ledger struct {
	pools [2][Quantities]Tally
	rooms // below the peaks, while the ledger is the current one

	book    *Book
	guard   *Guard
	known   [3]amounts // the part of Book.sum that is this ledger's
	behind  bool       // it is in Book.behind; guarded by the book's lock
	rest    int        // changes to make before the book's current ledger is looked at again
	strayed bool       // some were made while another ledger was the current one
	quiet   bool       // see Quiet
}

// rooms are how much may be added to what all ledgers hold, of each kind and of both.
type rooms struct {
	room, splitRoom [3]room
	activeRoom      [3]room // once anything was pending
}

// room is how much may be added before a peak is reached.
type room struct{ blocks, bytes, requested int64 }

// take makes the room smaller by one block and returns a negative number when
// there was none left.
func (r *room) take(bytes, requested int64) int64 {
	r.blocks--
	r.bytes -= bytes
	r.requested -= requested
	return r.blocks | r.bytes | r.requested
}

func (r *room) give(blocks, bytes, requested int64) {
	r.blocks += blocks
	r.bytes += bytes
	r.requested += requested
}

// Guard is the lock of a heap.
type Guard = lock.Mutex

// Open makes a ledger part of a book. guard is the lock of the ledger's heap.
func (l *Ledger) Open(b *Book, guard *Guard) { l.book, l.guard = b, guard }

// Close ends a ledger. The book goes on counting what the ledger counted: memory
// moves between heaps, so that only the sum of all ledgers means anything.
func (l *Ledger) Close() {
	b := l.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish(l)
	b.behind = slices.DeleteFunc(b.behind, func(o *Ledger) bool { return o == l })
	b.past.add(&l.pools)
	b.current.CompareAndSwap(l, nil)
	*l = Ledger{}
}

// Tallies returns what the ledger counted of one kind.
func (l *Ledger) Tallies(k Kind) [Quantities]Tally { return l.pools[k] }

// Book sums up the ledgers of a pool.
//
// Peaks are exact as long as one goroutine at a time uses the pool, on any
// number of streams. The book then knows which ledger changes, and what the
// others hold. While several goroutines use several streams at once, a peak is
// of moments at which one of them looked.
type Book struct {
	current atomic.Pointer[Ledger] // the one that changed last
	crossed atomic.Bool            // something was pending

	mu     lock.Mutex // taken after the ledgers' locks; guards what follows
	sum    [3]amounts // what the ledgers hold, as far as it is known
	behind []*Ledger  // those that were the current one since they were last published
	peaks  [3]amounts
	past   Totals // of ledgers that were closed
}

// busyRest is how many changes a ledger makes without a look at the book when
// it finds another ledger's heap locked. Several goroutines work then, and the
// book would pass from one processor to the other at every change.
const busyRest = 1 << 10

// touch makes the ledger the book's current one before it changes.
func (l *Ledger) touch() {
	if l.book.current.Load() != l {
		l.take()
	}
}

// take makes the ledger the current one. It gets the rooms of the one before it, which
// alone changed since these were measured.
func (l *Ledger) take() {
	switch {
	case l.quiet:
		return
	case l.rest > 0:
		l.rest--
		return
	}
	b := l.book
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.current.Load()
	if old != nil {
		if !old.guard.TryLock() {
			l.rest, l.strayed = busyRest, true
			return
		}
		l.rooms = old.rooms
		old.guard.Unlock()
		if !old.behind {
			old.behind = true
			b.behind = append(b.behind, old)
		}
	}
	b.current.Store(l)
	if old == nil || l.strayed {
		l.raiseLocked()
	}
}

// raise makes the peaks no lower than what there is, and the rooms what is left
// below them.
func (l *Ledger) raise() {
	if l.quiet {
		return
	}
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	l.raiseLocked()
}

func (l *Ledger) raiseLocked() {
	b := l.book
	b.publish(l)
	b.catchUp()
	b.raise()
	l.strayed = false
	for k := range l.room {
		var left amounts
		for q := range left {
			left[q] = b.peaks[k][q] - b.sum[k][q]
		}
		l.room[k] = room{left[OutBlocks], left[OutBytes], left[RequestedBytes]}
		l.activeRoom[k] = room{left[ActiveBlocks], left[ActiveBytes], left[ActiveRequested]}
		l.splitRoom[k] = room{left[Splits], left[SplitBytes], 0}
	}
}

// Quiet keeps the peaks as they are while memory moves between two heaps that
// are locked both, until Settle: between two steps the sum of their ledgers may
// be too high.
func (l *Ledger) Quiet() { l.quiet = true }

// Settle ends Quiet for both.
func (b *Book) Settle(x, y *Ledger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.current.Load(); old != nil && old != x && old != y {
		b.tryPublish(old)
	}
	for _, l := range [...]*Ledger{x, y} {
		l.quiet, l.rest = false, 0
		b.publish(l)
	}
	b.catchUp()
	b.raise()
	b.current.Store(nil) // the next change measures the room anew
}

// publish brings the sum up to date with a ledger.
func (b *Book) publish(l *Ledger) {
	var t Totals
	t.add(&l.pools)
	for k := range t {
		n := t.now(Kind(k))
		for q := range n {
			b.sum[k][q] += n[q] - l.known[k][q]
		}
		l.known[k] = n
	}
	l.behind = false
}

// catchUp publishes the ledgers that are behind, where their heaps are not locked.
func (b *Book) catchUp() {
	b.behind = slices.DeleteFunc(b.behind, func(l *Ledger) bool { return !l.behind || b.tryPublish(l) })
}

// tryPublish is publish for a ledger whose heap may be locked by another
// goroutine. It then returns false.
func (b *Book) tryPublish(l *Ledger) bool {
	if !l.guard.TryLock() {
		return false
	}
	defer l.guard.Unlock()
	b.publish(l)
	return true
}

func (b *Book) raise() {
	for k := range b.sum {
		for q, n := range b.sum[k] {
			b.peaks[k][q] = max(b.peaks[k][q], n)
		}
	}
}

// add adds to a quantity, and remove takes from it.
func (l *Ledger) add(k Kind, q Quantity, n int64)    { l.pools[k][q].Added += n }
func (l *Ledger) remove(k Kind, q Quantity, n int64) { l.pools[k][q].Taken += n }

// Out counts a block of so many bytes that left the free sets.
func (l *Ledger) Out(k Kind, size, requested int64) {
	l.touch()
	p := &l.pools[k]
	p[OutBlocks].Added++
	p[OutBytes].Added += size
	p[RequestedBytes].Added += requested
	left := l.room[k].take(size, requested) | l.room[All].take(size, requested)
	if l.book.crossed.Load() {
		left |= l.activeRoom[k].take(size, requested) | l.activeRoom[All].take(size, requested)
	}
	if left < 0 {
		l.raise()
	}
}

// Freed counts a block that the program gave back for good.
func (l *Ledger) Freed(k Kind, size, requested int64) {
	l.touch()
	if l.book.crossed.Load() {
		l.inactive(k, size, requested)
	}
	l.back(k, size, requested)
}

func (l *Ledger) back(k Kind, size, requested int64) {
	l.room[k].give(1, size, requested)
	l.room[All].give(1, size, requested)
	p := &l.pools[k]
	p[OutBlocks].Taken++
	p[OutBytes].Taken += size
	p[RequestedBytes].Taken += requested
}

// Pending counts a block that the program gave back and that begins to wait for
// streams. It stays active.
func (l *Ledger) Pending(k Kind, size, requested int64) {
	l.touch()
	if !l.book.crossed.Load() {
		l.book.crossed.Store(true)
		l.raise() // there is no room for active blocks yet
	}
	l.add(k, PendingBlocks, 1)
	l.add(k, PendingBytes, size)
	l.add(k, PendingRequested, requested)
	l.back(k, size, requested)
}

// Done counts a block that no longer waits.
func (l *Ledger) Done(k Kind, size, requested int64) {
	l.touch()
	l.inactive(k, size, requested)
	l.remove(k, PendingBlocks, 1)
	l.remove(k, PendingBytes, size)
	l.remove(k, PendingRequested, requested)
}

func (l *Ledger) inactive(k Kind, size, requested int64) {
	l.activeRoom[k].give(1, size, requested)
	l.activeRoom[All].give(1, size, requested)
}

// Hits counts a block that went out of a magazine and back n times.
func (l *Ledger) Hits(k Kind, n, size, requested int64) {
	for q, by := range [...]int64{OutBlocks: n, OutBytes: n * size, RequestedBytes: n * requested} {
		l.add(k, Quantity(q), by)
		l.remove(k, Quantity(q), by)
	}
	l.add(k, MagazineHits, n)
}

// Split counts a free block of size bytes that shares its segment with others, in the place
// of n such blocks of so many bytes.
func (l *Ledger) Split(k Kind, size, n, bytes int64) {
	l.touch()
	l.add(k, Splits, 1)
	l.add(k, SplitBytes, size)
	l.remove(k, Splits, n)
	l.remove(k, SplitBytes, bytes)
	l.splitRoom[k].give(n, bytes, 0)
	l.splitRoom[All].give(n, bytes, 0)
	if l.splitRoom[k].take(size, 0)|l.splitRoom[All].take(size, 0) < 0 {
		l.raise()
	}
}

// Unsplit counts n such blocks that left the free sets.
func (l *Ledger) Unsplit(k Kind, n, bytes int64) {
	l.touch()
	l.splitRoom[k].give(n, bytes, 0)
	l.splitRoom[All].give(n, bytes, 0)
	l.remove(k, Splits, n)
	l.remove(k, SplitBytes, bytes)
}

// Resplit counts a free block that shares its segment from then on, until it
// merges with the memory that was added. The peaks stay as they are.
func (l *Ledger) Resplit(k Kind, bytes int64) {
	l.touch()
	l.remove(k, Splits, -1)
	l.remove(k, SplitBytes, -bytes)
	l.splitRoom[k].take(bytes, 0)
	l.splitRoom[All].take(bytes, 0)
}

// Segment counts a segment, or a chunk of virtual memory, that came from the
// device.
func (l *Ledger) Segment(k Kind, size int64) {
	l.touch()
	l.add(k, Segments, 1)
	l.add(k, ReservedBytes, size)
	l.raise()
}

// SegmentsGone counts n of them that went back.
func (l *Ledger) SegmentsGone(k Kind, n, bytes int64) {
	l.touch()
	l.remove(k, Segments, n)
	l.remove(k, ReservedBytes, bytes)
}

// Sum returns the totals of ledgers, all locked, and brings the peaks up to
// date with them.
func (b *Book) Sum(ledgers []*Ledger) (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t = b.past
	for _, l := range ledgers {
		b.publish(l)
		t.add(&l.pools)
	}
	b.behind = slices.DeleteFunc(b.behind, func(l *Ledger) bool { return !l.behind })
	b.raise()
	return t
}

// Peak returns the peak of a quantity. Blocks that are out are active, so that
// the peak of the latter is never lower.
func (b *Book) Peak(k Kind, q Quantity) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peaks[k][q]
}

// Past returns the totals of ledgers that were closed.
func (b *Book) Past() Totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.past
}

// ResetPeaks makes every peak what there is. Sum was just called, and the
// ledgers are locked still.
func (b *Book) ResetPeaks(ledgers []*Ledger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peaks = b.sum
	for _, l := range ledgers {
		l.rooms = rooms{}
	}
}

// Check returns the first quantity that is above its peak, after Sum.
func (b *Book) Check() (k Kind, q Quantity, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.sum {
		for q, n := range b.sum[k] {
			if n > b.peaks[k][q] {
				return Kind(k), Quantity(q), false
			}
		}
	}
	return 0, 0, true
}
