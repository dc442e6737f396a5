package dist_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// patient is longer than anything here takes that does not hang.
const patient = time.Minute

// staged is a host device that does not run Go functions, as GPUs do not.
type staged struct{ cupool.Driver }

func (staged) HostAccessible() bool { return false }

// poolOver returns a pool over a host device of its own.
func poolOver(t testing.TB, change func(d cupool.Driver) cupool.Driver) *cupool.Pool {
	t.Helper()
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: change(d), Backing: cupool.BackingSegments})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, d.Close())
	})
	return pool
}

func newPool(t testing.TB) *cupool.Pool {
	return poolOver(t, func(d cupool.Driver) cupool.Driver { return d })
}

func newStagedPool(t testing.TB) *cupool.Pool {
	return poolOver(t, func(d cupool.Driver) cupool.Driver { return staged{d} })
}

// newHookedPool returns a pool over a device whose calls go through *around, once that is set.
func newHookedPool(t testing.TB, staging bool, around *func(c *hook.Call, do func() error) error) *cupool.Pool {
	return poolOver(t, func(d cupool.Driver) cupool.Driver {
		h := &hook.Driver{Driver: d, Around: func(c *hook.Call, do func() error) error {
			if *around == nil {
				return do()
			}
			return (*around)(c, do)
		}}
		if staging {
			return staged{h}
		}
		return h
	})
}

// newCUDAPool returns a pool over the first GPU.
func newCUDAPool(t testing.TB) *cupool.Pool {
	t.Helper()
	d, err := cupool.Open("cuda")
	gputest.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, d.Close())
	})
	return pool
}

// A way is a device that Local treats differently.
type way struct {
	name string
	pool func(testing.TB) *cupool.Pool
}

var ways = []way{{"direct", newPool}, {"staged", newStagedPool}, {"cuda", newCUDAPool}}

// eachWay runs a test for all ways.
func eachWay(t *testing.T, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// group returns the ranks of a group, who wait for each other as long as a test
// does.
func group(t testing.TB, n int, newPool func(testing.TB) *cupool.Pool) []commtest.Member {
	t.Helper()
	return groupWithin(t, patient, n, newPool)
}

func groupWithin(t testing.TB, timeout time.Duration, n int, newPool func(testing.TB) *cupool.Pool) []commtest.Member {
	t.Helper()
	pools := make([]*cupool.Pool, n)
	for i := range pools {
		pools[i] = newPool(t)
	}
	comms, err := dist.LocalWithin(timeout, pools...)
	require.NoError(t, err)
	return commtest.Ranks(t, comms, pools)
}

// everyWay runs a test for all ways and sizes.
func everyWay(t *testing.T, sizes []int, f func(t *testing.T, ranks []commtest.Member)) {
	for _, w := range ways {
		for _, n := range sizes {
			if n == 5 && !testkit.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", w.name, n), func(t *testing.T) {
				ranks := group(t, n, w.pool)
				f(t, ranks)
				require.NoError(t, commtest.Close(ranks))
			})
		}
	}
}
