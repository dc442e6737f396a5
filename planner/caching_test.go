package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/planner"
)

// A plan outlives a sleep: its iterations have the same addresses after it,
// and while the allocator sleeps there is no memory by the plan either.
func TestSleep(t *testing.T) {
	d := simdev.New(simdev.Config{})
	x := newPlanned(t, d, planner.Config{Confirm: 1})
	var planned []cupool.Ptr
	for range 3 {
		x.iterate(func() { planned = x.layers(3) })
	}
	hits := x.Stats().PlannedHits
	require.Positive(t, hits)

	require.NoError(t, x.c.Sleep(nil))
	require.Zero(t, d.Stats().UsedBytes)
	x.iterate(func() {
		for range 3 {
			_, err := x.Alloc(mib, nil)
			require.ErrorIs(t, err, cupool.ErrAsleep)
		}
	})
	require.NoError(t, x.c.Wake())
	x.iterate(func() { require.Equal(t, planned, x.layers(3)) })
	require.Greater(t, x.Stats().PlannedHits, hits)
}

// After Reset of the pool, which ends the memory of the plan, the pool serves the program.
func TestReset(t *testing.T) {
	x := newPlanned(t, simdev.New(simdev.Config{}), planner.Config{Confirm: 1})
	for range 3 {
		x.iterate(func() { x.layers(3) })
	}
	require.Positive(t, x.Stats().PlannedHits)
	require.NoError(t, x.c.Reset())
	x.iterate(func() {
		b, err := x.Alloc(mib, nil)
		require.NoError(t, err)
		_, err = x.c.Lookup(b.Ptr())
		require.NoError(t, err, "it is a block of the pool")
		require.NoError(t, x.Free(b))
	})
	require.ErrorIs(t, x.Close(), cupool.ErrDoubleFree)
}

// A Planner works over a pool as over any allocator.
func TestPool(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			c := newPool(t, sim(256<<20), func(cfg *cupool.Config) { cfg.Backing = backing })
			pool, err := c.NewPool(cupool.PoolConfig{})
			require.NoError(t, err)
			x := over(t, pool, planner.Config{Confirm: 1})
			for range 4 {
				x.iterate(func() { x.run("a=3M use:a free:a b=3M@1 use:b@1 free:b") })
			}
			require.EqualValues(t, 6, x.Stats().PlannedHits)
			require.NoError(t, x.Close())
			require.Zero(t, c.Stats().All.Allocation.Allocated)
			require.NoError(t, c.Close())
		})
	}
}

// The battery for any Allocator, while iterations are recorded or looked for.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]planner.Config{"told": {Confirm: 1}, "detected": {Detect: true}} {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				x := newPlanned(t, host(t), cfg)
				if !cfg.Detect {
					require.NoError(t, x.BeginIteration())
				}
				return x.Planner
			})
		})
	}
}
