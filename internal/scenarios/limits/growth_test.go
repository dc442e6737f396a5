package limits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// An oversize block is kept whole: for requests of about its size only.
func TestMaxSplit(t *testing.T) {
	whole := func(cfg *cupool.Config) { cfg.MaxSplit, cfg.MaxNonSplitRounding = 40*pooltest.MiB, 4*pooltest.MiB }
	for s, table := range map[cupool.Strategy]map[string][2]string{
		cupool.BestFit: {
			"not split":                    {"a=43M", "0 large: [Live 44M]"},
			"below it is":                  {"a=38M free:a b=2M", "0 large: [Live 2M][Free 36M]"},
			"serves no smaller one":        {"a=44M free:a b=2M", "0 large: [Free 44M]; 0 large: [Live 2M][Free 18M]"},
			"serves one of about its size": {"a=44M free:a b=40M+1", "0 large: [Live 44M]"},
			"but wastes no more":           {"a=44M free:a b=40M", "0 large: [Free 44M]; 0 large: [Live 40M]"},
			"small ones as before":         {"a=1K", "0 small: [Live 1K][Free 2047K]"},
		},
		cupool.FirstFit: {
			"passes over whole ones": {"a=44M b=38M free:a free:b c=2M", "0 large: [Free 44M]; 0 large: [Live 2M][Free 36M]"},
		},
	} {
		t.Run(s.String(), func(t *testing.T) { pooltest.RunScripts(t, table, 1<<30, whole, pooltest.WithStrategy(s)) })
	}
}

// What waits for another stream and would not serve is not waited for.
func TestMaxSplitWaitsForWhatFits(t *testing.T) {
	c, d := pooltest.New(t, 84*pooltest.MiB, func(cfg *cupool.Config) { cfg.MaxSplit = 40 * pooltest.MiB })
	x := pooltest.NewScript(t, c, d).Run("a=44M b=38M busy:1 free:a@1")
	x.Run("free:b c=2M")
	require.Zero(t, d.Count("SyncEvent")+d.Count("SyncStream"))
	require.Contains(t, x.Layout(), "[Pending 44M]")
	x.Run("idle:1")
}

// Blocks are multiples of MinBlock, which is 512 bytes by default.
func TestMinBlock(t *testing.T) {
	for min, table := range map[int64]map[string][2]string{
		0: {"default": {"a=1 b=512 c=513", "0 small: [Live 512][Live 512][Live 1K][Free 2046K]"}},
		256: {
			"256":           {"a=1 b=256 c=257 d=2096896", "0 small: [Live 256][Live 256][Live 512][Free 2047K]; 0 large: [Live 2096896][Free 18874624]"},
			"a rest of 256": {"a=512 b=1 free:a a=1", "0 small: [Live 256][Free 256][Live 256][Free 2096384]"},
			"merge":         {"a=256 b=256 c=256 free:a free:b a=512", "0 small: [Live 512][Live 256][Free 2096384]"},
		},
		1 << 10:  {"1K": {"a=1 b=1K c=1025", "0 small: [Live 1K][Live 1K][Live 2K][Free 2044K]"}},
		4 << 10:  {"4K": {"a=1 b=4K c=4097", "0 small: [Live 4K][Live 4K][Live 8K][Free 2032K]"}},
		64 << 10: {"small": {"a=1 b=64K c=64K+1", "0 small: [Live 64K][Live 64K][Live 128K][Free 1792K]"}, "large": {"a=1M+1", "0 large: [Live 1088K][Free 19392K]"}},
		1 << 20:  {"1M": {"a=1 b=1M+1", "0 small: [Live 1M][Free 1M]; 0 large: [Live 2M][Free 18M]"}},
	} {
		pooltest.RunScripts(t, table, 1<<30, func(cfg *cupool.Config) { cfg.MinBlock, cfg.Backing = min, cupool.BackingSegments })
	}
}

