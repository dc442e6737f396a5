package cupool_test

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// What private pools have that an allocator has not; the rest is in the battery
// (TestConformancePools), and PyTorch's checklist in internal/conformance/pytorch.

func TestPoolConfigErrors(t *testing.T) {
	pooltest.Backings(t, 64<<20, func(t *testing.T, c *cupool.Pool) {
		alloc := func(int64) (cupool.Ptr, error) { return 0, nil }
		for field, cfg := range map[string]cupool.PoolConfig{
			"Limit":    {Limit: -1},
			"Alloc":    {Alloc: alloc},
			"UseOnOOM": {Isolated: true, UseOnOOM: true},
		} {
			_, err := c.NewPool(cfg)
			var e *cupool.ConfigError
			require.ErrorAs(t, err, &e)
			require.Equal(t, field, e.Field)
		}
		require.ErrorIs(t, c.Retire(), cupool.ErrNotSupported)
		require.NoError(t, c.Close())
		_, err := c.NewPool(cupool.PoolConfig{})
		require.ErrorIs(t, err, cupool.ErrClosed)
	})
}

// TestPoolFamily: every member frees, finds and records the blocks of every
// other, by handle and by address, and tells what is wrong with them.
func TestPoolFamily(t *testing.T) {
	pooltest.Backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
		a, b := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "b"})
		s := pooltest.NewStream(t, a)
		require.Same(t, c.DefaultStream(), b.DefaultStream())
		members := []*cupool.Pool{c, a, b}
		for _, from := range members {
			for _, by := range members {
				x := pooltest.Alloc(t, from, 3000, s)
				got, err := by.Lookup(x.Ptr() + 2999)
				require.NoError(t, err)
				require.Equal(t, x, got)
				require.ErrorIs(t, by.FreePtr(x.Ptr()+1, -1), cupool.ErrInteriorPointer)
				require.ErrorIs(t, by.FreePtr(x.Ptr(), 1), cupool.ErrSizeMismatch)
				require.NoError(t, by.RecordStream(x, nil))
				require.NoError(t, by.Free(x))
				require.ErrorIs(t, by.Free(x), cupool.ErrDoubleFree)
				require.ErrorIs(t, by.RecordStream(x, nil), cupool.ErrUseAfterFree)
				require.NoError(t, by.FreePtr(pooltest.Alloc(t, from, 70_000, nil).Ptr(), 70_000))
				by.FreeLater(pooltest.Alloc(t, from, 512, s))
				_, err = by.ProcessDeferred()
				require.NoError(t, err)
				require.Zero(t, from.Stats().LiveBytes)
			}
		}
		foreign := pooltest.Open(t, cupool.Config{})
		x := pooltest.Alloc(t, foreign, 1, nil)
		require.ErrorIs(t, a.Free(x), cupool.ErrForeignPointer)
		_, err := a.Alloc(1, foreign.DefaultStream())
		require.ErrorIs(t, err, cupool.ErrForeignStream)
		require.NoError(t, foreign.Free(x))
		require.NoError(t, foreign.Close())
		require.Equal(t, []*cupool.Pool{a, b}, c.Pools())
		require.Equal(t, []string{"", "b"}, []string{c.Name(), b.Name()})
	})
}

// TestPoolLimits: the allocator's limit is for all of its pools together, a
// pool's own for the pool, and a tenant at its limit takes nothing from others.
func TestPoolLimits(t *testing.T) {
	limit := func(cfg *cupool.Config) { cfg.Limit = 96 << 20 }
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		a, b := pooltest.NewPrivate(t, c, cupool.PoolConfig{Limit: 40 << 20}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		require.EqualValues(t, 40<<20, a.Stats().Limit)
		require.EqualValues(t, 96<<20, b.Stats().Limit)
		cached := pooltest.Alloc(t, c, 30<<20, nil)
		require.NoError(t, c.Free(cached))

		x := pooltest.Alloc(t, a, 30<<20, nil)
		_, err := a.Alloc(20<<20, nil)
		var oom *cupool.OOMError
		require.ErrorAs(t, err, &oom)
		require.EqualValues(t, 40<<20, oom.Limit)
		require.EqualValues(t, 30<<20, oom.OtherPools)
		require.Contains(t, err.Error(), "other pools hold 30 MiB")
		require.EqualValues(t, 30<<20, c.Stats().CachedBytes, "the tenant's own limit was in the way")

		y := pooltest.Alloc(t, b, 60<<20, nil) // takes what the root caches
		require.Zero(t, c.Stats().CachedBytes)
		_, err = b.Alloc(30<<20, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.ErrorContains(t, err, "the device has the memory: raise Limit")
		require.NoError(t, c.Free(x))
		y2 := pooltest.Alloc(t, b, 30<<20, nil) // takes what the tenant caches
		require.Zero(t, a.Stats().CachedBytes)
		require.NoError(t, errors.Join(b.Free(y), b.Free(y2)))
	}, limit)
}

