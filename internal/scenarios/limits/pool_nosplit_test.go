package limits_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestNoSplitBooks: a pool that hands out whole segments books them as it hands
// them out, whatever was asked for, until all is given back.
func TestNoSplitBooks(t *testing.T) {
	for _, size := range []int64{1, 1000, 1 << 20, 1<<20 + 1, 3 << 20, 10 << 20, 30 << 20} {
		for name, change := range map[string]func(*cupool.Config){
			"":                 func(*cupool.Config) {},
			", no magazines":   func(cfg *cupool.Config) { cfg.MagazineBytes = -1 },
			", small limit 8K": func(cfg *cupool.Config) { cfg.SmallLimit = 8 << 10 },
		} {
			t.Run(fmt.Sprint(size, " bytes", name), func(t *testing.T) {
				d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
				require.NoError(t, err)
				cfg := cupool.Config{Driver: d}
				change(&cfg)
				c, err := cupool.New(cfg)
				require.NoError(t, err)
				s, err := c.NewStream()
				require.NoError(t, err)
				p := pooltest.NewPrivate(t, c, cupool.PoolConfig{NoSplit: true})
				for range 2 {
					b := pooltest.Alloc(t, p, size, nil)
					require.NoError(t, p.Check())
					require.NoError(t, p.Free(b))
					require.NoError(t, p.Check())
					b = pooltest.Alloc(t, p, size, nil)
					require.NoError(t, p.FreeOn(b, s))
					require.NoError(t, p.Check())
					require.NoError(t, s.Sync())
					require.NoError(t, p.Check())
					require.Zero(t, p.Stats().LiveBytes)
					require.Zero(t, p.Stats().Small.Active.Current)
					require.Zero(t, p.Stats().Large.Active.Current)
					require.NoError(t, p.EmptyCache())
					require.NoError(t, p.Check())
					require.Zero(t, p.Stats().All.ReservedBytes.Current)
				}
				require.NoError(t, p.Close())
				require.NoError(t, c.Close())
				require.NoError(t, d.Close())
			})
		}
	}
}
