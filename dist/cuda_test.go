//go:build gpu

package dist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
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

// A GPU's memory goes over the host, with the results of the host device.
func TestCollectivesOnCUDA(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		comms, pools := group(t, n, newCUDAPool)
		all := rigs(t, comms, pools)
		for _, typ := range []Type{Float32, Int64} {
			for _, count := range []int{0, 7, 5000} {
				noErrors(t, parallel(n, func(rank int) error { return all[rank].collectives(typ, count) }))
			}
		}
		noErrors(t, parallel(n, func(rank int) error { return comms[rank].Close() }))
	}
}

func TestReducerOnCUDA(t *testing.T) {
	const n = 2
	comms, pools := group(t, n, newCUDAPool)
	noErrors(t, parallel(n, func(rank int) error {
		tr, err := newTrainer(comms[rank], pools[rank], ReducerConfig{BucketBytes: 4000})
		if err != nil {
			return err
		}
		for step := range 3 {
			if err := tr.step(step, n); err != nil {
				return err
			}
		}
		return tr.close()
	}))
}

// What goes over the host cannot be part of a graph, and says so.
func TestCaptureOverTheHostIsRefused(t *testing.T) {
	comms, pools := group(t, 2, newCUDAPool)
	tr, err := newTrainer(comms[0], pools[0], ReducerConfig{})
	require.NoError(t, err)
	m, err := OfTensor(tr.grads[0])
	require.NoError(t, err)
	_, err = tr.eng.Capture(func() error { return comms[0].AllReduce(m, m, Sum, tr.eng.Stream()) })
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
	require.NoError(t, comms[0].Err())
	require.NoError(t, tr.close())
}