// TestPoolsGiveBackTogether: what a request lacks comes from several pools, and no more.
func TestPoolsGiveBackTogether(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		a, b := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		freeAll(t, a, fill(t, a, 1, 20*mib))
		freeAll(t, b, fill(t, b, 2, 20*mib))
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, nil)))
		require.Zero(t, a.Stats().CachedBytes)
		require.EqualValues(t, 20*mib, b.Stats().CachedBytes)
	}, func(cfg *cupool.Config) { cfg.Limit, cfg.MagazineBytes = 60*mib, -1 })
}

// TestPoolLends: what a pool with UseOnOOM has free serves the allocator before anything
// is waited for or given back, also where it is in magazines or its wait is known to be over.
func TestPoolLends(t *testing.T) {
	for name, tc := range map[string]struct {
		size int64
		free func(t *testing.T, p *cupool.Pool, d *pooltest.Driver)
	}{
		"free": {20 * mib, func(t *testing.T, p *cupool.Pool, _ *pooltest.Driver) {
			freeAll(t, p, fill(t, p, 1, 20*mib))
		}},
		"in magazines": {mib, func(t *testing.T, p *cupool.Pool, _ *pooltest.Driver) {
			for range 3 {
				freeAll(t, p, fill(t, p, 2, 700<<10))
			}
			fill(t, p, 1, 300<<10) // what is beside them
		}},
		"no longer used": {20 * mib, func(t *testing.T, p *cupool.Pool, d *pooltest.Driver) {
			s := pooltest.NewStream(t, p)
			d.Busy(s)
			require.NoError(t, p.FreeOn(pooltest.Alloc(t, p, 20*mib, nil), s))
			e := must(s.Record())
			d.Idle(s)
			require.True(t, must(e.Done()))
			require.EqualValues(t, 1, p.Stats().BlocksPending)
			require.NoError(t, e.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 40*mib, pooltest.WithMagazines)
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
			tc.free(t, p, d)
			reserved := p.Stats().All.ReservedBytes.Current
			pooltest.Alloc(t, c, 40*mib-reserved, nil)
			b := pooltest.Alloc(t, c, tc.size, nil)
			require.Equal(t, b, must(p.Lookup(b.Ptr())))
			require.Equal(t, reserved, p.Stats().All.ReservedBytes.Current)
			require.Zero(t, c.Stats().Retries)
			require.NoError(t, errors.Join(c.Check(), p.Check()))
		})
	}
}

// TestReserveIsNotLent: a block of another pool, which takes it back, is no reserve.
func TestReserveIsNotLent(t *testing.T) {
	pooltest.Backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
		b := pooltest.Alloc(t, c, 20*mib, nil)
		freeAll(t, p, fill(t, p, 1, 40*mib))
		require.NoError(t, c.Reserve(40*mib, nil))
		require.EqualValues(t, 60*mib, c.Stats().All.ReservedBytes.Current)
		require.NoError(t, c.Free(b))
	})
}

