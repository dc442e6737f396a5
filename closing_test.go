package cupool_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Tests of what Close does while streams work and while other goroutines close
// streams. They use only the public API and a device that is watched.

// memories are the ways in which a pool can get memory whose return does not
// wait for the device's work by itself.
var memories = map[string]func(d *pooltest.Watched, freeing func()) cupool.PoolConfig{
	"virtual memory": func(d *pooltest.Watched, freeing func()) cupool.PoolConfig {
		d.Watch(func(call string, _ cupool.StreamHandle) {
			if call == "MemUnmap" {
				freeing()
			}
		})
		return cupool.PoolConfig{}
	},
	"functions of the program": func(d *pooltest.Watched, freeing func()) cupool.PoolConfig {
		return cupool.PoolConfig{
			Alloc: d.MemAlloc,
			Free: func(p cupool.Ptr, _ int64) error {
				freeing()
				return d.MemFree(p)
			},
		}
	},
}

// TestCloseWaitsForEveryStream: a pool that is closed keeps its memory until no
// stream of the family can use it any more, whether the stream was recorded on
// a block or not, and whether the pool ever saw the stream.
func TestCloseWaitsForEveryStream(t *testing.T) {
	uses := map[string]func(t *testing.T, p *cupool.Pool, s *cupool.Stream) (leaks int){
		"recorded and freed": func(t *testing.T, p *cupool.Pool, s *cupool.Stream) int {
			b := pooltest.Alloc(t, p, 4<<20, nil)
			require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
			require.NoError(t, p.RecordStream(b, s))
			require.NoError(t, p.Free(b))
			return 0
		},
		"recorded and live": func(t *testing.T, p *cupool.Pool, s *cupool.Stream) int {
			b := pooltest.Alloc(t, p, 4<<20, nil)
			require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
			require.NoError(t, p.RecordStream(b, s))
			return 1
		},
		"used and live": func(t *testing.T, p *cupool.Pool, s *cupool.Stream) int {
			b := pooltest.Alloc(t, p, 4<<20, nil)
			require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
			return 1
		},
		"of the stream": func(t *testing.T, p *cupool.Pool, s *cupool.Stream) int {
			b := pooltest.Alloc(t, p, 4<<20, s)
			require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
			require.NoError(t, p.Free(b))
			return 0
		},
	}
	for memory, setUp := range memories {
		for use, f := range uses {
			for _, closing := range []bool{false, true} {
				name := memory + ", " + use
				if closing {
					name += ", stream closing"
				}
				t.Run(name, func(t *testing.T) { closeUnderWork(t, setUp, f, closing) })
			}
		}
	}
}

func closeUnderWork(t *testing.T, setUp func(*pooltest.Watched, func()) cupool.PoolConfig,
	use func(*testing.T, *cupool.Pool, *cupool.Stream) int, closing bool,
) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d})
	s := pooltest.NewStream(t, c)
	var early atomic.Bool
	g := pooltest.HoldStream(t, s)
	defer g.Open()
	p := pooltest.NewPrivate(t, c, setUp(d, func() {
		if !g.Opened() {
			early.Store(true)
		}
	}))
	leaks := use(t, p, s)

	streamClosed := pooltest.Start(func() error { return nil })
	if closing {
		before := d.Calls("SyncStream")
		streamClosed = pooltest.Start(s.Close)
		require.Eventually(t, func() bool { return d.Calls("SyncStream") > before }, testkit.Patience, time.Millisecond)
	}
	closed := pooltest.Start(p.Close)
	tooEarly, closeErr := pooltest.Returns(closed)
	g.Open()
	if !tooEarly {
		closeErr = <-closed
	}
	require.NoError(t, <-streamClosed)
	if !closing {
		require.NoError(t, s.Sync(), "the device is lost when the memory went under the work")
	}
	require.NoError(t, c.DefaultStream().Sync())
	require.False(t, tooEarly, "Close returned while a stream was at work")
	require.False(t, early.Load(), "memory went back while a stream was at work")
	var leak *cupool.LeakError
	if leaks > 0 {
		require.ErrorAs(t, closeErr, &leak)
		require.Len(t, leak.Leaks, leaks)
	} else {
		require.NoError(t, closeErr)
	}
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
	require.Zero(t, d.Held())
	require.Zero(t, d.Ranges())
}

