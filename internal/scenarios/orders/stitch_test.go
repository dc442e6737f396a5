package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestForgettingStitchesWaits: ranges that blocks were stitched on are unmapped
// where there are too many, and not under the stream's work. The streams that make
// them are closed with live blocks, so that all of them are the default stream's.
func TestForgettingStitchesWaits(t *testing.T) {
	const streams, gaps = 5, 100
	d := simdev.New(simdev.Config{ManualEvents: true, FreshAddresses: true})
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingVMM, MagazineBytes: -1})
	var live []cupool.Block
	for range streams {
		s := pooltest.NewStream(t, c)
		var free []cupool.Block
		for range gaps {
			free = append(free, pooltest.Alloc(t, c, 4*pooltest.MiB, s))
			live = append(live, pooltest.Alloc(t, c, 2*pooltest.MiB, s))
		}
		for _, b := range free {
			require.NoError(t, c.Free(b))
		}
		for size := int64(6); size < 4*gaps; size += 2 { // each larger than any range
			require.NoError(t, c.Free(pooltest.Alloc(t, c, size*pooltest.MiB, s)))
		}
		require.NoError(t, s.Close())
	}
	made := c.Stats().Stitches
	require.Greater(t, made, int64(512), "as many as make the default stream forget")
	s := c.DefaultStream()
	z := pooltest.Alloc(t, c, 100*pooltest.MiB, nil)
	require.Equal(t, made, c.Stats().Stitches, "a range is used again")
	require.NoError(t, s.Memset(z.Ptr(), 1, z.Size()))
	require.NoError(t, c.Free(z))
	x := pooltest.Alloc(t, c, 4*gaps*pooltest.MiB+200*pooltest.MiB, nil)
	require.Greater(t, c.Stats().Stitches, made)
	require.NoError(t, s.Sync(), "the device is lost when a range was unmapped under work")
	for _, b := range append(live, x) {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}
