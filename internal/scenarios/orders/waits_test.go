package orders_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Tests of what happens between two steps of the allocator: an event that is
// recorded while blocks are freed, waits that move to another stream, memory that
// is on its way back to the device. A device calls the test at the moment that
// counts.

// recorder calls a function, once, when an event was recorded, or a stream was waited
// for, before the allocator knows.
type recorder struct {
	*pooltest.Driver
	recorded, synced func()
}

func newRecorded(t *testing.T) (*cupool.Pool, *recorder) {
	t.Helper()
	d := &recorder{Driver: pooltest.NewDriver(1 << 30)}
	return pooltest.Open(t, cupool.Config{MagazineBytes: -1, Driver: &hook.Driver{Driver: d.Driver, Around: func(c *hook.Call, do func() error) error {
		err := do()
		for call, f := range map[string]*func(){"RecordEvent": &d.recorded, "SyncStream": &d.synced} {
			if now := *f; c.Name == call && now != nil {
				*f = nil
				pooltest.Elsewhere(now)
			}
		}
		return err
	}}}), d
}

// TestFreedWhileRecording: a block that is freed after work which an event does
// not cover, while the call that records the event has not come back, waits for
// more than that event.
func TestFreedWhileRecording(t *testing.T) {
	for name, record := range map[string]func(t *testing.T, c *cupool.Pool, u *cupool.Stream) (done func()){
		"by the program": func(t *testing.T, _ *cupool.Pool, u *cupool.Stream) func() {
			e, err := u.Record()
			require.NoError(t, err)
			return func() {
				done, err := e.Done()
				require.NoError(t, err)
				require.True(t, done)
				require.NoError(t, e.Close())
			}
		},
		"for a freed block": func(t *testing.T, c *cupool.Pool, u *cupool.Stream) func() {
			require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4<<20, nil), u)) // large enough for an event of its own
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := newRecorded(t)
			u := pooltest.NewStream(t, c)
			x := pooltest.Alloc(t, c, 4096, pooltest.NewStream(t, c))
			d.Busy(u)
			d.recorded = func() {
				require.NoError(t, u.Memset(x.Ptr(), 1, x.Size()))
				require.NoError(t, c.FreeOn(x, u))
			}
			done := record(t, c, u)
			require.Nil(t, d.recorded)
			d.Step(u) // the work before the event
			done()
			_, err := c.ProcessDeferred()
			require.NoError(t, err)
			require.EqualValues(t, 1, c.Stats().BlocksPending, "the block whose stream goes on")
			d.Idle(u)
			_, err = c.ProcessDeferred()
			require.NoError(t, err)
			require.Zero(t, c.Stats().BlocksPending)
			require.NoError(t, c.Check())
			require.NoError(t, c.Close())
		})
	}
}

// TestFreedWhileSynchronizing: a block that is freed after work which came too late
// for Sync, while Sync has not come back, waits on.
func TestFreedWhileSynchronizing(t *testing.T) {
	c, d := newRecorded(t)
	u := pooltest.NewStream(t, c)
	x := pooltest.Alloc(t, c, 4096, nil)
	d.synced = func() {
		d.Busy(u)
		require.NoError(t, c.FreeOn(x, u))
	}
	require.NoError(t, u.Sync())
	require.Nil(t, d.synced)
	require.EqualValues(t, 1, c.Stats().BlocksPending, "the block whose stream goes on")
	d.Idle(u)
	_, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, c.Stats().BlocksPending)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestWaitsThatMove: blocks of a stream that is closed wait among those of the
// default stream in the order of what they wait for.
func TestWaitsThatMove(t *testing.T) {
	c, d := newRecorded(t)
	u, s := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	d.Busy(u)
	live := pooltest.Alloc(t, c, 512, s)
	require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4<<20, s), u)) // waits for the first piece of work
	require.NoError(t, u.Memset(live.Ptr(), 1, 1))
	require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4<<20, nil), u)) // for the second
	require.NoError(t, s.Close())
	require.EqualValues(t, 2, c.Stats().BlocksPending)
	d.Step(u)
	freed, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 1, freed)
	d.Step(u)
	freed, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 1, freed)
	require.NoError(t, c.Free(live))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestWaitsForTheRightEvent: who waits for a block waits for the event that covers
// it, not for one before.
func TestWaitsForTheRightEvent(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		u := pooltest.NewStream(t, c)
		first := pooltest.HoldStream(t, u)
		defer first.Open()
		require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4<<20, nil), u))
		second := pooltest.HoldStream(t, u)
		defer second.Open()
		require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4<<20, nil), u))
		done := pooltest.Start(c.EmptyCache)
		first.Open()
		early, err := pooltest.Returns(done)
		require.False(t, early, "EmptyCache returned while a block waits: %v", err)
		second.Open()
		require.NoError(t, <-done)
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
	})
}