// TestPoolLendsNot: a pool that sleeps has no memory, and from one that was retired nothing
// is allocated: what it has free goes back to the device.
func TestPoolLendsNot(t *testing.T) {
	pooltest.Backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
		live := fill(t, p, 2, 20*mib)
		own := pooltest.Alloc(t, c, 20*mib, nil)
		require.NoError(t, p.Retire())
		require.NoError(t, c.Free(live[0]))
		b := pooltest.Alloc(t, c, 20*mib, nil)
		require.Equal(t, own.Maker(), b.Maker())
		freeAll(t, c, []cupool.Block{live[1], own, b})
	})
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 64 * mib})})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
	live := pooltest.Alloc(t, p, 40*mib, nil)
	require.NoError(t, p.Sleep(nil))
	require.NoError(t, c.Free(live))
	rest := pooltest.Alloc(t, c, 60*mib, nil)
	_, err := c.Alloc(20*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.NoError(t, c.Free(rest))
	require.EqualValues(t, 60*mib, must(poolaccess.Of(c).Reclaim(1<<30)))
	require.EqualValues(t, 40*mib, p.Stats().AsleepBytes)
	require.NoError(t, p.Wake())
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 40*mib, nil)))
	require.NoError(t, c.Close())
}

// TestRetiredServesNothing: also not a block that goes back to a magazine meanwhile.
func TestRetiredServesNothing(t *testing.T) {
	pooltest.Backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		live := fill(t, p, 1, 4096)
		for range 10 { // the size gets a home
			require.NoError(t, p.Free(live[0]))
			live[0] = pooltest.Alloc(t, p, 4096, nil)
		}
		live = append(live, fill(t, p, 1, 512)...) // the pool stays
		require.NoError(t, p.Retire())
		err := p.Retire()
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.ErrorContains(t, err, "retire "+p.Name()+": ")
		require.NoError(t, p.Free(live[0]))
		_, err = p.Alloc(4096, nil)
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.NoError(t, c.Free(live[1]))
	})
}

// TestRetiredPoolThatTheDeviceKeeps: what the device says of a pool that was retired fails the
// call that would have closed it, and a later one closes it.
func TestRetiredPoolThatTheDeviceKeeps(t *testing.T) {
	c, d := pooltest.New(t, 200*mib)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	b := pooltest.Alloc(t, p, 40*mib, nil)
	require.NoError(t, p.Retire())
	require.NoError(t, c.Free(b))
	d.Fail("MemFree", errors.New("no luck"))
	require.ErrorContains(t, testkit.Second(c.Trim(0)), "no luck")
	require.Len(t, c.Pools(), 1)
	d.Fail("MemFree", nil)
	require.NoError(t, testkit.Second(c.Trim(0)))
	require.Empty(t, c.Pools())
	require.NoError(t, c.Close())
}

// TestPoolIsolated: what an isolated pool caches stays its own.
func TestPoolIsolated(t *testing.T) {
	pooltest.Backings(t, 64<<20, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true})
		x := pooltest.Alloc(t, p, 40<<20, nil)
		require.NoError(t, p.Free(x))
		_, err := c.Alloc(40<<20, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.ErrorContains(t, err, "free at least 16 MiB of what other pools hold")
		require.EqualValues(t, 40<<20, p.Stats().CachedBytes)
		require.NoError(t, p.EmptyCache())
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, nil)))
	})
}

