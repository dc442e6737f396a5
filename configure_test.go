package cupool_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestConfigure: each setting that can change does, at once, in private pools, too.
func TestConfigure(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		p := must(c.NewPool(cupool.PoolConfig{}))
		active := func(of *cupool.Pool, size int64) int64 {
			before := of.Stats().All.ActiveBytes.Current
			b := pooltest.Alloc(t, of, size, nil)
			defer func() { require.NoError(t, of.Free(b)) }()
			return of.Stats().All.ActiveBytes.Current - before
		}
		for _, of := range []*cupool.Pool{c, p} {
			for range 40 { // it has a place in the magazines now
				require.EqualValues(t, 5*mib, active(of, 5*mib))
			}
		}
		require.NoError(t, c.Configure("roundup_power2_divisions:[1:4,2:1,4:2,>:4]"))
		later := must(c.NewPool(cupool.PoolConfig{}))
		for _, of := range []*cupool.Pool{c, p, later} {
			require.EqualValues(t, 6*mib, active(of, 5*mib), "what was cached for the size does not serve it")
			require.EqualValues(t, 3*mib, active(of, 3*mib))
			require.EqualValues(t, 14*mib, active(of, 13*mib))
		}
		require.NoError(t, c.Configure("garbage_collection_threshold:0.25"))
		require.EqualValues(t, 6*mib, active(c, 5*mib), "what is not named stays")
		require.InDelta(t, 0.25, c.Config().GarbageCollectionThreshold, 0)
		require.NoError(t, c.Configure("divisions:1,garbage_collection_threshold:0"))
		require.EqualValues(t, 5*mib, active(p, 5*mib))
		require.Zero(t, c.Config().GarbageCollectionThreshold)

		require.NoError(t, c.Configure("limit:100M"))
		_, err := c.Alloc(102*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.NoError(t, c.Configure("limit:0"))
		require.EqualValues(t, 102*mib, active(c, 102*mib))
		require.NoError(t, c.Configure("per_process_memory_fraction:0.0625"))
		_, err = c.Alloc(202*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.NoError(t, c.Configure("fraction:0"))

		require.NoError(t, c.Configure("max_split_size_mb:32,max_non_split_rounding_mb:8"))
		require.NoError(t, c.EmptyCache())
		require.EqualValues(t, 60*mib, active(c, 60*mib))
		if c.Config().Backing == cupool.BackingVMM {
			require.Zero(t, c.Config().MaxSplit)
		} else {
			require.EqualValues(t, 32*mib, c.Config().MaxSplit)
			require.EqualValues(t, 60*mib, active(c, 55*mib), "a block so large is not split")
			require.EqualValues(t, 50*mib, active(c, 50*mib), "nor given for so little")
		}
		require.NoError(t, c.Configure("max_split:0"))
		require.Zero(t, c.Config().MaxNonSplitRounding)
		require.NoError(t, c.Configure("expandable_segments:"+map[bool]string{true: "True", false: "False"}[c.Config().Backing == cupool.BackingVMM]))
		require.NoError(t, c.Check())
	})
}

// TestConfigureWithin: limits that New was given go on below what they are changed to, and
// Config and Settings say what holds.
func TestConfigureWithin(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 1 << 30})
	c := pooltest.Open(t, cupool.Config{Driver: d, Limit: 512 * mib, Fraction: 0.25})
	for _, x := range []struct {
		conf     string
		limit    int64
		fraction float64
		bound    int64
	}{
		{"limit:300M,fraction:0.125", 300 * mib, 0.125, 128 * mib},
		{"limit:2G,fraction:1", 512 * mib, 0.25, 256 * mib},
		{"limit:100M", 100 * mib, 0.25, 100 * mib},
		{"fraction:1e-12", 100 * mib, 1e-12, 1}, // a part of less than a byte is a limit, too
		{"limit:0,fraction:0", 512 * mib, 0.25, 256 * mib},
	} {
		require.NoError(t, c.Configure(x.conf))
		cfg := c.Config()
		require.Equal(t, [2]int64{x.limit, x.bound}, [2]int64{cfg.Limit, c.Stats().Limit}, x.conf)
		require.InDelta(t, x.fraction, cfg.Fraction, 0, x.conf)
		require.Equal(t, "limit", c.Settings()[0].Key)
		require.NotEqual(t, "0", c.Settings()[0].Value, x.conf)
	}
}

