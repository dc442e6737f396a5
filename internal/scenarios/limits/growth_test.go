package limits_test

import (
	"slices"
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
	for _, tc := range []struct {
		capacity int64
		factor   float64
		want     int64 // MiB
	}{{1 << 30, 0, 82}, {1 << 30, 1, 82}, {1 << 30, 2, 160}, {83 * pooltest.MiB, 2, 82}} {
		c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: tc.capacity}), GrowthFactor: tc.factor, MagazineBytes: -1})
		pooltest.NewScript(t, c, nil).Run("a=40M b=40M c=2M")
		require.EqualValues(t, tc.want*pooltest.MiB, c.Stats().All.ReservedBytes.Current)
	}
}

func TestInitialSize(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.InitialSize, cfg.Backing = 99*pooltest.MiB, cupool.BackingSegments })
	require.Equal(t, "0 large: [Free 100M]", pooltest.NewScript(t, c, d).Layout())
	st := c.Stats()
	require.Zero(t, st.All.Allocation.Allocated+st.Mapped+st.Grown+st.All.AllocatedBytes.Peak, "nothing was allocated")
	require.EqualValues(t, 100*pooltest.MiB, st.CachedBytes)
	pooltest.NewScript(t, c, d).Run("a=60M b=40M")
	require.Equal(t, 1, d.Count("MemAlloc"))

	c, d = pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.InitialSize, cfg.MaxSplit = 99*pooltest.MiB, 40*pooltest.MiB })
	require.Equal(t, "0 large: [Free 38M]; 0 large: [Free 38M]; 0 large: [Free 24M]", pooltest.NewScript(t, c, d).Layout())

	c = pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), InitialSize: 99 * pooltest.MiB})
	require.EqualValues(t, 100*pooltest.MiB, c.Stats().CachedBytes)
	require.NoError(t, c.Close())

	_, err := cupool.New(cupool.Config{Driver: pooltest.NewDriver(64 * pooltest.MiB), InitialSize: 99 * pooltest.MiB})
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, err, "initial size")
}

// What was reserved on purpose stays until Trim, EmptyCache or an out of memory,
// and serves small blocks, too.
func TestReserveStays(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg cupool.Config
		run func(t *testing.T, c *cupool.Pool, x *pooltest.Script, reserved func() int64)
	}{
		"initial size": {cupool.Config{InitialSize: 256 * pooltest.MiB, Limit: 2 << 30, GrowthFactor: 2}, func(t *testing.T, c *cupool.Pool, x *pooltest.Script, reserved func() int64) {
			x.Run("a=1000 b=200M free:a free:b")
			require.Zero(t, c.Stats().Grown+c.Stats().DriverFrees)
			require.EqualValues(t, 256, reserved())
		}},
		"reserve": {cupool.Config{}, func(t *testing.T, c *cupool.Pool, x *pooltest.Script, reserved func() int64) {
			x.Run("reserve:300M")
			before := c.Stats().Grown
			x.Run("a=3M@1 b=1000")
			require.Zero(t, c.Stats().DriverFrees)
			require.GreaterOrEqual(t, reserved(), int64(300))
			if c.Config().Backing == cupool.BackingSegments { // with virtual memory the other stream takes it over
				require.Equal(t, before+1, c.Stats().Grown)
			}
			x.Run("c=290M")
			require.LessOrEqual(t, c.Stats().Grown, before+1)
			x.Run("free:a free:b free:c")
		}},
		"small blocks": {cupool.Config{}, func(t *testing.T, c *cupool.Pool, x *pooltest.Script, reserved func() int64) {
			x.Run("reserve:100M")
			before := c.Stats().Grown
			for _, size := range append(slices.Repeat([]int64{pooltest.MiB}, 30), slices.Repeat([]int64{16 << 10}, 640)...) {
				b := pooltest.Alloc(t, c, size, nil)
				t.Cleanup(func() { require.NoError(t, c.Free(b)) })
			}
			require.LessOrEqual(t, reserved(), int64(100))
			x.Run("a=50M free:a")
			require.Equal(t, before, c.Stats().Grown)
		}},
		"given back": {cupool.Config{Limit: 400 * pooltest.MiB}, func(t *testing.T, c *cupool.Pool, x *pooltest.Script, reserved func() int64) {
			x.Run("reserve:300M a=350M@1 free:a")
			require.EqualValues(t, 350, reserved(), "before an out of memory")
			x.Run("reserve:300M empty")
			require.Zero(t, reserved())
			x.Run("reserve:300M trim:100M")
			require.LessOrEqual(t, reserved(), int64(100))
		}},
	} {
		for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
			t.Run(name+"/"+backing.String(), func(t *testing.T) {
				cfg := tc.cfg
				cfg.Driver, cfg.Backing, cfg.MagazineBytes = simdev.New(simdev.Config{Capacity: 4 << 30}), backing, -1
				c := pooltest.Open(t, cfg)
				t.Cleanup(func() { require.NoError(t, c.Close()) })
				tc.run(t, c, pooltest.NewScript(t, c, nil), func() int64 { return c.Stats().All.ReservedBytes.Current / pooltest.MiB })
			})
		}
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
