package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func testAfterClose(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	warm(r, 5000)
	cached, b := r.alloc(5000, nil), r.alloc(9000, s)
	r.free(cached)
	var leak *cupool.LeakError
	require.ErrorAs(t, r.Close(), &leak)
	_, err := r.Alloc(5000, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	_, err = r.Alloc(5000, s)
	require.ErrorIs(t, err, cupool.ErrClosed)
	blockError(t, r.Free(b), cupool.ErrClosed, b.Ptr())
	blockError(t, r.Free(cached), cupool.ErrClosed, cached.Ptr())
	blockError(t, r.FreePtr(b.Ptr(), -1), cupool.ErrClosed, b.Ptr())
	blockError(t, r.FreePtr(b.Ptr(), 9000), cupool.ErrClosed, b.Ptr())
	blockError(t, r.RecordStream(b, nil), cupool.ErrClosed, b.Ptr())
	_, err = r.Lookup(b.Ptr())
	blockError(t, err, cupool.ErrClosed, b.Ptr())
	_, err = r.NewStream()
	require.ErrorIs(t, err, cupool.ErrClosed)
	_, err = r.AdoptStream(0)
	require.ErrorIs(t, err, cupool.ErrClosed)
	if r.root == r.Pool {
		require.ErrorIs(t, s.Close(), cupool.ErrClosed)
	} else {
		require.NoError(t, s.Close(), "the stream is the root's")
	}
	require.ErrorIs(t, r.EmptyCache(), cupool.ErrClosed)
	_, err = r.Trim(0)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.ErrorIs(t, r.Reserve(100, nil), cupool.ErrClosed)
	require.ErrorIs(t, r.Close(), cupool.ErrClosed)
	r.FreeLater(b)
	_, err = r.ProcessDeferred()
	require.NoError(t, err)
	require.NoError(t, r.Free(cupool.Block{}))
	st := r.Stats()
	require.Zero(t, st.All.ReservedBytes.Current)
	require.Equal(t, st.DriverAllocs, st.DriverFrees)
}

// testLeaks closes with live blocks and looks at the report, and at the
// device for what was not given back.
func testLeaks(t *testing.T, e *env) {
	f := NewFailing(nil)
	r := e.rigOn(t, f.over)
	s, u := r.stream(), r.stream()
	ev, err := s.Record()
	require.NoError(t, err)
	require.NoError(t, ev.Close())
	warm(r, 3000)
	sizes := map[cupool.Ptr]int64{}
	for i, size := range []int64{3000, 3000, 1, 2 * mib, 15 * mib, 700 * kib} {
		b := r.alloc(size, []*cupool.Stream{nil, s, u}[i%3])
		sizes[b.Ptr()] = size
		if i%2 == 0 {
			require.NoError(t, r.RecordStream(b, u))
		}
	}
	r.free(r.alloc(3000, nil))
	pending := r.alloc(5000, s)
	require.NoError(t, r.FreeOn(pending, u))

	var leaks *cupool.LeakError
	err = r.Close()
	require.ErrorAs(t, err, &leaks)
	require.Len(t, leaks.Leaks, len(sizes))
	var sum int64
	last := cupool.Ptr(0)
	for _, l := range leaks.Leaks {
		require.Equal(t, sizes[l.Ptr], l.Size)
		require.Greater(t, l.Ptr, last, "leaks are listed by address")
		sum, last = sum+l.Size, l.Ptr
		if r.cfg.History != nil {
			require.Contains(t, l.Stack, "conformance.testLeaks")
			require.Contains(t, l.Stack, "closing.go:")
		} else {
			require.Empty(t, l.Stack)
		}
	}
	require.Equal(t, sum, leaks.Bytes)
	require.Contains(t, err.Error(), "leaked 6 blocks")
	require.Zero(t, f.Held(), "Close gives everything back, leaked or not")
}

func testProcessDeferred(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	blocks := make([]cupool.Block, 100)
	for i := range blocks {
		blocks[i] = r.alloc(int64(1+i*100), nil)
	}
	release := r.makeBusy(s)
	for _, b := range blocks {
		require.NoError(t, r.FreeOn(b, s))
	}
	require.EqualValues(t, len(blocks), r.Stats().BlocksPending)
	for range 3 {
		n, err := r.ProcessDeferred()
		require.NoError(t, err)
		require.Zero(t, n)
	}
	require.LessOrEqual(t, r.Stats().EventsRecorded, int64(16), "one event serves many blocks")
	release()
	require.NoError(t, s.Sync())
	_, err := r.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, r.Stats().BlocksPending)
	require.Zero(t, r.Stats().PendingBytes)

	// Without Sync, by events alone.
	s2 := r.stream()
	for i := range blocks {
		blocks[i] = r.alloc(int64(1+i*100), nil)
	}
	release = r.makeBusy(s2)
	for _, b := range blocks {
		require.NoError(t, r.FreeOn(b, s2))
	}
	release()
	require.NoError(t, r.device.SyncStream(s2.Handle()))
	total := 0
	for range 10 {
		n, err := r.ProcessDeferred()
		require.NoError(t, err)
		total += n
		if e.opt.WaitsRun { // records are work of their own there
			require.NoError(t, r.device.SyncStream(s2.Handle()))
		}
	}
	require.Equal(t, len(blocks), total)

	// What cleanups queued.
	b := r.alloc(100, nil)
	r.FreeLater(b)
	r.FreeLater(b)
	_, err = r.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, r.Stats().LiveBytes)
	require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
}