// TestLimitBelowCached: what is cached beyond a limit that was lowered goes back for a request
// that it cannot serve, and for a pool that wakes.
func TestLimitBelowCached(t *testing.T) {
	pooltest.Backings(t, 4<<30, func(t *testing.T, c *cupool.Pool) {
		p, s := must(c.NewPool(cupool.PoolConfig{})), pooltest.NewStream(t, c)
		cache := func(of *cupool.Pool) {
			var live []cupool.Block
			for range 20 {
				live = append(live, pooltest.Alloc(t, of, 20*mib, s))
			}
			for _, b := range live {
				require.NoError(t, of.Free(b))
			}
		}
		for _, of := range []*cupool.Pool{c, p} {
			cache(of)
			require.NoError(t, c.Configure("limit:100M"))
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 30*mib, nil)))
			require.NoError(t, errors.Join(c.Configure("limit:0"), c.EmptyCache(), p.EmptyCache()))
		}
		if c.Config().Backing == cupool.BackingVMM {
			b := pooltest.Alloc(t, p, 40*mib, nil)
			require.NoError(t, p.Sleep(nil))
			cache(c)
			require.NoError(t, c.Configure("limit:100M"))
			require.NoError(t, errors.Join(p.Wake(), p.Free(b)))
			require.LessOrEqual(t, c.Stats().All.ReservedBytes.Current, int64(60*mib))
		}
		require.NoError(t, c.Check())
	})
}

// TestConfigureFails: what fails changes nothing.
func TestConfigureFails(t *testing.T) {
	c := must(cupool.New(cupool.Config{Backing: cupool.BackingSegments, NoEnvironment: true}))
	p := must(c.NewPool(cupool.PoolConfig{Name: "weights"}))
	for conf, text := range map[string]string{
		"divisions:3":                     "must be",
		"divisions:4,decay:5s":            "decay = 5s: cannot change while the allocator is open, where it is 0s",
		"divisions:4,max_split_size_mb:2": "must be at least large_segment",
		"divisons:4":                      "the nearest is divisions",
		"divisions:4,fraction:1.5":        "must be in (0, 1]",
		"divisions:4,min_block:1024":      "cannot change",
	} {
		err := c.Configure(conf)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig, conf)
		require.ErrorContains(t, err, text)
		require.Equal(t, cupool.Divisions{}, c.Config().Divisions, conf)
		require.Equal(t, cupool.Divisions{}, p.Config().Divisions, conf)
	}
	require.ErrorIs(t, p.Configure("divisions:4"), cupool.ErrNotSupported)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Configure("divisions:4"), cupool.ErrClosed)
}

// TestConfigureBeside: settings change while goroutines allocate, and the books stay right.
func TestConfigureBeside(t *testing.T) {
	seed := testkit.Seed(t)
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		var wg sync.WaitGroup
		for i := range uint64(3) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, i))
				var held []cupool.Block
				for range 300 {
					if b, err := c.Alloc(rng.Int64N(6*mib)+1, nil); err == nil {
						held = append(held, b)
					}
					if len(held) > 12 {
						k := rng.IntN(len(held))
						_ = c.Free(held[k])
						held = append(held[:k], held[k+1:]...)
					}
				}
				for _, b := range held {
					_ = c.Free(b)
				}
			})
		}
		for _, conf := range []string{"divisions:4", "garbage_collection_threshold:0.01", "max_split:20M", "divisions:1", "max_split:0", "garbage_collection_threshold:0"} {
			require.NoError(t, c.Configure(conf))
			require.NoError(t, c.Check())
		}
		wg.Wait()
		require.NoError(t, c.Check())
	})
}

// sizing is a device that calls a function when it is next asked for its size.
type sizing struct {
	*simdev.Device
	asked func()
}

func (d *sizing) MemInfo() (free, total int64, err error) {
	if f := d.asked; f != nil {
		d.asked = nil
		f()
	}
	return d.Device.MemInfo()
}

// TestConfigureBesideNewPool: a pool that is being made while settings change has the new ones.
func TestConfigureBesideNewPool(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		d := &sizing{Device: simdev.New(simdev.Config{Capacity: 1 << 30})}
		c := pooltest.Open(t, cupool.Config{Driver: d, Backing: backing, GarbageCollectionThreshold: 0.5})
		for _, of := range []*cupool.Pool{c, must(c.NewPool(cupool.PoolConfig{}))} {
			divisions := of.Config().Divisions
			d.asked = func() { require.NoError(t, c.Configure("divisions:4,garbage_collection_threshold:0.25")) }
			p := must(of.NewPool(cupool.PoolConfig{}))
			require.Nil(t, d.asked)
			require.NotEqual(t, divisions, p.Config().Divisions)
			require.Equal(t, c.Config().Divisions, p.Config().Divisions)
			require.InDelta(t, 0.25, p.Config().GarbageCollectionThreshold, 0)
			before := p.Stats().All.ActiveBytes.Current
			pooltest.Alloc(t, p, 5*mib, nil)
			require.EqualValues(t, 5*mib, p.Stats().All.ActiveBytes.Current-before, "5 MiB is a size of four divisions")
			pooltest.Alloc(t, p, 9*mib, nil)
			require.EqualValues(t, 15*mib, p.Stats().All.ActiveBytes.Current-before, "9 MiB is none")
			require.NoError(t, c.Configure("divisions:1,garbage_collection_threshold:0.5"))
		}
		require.NoError(t, c.Check())
	}
}

