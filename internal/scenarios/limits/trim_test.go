package limits_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestSoftLimit(t *testing.T) {
	soft := func(cfg *cupool.Config) { cfg.SoftLimit = 50 * pooltest.MiB }
	pooltest.RunScripts(t, map[string][2]string{
		"below it nothing changes":              {"a=20M free:a b=22M", "0 large: [Free 20M]; 0 large: [Live 22M]"},
		"beyond it what is idle goes first":     {"a=20M b=20M free:a free:b c=30M", "0 large: [Free 20M]; 0 large: [Live 30M]"},
		"the largest first":                     {"a=10M b=25M free:a free:b c=30M", "0 large: [Free 10M]; 0 large: [Live 30M]"},
		"what is needed comes all the same":     {"a=40M b=40M", "0 large: [Live 40M]; 0 large: [Live 40M]"},
		"idle memory of other streams too":      {"a=30M@1 free:a b=30M", "0 large: [Live 30M]"},
		"and again, though it was regretted":    {"a=30M free:a b=32M free:b a=30M free:a b=32M free:b a=30M free:a b=32M free:b a=30M free:a b=32M free:b a=30M free:a b=32M free:b a=30M free:a b=32M free:b a=30M free:a b=32M", "0 large: [Live 32M]"},
		"streams that take turns share as well": {"a=30M@1 free:a b=30M@2 free:b a=30M@1 free:a b=30M@2 free:b a=30M@1 free:a b=30M@2 free:b a=30M@1 free:a b=30M@2 free:b a=30M@1 free:a b=30M@2 free:b a=30M@1 free:a b=30M@2 free:b a=30M@1", "1 large: [Live 30M]"},
	}, 1<<30, soft)
}

// Beyond the soft limit, chunks of the other pool of the same stream serve.
func TestSoftLimitVirtual(t *testing.T) {
	for name, cfg := range map[string]cupool.Config{
		"soft limit":      {SoftLimit: 40 * pooltest.MiB},
		"threshold":       {GarbageCollectionThreshold: 0.5, Limit: 80 * pooltest.MiB},
		"the lower holds": {GarbageCollectionThreshold: 0.5, Limit: 100 * pooltest.MiB, SoftLimit: 40 * pooltest.MiB},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Driver, cfg.Backing, cfg.MagazineBytes = simdev.New(simdev.Config{}), cupool.BackingVMM, -1
			c := pooltest.Open(t, cfg)
			var small []cupool.Block
			for range 20 {
				small = append(small, pooltest.Alloc(t, c, pooltest.MiB, nil))
			}
			for _, b := range small {
				require.NoError(t, c.Free(b))
			}
			b := pooltest.Alloc(t, c, 32*pooltest.MiB, nil)
			require.LessOrEqual(t, c.Stats().All.ReservedBytes.Current, int64(40*pooltest.MiB))
			require.Positive(t, c.Stats().MovedBytes)
			require.NoError(t, c.Check())
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Close())
		})
	}
}

