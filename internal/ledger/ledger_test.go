package ledger

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/testkit"
)

// peaked are the quantities that have peaks.
var peaked = []Quantity{OutBlocks, OutBytes, RequestedBytes, Segments, ReservedBytes, Splits, SplitBytes, ActiveBlocks, ActiveBytes, ActiveRequested}

// oracle counts as a book does, in the simplest way: all present amounts and
// their peaks after every change.
type oracle struct {
	now, peak [3]amounts
}

func (o *oracle) add(k Kind, q Quantity, n int64) {
	o.now[k][q] += n
	o.now[All][q] += n
}

func (o *oracle) note() {
	for k := range o.now {
		for q, n := range o.now[k] {
			o.peak[k][q] = max(o.peak[k][q], n)
		}
	}
}

// out is a block that a random program holds.
type out struct {
	l               *Ledger
	k               Kind
	size, requested int64
	pending         bool
}

// open returns n ledgers of a new book.
func open(n int) (*Book, []*Ledger) {
	b := &Book{}
	var ledgers []*Ledger
	for i := range n {
		l, guard := &Ledger{}, &Guard{}
		guard.Init(lock.Heap, uint64(i))
		l.Open(b, guard)
		ledgers = append(ledgers, l)
	}
	return b, ledgers
}

// all locks ledgers, as Book.Sum wants them.
func all(ledgers []*Ledger, f func()) {
	for _, l := range ledgers {
		l.guard.Lock()
		defer l.guard.Unlock()
	}
	f()
}

