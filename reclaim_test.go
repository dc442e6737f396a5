package cupool_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// lending is a pool with a stream that lends blocks: it took turns with another one,
// and missed what the other had taken. 64 MiB are reserved.
type lending struct {
	*testing.T
	c            *cupool.Pool
	d            cupool.Driver
	lender, asks *cupool.Stream
	gate         chan struct{} // closed: the work that streams were given ends
	captured     []func()      // end captures
}

func newLending(t *testing.T, cfg cupool.Config) *lending {
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
	x.lender, x.asks = pooltest.NewStream(t, x.c), pooltest.NewStream(t, x.c)
	x.takeTurns()
	return x
}

func (x *lending) takeTurns() {
	const turns = 3
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

// TestLendsBeforeStitching: a free block of another stream serves before free chunks of the
// stream itself are mapped side by side.
func TestLendsBeforeStitching(t *testing.T) {
	x := newLending(t, cupool.Config{})
	x.work(x.lender)
	x.free(x.alloc(mib, x.lender)) // while the stream is at work, so that the other one has to grow
	hole, live, other := x.alloc(32*mib, x.asks), x.alloc(32*mib, x.asks), x.alloc(32*mib, x.asks)
	x.free(hole, other)
	x.open()
	b := x.borrow(x.asks)
	require.Zero(t, x.c.Stats().Stitches)
	x.close(live, b)
}

// TestLendsTheSmallest: of the blocks that streams could lend the one that fits best goes.
func TestLendsTheSmallest(t *testing.T) {
	for name, c := range map[string]struct {
		live int64 // of the 64 MiB of the first; of the second 40 are free
		want int
	}{
		"the second's": {live: 2 * mib, want: 1},
		"the first's":  {live: 30 * mib, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, cupool.Config{})
			lenders := []*cupool.Stream{x.lender, pooltest.NewStream(t, x.c)}
			x.c.MakeLender(lenders[1])
			live, first := x.alloc(c.live, x.lender), x.alloc(62*mib-c.live, x.lender)
			x.free(first, x.alloc(40*mib, lenders[1]))
			require.NoError(t, x.c.Sync())
			b := x.alloc(30*mib, x.asks)
			require.Equal(t, lenders[c.want].Handle(), x.on(b))
			x.close(live, b)
		})
	}
}

