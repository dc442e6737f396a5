package cupool_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// lending is a pool with a stream that lends blocks: it took turns with another one,
// and each missed twice what the other had taken. 64 MiB are reserved.
type lending struct {
	*testing.T
	c            *cupool.Pool
	d            cupool.Driver
	lender, asks *cupool.Stream
	gate         chan struct{} // closed: the work that streams were given ends
	captured     []func()      // end captures
}

func newLending(t *testing.T, cfg cupool.Config) *lending { return newTurns(t, cfg, 5) }

// newTurns is newLending after so many turns.
func newTurns(t *testing.T, cfg cupool.Config, turns int) *lending {
	x := &lending{T: t, gate: make(chan struct{})}
	var err error
	x.d, err = cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	if x.d.(cupool.VirtualMemory).VMMGranularity() == 0 {
		t.Skip("no virtual memory here")
	}
	cfg.Driver, cfg.Backing, cfg.MagazineBytes = x.d, cupool.BackingVMM, cmp.Or(cfg.MagazineBytes, -1)
	x.c, err = cupool.New(cfg)
	require.NoError(t, err)
	x.lender, x.asks = newStreamOf(t, x.c), newStreamOf(t, x.c)
	x.takeTurns(turns)
	return x
}

func (x *lending) takeTurns(turns int) {
	for i := range turns {
		s := []*cupool.Stream{x.lender, x.asks}[i%2]
		x.free(x.alloc(64*mib, s))
		require.NoError(x, s.Sync())
	}
	require.EqualValues(x, 64*mib, x.c.Stats().All.ReservedBytes.Current)
	require.EqualValues(x, 16*(turns-1), x.c.Stats().Moves, "chunks of 4 MiB")
}

func (x *lending) alloc(size int64, s *cupool.Stream) cupool.Block {
	x.Helper()
	b := pooltest.Alloc(x.T, x.c, size, s)
	require.NoError(x, x.c.Check())
	return b
}

func (x *lending) free(blocks ...cupool.Block) {
	x.Helper()
	for _, b := range blocks {
		require.NoError(x, x.c.Free(b))
		require.NoError(x, x.c.Check())
	}
}

// work gives a stream work that ends when the gate opens.
func (x *lending) work(s *cupool.Stream) {
	gate := x.gate
	require.NoError(x, s.Launch(func() { <-gate }))
}

// capture has a stream be one whose work is kept as a graph, until the end of the test.
func (x *lending) capture(s *cupool.Stream) {
	end, err := s.Capture()
	require.NoError(x, err)
	x.captured = append(x.captured, end)
}

// open ends all work, and what waits for it comes free.
func (x *lending) open() {
	for _, end := range x.captured {
		end()
	}
	close(x.gate)
	x.gate = make(chan struct{})
	for _, s := range []*cupool.Stream{x.c.DefaultStream(), x.lender, x.asks} {
		if err := s.Sync(); err != nil {
			require.ErrorIs(x, err, cupool.ErrClosed)
		}
	}
	require.Zero(x, x.c.Stats().PendingBytes)
	require.NoError(x, x.c.Check())
}

// on returns the stream whose memory a block is on.
func (x *lending) on(b cupool.Block) cupool.StreamHandle {
	for _, seg := range x.c.Snapshot().Segments {
		if seg.Address <= b.Ptr() && b.Ptr() < seg.Address+cupool.Ptr(seg.Size) {
			return seg.Stream
		}
	}
	require.Fail(x, "the block is nowhere")
	return 0
}

func (x *lending) close(live ...cupool.Block) {
	x.open()
	x.free(live...)
	require.NoError(x, x.c.Close())
	require.NoError(x, x.d.Close())
}

// borrow allocates 60 MiB on memory of the lender, for a stream.
func (x *lending) borrow(s *cupool.Stream) cupool.Block {
	x.Helper()
	before := x.c.Stats()
	b := x.alloc(60*mib, s)
	require.Equal(x, x.lender.Handle(), x.on(b))
	require.Same(x, s, x.c.StreamOf(b))
	require.Equal(x, before.Moves, x.c.Stats().Moves)
	require.Equal(x, before.DriverAllocs, x.c.Stats().DriverAllocs)
	return b
}