// TestPoolIsolatedStays: work that was captured on blocks of an isolated pool, on free ones
// too, finds its memory whatever the program does: streams that come and go, sleep, pools that
// lack memory, a soft limit. What gives memory back is EmptyCache.
func TestPoolIsolatedStays(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			r := testkit.Rand(t)
			d := simdev.New(simdev.Config{Capacity: 4 << 30})
			c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing})
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true})
			require.NoError(t, p.SetSoftLimit(1))
			streams := []*cupool.Stream{pooltest.NewStream(t, c), pooltest.NewStream(t, c), nil}
			var live []cupool.Block
			captured := map[cupool.Ptr]int64{}
			drop := func(i int) {
				require.NoError(t, p.Free(live[i]))
				live = slices.Delete(live, i, i+1)
			}
			isVirtual := backing == cupool.BackingVMM
			for step := range 400 {
				switch n := r.IntN(24); {
				case n < 10:
					b := pooltest.Alloc(t, p, 1+r.Int64N(1<<(10+r.IntN(16))), streams[r.IntN(3)])
					live = append(live, b)
					captured[b.Ptr()] = max(captured[b.Ptr()], b.Size())
				case n < 18 && len(live) > 0:
					drop(r.IntN(len(live)))
				case n == 18 && len(live) > 0:
					require.NoError(t, poolaccess.Of(p).Cut(live[r.IntN(len(live))]))
				case n == 19:
					require.NoError(t, streams[0].Close())
					streams[0] = pooltest.NewStream(t, c)
				case n == 20:
					_, err := c.Alloc(1<<40, nil)
					require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				case n == 21 && isVirtual:
					_, err := p.Alloc(1<<40, nil)
					require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				case n == 22 && isVirtual:
					require.NoError(t, p.Sleep(nil))
					for range r.IntN(1 + len(live)/4) {
						drop(0)
					}
					require.NoError(t, p.Wake())
				case n == 23:
					for len(live) > 0 {
						drop(0)
					}
				}
				for at, size := range captured {
					if step%8 > 0 {
						break
					}
					require.NoError(t, d.Memset(at, 1, size, 0))
				}
			}
			for len(live) > 0 {
				drop(0)
			}
			require.NoError(t, p.Check())
			require.NoError(t, p.EmptyCache())
			require.Zero(t, p.Stats().All.ReservedBytes.Current)
			require.NoError(t, c.Close())
		})
	}
}

// TestPoolClose gives all memory back as a whole and lists what was live; the
// root closes pools that are open, and says which.
func TestPoolClose(t *testing.T) {
	pooltest.Backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
		p, q := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
		s := pooltest.NewStream(t, c)
		x, y := pooltest.Alloc(t, p, 5000, s), pooltest.Alloc(t, p, 5<<20, nil)
		var leak *cupool.LeakError
		require.ErrorAs(t, p.Close(), &leak)
		require.Len(t, leak.Leaks, 2)
		require.EqualValues(t, 5000+5<<20, leak.Bytes)
		require.Zero(t, p.Stats().All.ReservedBytes.Current)
		require.ErrorIs(t, c.Free(x), cupool.ErrForeignPointer)
		require.ErrorIs(t, p.Free(y), cupool.ErrClosed)
		require.NoError(t, s.Sync(), "streams stay")
		afterClose(t, p)
		require.Equal(t, []*cupool.Pool{q}, c.Pools())

		pooltest.Alloc(t, q, 1, s)
		err := c.Close()
		require.ErrorAs(t, err, &leak)
		require.ErrorContains(t, err, "closing tenant")
		require.ErrorIs(t, q.Close(), cupool.ErrClosed)
		_, err = q.Alloc(1, nil)
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.ErrorIs(t, s.Sync(), cupool.ErrClosed)
		afterClose(t, q)
		afterClose(t, c)
	})
}

// afterClose has calls of a pool that is closed fail with ErrClosed.
func afterClose(t *testing.T, p *cupool.Pool) {
	t.Helper()
	for what, call := range map[string]func() error{
		"AdoptStream":  func() error { return testkit.Second(p.AdoptStream(7)) },
		"Alloc":        func() error { return testkit.Second(p.Alloc(1, nil)) },
		"Close":        p.Close,
		"EmptyCache":   p.EmptyCache,
		"Err":          p.Err,
		"NewPool":      func() error { return testkit.Second(p.NewPool(cupool.PoolConfig{})) },
		"NewStream":    func() error { return testkit.Second(p.NewStream()) },
		"Reserve":      func() error { return p.Reserve(1, nil) },
		"Reset":        p.Reset,
		"SetSoftLimit": func() error { return p.SetSoftLimit(0) },
		"StartHistory": func() error { return p.StartHistory(cupool.History{}) },
		"Sync":         p.Sync,
		"Trim":         func() error { return testkit.Second(p.Trim(0)) },
		"Wake":         p.Wake,
	} {
		require.ErrorIs(t, call(), cupool.ErrClosed, what)
	}
}