// TestLendsNot: where that must not be, or would be of no use.
func TestLendsNot(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    cupool.Config
		size   int64
		before func(*lending)
	}{
		"more than is free": {size: 64 * mib},
		"a small request":   {size: 4096},
		"while the lender has work": {size: 60 * mib, before: func(x *lending) {
			b := x.alloc(mib, x.lender)
			x.work(x.lender)
			x.free(b)
		}},
		"while the lender is captured":     {size: 60 * mib, before: func(x *lending) { x.capture(x.lender) }},
		"to a stream that is captured":     {size: 60 * mib, before: func(x *lending) { x.capture(x.asks) }},
		"where zeros are written in order": {cfg: cupool.Config{ZeroOnAlloc: true}, size: 60 * mib},
		"below what once was": {size: 60 * mib, before: func(x *lending) {
			x.free(x.alloc(200*mib, nil))
			require.NoError(x, x.c.EmptyCache())
			x.free(x.alloc(64*mib, x.lender))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, c.cfg)
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

// TestTakesNothingForNothing: what never fits does not take apart what other streams have.
func TestTakesNothingForNothing(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{
		"beyond the device": {Driver: simdev.New(simdev.Config{Capacity: 128 * mib})},
		"beyond the limit":  {Driver: simdev.New(simdev.Config{}), Limit: 128 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Backing, cfg.SoftLimit = cupool.BackingVMM, 1
			c := pooltest.Open(t, cfg)
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 64*mib, pooltest.NewStream(t, c))))
			_, err := c.Alloc(129*mib, nil)
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			require.Zero(t, c.Stats().Moves)
			require.NoError(t, c.Close())
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

// TestLentBlockOfClosedStreams: what a closed stream had is the default stream's, memory
// and blocks, and a block that was lent is free when the stream is done that has it then.
func TestLentBlockOfClosedStreams(t *testing.T) {
	const lender, borrower = 0, 1
	for name, tc := range map[string]struct {
		toDefault bool  // it is lent to the default stream
		close     []int // one after the other
		waits     int64 // MiB, when it is freed while its stream is at work
	}{
		"the borrower":                           {close: []int{borrower}},
		"the lender":                             {close: []int{lender}},
		"the lender, lent to the default stream": {close: []int{lender}, toDefault: true},
		"both, the lender first":                 {close: []int{lender, borrower}},
		"both, the lender last":                  {close: []int{borrower, lender}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLending(t, cupool.Config{})
			def := x.c.DefaultStream()
			s := x.asks
			if tc.toDefault {
				s = def
			}
			b, on := x.borrow(s), x.lender
			for _, i := range tc.close {
				c := []*cupool.Stream{x.lender, x.asks}[i]
				require.NoError(t, c.Close())
				if c == s {
					s = def
				}
				if c == on {
					on = def
				}
			}
			require.Same(t, s, x.c.StreamOf(b))
			require.Equal(t, on.Handle(), x.on(b))
			x.work(s)
			x.free(b)
			require.EqualValues(t, 60*mib, x.c.Stats().PendingBytes)
			x.close()
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

// Addresses of closed streams go with their memory.
func TestAddressesOfClosedStreamsGo(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM})
	for range 10 {
		s := pooltest.NewStream(t, c)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, s)))
		require.NoError(t, s.Close())
		require.NoError(t, c.EmptyCache())
		require.Zero(t, d.Stats().Reservations)
	}
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
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
	x.c = pooltest.NewPrivate(t, root, cupool.PoolConfig{Limit: 128 * mib})
	x.takeTurns()
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

// TestResetEndsLoans: a block that was lent is gone with the others.
func TestResetEndsLoans(t *testing.T) {
	x := newLending(t, cupool.Config{})
	x.borrow(x.asks)
	require.NoError(t, x.c.CheckLent())
	require.NoError(t, x.c.Reset())
	require.NoError(t, x.c.CheckLent())
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
					lender, asks := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
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
					freeAll(t, c, live)
				}, func(cfg *cupool.Config) { cfg.Limit, cfg.MagazineBytes = 64*mib, -1 })
			})
		}
	}
}

// lendingStorm is goroutines that share streams, all of which lend. What a stream is
// given writes blocks, and looks later whether they have their contents, while the
// blocks are freed already.
type lendingStorm struct {
	c     *cupool.Pool
	pause sync.RWMutex // held for writing while the pool sleeps, or a stream is renewed

	streams []*cupool.Stream // guarded by pause
	broken  atomic.Pointer[string]
	lent    atomic.Int64
}

// written is a live block with what it holds.
type written struct {
	cupool.Block
	s    *cupool.Stream
	mark uint64
}

const lendingStormStep = 32 << 10 // bytes between two marks

// words calls f for some words of a block, in memory that the host has.
func (w written) words(f func(*uint64)) {
	for off := int64(0); off+8 <= w.Size(); off += lendingStormStep {
		f((*uint64)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(new(w.Ptr()))), off)))
	}
}

// late is how long work takes: so little mostly that streams are idle in between.
func late(r *rand.Rand) time.Duration {
	if r.IntN(4) > 0 {
		return 0
	}
	return time.Duration(r.IntN(400)) * time.Microsecond
}

func (x *lendingStorm) write(w written, late time.Duration) error {
	return w.s.Launch(func() {
		time.Sleep(late)
		w.words(func(p *uint64) { *p = w.mark })
	})
}

