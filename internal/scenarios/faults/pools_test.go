package faults_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestPoolUpstreamFailures: what the program's functions fail with comes back,
// and out of memory has the ladder climbed.
func TestPoolUpstreamFailures(t *testing.T) {
	pooltest.Backings(t, 256<<20, func(t *testing.T, c *cupool.Pool) {
		d := c.Driver()
		full, broken, stuck := false, errors.New("broken"), errors.New("stuck")
		var fail, failFree error
		sizes := map[cupool.Ptr]int64{}
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{
			Alloc: func(size int64) (cupool.Ptr, error) {
				if fail != nil {
					return 0, fail
				}
				if full {
					full = false
					return 0, fmt.Errorf("upstream is full: %w", cupool.ErrOutOfMemory)
				}
				a, err := d.MemAlloc(size)
				sizes[a] = size
				return a, err
			},
			Free: func(a cupool.Ptr, size int64) error {
				if failFree != nil {
					return failFree
				}
				require.Equal(t, sizes[a], size)
				delete(sizes, a)
				return d.MemFree(a)
			},
		})
		require.Same(t, d, p.Driver())
		fail = broken
		_, err := p.Alloc(1, nil)
		require.ErrorIs(t, err, broken)
		fail = nil
		x := pooltest.Alloc(t, p, 30<<20, nil)
		require.NoError(t, p.Free(x))
		full = true
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 40<<20, nil)), "after the cache was given back")
		failFree = stuck
		require.ErrorIs(t, p.EmptyCache(), stuck)
		require.NoError(t, p.Check())
		failFree = nil
		require.NoError(t, p.Close())
		require.Empty(t, sizes)
	})
}
