package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// testQuarantine: a block whose event fails is not reused, not lost, and
// comes back once events work again.
func testQuarantine(t *testing.T, e *env) {
	for _, kind := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(kind, func(t *testing.T) {
			f := NewFailing(nil)
			r := e.rigOn(t, f.over, unlimited)
			s, u := r.stream(), r.stream()
			var live []cupool.Block
			b := r.alloc(5000, s)
			f.FailAlways(kind, errInjected)
			require.NoError(t, r.FreeOn(b, u))
			for range 5 {
				n, err := r.ProcessDeferred()
				require.ErrorIs(t, err, errInjected)
				require.Zero(t, n)
			}
			st := r.Stats()
			require.EqualValues(t, 1, st.BlocksPending)
			require.NotZero(t, r.root.Stats().EventFailures, "a pool's streams are the root's")
			for range 1000 {
				live = append(live, r.alloc(5000, s))
				require.NotEqual(t, b.Ptr(), live[len(live)-1].Ptr(), "a quarantined block was handed out")
			}
			require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
			require.NoError(t, r.Check())
			f.Heal()
			freed := 0
			for range 3 {
				n, err := r.ProcessDeferred()
				require.NoError(t, err)
				require.NoError(t, r.device.SyncStream(u.Handle()))
				freed += n
			}
			require.Equal(t, 1, freed)
			again := r.alloc(5000, s)
			require.Equal(t, b.Ptr(), again.Ptr())
			r.free(append(live, again)...)
		})
	}
	t.Run("under_pressure", func(t *testing.T) {
		f := NewFailing(nil)
		r := e.rigOn(t, f.over, limited(1))
		u := r.stream()
		b := r.alloc(r.whole(), nil)
		f.FailAlways("RecordEvent", errInjected)
		require.NoError(t, r.FreeOn(b, u))
		_, err := r.Alloc(r.whole(), nil)
		r.oomOf(err, r.whole())
		f.Heal()
		again := r.alloc(r.whole(), nil)
		require.Equal(t, b.Ptr(), again.Ptr())
		f.FailAlways("SyncEvent", errInjected)
		f.FailAlways("QueryEvent", errInjected)
		require.NoError(t, r.FreeOn(again, u))
		_, err = r.Alloc(r.whole(), nil)
		r.oomOf(err, r.whole())
		require.NoError(t, u.Sync(), "the stream itself still says when it is done")
		r.free(r.alloc(r.whole(), nil))
		f.Heal()
	})
}

// testLost: the first call that says the device is lost ends everything,
// also for sizes that need no device; books and frees go on.
func testLost(t *testing.T, e *env) {
	lost := fmt.Errorf("%w: %w", errInjected, cupool.ErrDeviceLost)
	for _, kind := range []string{"MemAlloc", "MemCreate", "NewStream", "SyncStream", "RecordEvent", "Copy", "Memset", "CopyIn", "CopyOut", "StreamWaitEvent", "MemFree", "MemUnmap"} {
		t.Run(kind, func(t *testing.T) {
			f := NewFailing(nil)
			r := e.rigOn(t, f.over)
			if virtual := kind == "MemCreate" || kind == "MemUnmap"; virtual != r.vmm() && (virtual || kind == "MemAlloc" || kind == "MemFree") {
				t.Skip("not called with this backing")
			}
			s := r.stream()
			warm(r, 5000)
			cached, b := r.alloc(5000, nil), r.alloc(9000, nil)
			r.free(cached, r.alloc(r.whole(), s))
			f.FailNth(kind, 1, lost)
			for what, call := range map[string]func() error{
				"MemAlloc":        func() error { return second(r.Alloc(2*r.whole(), nil)) },
				"MemCreate":       func() error { return second(r.Alloc(2*r.whole(), nil)) },
				"NewStream":       func() error { return second(r.NewStream()) },
				"SyncStream":      s.Sync,
				"RecordEvent":     func() error { return second(s.Record()) },
				"StreamWaitEvent": func() error { return r.DefaultStream().WaitStream(s) },
				"Copy":            func() error { return s.Copy(b.Ptr(), b.Ptr(), 8) },
				"CopyIn":          func() error { return s.CopyIn(b.Ptr(), make([]byte, 8)) },
				"CopyOut":         func() error { return s.CopyOut(make([]byte, 8), b.Ptr()) },
				"Memset":          func() error { return s.Memset(b.Ptr(), 1, 8) },
				"MemFree":         r.EmptyCache,
				"MemUnmap":        r.EmptyCache,
			} {
				if what == kind {
					require.ErrorIs(t, call(), cupool.ErrDeviceLost)
				}
			}
			for _, size := range []int64{5000, 9000, 512, 3 * mib, r.whole()} {
				for range 3 {
					_, err := r.Alloc(size, nil)
					require.ErrorIs(t, err, cupool.ErrDeviceLost, "%d", size)
					require.ErrorIs(t, err, errInjected, "the first reason is kept")
				}
				_, err := r.Alloc(size, s)
				require.ErrorIs(t, err, cupool.ErrDeviceLost)
				require.ErrorIs(t, r.Reserve(size, nil), cupool.ErrDeviceLost)
			}
			require.NoError(t, r.Check())
			r.free(b)
			require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
			require.Zero(t, r.Stats().LiveBytes)
		})
	}
}
