package dist

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// patient is longer than anything here takes that does not hang.
const patient = time.Minute

// newPool returns a pool over a host device of its own.
func newPool(t testing.TB) *cupool.Pool {
	t.Helper()
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, d.Close())
	})
	return pool
}

// staged is a host device that does not run Go functions, as GPUs do not.
type staged struct{ cupool.Driver }

func (staged) HostAccessible() bool { return false }

func newStagedPool(t testing.TB) *cupool.Pool {
	t.Helper()
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: staged{d}, Backing: cupool.BackingSegments})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, d.Close())
	})
	return pool
}

// parallel calls f for each rank at once and returns the errors.
func parallel(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { errs[rank] = f(rank) })
	}
	wg.Wait()
	return errs
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
}

// ways are the devices that Local treats differently.
var ways = []struct {
	name string
	pool func(testing.TB) *cupool.Pool
}{{"direct", newPool}, {"staged", newStagedPool}}

// group returns the ranks of a group, whose patience is a test's.
func group(t testing.TB, n int, newPool func(testing.TB) *cupool.Pool) ([]Comm, []*cupool.Pool) {
	t.Helper()
	return groupWithin(t, patient, n, newPool)
}

func groupWithin(t testing.TB, timeout time.Duration, n int, newPool func(testing.TB) *cupool.Pool) ([]Comm, []*cupool.Pool) {
	t.Helper()
	pools := make([]*cupool.Pool, n)
	for i := range pools {
		pools[i] = newPool(t)
	}
	comms, err := localWithin(timeout, pools...)
	require.NoError(t, err)
	return comms, pools
}

// everyWay runs a test for all ways and sizes.
func everyWay(t *testing.T, sizes []int, f func(t *testing.T, comms []Comm, pools []*cupool.Pool)) {
	for _, w := range ways {
		for _, n := range sizes {
			if n == 5 && !testkit.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", w.name, n), func(t *testing.T) {
				comms, pools := group(t, n, w.pool)
				f(t, comms, pools)
				noErrors(t, parallel(n, func(rank int) error { return comms[rank].Close() }))
			})
		}
	}
}

// sum adds up count ones of each rank, and checks the result.
func sum(c Comm, pool *cupool.Pool, count int) error {
	ones := make([]int32, count)
	for i := range ones {
		ones[i] = 1
	}
	b, err := cupool.BufferFrom(pool, ones, nil)
	if err != nil {
		return err
	}
	defer b.Free()
	m, err := Of(b)
	if err != nil {
		return err
	}
	if err := c.AllReduce(m, m, Sum, nil); err != nil {
		return err
	}
	if err := b.CopyTo(ones); err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	for i, v := range ones {
		if int(v) != c.Size() {
			return fmt.Errorf("element %d is %d", i, v)
		}
	}
	return nil
}
