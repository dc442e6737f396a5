package limits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestPrivatePoolTakesWhatOthersCache: a limit that leaves no room for a whole
// segment keeps no request from what other pools cache, where less would do.
func TestPrivatePoolTakesWhatOthersCache(t *testing.T) {
	pooltest.Backings(t, 24<<20, func(t *testing.T, c *cupool.Pool) {
		idle, p := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		require.NoError(t, idle.Free(pooltest.Alloc(t, idle, 8<<20, nil)))
		small := pooltest.Alloc(t, p, 5000, nil)
		b := pooltest.Alloc(t, p, 3<<20, nil) // 20 MiB are a segment, 4 MiB suffice
		require.Zero(t, c.Stats().OOMs+p.Stats().OOMs)
		require.NoError(t, p.Free(b))
		require.NoError(t, p.Free(small))
	}, func(cfg *cupool.Config) { cfg.Limit = 12 << 20 })
}

// TestFreeLaterServesOtherPools: what FreeLater was given in one pool is freed
// before a request to another one is refused.
func TestFreeLaterServesOtherPools(t *testing.T) {
	pooltest.Backings(t, 24<<20, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		c.FreeLater(pooltest.Alloc(t, c, 16<<20, nil))
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 16<<20, nil)))
		p.FreeLater(pooltest.Alloc(t, p, 16<<20, nil))
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 16<<20, nil)))
	})
}
