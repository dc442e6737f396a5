package cupool_test

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Sleep and Wake by a device that cannot, or is full by then.
func TestSleepErrors(t *testing.T) {
	segments, _ := pooltest.New(t, 1<<30)
	require.ErrorIs(t, segments.Sleep(nil), cupool.ErrNotSupported)
	require.NoError(t, segments.Close())

	d := simdev.New(simdev.Config{Capacity: 64 * mib})
	c := pooltest.Open(t, cupool.Config{Driver: d})
	b := pooltest.Alloc(t, c, 40*mib, nil)
	require.NoError(t, c.Sleep(nil))
	other, err := d.MemAlloc(30 * mib)
	require.NoError(t, err)
	require.ErrorIs(t, c.Wake(), cupool.ErrOutOfMemory)
	require.EqualValues(t, 30*mib, d.Stats().UsedBytes, "it holds nothing meanwhile")
	require.EqualValues(t, 40*mib, c.Stats().AsleepBytes)
	require.Contains(t, c.Stats().String(), "reserved 0 B = live 40 MiB + pending 0 B + cached 0 B - asleep 40 MiB; limit none\n")
	require.NoError(t, d.MemFree(other))
	require.NoError(t, c.Wake())
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Sleep(nil), cupool.ErrClosed)
	require.ErrorIs(t, c.Wake(), cupool.ErrClosed)
}

// TestFreedWhileWaking: what is freed while its contents are on their way back becomes zero after
// them.
func TestFreedWhileWaking(t *testing.T) {
	host := pooltest.OpenHost(t)
	open := make(chan struct{})
	d := &hook.Driver{Driver: host, Around: func(call *hook.Call, do func() error) error {
		if call.Name == "CopyIn" {
			require.NoError(t, host.(cupool.Launcher).Launch(call.Stream, func() { <-open }))
		}
		return do()
	}}
	c := pooltest.Open(t, cupool.Config{Driver: d, ZeroOnFree: true})
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 4096, s)
	require.NoError(t, s.Memset(b.Ptr(), 0xAA, b.Size()))
	require.NoError(t, c.Sleep(func(cupool.Block) bool { return true }))
	waking := pooltest.Start(c.Wake)
	early, _ := pooltest.Returns(waking)
	require.False(t, early)
	require.NoError(t, c.Free(b))
	time.AfterFunc(pooltest.Patience, func() { close(open) })
	require.NoError(t, <-waking)
	again := pooltest.Alloc(t, c, 4096, s)
	require.Equal(t, b.Ptr(), again.Ptr())
	got := make([]byte, 4096)
	require.NoError(t, s.CopyOut(got, again.Ptr()))
	require.Equal(t, 4096, bytes.Count(got, []byte{0}))
	require.NoError(t, errors.Join(c.Free(again), c.Close(), host.Close()))
}

// Nothing is handed out while the allocator sleeps, also not a block that goes back
// to a magazine meanwhile.
func TestNothingServedAsleep(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM})
	for range 10 { // the size gets a home
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 4096, nil)))
	}
	b := pooltest.Alloc(t, c, 4096, nil)
	require.NoError(t, c.Sleep(nil))
	require.NoError(t, c.Free(b))
	_, err := c.Alloc(4096, nil)
	require.ErrorIs(t, err, cupool.ErrAsleep)
	require.NoError(t, c.Wake())
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestAllocBesideFailingSleep: an allocation beside a Sleep that fails gets a block or ErrAsleep.
func TestAllocBesideFailingSleep(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM})
	held := pooltest.Alloc(t, c, 4096, nil)
	release, err := c.Hold(held)
	require.NoError(t, err)
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !over.Load() {
				b, err := c.Alloc(mib, nil)
				if errors.Is(err, cupool.ErrAsleep) {
					continue
				}
				assert.NoError(t, err)
				if !assert.EqualValues(t, mib, b.Size()) {
					return
				}
				assert.NoError(t, c.Free(b))
			}
		})
	}
	for range testkit.Rounds(200_000) {
		require.ErrorIs(t, c.Sleep(nil), cupool.ErrNotSupported, "a block is held")
	}
	over.Store(true)
	wg.Wait()
	release()
	require.NoError(t, c.Free(held))
	require.NoError(t, c.Close())
}

// atCopyIn returns a device that calls f for the nth CopyIn in place of the call, which is do.
func atCopyIn(d cupool.Driver, f func(n int, do func() error) error) cupool.Driver {
	n := 0
	return &hook.Driver{Driver: d, Around: func(c *hook.Call, do func() error) error {
		if c.Name != "CopyIn" {
			return do()
		}
		n++
		return f(n, do)
	}}
}

