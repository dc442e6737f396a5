package dist_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// newCUDAPool returns a pool over GPU 0, or over the stand-in for one.
func newCUDAPool(t testing.TB) *cupool.Pool {
	t.Helper()
	d, err := cupool.Open("cuda")
	if err != nil {
		t.Skip(err)
	}
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, d.Close())
	})
	return pool
}

// GPU 0, or the stand-in for one, is another way.
func init() {
	if d, err := cupool.Open("cuda"); err == nil {
		ways = append(ways, way{"cuda", newCUDAPool})
		_ = d.Close()
	}
}

// What goes over the host cannot be part of a graph, and says so.
func TestCaptureOverTheHostIsRefused(t *testing.T) {
	r := group(t, 2, newCUDAPool)[0]
	tr, err := newTrainer(r, dist.ReducerConfig{})
	require.NoError(t, err)
	m, err := dist.OfTensor(tr.grads[0])
	require.NoError(t, err)
	_, err = tr.eng.Capture(func() error { return r.AllReduce(m, m, dist.Sum, tr.eng.Stream()) })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	_, err = tr.eng.Capture(func() error {
		for i := range gradientSizes {
			if err := tr.r.Ready(i); err != nil {
				return err
			}
		}
		return nil
	})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, r.Err())
	require.NoError(t, tr.close())
}
