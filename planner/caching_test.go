package planner_test

import (
	"context"
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
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	p, err := planner.New(c, planner.Config{Confirm: 1})
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

// A Planner works over a pool as over any allocator.
func TestPool(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			d := sim(256 << 20)
			c, err := cupool.New(cupool.Config{Driver: d, Backing: backing})
			require.NoError(t, err)
			pool, err := c.NewPool(cupool.PoolConfig{})
			require.NoError(t, err)
			p, err := planner.New(pool, planner.Config{Confirm: 1})
			require.NoError(t, err)
			s, err := p.NewStream()
			require.NoError(t, err)
			for range 4 {
				require.NoError(t, p.BeginIteration())
				for _, on := range []*cupool.Stream{nil, s} {
					x, err := p.Alloc(3<<20, on)
					require.NoError(t, err)
					require.NoError(t, p.RecordStream(x, on))
					require.NoError(t, p.Free(x))
				}
				require.NoError(t, p.EndIteration())
				require.NoError(t, p.Wait(t.Context()))
			}
			require.EqualValues(t, 6, p.Stats().PlannedHits)
			require.NoError(t, p.Close())
			require.Zero(t, c.Stats().All.Allocation.Allocated)
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// The battery for any Allocator, while iterations are recorded or looked for.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]planner.Config{"told": {Confirm: 1}, "detected": {Detect: true}} {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				d := host(t)
				c, err := cupool.New(cupool.Config{Driver: d})
				require.NoError(t, err)
				p, err := planner.New(c, cfg)
				require.NoError(t, err)
				if !cfg.Detect {
					require.NoError(t, p.BeginIteration())
				}
				t.Cleanup(func() {
					require.NoError(t, p.Check())
					require.NoError(t, p.Close())
					require.NoError(t, c.Close())
					require.NoError(t, d.Close())
				})
				return p
			})
		})
	}
}
