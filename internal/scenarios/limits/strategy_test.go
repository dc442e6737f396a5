package limits_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/model"
	"github.com/cupool/cupool/internal/testkit"
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
	"best-fit":     func(cfg *cupool.Config) { cfg.Strategy = cupool.BestFit },
	"first-fit":    func(cfg *cupool.Config) { cfg.Strategy = cupool.FirstFit },
	"segregated":   func(cfg *cupool.Config) { cfg.Strategy = cupool.Segregated },
	"power-of-two": func(cfg *cupool.Config) { cfg.Strategy = cupool.PowerOfTwo },
	"divisions":    func(cfg *cupool.Config) { cfg.Divisions = cupool.Divisions{0: 4, 2: 2} },
	"min block":    func(cfg *cupool.Config) { cfg.MinBlock = 64 << 10 },
	"max split": func(cfg *cupool.Config) {
		cfg.MaxSplit, cfg.MaxNonSplitRounding, cfg.Backing = 20*pooltest.MiB, pooltest.MiB, cupool.BackingSegments
	},
	"first-fit, whole": func(cfg *cupool.Config) {
		cfg.MaxSplit, cfg.Strategy, cfg.Backing = 20*pooltest.MiB, cupool.FirstFit, cupool.BackingSegments
	},
	"grow twofold":      func(cfg *cupool.Config) { cfg.GrowthFactor = 2 },
	"grow as requested": func(cfg *cupool.Config) { cfg.GrowthFactor = 1 },
	"longest idle":      func(cfg *cupool.Config) { cfg.GarbageCollectionThreshold = 0.01 },
	"initial size":      func(cfg *cupool.Config) { cfg.InitialSize = 10 * pooltest.MiB },
	"all at once": func(cfg *cupool.Config) {
		cfg.Strategy, cfg.GrowthFactor, cfg.InitialSize, cfg.GarbageCollectionThreshold = cupool.Segregated, 1.5, 1, 0.02
	},
}

// Random programs keep the books right, and the contents of blocks, with every
// policy, on segments and on virtual memory.
func TestPolicies(t *testing.T) {
	seed := testkit.Seed(t)
	for name, change := range policies {
		for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
			cfg := cupool.Config{Backing: backing}
			change(&cfg)
			for i := range testkit.Choose(40, 2) {
				data := model.Random(rand.New(rand.NewPCG(seed, uint64(i))))
				cfg.MagazineBytes = int64(-(i % 2)) // none in every second one
				res := model.Run(data, model.Options{Config: &cfg})
				require.Empty(t, res.Errs, "%s, %v, program %d: %q\n%s", name, backing, i, data, res.Log)
			}
		}
	}
}
