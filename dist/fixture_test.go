package dist

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testlevel"
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

// freeAddress returns an address on which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
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

// joinAll returns the ranks of a group of this process, over sockets.
func joinAll(t testing.TB, n int, change func(*Config)) []*Group {
	t.Helper()
	groups := make([]*Group, n)
	addr := freeAddress(t)
	noErrors(t, parallel(n, func(rank int) (err error) {
		cfg := Config{Rank: rank, Size: n, Rendezvous: addr, Timeout: patient}
		if change != nil {
			change(&cfg)
		}
		groups[rank], err = Join(context.Background(), cfg)
		return err
	}))
	t.Cleanup(func() {
		for _, g := range groups {
			_ = g.Close()
		}
	})
	return groups
}

func connectAll(t testing.TB, groups []*Group, pools []*cupool.Pool) []Comm {
	t.Helper()
	comms := make([]Comm, len(groups))
	noErrors(t, parallel(len(groups), func(rank int) (err error) {
		comms[rank], err = Connect(context.Background(), groups[rank], pools[rank])
		return err
	}))
	return comms
}

// A way makes the ranks of a group.
type way struct {
	name  string
	comms func(t testing.TB, n int, change func(*Config)) ([]Comm, []*cupool.Pool)
}

func makePools(t testing.TB, n int, f func(testing.TB) *cupool.Pool) []*cupool.Pool {
	pools := make([]*cupool.Pool, n)
	for i := range pools {
		pools[i] = f(t)
	}
	return pools
}

var ways = []way{
	{"local", func(t testing.TB, n int, change func(*Config)) ([]Comm, []*cupool.Pool) {
		return local(t, makePools(t, n, newPool), change)
	}},
	{"local staged", func(t testing.TB, n int, change func(*Config)) ([]Comm, []*cupool.Pool) {
		return local(t, makePools(t, n, newStagedPool), change)
	}},
	{"sockets", func(t testing.TB, n int, change func(*Config)) ([]Comm, []*cupool.Pool) {
		pools := makePools(t, n, newPool)
		return connectAll(t, joinAll(t, n, change), pools), pools
	}},
	{"sockets staged", func(t testing.TB, n int, change func(*Config)) ([]Comm, []*cupool.Pool) {
		pools := makePools(t, n, newStagedPool)
		return connectAll(t, joinAll(t, n, change), pools), pools
	}},
}

func local(t testing.TB, pools []*cupool.Pool, change func(*Config)) ([]Comm, []*cupool.Pool) {
	cfg := Config{Timeout: patient}
	if change != nil {
		change(&cfg)
	}
	comms, err := localWithin(cfg.Timeout, pools...)
	require.NoError(t, err)
	return comms, pools
}

// everyWay runs a test for all ways and sizes.
func everyWay(t *testing.T, sizes []int, f func(t *testing.T, comms []Comm, pools []*cupool.Pool)) {
	for _, w := range ways {
		for _, n := range sizes {
			if n == 5 && !testlevel.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", w.name, n), func(t *testing.T) {
				comms, pools := w.comms(t, n, nil)
				f(t, comms, pools)
				noErrors(t, parallel(n, func(rank int) error { return comms[rank].Close() }))
			})
		}
	}
}