// A soft limit that is set while the allocator runs acts at once, on frees, and on
// what Sync finds free; each pool has its own.
func TestSetSoftLimit(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, b cupool.Backing) {
		c, d := newPoolOn(t, b, func(cfg *cupool.Config) { cfg.MagazineBytes = 256 * pooltest.MiB })
		x := pooltest.NewScript(t, c, d).Run("a=64M b=64M c=64M free:a")
		held := func() int64 { return c.Stats().All.ReservedBytes.Current }
		require.GreaterOrEqual(t, held(), int64(192*pooltest.MiB), "cached memory stays without a soft limit")

		require.NoError(t, c.SetSoftLimit(100*pooltest.MiB))
		require.EqualValues(t, 100*pooltest.MiB, c.Config().SoftLimit)
		require.Less(t, held(), int64(140*pooltest.MiB), "at once, but for what is in use")
		x.Run("free:b")
		require.Less(t, held(), int64(101*pooltest.MiB), "on a free")
		x.Run("free:c b=64M free:b b=64M free:b b=64M c=64M free:b free:c b=64M c=64M free:b free:c")
		require.Less(t, held(), int64(101*pooltest.MiB), "also of sizes that recur")

		if d != nil {
			x.Run("d=64M e=64M busy:1 use:e@1 free:d free:e")
			require.Greater(t, held(), int64(100*pooltest.MiB), "no free waits for work")
			x.Run("idle:1 sync:1")
			require.Less(t, held(), int64(101*pooltest.MiB), "Sync finds it free")
		}

		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		f := pooltest.Alloc(t, p, 32*pooltest.MiB, nil)
		require.NoError(t, p.Free(f))
		require.EqualValues(t, 32*pooltest.MiB, p.Stats().All.ReservedBytes.Current, "the limit is not the pool's")
		require.NoError(t, p.SetSoftLimit(1))
		require.Zero(t, p.Stats().All.ReservedBytes.Current)

		require.NoError(t, c.SetSoftLimit(0))
		x.Run("g=128M h=128M free:g free:h")
		require.GreaterOrEqual(t, held(), int64(256*pooltest.MiB), "0 ends it")
		require.ErrorIs(t, c.SetSoftLimit(-1), cupool.ErrInvalidSize)
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.SetSoftLimit(1), cupool.ErrClosed)
	})
}

// TestFreeBeyondSoftLimit: a call that frees does not fail because the device refuses what
// it is given back then. The next one tries again.
func TestFreeBeyondSoftLimit(t *testing.T) {
	refused := errors.New("refused")
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		d := pooltest.NewWatched(t)
		c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing})
		for name, free := range map[string]func(cupool.Block) error{
			"Free":    c.Free,
			"FreePtr": func(b cupool.Block) error { return c.FreePtr(b.Ptr(), b.Size()) },
			"FreeOn":  func(b cupool.Block) error { return c.FreeOn(b, nil) },
			"Sync":    func(b cupool.Block) error { return errors.Join(c.Free(b), c.DefaultStream().Sync()) },
		} {
			a, b := pooltest.Alloc(t, c, 40*pooltest.MiB, nil), pooltest.Alloc(t, c, 40*pooltest.MiB, nil)
			require.NoError(t, c.SetSoftLimit(pooltest.MiB))
			d.FailAlways("MemFree", refused)
			d.FailAlways("MemUnmap", refused)
			require.NoError(t, free(a), name)
			require.ErrorIs(t, c.SetSoftLimit(pooltest.MiB), refused)
			d.Heal()
			require.NoError(t, free(b), name)
			require.NoError(t, c.Sync())
			require.Zero(t, c.Stats().All.ReservedBytes.Current, name)
		}
		require.NoError(t, c.Close())
	})
}

// Trim counts what is in use. So much more stays free where that is added.
func TestTrimBesideUse(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=100M b=30M c=20M free:b free:c")
	n, err := c.Trim(120 * pooltest.MiB)
	require.NoError(t, err)
	require.EqualValues(t, 30*pooltest.MiB, n, "100 MiB in use and 20 free")
	x.Run("b=30M free:b")
	n, err = c.Trim(c.Stats().LiveBytes + 120*pooltest.MiB)
	require.NoError(t, err)
	require.Zero(t, n, "50 MiB are free")
	n, err = c.Trim(c.Stats().LiveBytes + 20*pooltest.MiB)
	require.NoError(t, err)
	require.EqualValues(t, 30*pooltest.MiB, n)
	require.Equal(t, "0 large: [Live 100M]; 0 large: [Free 20M]", x.Layout())
	_, err = c.Trim(-1)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
}