// verify has a stream look at a block.
func (x *lendingStorm) verify(w written, on *cupool.Stream, late time.Duration) error {
	return on.Launch(func() {
		time.Sleep(late)
		w.words(func(p *uint64) {
			if *p != w.mark && x.broken.Load() == nil {
				x.broken.Store(new(fmt.Sprintf("%v of %v holds %d, not %d, on %v", w.Block, w.s.Handle(), *p, w.mark, on.Handle())))
			}
		})
	})
}

func (x *lendingStorm) alloc(r *rand.Rand, mark uint64) (written, error) {
	s := x.streams[r.IntN(len(x.streams))]
	b, err := x.c.Alloc(1<<20+1+r.Int64N(5<<20), s)
	if err != nil {
		return written{}, err
	}
	if of := x.c.StreamOf(b); of != s {
		return written{}, fmt.Errorf("%v is of %v, not %v", b, of.Handle(), s.Handle())
	}
	if x.c.IsLent(b) {
		x.lent.Add(1)
	}
	w := written{b, s, mark}
	return w, x.write(w, late(r))
}

// free gives a block back while its stream, and perhaps another one, has yet to look
// at it.
func (x *lendingStorm) free(r *rand.Rand, w written) error {
	on := x.streams[r.IntN(len(x.streams))]
	err := on.WaitStream(w.s)
	err = errors.Join(err, x.verify(w, on, late(r)), x.verify(w, w.s, late(r)))
	switch r.IntN(4) {
	case 0:
		return errors.Join(err, x.c.FreeOn(w.Block, on))
	case 1:
		return errors.Join(err, w.s.WaitStream(on), x.c.FreePtr(w.Ptr(), w.Size()))
	default:
		return errors.Join(err, x.c.RecordStream(w.Block, on), x.c.Free(w.Block))
	}
}

func (x *lendingStorm) chore(r *rand.Rand) (err error) {
	switch r.IntN(16) {
	case 0:
		_, err = x.c.Trim(r.Int64N(64 << 20))
	case 1:
		err = x.c.EmptyCache()
	case 2:
		_, err = x.c.ProcessDeferred()
	case 3:
		x.c.Stats()
		x.c.Snapshot()
	case 4:
		err = x.streams[r.IntN(len(x.streams))].Sync()
	default:
		err = errors.Join(x.c.CheckLent(), x.c.Check())
	}
	for _, s := range x.streams {
		x.c.MakeLender(s)
	}
	return err
}

// upheaval is what nobody may work beside: the pool sleeps, or a stream is another one.
func (x *lendingStorm) upheaval(r *rand.Rand) error {
	x.pause.Lock()
	defer x.pause.Unlock()
	if r.IntN(3) == 0 {
		return errors.Join(x.c.Sleep(func(cupool.Block) bool { return true }), x.c.Wake())
	}
	i := 1 + r.IntN(len(x.streams)-1)
	err := x.streams[i].Close()
	s, e := x.c.NewStream()
	if err = errors.Join(err, e); err == nil {
		x.c.MakeLender(s)
		x.streams[i] = s
	}
	return err
}

func (x *lendingStorm) run(r *rand.Rand, id uint64, steps int) (err error) {
	var live []written
	for i := range uint64(steps) {
		if r.IntN(100) == 0 {
			err = x.upheaval(r)
		}
		x.pause.RLock()
		for k := range live {
			if live[k].s.Closed() {
				live[k].s = x.c.DefaultStream()
			}
		}
		switch n := r.IntN(20); {
		case err != nil:
		case n == 0:
			err = x.chore(r)
		case n < 11 && len(live) < 8 || len(live) == 0:
			var w written
			if w, err = x.alloc(r, id<<32+i); err == nil {
				live = append(live, w)
			}
		default:
			k := r.IntN(len(live))
			err = x.free(r, live[k])
			live = append(live[:k], live[k+1:]...)
		}
		x.pause.RUnlock()
		if err != nil {
			return err
		}
	}
	x.pause.RLock()
	defer x.pause.RUnlock()
	for _, w := range live {
		err = errors.Join(err, x.c.Free(w.Block))
	}
	return err
}

