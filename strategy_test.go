package cupool_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func withStrategy(s cupool.Strategy) func(*cupool.Config) {
	return func(cfg *cupool.Config) { cfg.Strategy, cfg.Backing = s, cupool.BackingSegments }
}

// The free blocks are of 4M, 2M and 6M, in this order.
const threeHoles = "a=4M b=2M c=2M d=2M e=6M f=2M free:a free:c free:e "

func TestStrategies(t *testing.T) {
	for s, table := range map[cupool.Strategy]map[string]scriptCase{
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
	} {
		t.Run(s.String(), func(t *testing.T) { runScripts(t, table, 1<<30, withStrategy(s)) })
	}
}

// Random programs keep the books right with every strategy and backing.
func TestStrategiesRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for _, s := range []cupool.Strategy{cupool.BestFit, cupool.FirstFit, cupool.Segregated} {
		for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingAuto} {
			for _, magazines := range []int64{-1, 0} {
				r := rand.New(rand.NewPCG(seed, uint64(s)))
				c, _ := newPool(t, 1<<34, func(cfg *cupool.Config) { cfg.Strategy, cfg.Backing, cfg.MagazineBytes = s, backing, magazines })
				var live []cupool.Block
				for i := range 2000 {
					if len(live) > 0 && r.IntN(2) == 0 || len(live) > 100 {
						j := r.IntN(len(live))
						require.NoError(t, c.Free(live[j]))
						live[j] = live[len(live)-1]
						live = live[:len(live)-1]
					} else {
						b, err := c.Alloc(1+r.Int64N(1<<(1+r.IntN(24))), nil)
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
			}
		}
	}
}
