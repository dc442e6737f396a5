package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// TestPrivatePoolTakesWhatOthersCache: a limit that leaves no room for a whole
// segment keeps no request from what other pools cache, where less would do.
func TestPrivatePoolTakesWhatOthersCache(t *testing.T) {
	backings(t, 24<<20, func(t *testing.T, c *cupool.Pool) {
		idle, p := newPrivate(t, c, cupool.PoolConfig{}), newPrivate(t, c, cupool.PoolConfig{})
		require.NoError(t, idle.Free(allocate(t, idle, 8<<20, nil)))
		small := allocate(t, p, 5000, nil)
		b := allocate(t, p, 3<<20, nil) // 20 MiB are a segment, 4 MiB suffice
		require.Zero(t, c.Stats().OOMs+p.Stats().OOMs)
		require.NoError(t, p.Free(b))
		require.NoError(t, p.Free(small))
	}, func(cfg *cupool.Config) { cfg.Limit = 12 << 20 })
}

// TestFreeLaterServesOtherPools: what FreeLater was given in one pool is freed
// before a request to another one is refused.
func TestFreeLaterServesOtherPools(t *testing.T) {
	backings(t, 24<<20, func(t *testing.T, c *cupool.Pool) {
		p := newPrivate(t, c, cupool.PoolConfig{})
		c.FreeLater(allocate(t, c, 16<<20, nil))
		require.NoError(t, p.Free(allocate(t, p, 16<<20, nil)))
		p.FreeLater(allocate(t, p, 16<<20, nil))
		require.NoError(t, c.Free(allocate(t, c, 16<<20, nil)))
	})
}
