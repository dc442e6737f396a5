package cupool_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// A plan outlives a sleep: its iterations have the same addresses after it,
// and while the allocator sleeps there is no memory by the plan either.
func TestSleepPlanner(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	p, err := cupool.NewPlanner(c, cupool.PlannerConfig{Confirm: 1})
	require.NoError(t, err)
	iterate := func() (at []cupool.Ptr) {
		require.NoError(t, p.BeginIteration())
		for _, size := range []int64{30 * mib, 5 * mib, 100, 12 * mib} {
			b, err := p.Alloc(size, nil)
			require.NoError(t, err)
			at = append(at, b.Ptr())
			defer func() { require.NoError(t, p.Free(b)) }()
		}
		return at
	}
	for range 2 {
		iterate()
		require.NoError(t, p.EndIteration())
		require.NoError(t, p.Wait(context.Background()))
	}
	planned := iterate()
	require.NoError(t, p.EndIteration())
	hits := p.Stats().PlannedHits
	require.Positive(t, hits)

	require.NoError(t, c.Sleep(nil))
	require.Zero(t, d.Stats().UsedBytes)
	require.NoError(t, p.BeginIteration())
	for range 3 {
		_, err = p.Alloc(30*mib, nil)
		require.ErrorIs(t, err, cupool.ErrAsleep)
	}
	require.NoError(t, p.EndIteration())
	require.NoError(t, c.Wake())

	require.Equal(t, planned, iterate())
	require.NoError(t, p.EndIteration())
	require.Greater(t, p.Stats().PlannedHits, hits)
	require.NoError(t, p.Close())
	require.NoError(t, c.Close())
	require.Zero(t, d.Stats().UsedBytes)
}

// Sleep and Wake by a device that cannot, or is full by then.
func TestSleepErrors(t *testing.T) {
	c, _ := newPool(t, 1<<30)
	require.ErrorIs(t, c.Sleep(nil), cupool.ErrNotSupported)
	require.NoError(t, c.Close())

	d := simdev.New(simdev.Config{Capacity: 64 * mib})
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	b, err := c.Alloc(40*mib, nil)
	require.NoError(t, err)
	require.NoError(t, c.Sleep(nil))
	other, err := d.MemAlloc(30 * mib)
	require.NoError(t, err)
	require.ErrorIs(t, c.Wake(), cupool.ErrOutOfMemory)
	require.EqualValues(t, 30*mib, d.Stats().UsedBytes, "it holds nothing meanwhile")
	require.EqualValues(t, 40*mib, c.Stats().AsleepBytes)
	require.NoError(t, d.MemFree(other))
	require.NoError(t, c.Wake())
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Sleep(nil), cupool.ErrClosed)
	require.ErrorIs(t, c.Wake(), cupool.ErrClosed)
}