// TestPoolStreamClosed: a stream that is closed ends for all members; their
// memory of it goes to their other streams, none to another member.
func TestPoolStreamClosed(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		before := pooltest.NewStream(t, c)
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		require.NoError(t, before.Close())
		_, err := p.Alloc(1, before)
		require.ErrorIs(t, err, cupool.ErrClosed, "closed before the pool saw it")

		s := pooltest.NewStream(t, c)
		live, idle := pooltest.Alloc(t, p, 5000, s), pooltest.Alloc(t, p, 50<<20, s)
		require.NoError(t, p.Free(idle))
		pending := pooltest.Alloc(t, p, 5000, nil)
		require.NoError(t, p.FreeOn(pending, s))
		require.NoError(t, s.Close())
		require.NoError(t, errors.Join(c.Check(), p.Check()))
		require.Zero(t, p.Stats().BlocksPending)
		_, err = p.Alloc(1, s)
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.NoError(t, p.Free(live))

		reserved := p.Stats().All.ReservedBytes.Current
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 46<<20, nil)))
		require.Equal(t, reserved, p.Stats().All.ReservedBytes.Current, "the closed stream's memory serves")
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
	})
}

// TestPoolOrder: what orders streams frees the blocks of all members that
// waited for it.
func TestPoolOrder(t *testing.T) {
	for _, how := range []string{"wait", "sync"} {
		t.Run(how, func(t *testing.T) {
			dev := simdev.New(simdev.Config{ManualEvents: true})
			c := pooltest.Open(t, cupool.Config{Driver: dev, MagazineBytes: -1})
			a, b := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			s := pooltest.NewStream(t, c)
			u := pooltest.NewStream(t, c)
			for _, m := range []*cupool.Pool{c, a, b} {
				require.NoError(t, m.FreeOn(pooltest.Alloc(t, m, 5<<20, s), u))
				require.EqualValues(t, 1, m.Stats().BlocksPending)
			}
			if how == "wait" {
				require.NoError(t, s.WaitStream(u))
			} else {
				require.NoError(t, u.Sync())
			}
			for _, m := range []*cupool.Pool{c, a, b} {
				require.Zero(t, m.Stats().BlocksPending)
				require.NoError(t, m.Check())
			}
			require.NoError(t, c.Close())
			require.NoError(t, dev.Close())
		})
	}
}

// TestPoolSleep: members sleep and wake on their own, with what they hold.
func TestPoolSleep(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		buf, err := cupool.BufferFrom(p, []int32{1, 2, 3}, nil)
		require.NoError(t, err)
		err = p.Sleep(func(cupool.Block) bool { return true })
		if errors.Is(err, cupool.ErrNotSupported) {
			require.NoError(t, buf.Free())
			t.Skip(err)
		}
		require.NoError(t, err)
		require.Zero(t, p.Stats().All.ReservedBytes.Current)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 5000, nil)), "the others are awake")
		require.NoError(t, p.Wake())
		got, err := buf.ToHost()
		require.NoError(t, err)
		require.Equal(t, []int32{1, 2, 3}, got)
		require.NoError(t, buf.Free())
	})
}

// TestSleepingPoolGivesNothing: blocks that were freed while their pool sleeps are no memory
// that others could have.
func TestSleepingPoolGivesNothing(t *testing.T) {
	pooltest.Backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		b := pooltest.Alloc(t, p, 40*mib, nil)
		err := p.Sleep(nil)
		require.NoError(t, p.Free(b))
		if errors.Is(err, cupool.ErrNotSupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		x := pooltest.Alloc(t, c, 60*mib, nil)
		_, err = c.Alloc(40*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.EqualValues(t, 40*mib, p.Stats().AsleepBytes)
		require.NoError(t, c.Free(x))
		require.NoError(t, c.EmptyCache())
		require.NoError(t, p.Wake())
		pooltest.Alloc(t, p, 40*mib, nil)
		require.NoError(t, p.Sleep(nil))
		require.ErrorAs(t, p.Close(), new(*cupool.LeakError))
		require.Zero(t, p.Stats().AsleepBytes)
	})
}