// TestLendingStorm: nobody is lent what another stream may still use, whatever happens
// to the streams and the pool.
func TestLendingStorm(t *testing.T) {
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		t.Run(order.String(), func(t *testing.T) { runLendingStorm(t, order) })
	}
}

func runLendingStorm(t *testing.T, order cupool.IdleOrder) {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	if d.(cupool.VirtualMemory).VMMGranularity() == 0 {
		t.Skip("no virtual memory here")
	}
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, SoftLimit: 1, MagazineBytes: -1, IdleOrder: order})
	x := &lendingStorm{c: c, streams: []*cupool.Stream{c.DefaultStream()}}
	for range 7 {
		s := pooltest.NewStream(t, c)
		x.streams = append(x.streams, s)
		c.MakeLender(s)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for g := range errs {
		wg.Go(func() { errs[g] = x.run(rand.New(rand.NewPCG(seed, uint64(g))), uint64(g), testkit.Rounds(2000)) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, c.Sync())
	if wrong := x.broken.Load(); wrong != nil {
		require.Fail(t, *wrong)
	}
	t.Logf("%d blocks were lent", x.lent.Load())
	if order == cupool.OwnerOrder { // with all streams at work little is
		require.NotZero(t, x.lent.Load())
	}
	require.NoError(t, c.Check())
	require.NoError(t, c.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// withDecay runs f in a time of its own on an allocator that gives idle memory
// back within a second, of segments and of virtual memory.
func withDecay(t *testing.T, dev simdev.Config, f func(t *testing.T, c *cupool.Pool, d *conformance.Failing)) {
	for _, b := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(b.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := conformance.NewFailing(simdev.New(dev))
				c := pooltest.Open(t, cupool.Config{Driver: d, Backing: b, Decay: time.Second})
				f(t, c, d)
				require.NoError(t, c.Check())
				require.NoError(t, c.Close()) // the goroutine ends, or synctest complains
				require.Zero(t, d.Held())
			})
		})
	}
}

func freeAll(t *testing.T, c *cupool.Pool, blocks []cupool.Block) {
	t.Helper()
	for _, b := range blocks {
		require.NoError(t, c.Free(b))
	}
}

// fill allocates n blocks of size bytes on the default stream.
func fill(t *testing.T, c *cupool.Pool, n int, size int64) (blocks []cupool.Block) {
	t.Helper()
	for range n {
		blocks = append(blocks, pooltest.Alloc(t, c, size, nil))
	}
	return blocks
}

func TestDecay(t *testing.T) {
	withDecay(t, simdev.Config{}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
		live := pooltest.Alloc(t, c, 64*mib, nil)
		freeAll(t, c, fill(t, c, 32, 32*mib))
		full := d.Held()
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, full, d.Held())
		time.Sleep(200 * time.Millisecond)
		require.EqualValues(t, 64*mib, d.Held(), "nothing that is idle stays")
		require.Equal(t, full-64*mib, c.Stats().DecayedBytes)
		require.NoError(t, c.Free(live))
		time.Sleep(1200 * time.Millisecond)
		require.Zero(t, d.Held())
	})
}

// A program that repeats itself keeps what it uses.
func TestDecayLeavesSteadyStateAlone(t *testing.T) {
	withDecay(t, simdev.Config{}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
		for range 300 {
			blocks := fill(t, c, 4, 32*mib)
			time.Sleep(9 * time.Millisecond)
			freeAll(t, c, blocks)
			time.Sleep(7 * time.Millisecond)
		}
		require.Zero(t, c.Stats().DecayedBytes)
		require.EqualValues(t, 128*mib, d.Held())
	})
}

