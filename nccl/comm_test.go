package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
)

// TestMain gives the stand-in as many GPUs as a group may have. On a computer with
// GPUs, tests with more ranks than those are left out.
func TestMain(m *testing.M) {
	if fakecuda.Loaded() && os.Getenv("FAKECUDA_DEVICES") == "" {
		os.Setenv("FAKECUDA_DEVICES", "8")
	}
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRole(role))
	}
	if _, err := nccl.Version(""); !fakecuda.Loaded() && errors.Is(err, cupool.ErrNotSupported) {
		fmt.Println("everything is left out:", err) // examples cannot say so
		return
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for.
const patience = 5 * time.Minute

// skipWithout skips a test with more ranks than there are GPUs.
func skipWithout(t testing.TB, ranks int) {
	t.Helper()
	gpus, err := cuda.Devices()
	require.NoError(t, err)
	if len(gpus) < ranks {
		t.Skipf("%d ranks need as many GPUs, there are %d", ranks, len(gpus))
	}
}

// upTo returns how many ranks a test has that takes several: most, or as many as there
// are GPUs. It skips the test where there is one.
func upTo(t testing.TB, most int) int {
	t.Helper()
	skipWithout(t, 2)
	gpus, err := cuda.Devices()
	require.NoError(t, err)
	return min(most, len(gpus))
}

func openPools(t testing.TB, n int, cfg cupool.Config) []*cupool.Pool {
	t.Helper()
	skipWithout(t, n)
	pools := make([]*cupool.Pool, n)
	for i := range pools {
		d, err := cuda.Open(i)
		require.NoError(t, err)
		cfg.Driver = d
		pools[i], err = cupool.New(cfg)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, pools[i].Close())
			require.NoError(t, d.Close())
		})
	}
	return pools
}

// newRanks makes a group of n ranks, which the test's end closes, with pools as they
// usually are or as one Config has them.
func newRanks(t testing.TB, n int, cfg nccl.Config, pool ...cupool.Config) []rank {
	t.Helper()
	pools := openPools(t, n, append(pool, cupool.Config{})[0])
	comms, err := nccl.NewLocal(context.Background(), pools, cfg)
	require.NoError(t, err)
	return ranksOf(t, comms, pools)
}

// ranksOf returns Comms as ranks with streams of their own. The test's end closes them.
func ranksOf(t testing.TB, comms []*nccl.Comm, pools []*cupool.Pool) []rank {
	t.Helper()
	ranks := make([]rank, len(comms))
	for i, c := range comms {
		ranks[i] = rankOf(c, pools[i])
		var err error
		ranks[i].Stream, err = pools[i].NewStream()
		require.NoError(t, err)
	}
	t.Cleanup(func() { _ = each(ranks, func(r rank) error { return r.Close() }) }) // some tests have closed them
	return ranks
}

// A rank is one of a group in this process.
type rank struct {
	commtest.Member
	*nccl.Comm
}

// rankOf returns a rank on its default stream. NCCL adds in an order of its own.
func rankOf(c *nccl.Comm, pool *cupool.Pool) rank {
	return rank{commtest.Member{Comm: c, Pool: pool, Stream: pool.DefaultStream(), Tolerance: 1e-6}, c}
}

// each calls f for all ranks at the same time.
func each(ranks []rank, f func(r rank) error) error {
	members := make([]commtest.Member, len(ranks))
	for i, r := range ranks {
		members[i] = r.Member
	}
	return commtest.Each(members, func(m commtest.Member) error { return f(ranks[m.Rank()]) })
}

// groups returns the sizes of the groups that a test makes, as far as there are
// GPUs.
func groups(t testing.TB) []int {
	t.Helper()
	gpus, err := cuda.Devices()
	require.NoError(t, err)
	return slices.DeleteFunc(testkit.Choose([]int{1, 2, 3, 4, 5, 6, 7, 8}, []int{1, 2, 8}), func(n int) bool { return n > len(gpus) })
}
