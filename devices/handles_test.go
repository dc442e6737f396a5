package devices_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Handles that are nil, zero or of another set are errors, everywhere.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*devices.Set)(nil), new(devices.Set))
	handletest.Arguments(t, func() any { return hosts(t, 2) })
	s := hosts(t, 2)
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	for _, drivers := range [][]cupool.Driver{nil, {nil}, {nil, d}, {d, nil}, {(*simdev.Device)(nil)}} {
		_, err := devices.New(devices.Config{}, drivers...)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	_, err = devices.New(devices.Config{Pool: cupool.Config{Driver: (*simdev.Device)(nil)}}, (*simdev.Device)(nil))
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	for _, none := range []cupool.Driver{nil, (*simdev.Device)(nil)} {
		_, err = s.Share(none, cupool.Config{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	require.NoError(t, d.Close())
	require.Nil(t, s.Pool(-1))
	require.Nil(t, s.Pool(2))

	b := pooltest.Alloc(t, s.Pool(0), mib, nil)
	closed := pooltest.NewStream(t, s.Pool(1))
	require.NoError(t, closed.Close())
	foreign := hosts(t, 1)
	other := pooltest.Alloc(t, foreign.Pool(0), mib, nil)
	for _, st := range []*cupool.Stream{new(cupool.Stream), foreign.Pool(0).DefaultStream()} {
		require.ErrorIs(t, s.RecordStream(b, st), cupool.ErrForeignStream)
		require.ErrorIs(t, s.FreeOn(b, st), cupool.ErrForeignStream)
		require.ErrorIs(t, s.Copy(b.Ptr(), b.Ptr()+512, 512, st, nil), cupool.ErrForeignStream)
		require.ErrorIs(t, s.Copy(b.Ptr(), b.Ptr()+512, 512, nil, st), cupool.ErrForeignStream)
	}
	require.ErrorIs(t, s.Copy(b.Ptr(), b.Ptr()+512, 512, closed, nil), cupool.ErrClosed)
	require.ErrorIs(t, s.Free(other), cupool.ErrForeignPointer)
	require.ErrorIs(t, s.FreePtr(other.Ptr(), -1), cupool.ErrForeignPointer)
	require.ErrorIs(t, s.RecordStream(other, nil), cupool.ErrForeignPointer)
	require.NoError(t, s.Free(b))
	require.NoError(t, foreign.Free(other))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Free(b), cupool.ErrClosed)
}

// No length of a copy is inside a block by overflow.
func TestCopyBounds(t *testing.T) {
	s := hosts(t, 2)
	const size = 1 << 10
	a, b := pooltest.Alloc(t, s.Pool(0), size, nil), pooltest.Alloc(t, s.Pool(1), size, nil)
	const most = 1<<63 - 1
	for _, at := range []cupool.Ptr{0, 1, size - 1} {
		for _, n := range []int64{size + 1, most, most - 1, most - size, most - size + 1, -1, -most, -most - 1, size - int64(at) + 1} {
			require.ErrorIs(t, s.Copy(a.Ptr()+at, b.Ptr(), n, nil, nil), cupool.ErrInvalidRange, "%d at %d", n, at)
			require.ErrorIs(t, s.Copy(b.Ptr(), a.Ptr()+at, n, nil, nil), cupool.ErrInvalidRange, "%d at %d", n, at)
		}
		require.NoError(t, s.Copy(a.Ptr()+at, b.Ptr()+at, size-int64(at), nil, nil))
	}
	require.NoError(t, s.Sync())
	require.NoError(t, s.Free(a))
	require.NoError(t, s.Free(b))
}