// TestOwnFreeWaits: PoolConfig.Free is a function of the program that knows
// nothing of streams, so that the allocator calls it only for memory that no
// work is under way on.
func TestOwnFreeWaits(t *testing.T) {
	for name, giveBack := range map[string]func(c, p *cupool.Pool) error{
		"EmptyCache": func(_, p *cupool.Pool) error { return p.EmptyCache() },
		"Trim":       func(_, p *cupool.Pool) error { _, err := p.Trim(0); return err },
		"Retire":     func(_, p *cupool.Pool) error { return p.Retire() },
		"Close":      func(_, p *cupool.Pool) error { return p.Close() },
		"root": func(c, _ *cupool.Pool) error {
			b, err := c.Alloc(1<<30-8<<20, nil) // more than is left beside the pool
			return errors.Join(pooltest.Ignore(err, cupool.ErrOutOfMemory), c.Free(b))
		},
	} {
		for _, own := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", default stream", true: ", stream of its own"}[own], func(t *testing.T) {
				d := pooltest.NewWatched(t)
				c := pooltest.Open(t, cupool.Config{Driver: d, Limit: 1 << 30})
				s := c.DefaultStream()
				if own {
					s = pooltest.NewStream(t, c)
				}
				var early atomic.Int64
				g := pooltest.HoldStream(t, s)
				defer g.Open()
				p := pooltest.NewPrivate(t, c, cupool.PoolConfig{
					Alloc: d.MemAlloc,
					Free: func(q cupool.Ptr, _ int64) error {
						if !g.Opened() {
							early.Add(1)
						}
						return d.MemFree(q)
					},
				})
				b := pooltest.Alloc(t, p, 32<<20, s)
				require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
				require.NoError(t, p.Free(b))
				done := pooltest.Start(func() error { return giveBack(c, p) })
				time.Sleep(pooltest.Patience)
				g.Open()
				require.NoError(t, <-done)
				require.Zero(t, early.Load(), "Free was called while the stream was at work")
				require.NoError(t, s.Sync())
				require.NoError(t, c.Close())
				require.Zero(t, d.Held())
			})
		}
	}
}

// TestCloseBesideStreamClose: a pool that is closed, or whose root is, while a
// stream is being closed gives all its memory back and reports what was live.
func TestCloseBesideStreamClose(t *testing.T) {
	for memory, setUp := range memories {
		for _, root := range []bool{false, true} {
			for _, live := range []bool{false, true} {
				name := memory + map[bool]string{false: ", pool", true: ", root"}[root] + map[bool]string{false: ", cached", true: ", live"}[live]
				t.Run(name, func(t *testing.T) { closeBesideStreamClose(t, setUp, root, live) })
			}
		}
	}
}

func closeBesideStreamClose(t *testing.T, setUp func(*pooltest.Watched, func()) cupool.PoolConfig, root, live bool) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d})
	s := pooltest.NewStream(t, c)
	p := pooltest.NewPrivate(t, c, setUp(d, func() {}))
	b := pooltest.Alloc(t, p, 4<<20, s)
	if !live {
		require.NoError(t, p.Free(b))
	}
	g := pooltest.HoldStream(t, s)
	defer g.Open()
	handle, waits := s.Handle(), make(chan struct{}, 16)
	d.Watch(func(call string, h cupool.StreamHandle) {
		if call == "SyncStream" && h == handle {
			select {
			case waits <- struct{}{}:
			default:
			}
		}
	})
	streamClosed := pooltest.Start(s.Close)
	<-waits // for the work: the pool's side of the stream is closed already
	member := p
	if root {
		member = c
	}
	closed := pooltest.Start(member.Close)
	tooEarly, closeErr := pooltest.Returns(closed)
	g.Open()
	require.NoError(t, pooltest.Ignore(<-streamClosed, cupool.ErrClosed))
	if !tooEarly {
		closeErr = <-closed
	}
	require.Zero(t, p.Stats().All.ReservedBytes.Current, "bytes that the closed pool still holds")
	var leak *cupool.LeakError
	if live {
		require.ErrorAs(t, closeErr, &leak)
		require.Len(t, leak.Leaks, 1)
	} else {
		require.NoError(t, closeErr)
	}
	require.NoError(t, pooltest.Ignore(c.Close(), cupool.ErrClosed))
	require.Zero(t, d.Held())
	require.Zero(t, d.Ranges())
}