// TestLendingLeavesMagazines: the magazines of a stream that is lent a block keep theirs.
func TestLendingLeavesMagazines(t *testing.T) {
	x := newLending(t, cupool.Config{MagazineBytes: 8 * mib})
	hits := func() int64 {
		before := x.c.Stats().MagazineHits
		x.free(x.alloc(mib/2, x.asks))
		return x.c.Stats().MagazineHits - before
	}
	for range 10 {
		hits()
	}
	require.EqualValues(t, 1, hits())
	b := x.alloc(40*mib, x.asks)
	require.Equal(t, x.lender.Handle(), x.on(b))
	require.EqualValues(t, 1, hits())
	x.close(b)
}

// TestLends: a block of another stream's memory serves, also where no whole chunks are
// free, and the device is not asked for memory.
func TestLends(t *testing.T) {
	for name, s := range map[string]func(*lending) *cupool.Stream{
		"a stream that took turns": func(x *lending) *cupool.Stream { return x.asks },
		"any other stream":         func(x *lending) *cupool.Stream { return x.c.DefaultStream() },
	} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, cupool.Config{})
			live := x.alloc(3*mib, x.lender)
			x.close(live, x.borrow(s(x)))
		})
	}
}

// TestLendsNot: where that must not be, or would be of no use.
func TestLendsNot(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    cupool.Config
		turns  int // in place of 5
		size   int64
		before func(*lending)
	}{
		"more than is free":                {size: 64 * mib},
		"a small request":                  {size: 4096},
		"while the lender has work":        {size: 60 * mib, before: func(x *lending) { x.work(x.lender) }},
		"while the lender is captured":     {size: 60 * mib, before: func(x *lending) { x.capture(x.lender) }},
		"to a stream that is captured":     {size: 60 * mib, before: func(x *lending) { x.capture(x.asks) }},
		"where it missed only once":        {turns: 3, size: 60 * mib},
		"where zeros are written in order": {cfg: cupool.Config{ZeroOnAlloc: true}, size: 60 * mib},
		"below what once was": {size: 60 * mib, before: func(x *lending) {
			x.free(x.alloc(200*mib, nil))
			require.NoError(x, x.c.EmptyCache())
			x.free(x.alloc(64*mib, x.lender))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTurns(t, c.cfg, cmp.Or(c.turns, 5))
			live := x.alloc(3*mib, x.lender)
			if c.before != nil {
				c.before(x)
			}
			b := x.alloc(c.size, x.asks)
			require.Equal(t, x.asks.Handle(), x.on(b))
			x.close(live, b)
		})
	}
}

// TestLentBlockWaits: a block that was lent is free when the stream that it was lent to
// is done with it.
func TestLentBlockWaits(t *testing.T) {
	x := newLending(t, cupool.Config{})
	b := x.borrow(x.asks)
	x.work(x.asks)
	require.NoError(t, x.c.RecordStream(b, x.asks), "which it is for")
	require.NoError(t, x.c.RecordStream(b, x.lender))
	x.free(b)
	require.EqualValues(t, 60*mib, x.c.Stats().PendingBytes)
	other := x.alloc(60*mib, x.lender)
	require.NotEqual(t, b.Ptr(), other.Ptr())
	x.free(other)
	x.open()
	again := x.alloc(60*mib, x.lender)
	require.Equal(t, b.Ptr(), again.Ptr())
	require.Same(t, x.lender, x.c.StreamOf(again))
	x.close(again)
}

// TestLentBlockOfAClosedStream: it is the default stream's, wherever it lies.
func TestLentBlockOfAClosedStream(t *testing.T) {
	x := newLending(t, cupool.Config{})
	b := x.borrow(x.asks)
	require.NoError(t, x.asks.Close())
	require.Same(t, x.c.DefaultStream(), x.c.StreamOf(b))
	x.work(x.c.DefaultStream())
	x.free(b)
	require.EqualValues(t, 60*mib, x.c.Stats().PendingBytes)
	x.close()
}

