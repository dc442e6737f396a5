package nccl_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/nccl"
)

// TestMisuse makes calls that cannot be made, also with streams and memory of another
// allocator. The Comm is as before.
func TestMisuse(t *testing.T) {
	r := newRanks(t, 1, nccl.Config{})[0]
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	commtest.Misuse(t, r.Member, pool.DefaultStream())
	p, err := commtest.NewPlace(r.Member, []float32{1, 2})
	require.NoError(t, err)
	q, err := commtest.NewPlace(commtest.Member{Pool: pool}, []float32{1, 2})
	require.NoError(t, err)
	require.ErrorIs(t, r.AllReduce(p.M, q.M, dist.Sum, nil), cupool.ErrForeignStream)
	require.ErrorContains(t, r.Group(func() error { return r.Send(p.M, 3, nil) }), "rank 3")
	require.NoError(t, r.AllReduce(p.M, p.M, dist.Sum, r.Stream))
	require.NoError(t, r.Err())
	require.NoError(t, commtest.First(p.Is([]float32{1, 2}), q.Free(), pool.Close(), d.Close()))

	host, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	_, err = nccl.NewLocal(context.Background(), []*cupool.Pool{host}, nccl.Config{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, host.Close())
}

// TestConfig has groups that cannot be.
func TestConfig(t *testing.T) {
	pool := openPools(t, 1, cupool.Config{})[0]
	var bad *cupool.ConfigError
	for _, cfg := range []nccl.Config{{Rank: 1}, {Rank: -1}, {Size: -1}, {Size: 2}, {Size: 2, Address: "first:29500"}} {
		_, err := nccl.New(context.Background(), pool, cfg)
		require.ErrorAs(t, err, &bad)
	}
	for _, none := range []*cupool.Pool{nil, new(cupool.Pool)} {
		_, err := nccl.New(context.Background(), none, nccl.Config{})
		require.ErrorAs(t, err, &bad)
		_, err = nccl.NewLocal(context.Background(), []*cupool.Pool{none}, nccl.Config{})
		require.ErrorAs(t, err, &bad)
	}
	_, err := nccl.NewLocal(context.Background(), nil, nccl.Config{})
	require.ErrorAs(t, err, &bad)
	var noContext context.Context
	_, err = nccl.New(noContext, pool, nccl.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	_, err = nccl.NewLocal(noContext, []*cupool.Pool{pool}, nccl.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	_, err = nccl.New(context.Background(), pool, nccl.Config{Library: "/nowhere/libnccl.so.2"})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "nccl: not supported: NCCL is missing: ")
	require.ErrorContains(t, err, "Config.Library")
	_, err = nccl.Version("/nowhere/libnccl.so.2")
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}