// Flags are set beside allocations that run out of memory, which report how the pool works.
func TestSetFlagsBesideOOM(t *testing.T) {
	root, _ := pooltest.NewParallel(t, 8*mib, func(cfg *cupool.Config) { cfg.Backing = cupool.BackingSegments })
	for range 20 {
		c := must(root.NewPool(cupool.PoolConfig{}))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := c.Alloc(64*mib, nil)
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			})
		}
		require.True(t, poolaccess.Of(c).SetFlags(true, false, true))
		wg.Wait()
		require.NoError(t, c.Check())
		require.NoError(t, c.Close())
	}
}

// TestConfigureNamesOthers: settings that cannot change may be named as they are, whatever private pools
// and guards have in their place.
func TestConfigureNamesOthers(t *testing.T) {
	for name, x := range map[string]struct {
		cfg  cupool.Config
		pool cupool.PoolConfig
		conf string
	}{
		"soft limit":      {cupool.Config{SoftLimit: 1 << 30}, cupool.PoolConfig{}, "soft_limit:1G,divisions:4"},
		"initial size":    {cupool.Config{InitialSize: 1 << 20}, cupool.PoolConfig{}, "initial_size:1M,divisions:4"},
		"virtual memory":  {cupool.Config{Backing: cupool.BackingVMM}, cupool.PoolConfig{NoSplit: true}, "expandable_segments:True,divisions:4"},
		"guards":          {cupool.Config{MinBlock: 256, Sanitize: cupool.Sanitizers{Guard: true}}, cupool.PoolConfig{}, "divisions:4"},
		"guards, coarser": {cupool.Config{MinBlock: 1024, Sanitize: cupool.Sanitizers{Guard: true}}, cupool.PoolConfig{}, "divisions:4"},
	} {
		t.Run(name, func(t *testing.T) {
			x.cfg.Driver = simdev.New(simdev.Config{})
			c := pooltest.Open(t, x.cfg)
			p := pooltest.NewPrivate(t, c, x.pool)
			before := c.Config()
			require.NoError(t, c.Configure(x.conf))
			for _, of := range []*cupool.Pool{c, p} {
				require.Equal(t, cupool.SameDivisions(4), of.Config().Divisions)
			}
			require.Equal(t, before.SegmentRounding, c.Config().SegmentRounding)
			require.NoError(t, c.Close())
		})
	}
}

// afterRow returns what a pool has reserved that has freed a block and then allocated a larger one, and held more than
// both once.
func afterRow(t *testing.T, c *cupool.Pool) int64 {
	t.Helper()
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 320*mib, nil)))
	require.NoError(t, c.EmptyCache())
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 150*mib, nil)))
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 160*mib, nil)))
	reserved := c.Stats().All.ReservedBytes.Current
	require.NoError(t, c.EmptyCache())
	return reserved
}

// TestThresholdOfLimit: GarbageCollectionThreshold is a part of the limit in force, whichever of the two came first, in
// pools that were there and in later ones.
func TestThresholdOfLimit(t *testing.T) {
	for _, steps := range [][]string{
		{"limit:400M,garbage_collection_threshold:0.5"}, {"limit:400M", "garbage_collection_threshold:0.5"},
		{"garbage_collection_threshold:0.5", "limit:400M"}, {"garbage_collection_threshold:0.5", "fraction:0.4"},
	} {
		c, _ := pooltest.New(t, 1000*mib, func(cfg *cupool.Config) { cfg.Backing = cupool.BackingSegments })
		earlier := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		for _, step := range steps {
			require.NoError(t, c.Configure(step))
		}
		for i, p := range []*cupool.Pool{c, earlier, pooltest.NewPrivate(t, c, cupool.PoolConfig{})} {
			require.EqualValues(t, 160*mib, afterRow(t, p), "%v, pool %d: 310 MiB are more than half of the limit", steps, i)
		}
		require.NoError(t, c.Configure("limit:0,fraction:0"))
		for i, p := range []*cupool.Pool{c, earlier, pooltest.NewPrivate(t, c, cupool.PoolConfig{})} {
			require.EqualValues(t, 310*mib, afterRow(t, p), "%v, pool %d: they are less than half of the device's memory", steps, i)
		}
	}
}