// TestCloseOfHeld: while a block of any pool is held, the root closes none of them, nor does
// a pool that is held while Close waits for the device: it goes on as before.
func TestCloseOfHeld(t *testing.T) {
	pooltest.Backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		first, p := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		b := pooltest.Alloc(t, p, 5*mib, nil)
		release := must(p.Hold(b))
		require.ErrorIs(t, c.Close(), cupool.ErrNotSupported)
		require.Len(t, c.Pools(), 2)
		require.NoError(t, first.Free(pooltest.Alloc(t, first, mib, nil)))
		release()
		require.NoError(t, c.Free(b))
	})
	synctest.Test(t, func(t *testing.T) {
		c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.Decay, cfg.WaitTimeout = time.Second, time.Minute })
		live := fill(t, c, 2, 20*mib)
		var release func()
		d.Hook = func(call string) {
			if release == nil && call != "MemFree" {
				pooltest.Elsewhere(func() { release = must(c.Hold(live[0])) })
			}
		}
		require.ErrorIs(t, c.Close(), cupool.ErrNotSupported)
		release()
		pooltest.NewStream(t, c)
		pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		freeAll(t, c, live)
		time.Sleep(3 * time.Second)
		require.Zero(t, c.Stats().All.ReservedBytes.Current, "its decay goes on, too")
		require.NoError(t, c.Close())
	})
}

// TestCloseThatStopsTellsLeaks: where a pool stays open, Close says what it found of those that it has closed.
func TestCloseThatStopsTellsLeaks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	first, second := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	leaked, held := pooltest.Alloc(t, first, 20*mib, nil), pooltest.Alloc(t, second, 20*mib, nil)
	var release func()
	d.Hook = func(call string) {
		if release == nil && call == "MemFree" {
			pooltest.Elsewhere(func() { release = must(c.Hold(held)) })
		}
	}
	err := c.Close()
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.Equal(t, []*cupool.Pool{second}, c.Pools())
	var leaks *cupool.LeakError
	require.ErrorAs(t, err, &leaks)
	require.Equal(t, leaked.Ptr(), leaks.Leaks[0].Ptr)
	release()
	require.NoError(t, c.Free(held))
	require.NoError(t, c.Close())
}

// TestCloseTriesAgain: what the device refuses once is asked for again, and is no error then.
func TestCloseTriesAgain(t *testing.T) {
	for backing, calls := range map[cupool.Backing][]simdev.Call{
		cupool.BackingSegments: {simdev.SyncStream, simdev.MemFree},
		cupool.BackingVMM:      {simdev.SyncStream, simdev.MemUnmap, simdev.MemRelease, simdev.AddressFree},
	} {
		for _, call := range calls {
			t.Run(fmt.Sprint(backing, " ", call), func(t *testing.T) {
				d := simdev.New(simdev.Config{})
				c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing})
				p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
				for _, of := range []*cupool.Pool{p, c} {
					require.NoError(t, of.Free(pooltest.Alloc(t, of, 5*mib, nil)))
					require.NoError(t, c.DefaultStream().Memset(pooltest.Alloc(t, of, mib, nil).Ptr(), 1, mib))
					d.FailNth(call, 1, errors.New("once"))
					leaks := &cupool.LeakError{}
					err := of.Close()
					require.ErrorAs(t, err, &leaks)
					require.NotContains(t, err.Error(), "once")
					require.Zero(t, of.Stats().All.ReservedBytes.Current)
				}
				s := d.Stats()
				require.Zero(t, s.Allocations+s.MemHandles+s.Mappings+s.Reservations)
			})
		}
	}
}

// TestNothingNewWhileClosing: while Close closes the private pools, no stream is made any more.
func TestNothingNewWhileClosing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 5*mib, nil)))
	asked := false
	d.Hook = func(call string) {
		if call == "MemFree" && !asked {
			asked = true
			require.ErrorIs(t, testkit.Second(c.NewStream()), cupool.ErrClosed)
			require.ErrorIs(t, testkit.Second(c.AdoptStream(7)), cupool.ErrClosed)
		}
	}
	require.NoError(t, c.Close())
	require.True(t, asked)
}