// What has been free for longest goes first, of segments and of virtual memory.
func TestTrimOldest(t *testing.T) {
	for _, tc := range []struct {
		backing cupool.Backing
		oldest  bool
		want    string
	}{
		{cupool.BackingSegments, false, "0 large: [Free 30M]; 0 large: [Live 20M]; 0 large: [Free 20M]"},
		{cupool.BackingSegments, true, "0 large: [Live 20M]; 0 large: [Free 60M]; 0 large: [Free 20M]"},
		{cupool.BackingVMM, false, "0 large: [Gap 10M][Free 20M][Live 20M][Gap 60M][Live 20M][Free 20M]; 1 large: [Free 40M]"},
		{cupool.BackingVMM, true, "0 large: [Gap 30M][Live 20M][Free 60M][Live 20M][Free 20M]; 1 large: [Gap 40M]"},
	} {
		c, d := newPoolOn(t, tc.backing, func(cfg *cupool.Config) { cfg.TrimOldest = tc.oldest })
		x := pooltest.NewScript(t, c, d)
		if tc.backing == cupool.BackingSegments {
			x.Run("a=30M b=20M c=60M d=20M free:a free:c free:d trim:110M")
		} else {
			x.Run("a=30M b=20M c=60M d=20M e=20M z=40M@1 free:a free:z free:c free:e")
			_, err := c.Trim(c.Stats().LiveBytes + 80*pooltest.MiB)
			require.NoError(t, err)
		}
		require.Equal(t, tc.want, x.Layout(), "%v %v", tc.backing, tc.oldest)
	}
}

// After Reset the device has everything back, old handles are stale, and the
// allocator works on, with its streams and its other pools.
func TestReset(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, b cupool.Backing) {
		c, d := newPoolOn(t, b, func(cfg *cupool.Config) { cfg.MagazineBytes = 256 * pooltest.MiB })
		x := pooltest.NewScript(t, c, d).Run("a=1000 free:a a=1000 free:a a=1000 free:a a=1000 b=30M c=3M@1 e=5M use:e@1 f=1000@1")
		if d != nil {
			x.Run("busy:1 use:e@1 free:e idle:1")
		}
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		kept := pooltest.Alloc(t, p, pooltest.MiB, nil)

		require.NoError(t, c.Reset())
		require.NoError(t, c.Check())
		st := c.Stats()
		require.Zero(t, st.All.ReservedBytes.Current+st.All.ReservedBytes.Peak)
		require.Zero(t, st.All.Allocation.Current+st.All.Allocation.Peak)
		require.Empty(t, x.Layout())
		for _, name := range []string{"a", "b", "c", "f"} {
			require.ErrorIs(t, c.Free(x.Block(name)), cupool.ErrDoubleFree)
			require.Error(t, c.RecordStream(x.Block(name), x.Stream("1")))
			_, err := c.Lookup(x.Block(name).Ptr())
			require.Error(t, err)
		}
		require.NoError(t, p.Free(kept), "other pools keep their blocks")

		x.Run("a=1000 free:a a=1000 free:a a=1000 b=30M c=3M@1 g=1000@1 free:a free:b free:c free:g")
		require.NoError(t, c.Reset())
		require.NoError(t, c.Reset(), "there is nothing")
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Reset(), cupool.ErrClosed)
		if d != nil {
			require.Empty(t, d.Mem)
		}
	})
}

// newPoolOn returns an allocator over a simulated device with virtual memory, or
// over one that counts.
func newPoolOn(t *testing.T, b cupool.Backing, change func(*cupool.Config)) (*cupool.Pool, *pooltest.Driver) {
	if b == cupool.BackingSegments {
		return pooltest.New(t, 1<<30, change)
	}
	cfg := cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), Backing: b, MagazineBytes: -1}
	change(&cfg)
	return pooltest.Open(t, cfg), nil
}

// Free blocks are counted wherever they lie, and printed.
func TestFreeBlocks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MagazineBytes = 256 * pooltest.MiB })
	x := pooltest.NewScript(t, c, d).Run("a=30M b=40M c=512 d=512 e=512")
	require.EqualValues(t, 1, c.Stats().FreeBlocks, "the rest of a small segment")
	x.Run("free:a free:d")
	require.EqualValues(t, 3, c.Stats().FreeBlocks, "a whole segment, and one between others")
	x.Run("f=1M free:f f=1M free:f f=1M free:f")
	require.EqualValues(t, 4, c.Stats().FreeBlocks, "one in a magazine")
	require.Contains(t, c.Stats().String(), "free blocks 4; largest free 30 MiB")
}