// What streams at work may still use stays, and nobody waits for them.
func TestDecayWaitsForNothing(t *testing.T) {
	withDecay(t, simdev.Config{ManualEvents: true}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
		freeAll(t, c, fill(t, c, 4, 32*mib))
		b := pooltest.Alloc(t, c, 32*mib, nil)
		require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, 100))
		require.NoError(t, c.Free(b))
		syncs := d.Calls("SyncStream") + d.Calls("SyncEvent")
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 128*mib, d.Held())
		require.Equal(t, syncs, d.Calls("SyncStream")+d.Calls("SyncEvent"))
	})
}

// A failing call is tried again; a sleeping allocator is left alone.
func TestDecayGoesOn(t *testing.T) {
	withDecay(t, simdev.Config{}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
		freeAll(t, c, fill(t, c, 4, 32*mib))
		d.FailAlways("MemUnmap", errors.New("no luck"))
		d.FailAlways("MemFree", errors.New("no luck"))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 128*mib, d.Held())
		d.Heal()
		b := pooltest.Alloc(t, c, mib, nil)
		if err := c.Sleep(nil); !errors.Is(err, cupool.ErrNotSupported) { // as with segments
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
			require.Zero(t, d.Held())
			require.NoError(t, c.Wake())
		}
		require.NoError(t, c.Free(b))
		time.Sleep(2 * time.Second)
		require.Zero(t, d.Held())
	})
}

// EmptyCache ends what Reserve began: memory that was reserved on purpose and is in use
// then is like any other afterwards.
func TestDecayAfterReserve(t *testing.T) {
	withDecay(t, simdev.Config{}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
		require.NoError(t, c.Reserve(64*mib, nil))
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 64*mib, d.Held())
		b := pooltest.Alloc(t, c, 64*mib, nil)
		require.NoError(t, c.EmptyCache())
		require.NoError(t, c.Free(b))
		time.Sleep(3 * time.Second)
		require.Zero(t, d.Held())
	})
}

// What was reserved for a stream stays when the stream is closed, with a block in use or
// without one, and when another stream takes it over, as it is or chunk by chunk for small blocks.
func TestDecayAfterClosedReserve(t *testing.T) {
	for n := range 4 {
		used, blocks, size := n%2 == 1, 1, int64(16*mib)
		if n >= 2 {
			blocks, size = 64, mib
		}
		withDecay(t, simdev.Config{}, func(t *testing.T, c *cupool.Pool, d *conformance.Failing) {
			s := pooltest.NewStream(t, c)
			require.NoError(t, c.Reserve(64*mib, s))
			var b cupool.Block
			if used {
				b = pooltest.Alloc(t, c, 32*mib, s)
			}
			require.NoError(t, s.Close())
			freeAll(t, c, append(fill(t, c, blocks, size), b))
			time.Sleep(3 * time.Second)
			require.EqualValues(t, 64*mib, d.Held())
			require.NoError(t, c.EmptyCache())
			require.Zero(t, c.Kept())
			require.Zero(t, d.Held())
		})
	}
}

// virtual returns an allocator on virtual memory of a simulated device, without
// magazines. Without a capacity the device has as much as simdev gives it.
func virtual(t *testing.T, capacity int64) (*cupool.Pool, *simdev.Device) {
	d := simdev.New(simdev.Config{Capacity: capacity})
	return pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, MagazineBytes: -1}), d
}