// TestCloseWaitsForCalls: work that a call submits to a stream while another
// goroutine closes it is waited for by Close, or the call fails with ErrClosed.
func TestCloseWaitsForCalls(t *testing.T) {
	d := &lateMemset{Watched: pooltest.NewWatched(t)}
	c := pooltest.Open(t, cupool.Config{Driver: d})
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 4<<20, nil)
	var submitted, early atomic.Bool
	d.Watch(func(call string, h cupool.StreamHandle) {
		if call == "SyncStream" && h == s.Handle() && !submitted.Load() {
			early.Store(true)
		}
	})
	var closed <-chan error
	d.earlier = func() {
		closed = pooltest.Start(s.Close)
		time.Sleep(pooltest.Patience) // Close has the time to be wrong
		submitted.Store(true)
	}
	require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
	require.NoError(t, <-closed)
	require.False(t, early.Load(), "Close waited for the stream before the call had submitted its work")
	require.ErrorIs(t, s.Memset(b.Ptr(), 1, b.Size()), cupool.ErrClosed)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}

// lateMemset is a device that calls a function before it sets memory.
type lateMemset struct {
	*pooltest.Watched
	earlier func()
}

func (d *lateMemset) Memset(dst cupool.Ptr, value byte, n int64, s cupool.StreamHandle) error {
	if f := d.earlier; f != nil {
		d.earlier = nil
		f()
	}
	return d.Watched.Memset(dst, value, n, s)
}

// TestLiveBlockOfStreamThatCloses: a live block is found at every moment, also
// while its stream is being closed and the block goes over to the default
// stream. One of the two is its stream.
func TestLiveBlockOfStreamThatCloses(t *testing.T) {
	for name, kind := range map[string]cupool.Backing{"segments": cupool.BackingSegments, "virtual memory": cupool.BackingVMM} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: kind, MagazineBytes: -1})
			for range testkit.Rounds(20_000) {
				s := pooltest.NewStream(t, c)
				b := pooltest.Alloc(t, c, 1000, s)
				closed := pooltest.Start(s.Close)
				for over := false; !over; {
					select {
					case err := <-closed:
						require.NoError(t, err)
						over = true
					default:
						require.NoError(t, c.RecordStream(b, nil))
						of := c.StreamOf(b)
						require.True(t, of == s || of == c.DefaultStream(), "%v", of)
						runtime.Gosched() // one processor runs Close, too
					}
				}
				require.Same(t, c.DefaultStream(), c.StreamOf(b))
				require.NoError(t, c.Free(b))
			}
			require.NoError(t, c.Check())
			require.NoError(t, c.Close())
		})
	}
}

// TestStreamThatClosesBesidePool: what a pool holds for a stream goes to the default
// stream before the pool is closed or stays, never in the middle of it.
func TestStreamThatClosesBesidePool(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	p, s := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewStream(t, c)
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 4<<20, nil)))
	pooltest.Alloc(t, p, 4<<20, s)
	var closed <-chan error
	d.Hook = func(call string) {
		if call == "MemFree" && closed == nil { // what the default stream has
			closed = pooltest.Start(s.Close)
			time.Sleep(pooltest.Patience)
		}
	}
	var leak *cupool.LeakError
	require.ErrorAs(t, p.Close(), &leak)
	require.Len(t, leak.Leaks, 1)
	require.NoError(t, <-closed)
	require.Zero(t, p.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestCloseBesideConfigure: functions that a stream or a Decay runs may configure the allocator while
// it is closed.
func TestCloseBesideConfigure(t *testing.T) {
	t.Run("a stream's", func(t *testing.T) {
		c := pooltest.Open(t, cupool.Config{})
		s := pooltest.NewStream(t, c)
		on, configured := make(chan struct{}), make(chan error, 1)
		require.NoError(t, s.Launch(func() {
			<-on
			configured <- c.Configure("divisions:4")
		}))
		done := pooltest.Start(s.Close)
		early, _ := pooltest.Returns(done)
		require.False(t, early)
		close(on)
		require.ErrorIs(t, <-configured, cupool.ErrNotPermitted)
		require.NoError(t, <-done)
		require.NoError(t, c.Close())
	})
	t.Run("OnRelease", func(t *testing.T) {
		var c *cupool.Pool
		begun, on, configured := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		released := sync.OnceFunc(func() {
			close(begun)
			<-on
			configured <- c.Configure("divisions:4")
		})
		c = pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Decay: 50 * time.Millisecond, OnRelease: func(int64) { released() }})
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 30*mib, nil)))
		<-begun
		done := pooltest.Start(c.Close)
		early, _ := pooltest.Returns(done)
		require.False(t, early, "the goroutine has not ended")
		close(on)
		require.ErrorIs(t, <-configured, cupool.ErrClosed)
		require.NoError(t, <-done)
	})
}