// TestPeaksAreExact: while one goroutine at a time changes ledgers, in whatever
// turn, every peak is that of an oracle which looks after each change.
func TestPeaksAreExact(t *testing.T) {
	seed := testkit.Seed(t)
	for n := range testkit.Rounds(800) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		scale, frees, splitting, kinds := 0, 0, false, 0
		bytes := func() int64 { return 1 + r.Int64N(1<<scale) }
		b, ledgers := open(1 + r.IntN(4))
		o, held := &oracle{}, []out{}
		splits := map[*Ledger][2][]int64{} // by kind
		compare := func() {
			all(ledgers, func() {
				sum := b.Sum(ledgers)
				for k := range o.now {
					now := sum.now(Kind(k))
					for _, q := range peaked {
						require.Equal(t, o.now[k][q], now[q], "kind %d, quantity %d", k, q)
						require.Equal(t, o.peak[k][q], b.Peak(Kind(k), q), "peak of kind %d, quantity %d", k, q)
					}
				}
			})
			_, _, ok := b.Check()
			require.True(t, ok)
		}
		l := ledgers[0]
		for step := range 300 {
			if step%30 == 0 { // many small ones are more than a few large ones, or less
				scale, frees, splitting, kinds = r.IntN(21), r.IntN(6), r.IntN(4) == 0, r.IntN(4)
			}
			if r.IntN(8) == 0 {
				l = ledgers[r.IntN(len(ledgers))]
			}
			k := Kind(min(kinds, 1)) // for a while all are of one kind
			if kinds > 1 {
				k = Kind(r.IntN(2))
			}
			l.guard.Lock()
			what := r.IntN(14)
			if what < 8 && splitting {
				what = 8 + min(r.IntN(5)/2, 1)
			} else if what < 8 && frees < 5 { // else half of them
				what = 4 * min(r.IntN(10)/(2*frees+1), 1)
			}
			switch i := 0; what {
			case 0, 1, 2, 3:
				size := bytes()
				x := out{l: l, k: k, size: size, requested: 1 + r.Int64N(size)}
				held = append(held, x)
				l.Out(k, size, x.requested)
				o.add(k, OutBlocks, 1)
				o.add(k, OutBytes, size)
				o.add(k, RequestedBytes, x.requested)
				o.add(k, ActiveBlocks, 1)
				o.add(k, ActiveBytes, size)
				o.add(k, ActiveRequested, x.requested)
			case 4, 5, 6, 7:
				for i = len(held) - 1; i >= 0 && held[i].l != l; i-- {
				}
				if i < 0 {
					break
				}
				x := &held[i]
				switch {
				case x.pending:
					l.Done(x.k, x.size, x.requested)
					o.add(x.k, ActiveBlocks, -1)
					o.add(x.k, ActiveBytes, -x.size)
					o.add(x.k, ActiveRequested, -x.requested)
				default:
					o.add(x.k, OutBlocks, -1)
					o.add(x.k, OutBytes, -x.size)
					o.add(x.k, RequestedBytes, -x.requested)
					if r.IntN(3) == 0 {
						l.Pending(x.k, x.size, x.requested)
						x.pending = true
						break
					}
					l.Freed(x.k, x.size, x.requested)
					o.add(x.k, ActiveBlocks, -1)
					o.add(x.k, ActiveBytes, -x.size)
					o.add(x.k, ActiveRequested, -x.requested)
				}
				if o.now[All][ActiveBlocks] < int64(len(held)) {
					held = append(held[:i], held[i+1:]...)
				}
			case 8:
				bytes := bytes()
				if r.IntN(2) == 0 { // a range that grows at once: there is no such peak
					l.Resplit(k, bytes)
					l.Unsplit(k, 1, bytes)
					break
				}
				s := splits[l]
				n, gone := r.IntN(min(len(s[k]), 2)+1), int64(0)
				for _, x := range s[k][len(s[k])-n:] {
					gone += x
				}
				s[k] = append(s[k][:len(s[k])-n], bytes)
				splits[l] = s
				l.Split(k, bytes, int64(n), gone)
				o.add(k, Splits, 1-int64(n))
				o.add(k, SplitBytes, bytes-gone)
			case 9:
				s := splits[l]
				n, bytes := r.IntN(len(s[k])+1), int64(0)
				for _, x := range s[k][len(s[k])-n:] {
					bytes += x
				}
				s[k] = s[k][:len(s[k])-n]
				splits[l] = s
				l.Unsplit(k, int64(n), bytes)
				o.add(k, Splits, -int64(n))
				o.add(k, SplitBytes, -bytes)
			case 10:
				size := 1 + r.Int64N(1<<24)
				l.Segment(k, size)
				o.add(k, Segments, 1)
				o.add(k, ReservedBytes, size)
			case 11:
				n, bytes := o.now[k][Segments]/2, o.now[k][ReservedBytes]/2
				l.SegmentsGone(k, n, bytes)
				o.add(k, Segments, -n)
				o.add(k, ReservedBytes, -bytes)
			case 12: // what it holds stays in the sum
				guard := l.guard
				l.Hits(k, r.Int64N(5), bytes(), bytes())
				l.Close()
				l.Open(b, guard)
			case 13: // a block moves
				i = r.IntN(len(held) + 1)
				to := ledgers[r.IntN(len(ledgers))]
				if i == len(held) || held[i].l != l || to == l || held[i].pending {
					break
				}
				x := &held[i]
				l.Quiet()
				to.Quiet()
				to.Out(x.k, x.size, x.requested)
				l.Freed(x.k, x.size, x.requested)
				b.Settle(l, to)
				x.l = to
			}
			l.guard.Unlock()
			o.note()
			switch r.IntN(100) {
			case 0:
				compare()
			case 1:
				all(ledgers, func() {
					b.Sum(ledgers)
					b.ResetPeaks(ledgers)
				})
				o.peak = o.now
			}
		}
		compare()
	}
}

// TestQuiet: memory that moves between two ledgers counts once, although the sum
// is too high in between.
func TestQuiet(t *testing.T) {
	b, ledgers := open(3)
	from, to, other := ledgers[0], ledgers[1], ledgers[2]
	other.Segment(Large, 10)
	from.Segment(Small, 100)
	from.Quiet()
	to.Quiet()
	to.Segment(Large, 100)
	require.EqualValues(t, 110, b.Peak(All, ReservedBytes), "as before the move")
	from.SegmentsGone(Small, 1, 100)
	b.Settle(from, to)
	require.EqualValues(t, 110, b.Peak(All, ReservedBytes))
	require.EqualValues(t, 110, b.Peak(Large, ReservedBytes))
	require.EqualValues(t, 2, b.Peak(All, Segments))
	from.Quiet() // and back, before anything else changes
	to.Quiet()
	from.Segment(Small, 100)
	to.SegmentsGone(Large, 1, 100)
	b.Settle(from, to)
	require.EqualValues(t, 110, b.Peak(All, ReservedBytes))
	to.Segment(Large, 5) // is counted again
	require.EqualValues(t, 115, b.Peak(All, ReservedBytes))
	all(ledgers, func() { require.EqualValues(t, 3, b.Sum(ledgers)[All][Segments].Now()) })
}

