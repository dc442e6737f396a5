package cupool_test

import (
	"cmp"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// careless is a program that reads a block of one stream on another one, which it does
// not record, and frees it while that has not begun. Neither has other work.
type careless struct {
	*testing.T
	d           *simdev.Device
	c           *cupool.Pool // that the blocks are of
	owner, side *cupool.Stream
	live        []cupool.Block
	ran         bool // the side stream has read

	// meanwhile is called where a stream is waited for, which wait does. nil: nothing else.
	meanwhile func(s cupool.StreamHandle, wait func() error) error
}

func newCareless(t *testing.T, cfg cupool.Config) *careless {
	x := &careless{T: t, d: simdev.New(simdev.Config{ManualEvents: true, IdleEvents: true})}
	cfg.MagazineBytes = cmp.Or(cfg.MagazineBytes, -1)
	cfg.Driver = &hook.Driver{Driver: x.d, Around: func(c *hook.Call, do func() error) error {
		if x.meanwhile != nil && c.Name == "SyncStream" {
			return x.meanwhile(c.Stream, do)
		}
		return do()
	}}
	x.c = pooltest.Open(t, cfg)
	x.owner, x.side = pooltest.NewStream(t, x.c), pooltest.NewStream(t, x.c)
	return x
}

// drop frees a block of the owner that the side stream will read.
func (x *careless) drop(b cupool.Block) {
	require.NoError(x, x.side.Launch(func() { x.ran = true }))
	require.NoError(x, x.c.Free(b))
}

func (x *careless) alloc(size int64, s *cupool.Stream) cupool.Block {
	x.Helper()
	b := pooltest.Alloc(x.T, x.c, size, s)
	x.live = append(x.live, b)
	return b
}

func (x *careless) close() {
	x.d.CompleteAll()
	for _, b := range x.live {
		require.NoError(x, x.c.Free(b))
	}
	for _, p := range x.owner.Pool().Pools() {
		require.NoError(x, p.Close())
	}
	require.NoError(x, x.owner.Pool().Close())
	require.NoError(x, x.d.Check())
	require.NoError(x, x.d.Close())
}

// gaveBack reports whether memory went back to the device in a call.
func (x *careless) gaveBack(f func() error) bool {
	before := x.c.Stats().All.ReservedBytes.Current
	require.NoError(x, f())
	return x.c.Stats().All.ReservedBytes.Current < before
}

// TestCareless: memory that a program frees while a stream that it did not record may
// read it moves, is lent, or goes back too early for that stream in the owner's order,
// and not in the device's order.
func TestCareless(t *testing.T) {
	segments, vmm := cupool.BackingSegments, cupool.BackingVMM
	for name, tc := range map[string]struct {
		backing cupool.Backing
		cfg     cupool.Config
		prepare func(x *careless)      // before the block is allocated
		try     func(x *careless) bool // after its free; reports whether the memory went
		waits   bool                   // the call waits for work
		never   bool                   // in no order too early
	}{
		"moves, segments": {backing: segments, try: moves},
		"moves, vmm":      {backing: vmm, try: moves},
		"is lent":         {backing: vmm, prepare: (*careless).lend, try: borrows},
		"is lent before an out of memory": {backing: segments, cfg: cupool.Config{Limit: 64 * mib}, prepare: func(x *careless) {
			require.NoError(x, x.c.Reserve(64*mib, x.owner))
			x.alloc(3*mib, x.owner) // or the segment would go back
		}, try: func(x *careless) bool {
			b := x.alloc(40*mib, x.c.DefaultStream())
			return x.c.IsLent(b)
		}, waits: true},
		"trim, segments": {backing: segments, try: trims, waits: true, never: true}, // MemFree waits for the device
		"trim, vmm":      {backing: vmm, try: trims, waits: true},
		"trim, functions of the program": {backing: segments, prepare: func(x *careless) {
			x.c = pooltest.NewPrivate(x.T, x.c, cupool.PoolConfig{
				Alloc: x.d.MemAlloc,
				Free:  func(cupool.Ptr, int64) error { return nil },
			})
		}, try: trims, waits: true},
		"empty cache": {backing: vmm, waits: true, try: func(x *careless) bool { return x.gaveBack(x.c.EmptyCache) }},
		"soft limit, vmm": {backing: vmm, try: func(x *careless) bool {
			return x.gaveBack(func() error { return x.c.SetSoftLimit(1) })
		}},
		"soft limit, segments": {backing: segments, never: true, try: func(x *careless) bool {
			return x.gaveBack(func() error { return x.c.SetSoftLimit(1) })
		}},
		"decay": {backing: vmm, cfg: cupool.Config{Decay: time.Second}, try: func(x *careless) bool {
			// Between two looks of the pool: one at this moment would run beside the test.
			return x.gaveBack(func() error { time.Sleep(3*time.Second + time.Millisecond); return nil })
		}},
		"sleep": {backing: vmm, waits: true, never: true, try: func(x *careless) bool {
			require.NoError(x, x.c.Sleep(nil))
			require.Zero(x, x.c.Stats().All.ReservedBytes.Current)
			require.NoError(x, x.c.Wake())
			return true
		}},
		"the owner is closed, and the memory moves": {backing: vmm, try: func(x *careless) bool {
			require.NoError(x, pooltest.Ignore(x.owner.Close(), cupool.ErrClosed))
			return moves(x)
		}},
		"the owner is closed, and has a block": {backing: vmm, prepare: func(x *careless) { x.alloc(mib+mib/2, x.owner) }, waits: true, try: func(x *careless) bool {
			require.NoError(x, pooltest.Ignore(x.owner.Close(), cupool.ErrClosed))
			before := x.c.Stats().All.ReservedBytes.Current
			x.alloc(40*mib, x.c.DefaultStream())
			return x.c.Stats().All.ReservedBytes.Current == before
		}},
	} {
		for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
			t.Run(name+", "+order.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := tc.cfg
					cfg.Backing, cfg.IdleOrder = tc.backing, order
					x := newCareless(t, cfg)
					if tc.prepare != nil {
						tc.prepare(x)
					}
					x.drop(pooltest.Alloc(t, x.c, 60*mib, x.owner))
					went := tc.try(x)
					early := went && !x.ran
					require.Equal(t, order == cupool.OwnerOrder && !tc.never, early, "too early for the side stream")
					require.Equal(t, early || tc.waits, went)
					if !went {
						x.d.CompleteAll()
						require.True(t, tc.try(x), "when the side stream has read, it goes")
					}
					require.NoError(t, x.c.Check())
					x.close()
				})
			})
		}
	}
}