// TestAllocWaitsForRelease: a request that finds memory on its way back to the
// device waits for that rather than fail.
func TestAllocWaitsForRelease(t *testing.T) {
	c, d := pooltest.New(t, 64<<20)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, nil)))
	var once atomic.Bool
	var asked <-chan error
	d.Hook = func(call string) {
		if call == "MemFree" && once.CompareAndSwap(false, true) {
			asked = pooltest.Start(func() error {
				b, err := c.Alloc(50<<20, nil)
				return errors.Join(err, c.Free(b))
			})
			early, err := pooltest.Returns(asked)
			if early {
				t.Errorf("the request did not wait: %v", err)
				asked = pooltest.Start(func() error { return nil })
			}
		}
	}
	require.NoError(t, c.EmptyCache())
	require.NoError(t, <-asked)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestSleepWaitsForEveryStream: nothing is unmapped before the work of all
// streams is over, also of those that the allocator has nothing of.
func TestSleepWaitsForEveryStream(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d})
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 4<<20, nil)
	g := pooltest.HoldStream(t, s)
	defer g.Open()
	require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
	var early atomic.Bool
	d.Watch(func(call string, _ cupool.StreamHandle) {
		if call == "MemUnmap" && !g.Opened() {
			early.Store(true)
		}
	})
	slept := pooltest.Start(func() error { return c.Sleep(nil) })
	tooEarly, err := pooltest.Returns(slept)
	if errors.Is(err, cupool.ErrNotSupported) {
		t.Skip(err)
	}
	g.Open()
	require.False(t, tooEarly, "Sleep returned while a stream was at work: %v", err)
	require.NoError(t, <-slept)
	require.False(t, early.Load(), "memory was unmapped under work")
	require.NoError(t, c.Wake())
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestClosedPoolThatHoldsMemory: what the device would not have back when a pool
// was closed is counted against the limit until the device takes it.
func TestClosedPoolThatHoldsMemory(t *testing.T) {
	stuck := errors.New("stuck")
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.Limit = 64 << 20 })
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 40<<20, nil)))
	d.Fail("MemFree", stuck)
	require.ErrorIs(t, p.Close(), stuck)
	require.NoError(t, c.Check())
	_, err := c.Alloc(40<<20, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorIs(t, c.EmptyCache(), stuck)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 20<<20, nil)))
	d.Fail("MemFree", nil)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, nil)))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestAllocWaitsForLateRelease: a request waits also for memory that another
// goroutine began to give back after the request had looked everywhere.
func TestAllocWaitsForLateRelease(t *testing.T) {
	var asked atomic.Bool
	var p *cupool.Pool
	var u *cupool.Stream
	var d *pooltest.Driver
	c, d := pooltest.New(t, 64<<20, func(cfg *cupool.Config) {
		cfg.OnOutOfMemory = func(int64) bool {
			y := pooltest.Alloc(t, p, 4<<20, nil)
			d.Busy(u)
			require.NoError(t, p.FreeOn(y, u)) // what the last look at the pool asks about
			asked.Store(true)
			return false
		}
	})
	p = pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	u = pooltest.NewStream(t, c)
	x := pooltest.Alloc(t, c, 40<<20, nil)
	freeing, trimmed := make(chan struct{}), make(<-chan error)
	d.Hook = func(call string) {
		switch {
		case call == "QueryEvent" && asked.CompareAndSwap(true, false):
			pooltest.Elsewhere(func() { require.NoError(t, c.Free(x)) })
			trimmed = pooltest.Start(func() error { _, err := c.Trim(0); return err })
			<-freeing
		case call == "MemFree":
			select {
			case <-freeing:
			default:
				close(freeing)
				time.Sleep(pooltest.Patience) // until the request has nothing left to try
			}
		}
	}
	b := pooltest.Alloc(t, c, 30<<20, nil)
	require.NoError(t, <-trimmed)
	d.Idle(u)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestTrimLetsTheWorkFree: a function that a stream runs may free blocks of the heap whose
// memory is given back, also while that waits for the stream with the heap's lock held.
func TestTrimLetsTheWorkFree(t *testing.T) {
	host := pooltest.OpenHost(t)
	var synced, locked func() // called once: after the first wait, and in the next one
	once := func(f *func()) {
		if now := *f; now != nil {
			*f = nil
			pooltest.Elsewhere(now)
		}
	}
	c, err := cupool.New(cupool.Config{Backing: cupool.BackingVMM, MagazineBytes: -1, Driver: &hook.Driver{Driver: host, Around: func(c *hook.Call, do func() error) error {
		wait := c.Name == "SyncStream" && c.Stream != 0
		if wait && synced != nil {
			err := do()
			once(&synced)
			return err
		}
		if wait || c.Name == "QueryEvent" {
			once(&locked)
		}
		return do()
	}}})
	if errors.Is(err, cupool.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	s := pooltest.NewStream(t, c)
	a, b, first := pooltest.Alloc(t, c, 4<<20, s), pooltest.Alloc(t, c, 4<<20, s), pooltest.Alloc(t, c, 4<<20, s)
	require.NoError(t, c.Free(first))
	require.NoError(t, s.Launch(func() {}))
	var freed error
	synced = func() {
		waits := make(chan struct{})
		locked = func() { close(waits) }
		require.NoError(t, s.Launch(func() { <-waits; freed = c.Free(b) }))
		require.NoError(t, c.Free(a))
	}
	testkit.Finishes(t, "Trim", func() {
		released, err := c.Trim(0)
		require.NoError(t, err)
		require.Positive(t, released)
	})
	require.NoError(t, s.Sync())
	require.NoError(t, freed)
	require.NoError(t, c.Close())
}