// TestLenderIsClosed: its memory is the default stream's, and a block there goes on to
// be the one's that it was lent to.
func TestLenderIsClosed(t *testing.T) {
	for name, toDefault := range map[string]bool{"to the default stream": true, "to another": false} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, cupool.Config{})
			s := x.asks
			if toDefault {
				s = x.c.DefaultStream()
			}
			b := x.borrow(s)
			require.NoError(t, x.lender.Close())
			require.Equal(t, x.c.DefaultStream().Handle(), x.on(b))
			require.Same(t, s, x.c.StreamOf(b))
			x.work(s)
			x.free(b)
			require.EqualValues(t, 60*mib, x.c.Stats().PendingBytes)
			x.close()
		})
	}
}

// TestBothAreClosed: a block that was lent is the default stream's then, on its memory.
func TestBothAreClosed(t *testing.T) {
	for name, lenderFirst := range map[string]bool{"the lender first": true, "the lender last": false} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, cupool.Config{})
			b := x.borrow(x.asks)
			first, last := x.asks, x.lender
			if lenderFirst {
				first, last = last, first
			}
			require.NoError(t, first.Close())
			require.NoError(t, last.Close())
			require.Same(t, x.c.DefaultStream(), x.c.StreamOf(b))
			require.Equal(t, x.c.DefaultStream().Handle(), x.on(b))
			x.close(b)
		})
	}
}

// TestLentLeak: a block that is live when the pool is closed is reported with the
// stream that it was for.
func TestLentLeak(t *testing.T) {
	x := newLending(t, cupool.Config{})
	x.borrow(x.asks)
	var leaks *cupool.LeakError
	require.ErrorAs(t, x.c.Close(), &leaks)
	require.Len(t, leaks.Leaks, 1)
	require.Equal(t, x.asks.Handle(), leaks.Leaks[0].Stream)
	require.NoError(t, x.d.Close())
}

// TestReserveBorrowsNothing: what is reserved for a stream is its own.
func TestReserveBorrowsNothing(t *testing.T) {
	x := newLending(t, cupool.Config{})
	require.NoError(t, x.c.Reserve(60*mib, x.asks))
	x.work(x.lender)
	allocs := x.c.Stats().DriverAllocs
	b := x.alloc(60*mib, x.asks)
	require.Equal(t, x.asks.Handle(), x.on(b))
	require.Equal(t, allocs, x.c.Stats().DriverAllocs)
	x.close(b)
}

// TestLendsAgain: at the limit, a block that was lent serves again, once the borrower is
// done with it.
func TestLendsAgain(t *testing.T) {
	x := newLending(t, cupool.Config{Limit: 64 * mib})
	live := x.alloc(3*mib, x.lender)
	for range 3 {
		b := x.alloc(60*mib+mib/2, x.asks)
		require.Equal(t, x.lender.Handle(), x.on(b))
		require.NoError(t, x.asks.Launch(func() { time.Sleep(time.Millisecond) }))
		x.free(b)
	}
	x.close(live)
}

// TestLendsInAPool: the streams of a private pool lend each other its memory, and it ends
// when the last block that was lent is free.
func TestLendsInAPool(t *testing.T) {
	x := newLending(t, cupool.Config{})
	root := x.c
	x.c = newPrivate(t, root, cupool.PoolConfig{Limit: 128 * mib})
	x.takeTurns(5)
	b := x.borrow(x.asks)
	require.NoError(t, x.c.Retire())
	require.NoError(t, x.asks.Close())
	require.Same(t, x.c.DefaultStream(), x.c.StreamOf(b))
	x.work(x.c.DefaultStream())
	require.NoError(t, root.Free(b))
	require.EqualValues(t, 60*mib, x.c.Stats().PendingBytes)
	x.open()
	require.Len(t, root.Pools(), 1)
	require.NoError(t, root.EmptyCache())
	require.Empty(t, root.Pools())
	require.NoError(t, root.Close())
	require.NoError(t, x.d.Close())
}

