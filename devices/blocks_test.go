package devices_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestLookup(t *testing.T) {
	s := hosts(t, 3)
	for i, c := range s.Pools() {
		b := pooltest.Alloc(t, c, mib, nil)
		at, err := s.Lookup(b.Ptr() + 5)
		require.NoError(t, err)
		require.Equal(t, devices.Found{Block: b, Pool: c, Device: i}, at)
		require.NoError(t, s.Free(b))
		_, err = s.Lookup(b.Ptr())
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
		require.ErrorContains(t, err, s.Pool(i).Driver().Name())
		require.Zero(t, c.Stats().LiveBytes)

		b = pooltest.Alloc(t, c, mib, nil)
		require.NoError(t, s.FreePtr(b.Ptr(), mib))
		require.Zero(t, c.Stats().LiveBytes)
	}
}

func TestMisuse(t *testing.T) {
	s, other := hosts(t, 2), hosts(t, 1)
	mine, foreign := pooltest.Alloc(t, s.Pool(1), 4096, nil), pooltest.Alloc(t, other.Pool(0), 4096, nil)
	st := other.Pool(0).DefaultStream()
	var e *cupool.BlockError
	fails := func(err, reason error, words string) {
		t.Helper()
		require.ErrorIs(t, err, reason)
		require.ErrorContains(t, err, words)
		require.ErrorAs(t, err, &e)
	}
	_, err := s.Lookup(foreign.Ptr())
	fails(err, cupool.ErrForeignPointer, "2 devices")
	require.EqualValues(t, -1, e.Size, "none")
	fails(s.Free(foreign), cupool.ErrForeignPointer, "2 devices")
	fails(s.FreePtr(foreign.Ptr(), -1), cupool.ErrForeignPointer, "2 devices")
	fails(s.FreePtr(0, 1), cupool.ErrForeignPointer, "2 devices")
	fails(s.RecordStream(foreign, nil), cupool.ErrForeignPointer, "2 devices")
	fails(s.FreeOn(foreign, nil), cupool.ErrForeignPointer, "2 devices")
	fails(s.RecordStream(mine, st), cupool.ErrForeignStream, "device 1, host")
	fails(s.RecordStream(mine, st), cupool.ErrForeignStream, "made on host (64 MiB)")
	fails(s.Pool(1).RecordStream(mine, st), cupool.ErrForeignStream, "on host (64 MiB)")
	fails(s.FreePtr(mine.Ptr(), 1), cupool.ErrSizeMismatch, "device 1")
	fails(s.FreePtr(mine.Ptr()+1, -1), cupool.ErrInteriorPointer, "device 1")
	require.NoError(t, s.Free(mine))
	fails(s.Free(mine), cupool.ErrDoubleFree, "device 1")
	fails(s.RecordStream(mine, s.Pool(0).DefaultStream()), cupool.ErrUseAfterFree, "device 1")

	require.NoError(t, s.Free(cupool.Block{}))
	require.NoError(t, s.FreePtr(0, 0))
	require.NoError(t, s.RecordStream(cupool.Block{}, st))
	require.NoError(t, other.Free(foreign))
}

// TestRecordStream frees a block that another device still uses: its memory
// serves nobody until that work is done, whoever frees it.
func TestRecordStream(t *testing.T) {
	for name, free := range map[string]func(s *devices.Set, b cupool.Block, st *cupool.Stream) error{
		"free of the set": func(s *devices.Set, b cupool.Block, st *cupool.Stream) error {
			require.NoError(t, s.RecordStream(b, st))
			return s.Free(b)
		},
		"free of the pool": func(s *devices.Set, b cupool.Block, st *cupool.Stream) error {
			require.NoError(t, s.RecordStream(b, st))
			return s.Pool(0).Free(b)
		},
		"free on": func(s *devices.Set, b cupool.Block, st *cupool.Stream) error { return s.FreeOn(b, st) },
	} {
		t.Run(name, func(t *testing.T) {
			s := hosts(t, 2)
			mine, st := s.Pool(0), pooltest.NewStream(t, s.Pool(1))
			b := pooltest.Alloc(t, mine, mib, nil)
			release := hold(t, st)
			require.NoError(t, st.Memset(b.Ptr(), 1, mib), "peer access is on")
			require.NoError(t, free(s, b, st))
			require.Equal(t, int64(mib), mine.Stats().PendingBytes)
			other := pooltest.Alloc(t, mine, mib, nil)
			require.NotEqual(t, b.Ptr(), other.Ptr())
			release()
			require.NoError(t, s.Sync())
			again := pooltest.Alloc(t, mine, mib, nil)
			require.Equal(t, b.Ptr(), again.Ptr())
			require.NoError(t, s.Free(again))
			require.NoError(t, s.Free(other))
		})
	}
}

// TestRecordClosedStream: what a closed stream was given is done.
func TestRecordClosedStream(t *testing.T) {
	s := hosts(t, 2)
	st := pooltest.NewStream(t, s.Pool(1))
	b := pooltest.Alloc(t, s.Pool(0), mib, nil)
	require.NoError(t, st.Close())
	require.NoError(t, s.FreeOn(b, st))
	require.Zero(t, s.Pool(0).Stats().PendingBytes)
	require.NoError(t, s.FreeOn(pooltest.Alloc(t, s.Pool(0), mib, nil), nil))
}
