package dist_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit/handletest"
)

// Handles that are nil, zero, closed or of another device are errors, everywhere.
func TestHandlesOfNothing(t *testing.T) {
	pool := newPool(t)
	eng, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	for _, n := range []int{1, 2} {
		handletest.Arguments(t, func() any { return group(t, n, newPool)[0].Comm })
	}
	comm := group(t, 1, func(testing.TB) *cupool.Pool { return pool })[0].Comm
	handletest.Arguments(t, func() any {
		r, err := dist.NewReducer(comm, eng, nil, dist.ReducerConfig{})
		require.NoError(t, err)
		t.Cleanup(func() {
			if err := r.Close(); !errors.Is(err, cupool.ErrClosed) {
				require.NoError(t, err)
			}
		})
		return r
	})
	require.ErrorIs(t, comm.Group(nil), cupool.ErrInvalidHandle)

	for _, p := range []*cupool.Pool{nil, new(cupool.Pool)} {
		_, err := dist.Local(pool, p)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	for _, e := range []*cupool.Engine{nil, new(cupool.Engine)} {
		_, err := dist.NewReducer(comm, e, nil, dist.ReducerConfig{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	_, err = dist.NewReducer(comm, eng, []tensor.Tensor{nil}, dist.ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	_, err = dist.NewReducer(comm, eng, nil, dist.ReducerConfig{Stream: new(cupool.Stream)})
	require.ErrorIs(t, err, cupool.ErrForeignStream)

	foreign, err := cupool.NewEngine(newPool(t))
	require.NoError(t, err)
	x, err := foreign.Empty(tensor.Float32, 3)
	require.NoError(t, err)
	_, err = dist.NewReducer(comm, eng, []tensor.Tensor{x}, dist.ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrForeignPointer)
	require.NoError(t, foreign.FreeTensor(x))
}

// A Comm over a pool that is closed fails.
func TestClosedPool(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		pool := w.pool(t)
		d := pool.Driver()
		over, err := cupool.New(cupool.Config{Driver: d})
		require.NoError(t, err)
		comms, err := dist.Local(over)
		require.NoError(t, err)
		b, err := cupool.NewBuffer[float32](over, 8, nil)
		require.NoError(t, err)
		m, err := dist.Of(b)
		require.NoError(t, err)
		require.NoError(t, b.Free())
		require.NoError(t, over.Close())
		for _, m := range []dist.Memory{m, {Ptr: m.Ptr, Count: m.Count, Type: m.Type}} {
			require.ErrorIs(t, comms[0].AllReduce(m, m, dist.Sum, nil), cupool.ErrClosed)
		}
		require.NoError(t, comms[0].Close())
	})
}