// A pool that is made beside Close is closed with the allocator, or not made at all; nothing of it goes on.
func TestNewPoolBesideClose(t *testing.T) {
	for range 50 {
		c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Decay: time.Hour})
		made := pooltest.Start(func() error {
			_, err := c.NewPool(cupool.PoolConfig{})
			return err
		})
		require.NoError(t, c.Close())
		if err := <-made; err != nil {
			require.ErrorIs(t, err, cupool.ErrClosed)
		}
		require.Empty(t, c.Pools())
	}
}

// Nothing is allocated from a closed pool, not even no bytes.
func TestAllocNothingClosed(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	private, err := c.NewPool(cupool.PoolConfig{Name: "private"})
	require.NoError(t, err)
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for what, err := range map[string]error{
		"Alloc":         testkit.Second(c.Alloc(0, nil)),
		"private Alloc": testkit.Second(private.Alloc(0, nil)),
		"NewEngine":     testkit.Second(cupool.NewEngine(c)),
		"Engine.Alloc":  testkit.Second(e.Alloc(0)),
	} {
		require.ErrorIs(t, err, cupool.ErrClosed, what)
	}
}

// TestAllocNothingRetired: from a retired pool neither.
func TestAllocNothingRetired(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	b := pooltest.Alloc(t, p, 512, nil) // it lives on
	require.NoError(t, p.Retire())
	for _, size := range []int64{0, 512} {
		_, err := p.Alloc(size, nil)
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.ErrorContains(t, err, "was retired")
	}
	require.NoError(t, p.Free(b))
	require.NoError(t, c.Close())
}

// closingStream returns a stream that is being closed, and at work until the gate opens.
func closingStream(t *testing.T, c *cupool.Pool, gate <-chan struct{}, use func(s *cupool.Stream)) (closed <-chan error) {
	s := pooltest.NewStream(t, c)
	require.NoError(t, s.Launch(func() { <-gate }))
	use(s)
	closed = pooltest.Start(s.Close)
	for s.Launch(func() {}) == nil {
		runtime.Gosched()
	}
	return closed
}

// TestPendingOfClosingStream: a request waits for blocks that a stream uses which another goroutine
// closes.
func TestPendingOfClosingStream(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			d := &hook.Driver{Driver: pooltest.OpenHost(t), Around: func(call *hook.Call, do func() error) error {
				if call.Name == "SyncEvent" { // somebody waits for the blocks
					open()
				}
				return do()
			}}
			c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing, Limit: 64 * mib})
			closed := closingStream(t, c, gate, func(s *cupool.Stream) {
				blocks := []cupool.Block{pooltest.Alloc(t, c, 30*mib, nil), pooltest.Alloc(t, c, 30*mib, nil)}
				for _, b := range blocks {
					require.NoError(t, c.FreeOn(b, s))
				}
			})
			b, err := c.Alloc(60*mib, nil)
			open()
			require.NoError(t, <-closed)
			require.NoError(t, err)
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Close())
		})
	}
}

// TestSoftLimitBesideClosingStream: a free beyond the soft limit gives no segment back while a stream
// that is being closed is at work, as the device would wait for that.
func TestSoftLimitBesideClosingStream(t *testing.T) {
	var busy atomic.Bool
	var frees atomic.Int64
	gate := make(chan struct{})
	d := &hook.Driver{Driver: pooltest.OpenHost(t), Around: func(call *hook.Call, do func() error) error {
		if call.Name == "MemFree" && busy.Load() {
			frees.Add(1)
			return errors.New("it would wait")
		}
		return do()
	}}
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingSegments})
	b := pooltest.Alloc(t, c, 30*mib, nil)
	require.NoError(t, c.SetSoftLimit(1))
	busy.Store(true)
	closed := closingStream(t, c, gate, func(*cupool.Stream) {})
	require.NoError(t, c.Free(b))
	busy.Store(false)
	close(gate)
	require.NoError(t, <-closed)
	require.Zero(t, frees.Load())
	require.NoError(t, c.Sync())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Close())
}