// moves reports whether another stream was served with the memory.
func moves(x *careless) bool {
	before := x.c.Stats().Moves
	x.alloc(60*mib, x.c.DefaultStream())
	return x.c.Stats().Moves > before
}

// lend has the owner lend its memory, block by block.
func (x *careless) lend() { x.c.MakeLender(x.owner) }

func borrows(x *careless) bool { return x.c.IsLent(x.alloc(60*mib, x.c.DefaultStream())) }

func trims(x *careless) bool {
	released, err := x.c.Trim(0)
	require.NoError(x, err)
	return released > 0
}

// TestCarelessFault is the sequence of PyTorch's test_cusparse_multiple_threads_same_device:
// a block of the default stream is read on a thread's stream and dropped, and a third
// stream needs memory. In the owner's order that ends in an illegal address. It is the
// program that breaks the contract: what records the stream, or has the owner wait for it
// before the free, is served well in both orders.
func TestCarelessFault(t *testing.T) {
	for name, tc := range map[string]struct {
		order  cupool.IdleOrder
		before func(x *careless, b cupool.Block) error // the free
		lost   bool
	}{
		"owner":                         {order: cupool.OwnerOrder, lost: true},
		"device":                        {order: cupool.DeviceOrder},
		"owner, with RecordStream":      {before: func(x *careless, b cupool.Block) error { return x.c.RecordStream(b, x.side) }},
		"owner, with the owner waiting": {before: func(x *careless, _ cupool.Block) error { return x.owner.WaitStream(x.side) }},
	} {
		t.Run(name, func(t *testing.T) {
			x := newCareless(t, cupool.Config{IdleOrder: tc.order, Backing: cupool.BackingVMM})
			x.owner = x.c.DefaultStream()
			b := pooltest.Alloc(t, x.c, 60*mib, x.owner)
			require.NoError(t, x.side.Memset(b.Ptr(), 1, b.Size()))
			if tc.before != nil {
				require.NoError(t, tc.before(x, b))
			}
			require.NoError(t, x.c.Free(b))
			x.alloc(60*mib, pooltest.NewStream(t, x.c))
			x.d.CompleteAll()
			if tc.lost {
				require.ErrorIs(t, x.side.Sync(), cupool.ErrDeviceLost)
				require.Error(t, x.c.Close())
				return
			}
			require.NoError(t, x.side.Sync())
			x.close()
		})
	}
}