// What small blocks have left free serves a large one, and goes back to them.
func TestStitchOfSmallChunks(t *testing.T) {
	c, _ := virtual(t, 320*mib)
	fixed := fill(t, c, 288, mib) // a small program would have the large pool grow
	blocks := fill(t, c, 32, mib)
	require.EqualValues(t, 320*mib, c.Stats().All.ReservedBytes.Current, "the device is full")
	kept := blocks[5]
	freeAll(t, c, append(blocks[:5:5], blocks[6:]...))
	before := c.Stats().DriverAllocs
	for range 2 {
		large := pooltest.Alloc(t, c, 20*mib, nil)
		require.NoError(t, c.Check())
		fill(t, c, 11, mib) // beside it
		require.NoError(t, c.Check())
		require.EqualValues(t, 320*mib, c.Stats().LiveBytes)
		require.NoError(t, c.Free(large))
		for _, b := range live(t, c) {
			if b != kept && !slices.Contains(fixed, b) {
				require.NoError(t, c.Free(b))
			}
		}
		require.NoError(t, c.Check())
	}
	st := c.Stats()
	require.Equal(t, before, st.DriverAllocs)
	require.EqualValues(t, 1, st.Stitches)
	require.EqualValues(t, 1, st.StitchReuses)

	_, err := c.Alloc(31*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory, "half a chunk is not enough")
	freeAll(t, c, append(fixed, kept))
	require.NoError(t, c.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Close())
}

// live returns the allocator's live blocks.
func live(t *testing.T, c *cupool.Pool) (blocks []cupool.Block) {
	for _, seg := range c.Snapshot().Segments {
		for _, b := range seg.Blocks {
			if b.State == "live" {
				h, err := c.Lookup(b.Address)
				require.NoError(t, err)
				blocks = append(blocks, h)
			}
		}
	}
	return blocks
}

// The memory that a closed stream leaves goes to others pool by pool; a range
// that was stitched from both pools ends with that.
func TestStitchOfBothPoolsMoves(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 320 * mib}), Backing: cupool.BackingVMM, MagazineBytes: -1})
	s := pooltest.NewStream(t, c)
	alloc := func(size int64, s *cupool.Stream) cupool.Block {
		b := pooltest.Alloc(t, c, size, s)
		require.NoError(t, c.Check())
		return b
	}
	free := func(blocks ...cupool.Block) {
		for _, b := range blocks {
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Check())
		}
	}
	fixed := alloc(288*mib, nil)
	var blocks []cupool.Block
	for range 16 {
		blocks = append(blocks, alloc(mib, s))
	}
	free(append(blocks, alloc(16*mib, s))...)
	free(alloc(30*mib, s))
	require.EqualValues(t, 1, c.Stats().Stitches)

	require.NoError(t, s.Close())
	free(alloc(16*mib, nil), alloc(mib, nil)) // takes the one pool, and then the other
	free(alloc(32*mib, nil))
	require.EqualValues(t, 2, c.Stats().Stitches)
	free(fixed)
	require.NoError(t, c.Close())
}

// What was stitched goes along when all chunks that it was stitched of go to another
// stream: else the device would not have the memory back.
func TestStitchMovesWithItsChunks(t *testing.T) {
	c, d := virtual(t, 0)
	s := pooltest.NewStream(t, c)
	var free, live []cupool.Block
	for range 2 {
		free = append(free, pooltest.Alloc(t, c, 4*mib, s))
		live = append(live, pooltest.Alloc(t, c, 2*mib, s))
	}
	freeAll(t, c, free)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 8*mib, s)))
	require.EqualValues(t, 1, c.Stats().Stitches)
	freeAll(t, c, live)
	require.NoError(t, s.Close())
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 12*mib, pooltest.NewStream(t, c))))
	require.EqualValues(t, 12*mib, c.Stats().All.ReservedBytes.Current, "the chunks have moved")
	require.NoError(t, c.EmptyCache())
	require.Zero(t, d.Stats().Mappings+d.Stats().MemHandles)
	require.NoError(t, c.Close())
	require.Zero(t, d.Stats().Reservations)
}

// A small program's small chunks stay: they would have to be mapped again soon.
func TestSmallChunksOfSmallPrograms(t *testing.T) {
	c, _ := virtual(t, 0)
	freeAll(t, c, fill(t, c, 16, mib))
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 8*mib, nil)))
	require.EqualValues(t, 24*mib, c.Stats().All.ReservedBytes.Current)
	require.Zero(t, c.Stats().Stitches)
	require.NoError(t, c.Close())
}