// TestWakeWaitsForCopies: a copy of contents that was begun before Wake failed is
// done when its memory goes.
func TestWakeWaitsForCopies(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{"plain": {}, "filled": {Sanitize: cupool.Sanitizers{Canaries: 64, Poison: true, Quarantine: 1 << 20}, ZeroOnFree: true}} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.OpenHost(t)
			gate := make(chan struct{})
			var c *cupool.Pool
			var live []cupool.Block
			cfg.Driver = atCopyIn(d, func(n int, do func() error) error {
				switch n {
				case 1:
					require.NoError(t, c.DefaultStream().Launch(func() { <-gate }))
				case 2:
					require.NoError(t, c.Free(live[2])) // one that was filled
					time.AfterFunc(100*time.Millisecond, func() { close(gate) })
					return errors.New("injected")
				}
				return do()
			})
			c = pooltest.Open(t, cfg)
			for _, s := range []*cupool.Stream{nil, nil, pooltest.NewStream(t, c)} {
				live = append(live, pooltest.Alloc(t, c, 4096, s))
			}
			require.NoError(t, c.Sleep(func(b cupool.Block) bool { return b != live[2] }))
			require.ErrorContains(t, c.Wake(), "injected")
			require.NoError(t, c.DefaultStream().Sync())
			require.ErrorIs(t, c.Err(), cupool.ErrAsleep)
			require.NoError(t, c.Wake())
			require.NoError(t, c.Check())
			freeAll(t, c, live[:2])
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// TestWakeLetsTheWorkFree: a function that a stream runs may free blocks while Wake waits.
func TestWakeLetsTheWorkFree(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{"plain": {}, "zeros": {ZeroOnFree: true}, "filled": {Sanitize: cupool.Sanitizers{Canaries: 64, Poison: true}}} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.OpenHost(t)
			var c *cupool.Pool
			var a, b cupool.Block
			var freed error
			copied, waits := false, make(chan struct{})
			wait := sync.OnceFunc(func() { close(waits) })
			cfg.Driver = &hook.Driver{Driver: d, Around: func(call *hook.Call, do func() error) error {
				switch {
				case call.Name == "CopyIn" && !copied:
					copied = true
					err := do()
					require.NoError(t, c.DefaultStream().Launch(func() { <-waits; freed = c.Free(a) }))
					return err
				case call.Name == "SyncStream" && copied:
					wait()
				}
				return do()
			}}
			c = pooltest.Open(t, cfg)
			a, b = pooltest.Alloc(t, c, 4096, nil), pooltest.Alloc(t, c, 4096, nil)
			require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, 4096))
			require.NoError(t, c.Sleep(func(cupool.Block) bool { return true }))
			testkit.Finishes(t, "Wake", func() { require.NoError(t, c.Wake()) })
			require.NoError(t, freed)
			require.NoError(t, c.Check())
			got := make([]byte, 4096)
			require.NoError(t, c.DefaultStream().CopyOut(got, b.Ptr()))
			require.Equal(t, bytes.Repeat([]byte{7}, 4096), got)
			if cfg.ZeroOnFree {
				require.NoError(t, c.DefaultStream().CopyOut(got, a.Ptr()))
				require.Equal(t, make([]byte, 4096), got)
			}
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// TestWakeTimeout: where the copies are not done in time, their memory stays, and
// Wake goes on later.
func TestWakeTimeout(t *testing.T) {
	d := pooltest.OpenHost(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, WaitTimeout: time.Millisecond})
	b := pooltest.Alloc(t, c, 4096, nil)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, 4096))
	require.NoError(t, pooltest.Patiently(func() error { return c.Sleep(func(cupool.Block) bool { return true }) }))
	gate := make(chan struct{})
	require.NoError(t, c.DefaultStream().Launch(func() { <-gate }))
	var late *cupool.WaitError
	require.ErrorAs(t, c.Wake(), &late)
	close(gate)
	require.NoError(t, pooltest.Patiently(c.Wake))
	gate = make(chan struct{})
	require.NoError(t, c.DefaultStream().Launch(func() { <-gate }))
	require.NoError(t, c.Wake(), "it is awake, and waits for nothing")
	freed := pooltest.Alloc(t, c, 512, pooltest.NewStream(t, c))
	require.NoError(t, c.FreeOn(freed, nil))
	require.ErrorAs(t, c.EmptyCache(), &late)
	require.Positive(t, late.Age, "of the event that was recorded for it")
	close(gate)
	got := make([]byte, 4096)
	require.NoError(t, pooltest.Patiently(func() error { return c.DefaultStream().CopyOut(got, b.Ptr()) }))
	require.Equal(t, bytes.Repeat([]byte{7}, 4096), got)
	require.NoError(t, c.Free(b))
	require.NoError(t, pooltest.Patiently(c.Close))
	require.NoError(t, d.Close())
}

