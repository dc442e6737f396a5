package conformance

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// borderSizes are sizes around every border of the default configuration.
var borderSizes = []int64{
	1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097,
	mib - 513, mib - 512, mib - 1, mib, mib + 1, mib + 256, mib + 512, mib + 513, 2*mib - 1, 2 * mib, 2*mib + 1,
	10*mib - 512, 10*mib - 1, 10 * mib, 10*mib + 1, 12 * mib, 12*mib + 1, 20 * mib, 20*mib + 1,
}

// sizesOf adds those around the borders of the rig's own configuration.
func sizesOf(r *rig) []int64 {
	sizes := borderSizes
	for _, b := range []int64{r.cfg.SmallLimit, r.cfg.SmallSegment, r.cfg.LargeLimit, r.cfg.LargeSegment, r.cfg.SegmentRounding, r.cfg.LargeSegment - r.cfg.MinSplit} {
		sizes = append(sizes, b-512, b-256, b-1, b, b+1, b+256, b+512)
	}
	var out []int64
	for _, n := range sizes {
		if n > 0 && n <= 32*mib {
			out = append(out, n)
		}
	}
	return out
}

func testSizes(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	for i, size := range sizesOf(r) {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := r.alloc(size, nil)
			require.Zero(t, b.Ptr()%cupool.Ptr(r.cfg.MinBlock))
			require.NotZero(t, b.Ptr())
			require.Equal(t, size, b.Size())
			require.False(t, b.IsEmpty())
			for _, off := range []int64{0, size / 2, size - 1} {
				got, err := r.Lookup(b.Ptr() + cupool.Ptr(off))
				require.NoError(t, err)
				require.Equal(t, b, got)
			}
			if !e.opt.NoContents {
				require.NoError(t, write(b, uint64(i), r.DefaultStream()))
				require.NoError(t, verify(b, uint64(i), r.DefaultStream()))
			}
			require.Equal(t, size, r.Stats().All.RequestedBytes.Current)
			rounded := roundUp(size, r.cfg.MinBlock)
			require.GreaterOrEqual(t, r.Stats().LiveBytes, rounded)
			require.Less(t, r.Stats().LiveBytes, rounded+r.cfg.MinSplit, "a rest that large is to be split off")
			require.NoError(t, r.Check())
			require.NoError(t, r.FreePtr(b.Ptr(), size))
			require.Zero(t, r.Stats().LiveBytes)
		})
	}
}

func testImpossibleSizes(t *testing.T, e *env) {
	r := e.rig(t)
	_, total, err := r.device.MemInfo()
	require.NoError(t, err)
	keep := r.alloc(1000, nil)
	for _, size := range []int64{total + 1, total + mib, 1 << 60, 1<<61 - 512, 1 << 61, 1<<61 + 1, 1 << 62, math.MaxInt64 - 512, math.MaxInt64 - 1, math.MaxInt64, -1, -512, math.MinInt64} {
		before := r.Snapshot().Segments
		b, err := r.Alloc(size, nil)
		require.Error(t, err, "%d", size)
		require.True(t, b.IsEmpty())
		switch {
		case size < 0:
			require.ErrorIs(t, err, cupool.ErrInvalidSize, "%d", size)
		case errors.Is(err, cupool.ErrOutOfMemory):
			var oom *cupool.OOMError
			require.ErrorAs(t, err, &oom)
			require.Equal(t, size, oom.Requested)
			require.GreaterOrEqual(t, oom.Rounded, size)
			require.GreaterOrEqual(t, oom.Segment, oom.Rounded)
		default:
			require.ErrorIs(t, err, cupool.ErrInvalidSize, "%d", size)
			require.Greater(t, size, int64(1)<<60)
		}
		require.Len(t, r.Snapshot().Segments, len(before))
		again := r.Reserve(size, nil)
		require.Equal(t, errors.Is(err, cupool.ErrOutOfMemory), errors.Is(again, cupool.ErrOutOfMemory), "%v", again)
		require.Error(t, again)
		require.NoError(t, r.Check())
	}
	r.free(keep, r.alloc(1000, nil))
}