// TestLentBooks: a block that is lent is in use, of its label and with its contents
// while the pool sleeps, until the stream that it was lent to is done with it.
func TestLentBooks(t *testing.T) {
	x := newLending(t, cupool.Config{})
	b, err := x.c.WithLabel("lent").Alloc(56*mib, x.asks)
	require.NoError(t, err)
	require.Equal(t, x.lender.Handle(), x.on(b))
	require.NoError(t, x.asks.CopyIn(b.Ptr(), []byte("what it holds")))
	found, err := x.c.Lookup(b.Ptr() + 7)
	require.NoError(t, err)
	require.Equal(t, b, found)
	var wrong *cupool.BlockError
	require.ErrorAs(t, x.c.FreePtr(b.Ptr()+512, -1), &wrong)
	require.Equal(t, x.asks.Handle(), wrong.Stream)
	require.NoError(t, x.c.Sleep(func(cupool.Block) bool { return true }))
	require.NoError(t, x.c.Wake())
	held := make([]byte, 13)
	require.NoError(t, x.asks.CopyOut(held, b.Ptr()))
	require.Equal(t, "what it holds", string(held))
	require.NoError(t, x.c.EmptyCache())
	require.EqualValues(t, 56*mib, x.c.Stats().All.ReservedBytes.Current)
	x.work(x.asks)
	require.NoError(t, x.c.FreeOn(b, x.lender))
	require.EqualValues(t, 56*mib, x.c.Stats().PendingBytes)
	require.EqualValues(t, 56*mib, x.c.Stats().Labels[0].Bytes.Current)
	_, err = x.c.Trim(0)
	require.NoError(t, err)
	require.EqualValues(t, 56*mib, x.c.Stats().All.ReservedBytes.Current)
	x.open()
	require.Zero(t, x.c.Stats().Labels[0].Bytes.Current)
	require.NoError(t, x.c.EmptyCache())
	require.Zero(t, x.c.Stats().All.ReservedBytes.Current)
	x.close()
}

// TestLendsBeforeAnOOM: what fits on another stream's memory serves a request that
// would be refused otherwise, at once where that stream's work is done and else after
// it, large or small, whichever way memory comes.
func TestLendsBeforeAnOOM(t *testing.T) {
	for name, size := range map[string]int64{"large": 60*mib + mib/2, "small": 4096} {
		for work, busy := range map[string]bool{"idle": false, "at work": true} {
			t.Run(name+" "+work, func(t *testing.T) {
				pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
					lender, asks := newStreamOf(t, c), newStreamOf(t, c)
					live := []cupool.Block{pooltest.Alloc(t, c, 4096, lender)}
					if size >= mib {
						require.NoError(t, c.Free(live[0]))
						require.NoError(t, c.Free(pooltest.Alloc(t, c, 64*mib, lender)))
						live[0] = pooltest.Alloc(t, c, 3*mib, lender)
					} else {
						live = append(live, pooltest.Alloc(t, c, 62*mib, lender))
					}
					gate := make(chan struct{})
					if busy {
						require.NoError(t, lender.Launch(func() { <-gate }))
						time.AfterFunc(10*time.Millisecond, func() { close(gate) })
					}
					b := pooltest.Alloc(t, c, size, asks)
					require.NoError(t, c.Check())
					require.Same(t, asks, c.StreamOf(b))
					require.Zero(t, c.Stats().OOMs)
					require.NoError(t, c.Free(b))
					require.NoError(t, asks.Sync())
					for _, b := range live {
						require.NoError(t, c.Free(b))
					}
				}, func(cfg *cupool.Config) { cfg.Limit, cfg.MagazineBytes = 64*mib, -1 })
			})
		}
	}
}