// TestDeviceOrderAsksOnce: for memory that all streams are known to have passed no event
// is recorded, and for memory that waits for one none beside it.
func TestDeviceOrderAsksOnce(t *testing.T) {
	x := newCareless(t, cupool.Config{IdleOrder: cupool.DeviceOrder, Backing: cupool.BackingVMM})
	x.drop(pooltest.Alloc(t, x.c, 60*mib, x.owner))
	events := func() int64 { return x.c.Stats().EventsRecorded }
	for range 3 {
		require.False(t, moves(x))
		require.EqualValues(t, 3, events(), "one on each stream")
	}
	x.d.CompleteAll()
	require.True(t, moves(x))
	require.EqualValues(t, 3, events())
	x.close()
}

// TestDeviceOrderCaptured: a stream that is captured holds memory up for what it was given
// before the capture, and for nothing else.
func TestDeviceOrderCaptured(t *testing.T) {
	x := newCareless(t, cupool.Config{IdleOrder: cupool.DeviceOrder, Backing: cupool.BackingVMM})
	b := pooltest.Alloc(t, x.c, 60*mib, x.owner)
	require.NoError(t, x.side.Launch(func() { x.ran = true }))
	end, err := x.side.Capture()
	require.NoError(t, err)
	require.NoError(t, x.c.Free(b))
	require.False(t, moves(x))
	released, err := x.c.Trim(0)
	require.NoError(t, err)
	require.NotZero(t, released)
	require.True(t, x.ran)
	require.NoError(t, x.c.Free(pooltest.Alloc(t, x.c, 60*mib, x.owner)))
	require.True(t, moves(x), "nothing can be waited for while it is captured")
	end()
	x.close()
}

// TestCarelessBorrower: a block that was lent and is freed goes from one stream to another,
// so that in the device's order the lender waits for the side stream, too.
func TestCarelessBorrower(t *testing.T) {
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		t.Run(order.String(), func(t *testing.T) {
			x := newCareless(t, cupool.Config{IdleOrder: order, Backing: cupool.BackingVMM})
			require.NoError(t, x.c.Free(pooltest.Alloc(t, x.c, 60*mib, x.owner)))
			x.lend()
			b := pooltest.Alloc(t, x.c, 60*mib, nil)
			require.True(t, x.c.IsLent(b))
			x.drop(b)
			require.Equal(t, order == cupool.OwnerOrder, x.alloc(60*mib, x.owner).Ptr() == b.Ptr())
			require.False(t, x.ran)
			x.close()
		})
	}
}

// TestCarelessWhileTheOwnerIsClosed: a block is freed when Close of its stream has waited for
// all others, and as another block is live the default stream has the memory next. In the
// device's order it waits for the side stream again.
func TestCarelessWhileTheOwnerIsClosed(t *testing.T) {
	for name, magazineBytes := range map[string]int64{"homed": 8 * mib, "not homed": -1} {
		for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
			t.Run(name+", "+order.String(), func(t *testing.T) {
				x := newCareless(t, cupool.Config{IdleOrder: order, Backing: cupool.BackingVMM, MagazineBytes: magazineBytes})
				x.alloc(mib, x.owner)
				for range 3 { // so that the size recurs
					require.NoError(t, x.c.Free(pooltest.Alloc(t, x.c, mib, x.owner)))
				}
				b := pooltest.Alloc(t, x.c, mib, x.owner)
				require.Equal(t, magazineBytes > 0, x.c.IsHomed(b))
				last := x.owner
				if order == cupool.DeviceOrder {
					last = x.side
				}
				x.meanwhile = func(s cupool.StreamHandle, wait func() error) error {
					err := wait()
					if s == last.Handle() {
						x.meanwhile = nil
						aside(func() { x.drop(b) })
					}
					return err
				}
				require.NoError(t, x.owner.Close())
				require.Nil(t, x.meanwhile, "the block was freed")
				require.Equal(t, order == cupool.OwnerOrder, x.alloc(mib, nil).Ptr() == b.Ptr())
				require.False(t, x.ran)
				x.close()
			})
		}
	}
}

