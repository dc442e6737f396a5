//go:build gpu

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
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
	if _, err := nccl.Version(""); errors.Is(err, cupool.ErrNotSupported) {
		fmt.Println("everything is left out:", err) // examples cannot say so
		return
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for.
const patience = 5 * time.Minute

// a rank of a group in this process.
type rank struct {
	*nccl.Comm
	pool *cupool.Pool
}

// skipWithout skips a test with more ranks than there are GPUs.
func skipWithout(t testing.TB, ranks int) {
	t.Helper()
	gpus, err := cuda.Devices()
	require.NoError(t, err)
	if len(gpus) < ranks {
		t.Skipf("%d ranks need as many GPUs, there are %d", ranks, len(gpus))
	}
}

func openPools(t testing.TB, n int) []*cupool.Pool {
	t.Helper()
	skipWithout(t, n)
	pools := make([]*cupool.Pool, n)
	for i := range pools {
		d, err := cuda.Open(i)
		require.NoError(t, err)
		pools[i], err = cupool.New(cupool.Config{Driver: d})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, pools[i].Close())
			require.NoError(t, d.Close())
		})
	}
	return pools
}

// newRanks makes a group of n ranks, which the test's end closes.
func newRanks(t testing.TB, n int, cfg nccl.Config) []rank {
	t.Helper()
	pools := openPools(t, n)
	comms, err := nccl.NewLocal(context.Background(), pools, cfg)
	require.NoError(t, err)
	ranks := make([]rank, n)
	for i, c := range comms {
		ranks[i] = rank{c, pools[i]}
	}
	t.Cleanup(func() {
		_ = each(ranks, func(r rank) error { return r.Close() }) // some tests have closed them
	})
	return ranks
}

// each calls f for all ranks at the same time.
func each(ranks []rank, f func(r rank) error) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() {
			if err := f(r); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