func TestGrowthFactor(t *testing.T) {
	for name, tc := range map[string]struct {
		factor    float64
		capacity  int64
		ops, want string
	}{
		"as requested":          {1, 1 << 30, "a=1K b=3M c=11M", "0 small: [Live 1K][Free 2047K]; 0 large: [Live 4M]; 0 large: [Live 12M]"},
		"the first is fixed":    {2, 1 << 30, "a=2M", "0 large: [Live 2M][Free 18M]"},
		"doubles":               {2, 1 << 30, "a=20M b=20M c=20M", "0 large: [Live 20M]; 0 large: [Live 20M]; 0 large: [Live 20M][Free 20M]"},
		"more than doubles":     {3, 1 << 30, "a=20M b=2M", "0 large: [Live 20M]; 0 large: [Live 2M][Free 38M]"},
		"half as much again":    {1.5, 1 << 30, "a=100M b=2M", "0 large: [Live 100M]; 0 large: [Live 2M][Free 48M]"},
		"never less than fixed": {1.1, 1 << 30, "a=20M b=2M", "0 large: [Live 20M]; 0 large: [Live 2M][Free 18M]"},
		"else the fixed size":   {3, 50 * pooltest.MiB, "a=20M b=2M", "0 large: [Live 20M]; 0 large: [Live 2M][Free 18M]"},
		"else what it needs":    {3, 23 * pooltest.MiB, "a=20M b=2M", "0 large: [Live 20M]; 0 large: [Live 2M]"},
		"below MaxSplit":        {64, 1 << 30, "a=20M b=2M", "0 large: [Live 20M]; 0 large: [Live 2M][Free 196M]"},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, tc.capacity, func(cfg *cupool.Config) {
				cfg.GrowthFactor, cfg.Backing = tc.factor, cupool.BackingSegments
				if tc.factor == 64 {
					cfg.MaxSplit = 200 * pooltest.MiB
				}
			})
			require.Equal(t, tc.want, pooltest.NewScript(t, c, d).Run(tc.ops).Layout())
		})
	}
}

// A home grows by the factor too, and by what is missing where there is no
// more.
func TestGrowthFactorVirtual(t *testing.T) {
	reserved := func(capacity int64, factor float64) int64 {
		c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: capacity}), GrowthFactor: factor, MagazineBytes: -1})
		require.NoError(t, err)
		for range 2 {
			_, err := c.Alloc(40*pooltest.MiB, nil)
			require.NoError(t, err)
		}
		_, err = c.Alloc(2*pooltest.MiB, nil)
		require.NoError(t, err)
		require.NoError(t, c.Check())
		return c.Stats().All.ReservedBytes.Current
	}
	require.EqualValues(t, 82*pooltest.MiB, reserved(1<<30, 0))
	require.EqualValues(t, 82*pooltest.MiB, reserved(1<<30, 1))
	require.EqualValues(t, 160*pooltest.MiB, reserved(1<<30, 2))
	require.EqualValues(t, 82*pooltest.MiB, reserved(83*pooltest.MiB, 2))
}

func TestInitialSize(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.InitialSize, cfg.Backing = 99*pooltest.MiB, cupool.BackingSegments })
	require.Equal(t, "0 large: [Free 100M]", pooltest.NewScript(t, c, d).Layout())
	st := c.Stats()
	require.Zero(t, st.All.Allocation.Allocated+st.Misses+st.All.AllocatedBytes.Peak, "nothing was allocated")
	require.EqualValues(t, 100*pooltest.MiB, st.CachedBytes)
	pooltest.NewScript(t, c, d).Run("a=60M b=40M")
	require.Equal(t, 1, d.Count("MemAlloc"))

	c, d = pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.InitialSize, cfg.MaxSplit = 99*pooltest.MiB, 40*pooltest.MiB })
	require.Equal(t, "0 large: [Free 38M]; 0 large: [Free 38M]; 0 large: [Free 24M]", pooltest.NewScript(t, c, d).Layout())

	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), InitialSize: 99 * pooltest.MiB})
	require.NoError(t, err)
	require.EqualValues(t, 100*pooltest.MiB, c.Stats().CachedBytes)
	require.NoError(t, c.Close())

	_, err = cupool.New(cupool.Config{Driver: pooltest.NewDriver(64 * pooltest.MiB), InitialSize: 99 * pooltest.MiB})
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, err, "initial size")
}