// TestWakeBesideCached: what other pools cache does not keep a pool from waking, but what
// they hold does.
func TestWakeBesideCached(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, Limit: 64 * mib})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	b := pooltest.Alloc(t, p, 40*mib, nil)
	require.NoError(t, p.Sleep(nil))
	x, y := pooltest.Alloc(t, c, 30*mib, nil), pooltest.Alloc(t, c, 30*mib, nil)
	require.ErrorIs(t, p.Wake(), cupool.ErrOutOfMemory)
	require.EqualValues(t, 40*mib, p.Stats().AsleepBytes)
	require.NoError(t, errors.Join(c.Free(x), c.Free(y)))
	require.NoError(t, p.Wake())
	require.Zero(t, p.Stats().AsleepBytes)
	require.LessOrEqual(t, c.Stats().All.ReservedBytes.Current, int64(24*mib))
	require.NoError(t, errors.Join(p.Free(b), c.Check(), c.Close()))
}

// TestWakeBesideLate: a stream of another pool whose work is not done in time does not keep a pool
// from waking with what a third one gives back.
func TestWakeBesideLate(t *testing.T) {
	d := pooltest.OpenHost(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, Limit: 100 * mib, WaitTimeout: 20 * time.Millisecond})
	p, q := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, p, 40*mib, nil)
	require.NoError(t, p.Sleep(nil))
	x, y := pooltest.Alloc(t, c, 40*mib, s), pooltest.Alloc(t, q, 40*mib, nil)
	release := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-release }))
	require.NoError(t, c.Free(x))
	err := p.Wake()
	require.ErrorIs(t, err, cupool.ErrOutOfMemory, "the third one holds its memory")
	require.ErrorAs(t, err, new(*cupool.WaitError))
	require.NoError(t, q.Free(y))
	err = p.Wake()
	close(release)
	require.NoError(t, err)
	require.NoError(t, errors.Join(p.Free(b), c.Check(), c.Close(), d.Close()))
}

// TestSleepThatFailedGivesNothing: what the device did not take when its pool went to sleep
// stays as it is until the pool is awake.
func TestSleepThatFailedGivesNothing(t *testing.T) {
	refuses := false
	d := &hook.Driver{Driver: simdev.New(simdev.Config{Capacity: 64 * mib}), Around: func(c *hook.Call, do func() error) error {
		if refuses && c.Name == "MemUnmap" {
			return errors.New("no luck")
		}
		return do()
	}}
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	b := pooltest.Alloc(t, p, 40*mib, nil)
	refuses = true
	require.ErrorContains(t, p.Sleep(nil), "no luck")
	refuses = false
	require.NoError(t, p.Free(b))
	_, err := c.Alloc(60*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.EqualValues(t, 40*mib, p.Stats().All.ReservedBytes.Current)
	require.NoError(t, p.Wake())
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 60*mib, nil)))
	require.NoError(t, c.Close())
}

// TestPoolHitsMakeNothing: a hit of a pool costs no Go memory and no call to
// the device either, whichever member frees it.
func TestPoolHitsMakeNothing(t *testing.T) {
	c, d := pooltest.NewParallel(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	s := pooltest.NewStream(t, p)
	for _, size := range []int64{512, 70_000, 3 << 20} {
		for _, on := range []*cupool.Stream{nil, s} {
			pair := func() { must(0, p.Free(must(p.Alloc(size, on)))) }
			byRoot := func() { must(0, c.FreePtr(must(p.Alloc(size, on)).Ptr(), size)) }
			for range 10 {
				pair()
				byRoot()
			}
			calls := d.Total()
			require.Zero(t, testing.AllocsPerRun(100, pair), "%d bytes", size)
			require.Zero(t, testing.AllocsPerRun(100, byRoot), "%d bytes, freed by address", size)
			require.Equal(t, calls, d.Total())
		}
	}
}

// TestPoolEngine: an engine lives in a pool, and uses tensors of the others.
func TestPoolEngine(t *testing.T) {
	pooltest.Backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		s := pooltest.NewStream(t, c)
		e, err := cupool.NewEngine(p, cupool.WithStream(s))
		require.NoError(t, err)
		root, err := cupool.NewEngine(c, cupool.WithStream(s))
		require.NoError(t, err)
		x, err := root.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
		require.NoError(t, err)
		y, err := e.FromHost(x)
		require.NoError(t, err)
		z, err := tensor.Add(y, x)
		require.NoError(t, err)
		require.EqualValues(t, 2, p.Stats().All.Allocation.Current)
		require.True(t, root.Owns(z) && e.Owns(x))
		require.Equal(t, []float32{2, 4, 6}, must(root.ToHost(z)).Data())
		require.NoError(t, root.FreeTensor(y, z))
		require.NoError(t, e.FreeTensor(x))
		require.Zero(t, p.Stats().LiveBytes+c.Stats().LiveBytes)
	})
}

