package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// warm makes the size 5000 recur, so that its blocks are homed where there are
// magazines.
func warm(r *rig) {
	for range 3 {
		r.free(r.alloc(5000, nil))
	}
}

// testForeign gives an allocator another one's blocks, streams and events.
func testForeign(t *testing.T, e *env) {
	r, o := e.rig(t), e.rig(t)
	warm(r)
	warm(o)
	mine, other := r.alloc(5000, nil), o.alloc(5000, nil)
	s := o.stream()
	ev, err := s.Record()
	require.NoError(t, err)
	o.unchanged(func() {
		r.unchanged(func() {
			blockError(t, r.Free(other), cupool.ErrForeignPointer, other.Ptr())
			blockError(t, r.RecordStream(other, r.DefaultStream()), cupool.ErrForeignPointer, other.Ptr())
			blockError(t, r.RecordStream(mine, s), cupool.ErrForeignStream, mine.Ptr())
			blockError(t, r.FreeOn(mine, s), cupool.ErrForeignStream, mine.Ptr())
			blockError(t, r.FreeOn(other, s), cupool.ErrForeignStream, other.Ptr())
			for _, n := range []int64{0, 1, 5000, -1} {
				_, err := r.Alloc(n, s)
				require.ErrorIs(t, err, cupool.ErrForeignStream)
				require.ErrorIs(t, r.Reserve(n, s), cupool.ErrForeignStream)
			}
			err := r.DefaultStream().Wait(ev)
			if _, peers := r.Driver().(device.Peers); peers { // the other allocator's device is another one
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, cupool.ErrForeignStream)
			}
		})
	})
	r.FreeLater(other) // is passed over
	_, err = r.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, int64(1), o.Stats().All.Allocation.Current)
	require.NoError(t, ev.Close())
	r.free(mine)
	o.free(other)
}
