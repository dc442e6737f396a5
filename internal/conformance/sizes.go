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
		before := r.blocks()
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
		require.Equal(t, before, r.blocks())
		again := r.Reserve(size, nil)
		require.Equal(t, errors.Is(err, cupool.ErrOutOfMemory), errors.Is(again, cupool.ErrOutOfMemory), "%v", again)
		require.Error(t, again)
		require.NoError(t, r.Check())
	}
	r.free(keep, r.alloc(1000, nil))
}

func testZeroSize(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	r.unchanged(func() {
		for range 100 {
			b, err := r.Alloc(0, s)
			require.NoError(t, err)
			require.True(t, b.IsEmpty())
			require.Zero(t, b.Ptr())
			require.Zero(t, b.Size())
			require.Equal(t, cupool.Block{}, b)
			require.NoError(t, r.RecordStream(b, r.DefaultStream()))
			require.NoError(t, r.Free(b))
			require.NoError(t, r.Free(b), "the empty block is nobody's to free twice")
			require.NoError(t, r.FreeOn(b, r.DefaultStream()))
			require.NoError(t, r.FreePtr(0, 0))
			require.NoError(t, r.FreePtr(0, -1))
			require.NoError(t, r.Reserve(0, s))
		}
	})
	require.Zero(t, r.Stats().DriverAllocs)
}

// testAlignment checks every address of a mixture of sizes, and that it is
// in memory of the stream it was asked for.
func testAlignment(t *testing.T, e *env) {
	r := e.rig(t)
	streams := []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream()}
	var blocks []cupool.Block
	for i := range 300 {
		s := streams[i%len(streams)]
		b := r.alloc(int64(i*i*i)%(64*kib)+1, s)
		require.Zero(t, b.Ptr()%cupool.Ptr(r.cfg.MinBlock))
		owner, err := r.ownerOf(b)
		require.NoError(t, err)
		require.Equal(t, s.Handle(), owner)
		blocks = append(blocks, b)
	}
	r.free(blocks...)
}

// testNeighbours writes every byte of adjacent blocks, frees every second
// one, reuses the holes and verifies the others.
func testNeighbours(t *testing.T, e *env) {
	if e.opt.NoContents {
		t.Skip("no memory behind this device")
	}
	r := e.rig(t)
	s := r.DefaultStream()
	const n = 64
	var blocks [n]cupool.Block
	full := func(b cupool.Block) spot { return spot{0, b.Size()} }
	for i := range blocks {
		blocks[i] = r.alloc(int64(1+i*97), s)
		require.NoError(t, s.CopyIn(blocks[i].Ptr(), pattern(uint64(i), full(blocks[i]))))
	}
	for round := range 4 {
		for i := round % 2; i < n; i += 2 {
			r.free(blocks[i])
		}
		for i := round % 2; i < n; i += 2 {
			blocks[i] = r.alloc(int64(1+(n-i)*97), s)
			require.NoError(t, s.CopyIn(blocks[i].Ptr(), pattern(uint64(i), full(blocks[i]))))
		}
		for i, b := range blocks {
			got := make([]byte, b.Size())
			require.NoError(t, s.CopyOut(got, b.Ptr()))
			require.Equal(t, pattern(uint64(i), full(b)), got, "block %d in round %d", i, round)
		}
	}
	r.free(blocks[:]...)
}