// TestPoolZeroes: a pool has zeros where it asks for them, or the allocator does.
func TestPoolZeroes(t *testing.T) {
	for _, c := range []struct{ root, pool, zeroes bool }{{false, false, false}, {false, true, true}, {true, false, true}} {
		all := pooltest.Open(t, cupool.Config{ZeroOnAlloc: c.root})
		p := pooltest.NewPrivate(t, all, cupool.PoolConfig{ZeroOnAlloc: c.pool})
		b := pooltest.Alloc(t, p, 1000, nil)
		require.NoError(t, p.DefaultStream().Memset(b.Ptr(), 7, 1000))
		require.NoError(t, p.Free(b))
		b = pooltest.Alloc(t, p, 1000, nil)
		got := make([]byte, 1000)
		require.NoError(t, p.DefaultStream().CopyOut(got, b.Ptr()))
		require.Equal(t, c.zeroes, bytes.Count(got, []byte{0}) == 1000)
		require.Equal(t, !c.zeroes, bytes.Count(got, []byte{7}) == 1000)
		require.NoError(t, p.Free(b))
		require.NoError(t, all.Close())
	}
}

// TestInitialSize: the first requests are served from what was reserved at first.
func TestInitialSize(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		require.EqualValues(t, 64<<20, c.Stats().All.ReservedBytes.Current)
		a, b := pooltest.Alloc(t, c, 50<<20, nil), pooltest.Alloc(t, c, 1000, nil)
		require.EqualValues(t, 64<<20, c.Stats().All.ReservedBytes.Current)
		require.NoError(t, c.Free(a))
		require.NoError(t, c.Free(b))
		require.EqualValues(t, 64<<20, c.Kept())
	}, func(cfg *cupool.Config) { cfg.InitialSize = 64 << 20 })
}

// TestAddressGivenAgain: a program's Alloc may return an address whose Free has not returned
// yet, and its size is known.
func TestAddressGivenAgain(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	var freed []int64
	var meanwhile func() // in the first Free
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{
		Alloc: func(int64) (cupool.Ptr, error) { return 1 << 40, nil },
		Free: func(_ cupool.Ptr, size int64) error {
			freed = append(freed, size)
			if f := meanwhile; f != nil {
				meanwhile = nil
				done := make(chan struct{})
				go func() { defer close(done); f() }()
				<-done
			}
			return nil
		},
	})
	var again cupool.Block
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 32*mib, nil)))
	meanwhile = func() { again = pooltest.Alloc(t, p, 32*mib, nil) }
	_, err := p.Trim(0)
	require.NoError(t, err)
	require.NoError(t, p.Free(again))
	require.NoError(t, p.Close())
	require.Equal(t, []int64{32 * mib, 32 * mib}, freed)
	require.NoError(t, c.Close())
}

// TestIsolatedInUse: work that was captured on free blocks of an isolated pool, and submitted again
// since, finds its memory: what gives that back waits for the work of all streams.
func TestIsolatedInUse(t *testing.T) {
	for name, give := range map[string]func(c, p *cupool.Pool) error{
		"EmptyCache": func(_, p *cupool.Pool) error { return p.EmptyCache() },
		"Trim":       func(_, p *cupool.Pool) error { return testkit.Second(p.Trim(0)) },
		"Reset":      func(_, p *cupool.Pool) error { return p.Reset() },
		"Close":      func(_, p *cupool.Pool) error { return p.Close() },
		"Sleep":      func(_, p *cupool.Pool) error { return p.Sleep(nil) },
		"Retire":     func(c, p *cupool.Pool) error { return errors.Join(p.Retire(), c.EmptyCache()) },
	} {
		t.Run(name, func(t *testing.T) {
			d := pooltest.NewWatched(t)
			c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM})
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true})
			s := pooltest.NewStream(t, c)
			for _, of := range []*cupool.Stream{nil, s} {
				require.NoError(t, p.Free(pooltest.Alloc(t, p, 4*mib, of)))
			}
			require.NoError(t, c.Sync())
			g := pooltest.HoldStream(t, s) // the graph runs again
			var early atomic.Value
			d.Watch(func(call string, _ cupool.StreamHandle) {
				if (call == "MemUnmap" || call == "MemRelease") && !g.Opened() {
					early.Store(call)
				}
			})
			done := pooltest.Start(func() error { return give(c, p) })
			returned, err := pooltest.Returns(done)
			g.Open()
			if !returned {
				err = <-done
			}
			require.NoError(t, err)
			require.Nil(t, early.Load())
			require.NoError(t, c.Close())
		})
	}
}

