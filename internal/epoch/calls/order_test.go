package calls

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

// TestOrder: the owner's order asks the owner, the device's order all streams, until they
// are closed. An owner that is captured keeps what it has.
func TestOrder(t *testing.T) {
	late, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	for _, all := range []bool{false, true} {
		work, others := &fakeDriver{}, &fakeDriver{}
		owner, _ := newStream(work, 0, false)
		other, _ := newStream(others, 0, false)
		o := Order{}
		if all {
			o.Streams = slices.Values([]*Stream{owner, other})
		}
		over := func() bool {
			polls := 3
			return o.Over(owner, 0, &polls)
		}
		require.False(t, over())
		require.ErrorIs(t, o.Await(late, owner, 0), errBroken)
		work.done.Store(true)
		require.Equal(t, !all, over())
		if err := o.Await(late, owner, 0); all {
			require.ErrorIs(t, err, errBroken)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, o.Await(context.Background(), owner, 0))
		require.Equal(t, all, others.syncs.Load() > 0)
		require.NoError(t, other.End(func() error { return nil }))
		require.True(t, over())

		require.NoError(t, owner.clock.Capture(func() error { return nil }))
		require.False(t, over())
		require.ErrorIs(t, o.Await(context.Background(), owner, 0), device.ErrNotSupported)
		owner.clock.EndCapture()
		require.True(t, over())
	}
}