// TestRoomAfterFree: a block that went out and came back left the room as it was, however
// its size was rounded, so that the peaks are not looked at again.
func TestRoomAfterFree(t *testing.T) {
	b, ledgers := open(1)
	l := ledgers[0]
	l.Out(Small, 512, 16)
	l.Freed(Small, 512, 16)
	before := l.rooms
	for range 3 {
		l.Out(Small, 512, 16)
		l.Freed(Small, 512, 16)
	}
	require.Equal(t, before, l.rooms)
	require.EqualValues(t, 512, b.Peak(All, OutBytes))
	l.Out(Small, 512, 17)
	require.EqualValues(t, 17, b.Peak(All, RequestedBytes))
}

// TestSettlePublishesTheThird: what a third ledger gave back before two others
// exchanged memory is no part of a later peak.
func TestSettlePublishesTheThird(t *testing.T) {
	b, ledgers := open(3)
	x, y, third := ledgers[0], ledgers[1], ledgers[2]
	third.Out(Small, 100, 90)
	third.Pending(Small, 100, 90)
	third.Done(Small, 100, 90) // the book's current ledger: only it knows
	x.Quiet()
	y.Quiet()
	x.Segment(Large, 64)
	y.SegmentsGone(Large, 1, 64)
	b.Settle(x, y)
	x.Out(Small, 50, 50)
	require.EqualValues(t, 100, b.Peak(Small, ActiveBytes))
	require.EqualValues(t, 1, b.Peak(All, ActiveBlocks))
	require.EqualValues(t, 100, b.Peak(All, OutBytes))
}

// TestClosedLedger: what a closed ledger counted is in the totals and in the sum
// that peaks are taken of.
func TestClosedLedger(t *testing.T) {
	b, ledgers := open(2)
	x, y := ledgers[0], ledgers[1]
	x.Segment(Large, 100) // moves to y with its heap
	x.Hits(Large, 7, 10, 9)
	require.EqualValues(t, 7, x.Tallies(Large)[MagazineHits].Added)
	x.Close()
	require.Zero(t, *x)
	require.EqualValues(t, 100, b.Past()[All][ReservedBytes].Now())
	y.SegmentsGone(Large, 1, 100)
	y.Segment(Large, 60)
	y.guard.Lock()
	sum := b.Sum(ledgers[1:])
	y.guard.Unlock()
	require.EqualValues(t, 60, sum[Large][ReservedBytes].Now())
	require.EqualValues(t, Tally{70, 70}, sum[All][OutBytes])
	require.EqualValues(t, Tally{63, 63}, sum[Large][RequestedBytes])
	require.EqualValues(t, 100, b.Peak(Large, ReservedBytes))
}

// TestCheckFindsQuantity: Check names a quantity that is above its peak.
func TestCheckFindsQuantity(t *testing.T) {
	b, ledgers := open(1)
	ledgers[0].Out(Large, 10, 10)
	b.peaks[Large][OutBytes] = 9
	k, q, ok := b.Check()
	require.False(t, ok)
	require.Equal(t, Large, k)
	require.Equal(t, OutBytes, q)
	require.Equal(t, Large, KindOf(true))
	require.Equal(t, Small, KindOf(false))
}

