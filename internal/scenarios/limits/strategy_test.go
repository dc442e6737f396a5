package limits_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// The free blocks are of 4M, 2M and 6M, in this order.
const threeHoles = "a=4M b=2M c=2M d=2M e=6M f=2M free:a free:c free:e "

func TestStrategies(t *testing.T) {
	for s, table := range map[cupool.Strategy]map[string][2]string{
		cupool.BestFit: {
			"the smallest": {threeHoles + "g=2M", "0 large: [Free 4M][Live 2M][Live 2M][Live 2M][Free 6M][Live 2M][Free 2M]"},
		},
		cupool.FirstFit: {
			"the first":                      {threeHoles + "g=2M", "0 large: [Live 2M][Free 2M][Live 2M][Free 2M][Live 2M][Free 6M][Live 2M][Free 2M]"},
			"the first that is large enough": {threeHoles + "g=5M", "0 large: [Free 4M][Live 2M][Free 2M][Live 2M][Live 6M][Live 2M][Free 2M]"},
		},
		cupool.Segregated: {
			"rounded up":           {"a=33K", "0 small: [Live 36K][Free 2012K]"},
			"and another fits":     {"a=33K b=1K free:a c=35K", "0 small: [Live 36K][Live 1K][Free 2011K]"},
			"small ones as before": {"a=512 b=1K c=3584", "0 small: [Live 512][Live 1K][Live 3584][Free 2043K]"},
		},
		cupool.PowerOfTwo: {
			"rounded up":           {"a=33K b=5M", "0 small: [Live 64K][Free 1984K]; 0 large: [Live 8M][Free 12M]"},
			"and another fits":     {"a=33K b=1K free:a c=63K", "0 small: [Live 64K][Live 1K][Free 1983K]"},
			"over the pool's edge": {"a=600K b=1M c=1M+1", "0 small: [Live 1M][Live 1M]; 0 large: [Live 2M][Free 18M]"},
		},
	} {
		t.Run(s.String(), func(t *testing.T) { pooltest.RunScripts(t, table, 1<<30, pooltest.WithStrategy(s)) })
	}
}

// policies are the settings that say what to reserve, to round and to keep.
var policies = map[string]func(*cupool.Config){
	"best-fit":          func(cfg *cupool.Config) { cfg.Strategy = cupool.BestFit },
	"first-fit":         func(cfg *cupool.Config) { cfg.Strategy = cupool.FirstFit },
	"segregated":        func(cfg *cupool.Config) { cfg.Strategy = cupool.Segregated },
	"power-of-two":      func(cfg *cupool.Config) { cfg.Strategy = cupool.PowerOfTwo },
	"divisions":         func(cfg *cupool.Config) { cfg.Divisions = cupool.Divisions{0: 4, 2: 2} },
	"min block":         func(cfg *cupool.Config) { cfg.MinBlock = 64 << 10 },
	"max split":         func(cfg *cupool.Config) { cfg.MaxSplit = 20 * pooltest.MiB; cfg.MaxNonSplitRounding = pooltest.MiB },
	"first-fit, whole":  func(cfg *cupool.Config) { cfg.MaxSplit = 20 * pooltest.MiB; cfg.Strategy = cupool.FirstFit },
	"grow twofold":      func(cfg *cupool.Config) { cfg.GrowthFactor = 2 },
	"grow as requested": func(cfg *cupool.Config) { cfg.GrowthFactor = 1 },
	"longest idle":      func(cfg *cupool.Config) { cfg.GarbageCollectionThreshold = 0.01 },
	"initial size":      func(cfg *cupool.Config) { cfg.InitialSize = 100 * pooltest.MiB },
	"all at once": func(cfg *cupool.Config) {
		cfg.Strategy, cfg.GrowthFactor, cfg.InitialSize, cfg.GarbageCollectionThreshold = cupool.Segregated, 1.5, 1, 0.02
	},
}

// The battery for any Allocator, with every policy.
func TestConformancePolicies(t *testing.T) {
	for name, change := range policies {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				cfg := cupool.Config{Driver: pooltest.OpenHost(t)}
				change(&cfg)
				c, err := cupool.New(cfg)
				require.NoError(t, err)
				t.Cleanup(func() {
					require.NoError(t, c.Check())
					require.NoError(t, c.Close())
					require.NoError(t, cfg.Driver.Close())
				})
				return c
			})
		})
	}
}

// Random programs keep the books right with every strategy and policy, with
// segments and with virtual memory.
func TestStrategiesRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for name, change := range policies {
		t.Run(name, func(t *testing.T) {
			for _, magazines := range []int64{-1, 0} {
				for device, d := range map[string]cupool.Driver{"segments": pooltest.NewDriver(1 << 34), "vmm": simdev.New(simdev.Config{Capacity: 1 << 34})} {
					cfg := cupool.Config{Driver: d, MagazineBytes: magazines}
					change(&cfg)
					c, err := cupool.New(cfg)
					require.NoError(t, err)
					randomAllocations(t, c, rand.New(rand.NewPCG(seed, uint64(magazines))))
					require.NoError(t, c.Close(), device)
				}
			}
		})
	}
}

// randomAllocations allocates and frees at random, and gives everything back.
func randomAllocations(t *testing.T, c *cupool.Pool, r *rand.Rand) {
	var live []cupool.Block
	other, err := c.NewStream()
	require.NoError(t, err)
	streams := []*cupool.Stream{nil, other}
	for i := range 2000 {
		if len(live) > 0 && r.IntN(2) == 0 || len(live) > 100 {
			j := r.IntN(len(live))
			require.NoError(t, c.Free(live[j]))
			live[j] = live[len(live)-1]
			live = live[:len(live)-1]
		} else {
			b, err := c.Alloc(1+r.Int64N(1<<(1+r.IntN(26))), streams[r.IntN(2)])
			require.NoError(t, err)
			live = append(live, b)
		}
		if i%50 == 0 {
			require.NoError(t, c.Check())
		}
	}
	for _, b := range live {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Check())
}