// lateSleep gives work to s while Sleep asks for the first block that it keeps, and returns its error
// and what lets the work go on.
func lateSleep(t *testing.T, p *cupool.Pool, s *cupool.Stream) (goOn func(), err error) {
	var g *pooltest.Gate
	err = p.Sleep(func(cupool.Block) bool {
		if g == nil {
			pooltest.Elsewhere(func() { g = pooltest.HoldStream(t, s) })
		}
		return true
	})
	return g.Open, err
}

// TestSleepLate: another part of the program gives work to a stream while a pool goes to sleep, and
// the pool stays awake with all that its blocks hold.
func TestSleepLate(t *testing.T) {
	for name, cfg := range map[string]cupool.PoolConfig{"zeroed": {ZeroOnFree: true}, "copied": {}} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{Backing: cupool.BackingVMM, WaitTimeout: 20 * time.Millisecond})
			p := pooltest.NewPrivate(t, c, cfg)
			s := c.DefaultStream()
			live := []cupool.Block{pooltest.Alloc(t, p, 64, nil)}
			if cfg.ZeroOnFree {
				s = pooltest.NewStream(t, c)
				live = append(live, pooltest.Alloc(t, p, 64, s))
			}
			want, got := bytes.Repeat([]byte{7}, 64), make([]byte, 64)
			require.NoError(t, pooltest.Patiently(func() error { return c.DefaultStream().CopyIn(live[0].Ptr(), want) }))
			goOn, err := lateSleep(t, p, s)
			goOn()
			var late *cupool.WaitError
			require.ErrorAs(t, err, &late)
			require.NoError(t, p.Err(), "it is awake")
			require.NoError(t, pooltest.Patiently(func() error { return c.DefaultStream().CopyOut(got, live[0].Ptr()) }))
			require.Equal(t, want, got)
			freeAll(t, c, live)
		})
	}
}

// TestSleepZeroed: where the device fails once blocks were zeroed, the pool sleeps, and Wake brings
// their contents back.
func TestSleepZeroed(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, ZeroOnFree: true})
	b := pooltest.Alloc(t, c, 4096, nil)
	want, got := bytes.Repeat([]byte{7}, 4096), make([]byte, 4096)
	require.NoError(t, c.DefaultStream().CopyIn(b.Ptr(), want))
	d.Watch(func(call string, _ cupool.StreamHandle) {
		if call == "Memset" {
			d.FailAlways("SyncStream", errors.New("no luck"))
		}
	})
	require.ErrorContains(t, c.Sleep(func(cupool.Block) bool { return true }), "no luck")
	d.Watch(func(string, cupool.StreamHandle) {})
	d.Heal()
	require.ErrorIs(t, c.Err(), cupool.ErrAsleep)
	require.NoError(t, c.Wake())
	require.NoError(t, c.DefaultStream().CopyOut(got, b.Ptr()))
	require.Equal(t, want, got)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}

// TestSleepQuarantineStays: where blocks cannot leave their quarantine the pool stays awake, as
// their memory is not what Sleep would bring back.
func TestSleepQuarantineStays(t *testing.T) {
	for _, call := range []string{"Memset", "SyncStream"} {
		t.Run(call, func(t *testing.T) {
			d := pooltest.NewWatched(t)
			c := pooltest.Open(t, cupool.Config{
				Driver: d, Backing: cupool.BackingVMM, ZeroOnFree: true,
				Sanitize: cupool.Sanitizers{Poison: true, Quarantine: 1 << 20},
			})
			b := pooltest.Alloc(t, c, 4096, nil)
			live := pooltest.Alloc(t, c, 4096, nil)
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Sync())
			nth := 1
			if call == "SyncStream" { // the first waits for what the program submitted
				nth = 2
			}
			d.FailNth(call, nth, errors.New("no luck"))
			require.ErrorContains(t, c.Sleep(nil), "no luck")
			require.NoError(t, c.Err(), "it is awake")
			require.NoError(t, c.Check())
			require.NoError(t, c.Sleep(nil))
			require.NoError(t, c.Wake())
			require.NoError(t, c.Check())
			require.NoError(t, c.Free(live))
			require.NoError(t, c.Close())
		})
	}
}