// TestLedgersAtOnce: goroutines that change ledgers at the same time, sum them up,
// move memory and reset peaks lose nothing, and no peak is below what there is.
func TestLedgersAtOnce(t *testing.T) {
	b, ledgers := open(4)
	var wg sync.WaitGroup
	rounds := testkit.Rounds(40_000)
	for _, l := range ledgers {
		wg.Go(func() {
			for i := range rounds {
				l.guard.Lock()
				l.Out(Small, 100, 90)
				l.Split(Small, 10, 0, 0)
				if i%3 == 0 {
					l.Pending(Small, 100, 90)
					l.Done(Small, 100, 90)
				} else {
					l.Freed(Small, 100, 90)
				}
				l.Unsplit(Small, 1, 10)
				l.guard.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range rounds / 16 {
			all(ledgers, func() {
				sum := b.Sum(ledgers)
				if _, q, ok := b.Check(); !ok {
					t.Errorf("quantity %d is above its peak", q)
				}
				if n := sum[Small][OutBlocks].Now(); n != 0 {
					t.Errorf("%d blocks are out while no goroutine has one", n)
				}
				if i%8 == 0 {
					b.ResetPeaks(ledgers)
				}
			})
		}
	})
	wg.Go(func() {
		for range rounds / 16 {
			x, y := ledgers[0], ledgers[1]
			x.guard.Lock()
			y.guard.Lock()
			x.Quiet()
			y.Quiet()
			x.SegmentsGone(Large, 1, 64)
			y.Segment(Large, 64)
			b.Settle(x, y)
			y.guard.Unlock()
			x.guard.Unlock()
		}
	})
	wg.Wait()
	all(ledgers, func() {
		sum := b.Sum(ledgers)
		n := int64(4 * rounds)
		require.Equal(t, Tally{n, n}, sum[All][OutBlocks])
		require.Equal(t, Tally{10 * n, 10 * n}, sum[Small][SplitBytes])
		require.Zero(t, sum[All][PendingBytes].Now())
		require.Zero(t, sum[All][ReservedBytes].Now())
		require.LessOrEqual(t, b.Peak(All, ActiveBlocks), int64(8))
	})
}

// TestStrays: while the current ledger's heap is locked by another goroutine, a ledger
// changes beside it. Once it is the current one, the peak has all of that.
func TestStrays(t *testing.T) {
	b, ledgers := open(2)
	x, y := ledgers[0], ledgers[1]
	for range 10 {
		y.Out(Large, 100, 100)
	}
	for range 10 {
		y.Freed(Large, 100, 100) // it has so much room
	}
	x.Out(Large, 900, 900)
	x.guard.Lock()
	y.Out(Large, 500, 500)
	require.EqualValues(t, 1000, b.Peak(All, OutBytes), "nobody looked")
	x.guard.Unlock()
	for range busyRest {
		y.Out(Large, 1, 1)
		y.Freed(Large, 1, 1)
	}
	require.EqualValues(t, 1401, b.Peak(All, OutBytes))
}

// TestPeakOfBothKinds: blocks of both kinds are more than ever while those of each are not, as
// some are pending.
func TestPeakOfBothKinds(t *testing.T) {
	b, ledgers := open(1)
	l := ledgers[0]
	out := func(k Kind, n int, size int64) {
		for range n {
			l.Out(k, size, size)
		}
	}
	freed := func(k Kind, n int, size int64) {
		for range n {
			l.Freed(k, size, size)
		}
	}
	for _, k := range []Kind{Small, Large} { // bytes are no matter
		out(k, 1, 1000)
		freed(k, 1, 1000)
	}
	out(Large, 2, 1)
	freed(Large, 2, 1)
	out(Small, 4, 1)
	l.Pending(Small, 1, 1)
	l.Pending(Small, 1, 1)
	l.Done(Small, 1, 1)
	out(Large, 2, 1)
	require.EqualValues(t, 5, b.Peak(All, ActiveBlocks))
	require.EqualValues(t, 4, b.Peak(All, OutBlocks))
}

// TestLockedLedger: a ledger that changed while another one is the current one is
// published once its heap is not locked.
func TestLockedLedger(t *testing.T) {
	b, ledgers := open(2)
	x, y := ledgers[0], ledgers[1]
	x.guard.Lock()
	x.Out(Small, 100, 100)
	x.Freed(Small, 100, 100)
	y.guard.Lock()
	defer y.guard.Unlock()
	x.guard.Unlock()
	y.Out(Small, 10, 10) // below the peak
	require.Equal(t, []*Ledger{x}, b.behind)
	require.True(t, x.guard.TryLock())
	y.Segment(Small, 1000)
	require.Equal(t, []*Ledger{x}, b.behind, "it is locked")
	require.True(t, x.behind)
	x.guard.Unlock()
	y.Segment(Small, 1000)
	require.Empty(t, b.behind)
	require.False(t, x.behind)
	require.EqualValues(t, 10, b.sum[Small][OutBytes])
}