// TestCarelessWhileTheReaderIsClosed: a block that was lent is freed while Close of the side
// stream waits for what reads it. In the device's order the lender waits for that, too.
func TestCarelessWhileTheReaderIsClosed(t *testing.T) {
	for _, order := range []cupool.IdleOrder{cupool.OwnerOrder, cupool.DeviceOrder} {
		t.Run(order.String(), func(t *testing.T) {
			x := newCareless(t, cupool.Config{IdleOrder: order, Backing: cupool.BackingVMM})
			require.NoError(t, x.c.Free(pooltest.Alloc(t, x.c, 60*mib, x.owner)))
			x.lend()
			b := pooltest.Alloc(t, x.c, 60*mib, nil)
			require.True(t, x.c.IsLent(b))
			require.NoError(t, x.side.Launch(func() { x.ran = true }))
			early := false
			x.meanwhile = func(_ cupool.StreamHandle, wait func() error) error {
				x.meanwhile = nil
				aside(func() {
					require.NoError(t, x.c.Free(b))
					early = x.alloc(60*mib, x.owner).Ptr() == b.Ptr() && !x.ran
				})
				return wait()
			}
			require.NoError(t, x.side.Close())
			require.True(t, x.ran)
			require.Equal(t, order == cupool.OwnerOrder, early)
			x.close()
		})
	}
}

// aside calls f on a goroutine of its own, as the caller may hold locks, and waits for it.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// TestAllocBesideCapture: a stream that begins a capture while a request waits for it keeps its memory,
// and that of others serves.
func TestAllocBesideCapture(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		host := must(cupool.OpenHost(cupool.HostConfig{Capacity: 64 * mib}))
		c := pooltest.Open(t, cupool.Config{Driver: host, Backing: cupool.BackingVMM, WaitTimeout: timeout})
		a, b := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
		x, y := pooltest.Alloc(t, c, 20*mib, a), pooltest.Alloc(t, c, 30*mib, b)
		g, h := pooltest.HoldStream(t, a), pooltest.HoldStream(t, b)
		freeAll(t, c, []cupool.Block{x, y})
		var got cupool.Block
		done := pooltest.Start(func() (err error) { got, err = c.Alloc(40*mib, nil); return err })
		early, _ := pooltest.Returns(done)
		require.False(t, early)
		end := must(a.Capture())
		g.Open()
		h.Open()
		require.NoError(t, <-done)
		end()
		require.NoError(t, c.Free(got))
		require.NoError(t, c.Close())
		require.NoError(t, host.Close())
	}
}

// TestCapturedUntouched: who ends a pool waits for what a captured stream was given before, and asks
// the device for nothing that would break the capture.
func TestCapturedUntouched(t *testing.T) {
	for name, call := range map[string]func(c, p *cupool.Pool) error{
		"Retire":     func(_, p *cupool.Pool) error { return p.Retire() },
		"Close":      func(_, p *cupool.Pool) error { return p.Close() },
		"Sync":       func(c, _ *cupool.Pool) error { return c.Sync() },
		"EmptyCache": func(c, p *cupool.Pool) error { return errors.Join(p.Retire(), c.EmptyCache()) },
	} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.NewWatched(t)
			c := pooltest.Open(t, cupool.Config{Driver: d})
			s, p := pooltest.NewStream(t, c), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			require.NoError(t, p.Free(pooltest.Alloc(t, p, mib, nil)))
			end := must(s.Capture())
			var touched atomic.Bool
			d.Watch(func(_ string, of cupool.StreamHandle) {
				if of == s.Handle() {
					touched.Store(true)
				}
			})
			require.NoError(t, call(c, p))
			require.False(t, touched.Load())
			d.Watch(func(string, cupool.StreamHandle) {})
			end()
			require.NoError(t, c.Close())
		})
	}
}