// TestRetireWaitsForNothing: not for work, nor for another goroutine that waits for some.
func TestRetireWaitsForNothing(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Backing: cupool.BackingVMM})
	p, s := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true}), pooltest.NewStream(t, c)
	require.NoError(t, p.Free(pooltest.Alloc(t, p, 4*mib, s)))
	g := pooltest.HoldStream(t, s)
	emptied := pooltest.Start(p.EmptyCache)
	early, _ := pooltest.Returns(emptied)
	require.False(t, early)
	require.NoError(t, p.Retire())
	g.Open()
	require.NoError(t, <-emptied)
	require.NoError(t, c.EmptyCache())
	require.Empty(t, c.Pools())
	require.NoError(t, c.Close())
}

// TestEmptyCacheBesideRetired: a retired pool whose work is late does not hold up the allocator's own memory.
func TestEmptyCacheBesideRetired(t *testing.T) {
	pooltest.Backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		p, s := pooltest.NewPrivate(t, c, cupool.PoolConfig{Isolated: true}), pooltest.NewStream(t, c)
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 4*mib, s)))
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, nil)))
		g := pooltest.HoldStream(t, s)
		require.NoError(t, p.Retire())
		var late *cupool.WaitError
		require.ErrorAs(t, c.EmptyCache(), &late)
		if c.Config().Backing == cupool.BackingVMM { // the device waits for all work to free a segment
			require.Zero(t, c.Stats().All.ReservedBytes.Current)
		}
		g.Open()
		require.NoError(t, pooltest.Patiently(c.EmptyCache))
		require.Empty(t, c.Pools())
		require.NoError(t, c.Close())
	}, func(cfg *cupool.Config) { cfg.WaitTimeout = 200 * time.Millisecond })
}

// TestOwnMemoryOfACapturedStream: what a captured stream left idle in a pool with functions of its
// own stays, and the rest goes back, also for an allocation that would fail otherwise.
func TestOwnMemoryOfACapturedStream(t *testing.T) {
	d := pooltest.OpenHost(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Limit: 100 * mib})
	s := pooltest.NewStream(t, c)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Alloc: d.MemAlloc, Free: func(p cupool.Ptr, _ int64) error { return d.MemFree(p) }})
	mine, other := pooltest.Alloc(t, p, 40*mib, s), pooltest.Alloc(t, p, 40*mib, nil)
	require.NoError(t, errors.Join(p.Free(mine), p.Free(other)))
	end, err := s.Capture()
	require.NoError(t, err)
	reserved := func() int64 { return p.Stats().All.ReservedBytes.Current }
	for what, give := range map[string]func() error{
		"EmptyCache": p.EmptyCache,
		"Trim":       func() error { return testkit.Second(p.Trim(0)) },
		"Alloc": func() error {
			b, err := p.Alloc(60*mib, nil)
			return errors.Join(err, p.Free(b), p.EmptyCache())
		},
		"Alloc of another pool": func() error {
			b, err := c.Alloc(60*mib, nil)
			return errors.Join(err, c.Free(b), c.EmptyCache())
		},
	} {
		require.NoError(t, give(), what)
		require.EqualValues(t, 40*mib, reserved(), what)
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 40*mib, nil)), what)
	}
	_, err = c.Alloc(90*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	end()
	require.NoError(t, p.EmptyCache())
	require.Zero(t, reserved())
	require.NoError(t, errors.Join(c.Check(), c.Close(), d.Close()))
}