// TestToldWithoutLocks: where OnRelease is called nobody holds a lock, whatever gave memory
// back, so that the program may call anything.
func TestToldWithoutLocks(t *testing.T) {
	type pools struct{ root, private *cupool.Pool }
	outlive := func(x pools, then func() error) error {
		b, err := x.private.Alloc(10*mib, nil)
		return errors.Join(err, x.private.Retire(), x.root.Free(b), then())
	}
	for name, release := range map[string]func(x pools) error{
		"trim":                   func(x pools) error { return testkit.Second(x.root.Trim(0)) },
		"trim, private":          func(x pools) error { return testkit.Second(x.private.Trim(0)) },
		"empty cache":            func(x pools) error { return x.root.EmptyCache() },
		"reset":                  func(x pools) error { return x.root.Reset() },
		"sleep":                  func(x pools) error { return x.root.Sleep(nil) },
		"soft limit":             func(x pools) error { return x.root.SetSoftLimit(1) },
		"close":                  func(x pools) error { return x.root.Close() },
		"close, private":         func(x pools) error { return x.private.Close() },
		"retire":                 func(x pools) error { return x.private.Retire() },
		"out of memory":          func(x pools) error { return testkit.Second(x.root.Alloc(150*mib, nil)) },
		"out of memory, private": func(x pools) error { return testkit.Second(x.private.Alloc(150*mib, nil)) },
		"free beyond the soft limit": func(x pools) error {
			b, err := x.root.Alloc(60*mib, nil)
			return errors.Join(err, x.root.SetSoftLimit(1), x.root.Free(b))
		},
		"trim, with a retired pool": func(x pools) error {
			return outlive(x, func() error { return testkit.Second(x.root.Trim(1 << 40)) })
		},
		"empty cache, with a retired pool": func(x pools) error { return outlive(x, x.root.EmptyCache) },
		"out of memory, with a retired pool": func(x pools) error {
			return outlive(x, func() error { return testkit.Second(x.root.Alloc(150*mib, nil)) })
		},
	} {
		for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
			t.Run(name+", "+backing.String(), func(t *testing.T) {
				var x pools
				told := false
				x.root = pooltest.Open(t, cupool.Config{
					Driver: simdev.New(simdev.Config{Capacity: 200 * mib}), Backing: backing, MagazineBytes: -1,
					OnRelease: func(int64) {
						told = true
						require.Empty(t, x.root.HeldLocks())
					},
				})
				x.private = pooltest.NewPrivate(t, x.root, cupool.PoolConfig{Name: "tenant"})
				for _, p := range []*cupool.Pool{x.root, x.private} {
					require.NoError(t, p.Free(pooltest.Alloc(t, p, 60*mib, nil)))
				}
				err := release(x)
				if errors.Is(err, cupool.ErrNotSupported) {
					t.Skip(err)
				}
				require.NoError(t, err)
				require.True(t, told)
			})
		}
	}
}

// TestDecayAfterReserveIsGone: what was reserved on purpose and has gone back does not keep later memory.
func TestDecayAfterReserveIsGone(t *testing.T) {
	for name, end := range map[string]func(c *cupool.Pool) error{
		"Trim":       func(c *cupool.Pool) error { return testkit.Second(c.Trim(0)) },
		"Reset":      func(c *cupool.Pool) error { return c.Reset() },
		"EmptyCache": func(c *cupool.Pool) error { return c.EmptyCache() },
		"Sleep":      func(c *cupool.Pool) error { return errors.Join(c.Sleep(nil), c.Wake()) },
	} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, Decay: 50 * time.Millisecond})
			require.NoError(t, c.Reserve(100*mib, nil))
			require.NoError(t, end(c))
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 100*mib, nil)))
			require.Eventually(t, func() bool { return c.Stats().All.ReservedBytes.Current == 0 }, time.Minute, 10*time.Millisecond)
			require.NoError(t, c.Close())
		})
	}
}