// What was reserved on purpose stays until Trim, EmptyCache or an out of memory,
// and serves small blocks, too.
func TestReserveStays(t *testing.T) {
	for name, backing := range map[string]cupool.Backing{"segments": cupool.BackingSegments, "vmm": cupool.BackingVMM} {
		open := func(t *testing.T, cfg cupool.Config) *cupool.Pool {
			cfg.Driver, cfg.Backing, cfg.MagazineBytes = simdev.New(simdev.Config{Capacity: 4 << 30}), backing, -1
			c, err := cupool.New(cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c
		}
		alloc := func(t *testing.T, c *cupool.Pool, s *cupool.Stream, n int, size int64) {
			for range n {
				b, err := c.Alloc(size, s)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Free(b)) })
			}
			require.NoError(t, c.Check())
		}
		reserved := func(c *cupool.Pool) int64 { return c.Stats().All.ReservedBytes.Current / pooltest.MiB }

		t.Run(name+"/initial size", func(t *testing.T) {
			c := open(t, cupool.Config{InitialSize: 256 * pooltest.MiB, Limit: 2 << 30, GrowthFactor: 2})
			alloc(t, c, nil, 1, 1000)
			require.EqualValues(t, 256, reserved(c))
			alloc(t, c, nil, 1, 200*pooltest.MiB)
			st := c.Stats()
			require.Zero(t, st.Misses)
			require.Zero(t, st.DriverFrees)
			require.EqualValues(t, 256, reserved(c))
		})
		t.Run(name+"/reserve", func(t *testing.T) {
			c := open(t, cupool.Config{})
			require.NoError(t, c.Reserve(300*pooltest.MiB, nil))
			before := c.Stats().Misses
			s, err := c.NewStream()
			require.NoError(t, err)
			alloc(t, c, s, 1, 3*pooltest.MiB)
			alloc(t, c, nil, 1, 1000)
			require.Zero(t, c.Stats().DriverFrees)
			require.GreaterOrEqual(t, reserved(c), int64(300))
			if backing == cupool.BackingSegments { // with virtual memory the other stream takes it over
				require.Equal(t, before+1, c.Stats().Misses)
			}
			alloc(t, c, nil, 1, 290*pooltest.MiB)
			require.LessOrEqual(t, c.Stats().Misses, before+1)
		})
		t.Run(name+"/small blocks", func(t *testing.T) {
			c := open(t, cupool.Config{})
			require.NoError(t, c.Reserve(100*pooltest.MiB, nil))
			before := c.Stats().Misses
			alloc(t, c, nil, 30, pooltest.MiB)
			alloc(t, c, nil, 10*1024, 1024)
			require.Equal(t, before, c.Stats().Misses)
			require.LessOrEqual(t, reserved(c), int64(100))
			alloc(t, c, nil, 1, 50*pooltest.MiB)
			require.Equal(t, before, c.Stats().Misses)
		})
		t.Run(name+"/given back", func(t *testing.T) {
			c := open(t, cupool.Config{Limit: 400 * pooltest.MiB})
			require.NoError(t, c.Reserve(300*pooltest.MiB, nil))
			s, err := c.NewStream()
			require.NoError(t, err)
			b, err := c.Alloc(350*pooltest.MiB, s)
			require.NoError(t, err, "before an out of memory")
			require.NoError(t, c.Free(b))
			require.EqualValues(t, 350, reserved(c))
			require.NoError(t, c.Reserve(300*pooltest.MiB, nil))
			require.NoError(t, c.EmptyCache())
			require.Zero(t, reserved(c))
			require.NoError(t, c.Reserve(300*pooltest.MiB, nil))
			_, err = c.Trim(100 * pooltest.MiB)
			require.NoError(t, err)
			require.LessOrEqual(t, reserved(c), int64(100))
		})
	}
}

// BeforeGrow is asked once for every request that needs memory of the device,
// before that is called, and may free what serves.
func TestBeforeGrow(t *testing.T) {
	var c *cupool.Pool
	var d *pooltest.Driver
	var asked []int64
	var before []int // calls to the device
	var spare cupool.Block
	c, d = pooltest.New(t, 50*pooltest.MiB, func(cfg *cupool.Config) {
		cfg.Backing = cupool.BackingSegments
		cfg.BeforeGrow = func(size int64) {
			asked = append(asked, size)
			before = append(before, d.Count("MemAlloc"))
			require.NoError(t, c.Free(spare))
			spare = cupool.Block{}
		}
	})
	x := pooltest.NewScript(t, c, d).Run("a=20M b=20M")
	require.Equal(t, []int64{20 * pooltest.MiB, 20 * pooltest.MiB}, asked)
	spare = x.Block("a")
	x.Run("c=19M")
	require.Equal(t, x.Block("c").Ptr(), x.Block("a").Ptr(), "what it freed")
	require.Equal(t, 2, d.Count("MemAlloc"))
	x.Run("oom=30M")
	require.Equal(t, []int64{20 * pooltest.MiB, 20 * pooltest.MiB, 19 * pooltest.MiB, 30 * pooltest.MiB}, asked)
	x.Run("free:b d=20M")
	require.Len(t, asked, 4, "the cache had it")
	require.Equal(t, []int{0, 1, 2, 2}, before)
}
