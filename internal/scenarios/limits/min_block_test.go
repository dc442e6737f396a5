package limits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// finest is the least unit of blocks.
const finest = 256

// A small block costs half the memory that it does by default.
func TestMinBlockSaves(t *testing.T) {
	reserved := func(min int64) int64 {
		c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MinBlock, cfg.SmallSegment, cfg.SmallLimit = min, 256<<10, 64<<10 })
		for range 1 << 10 {
			pooltest.Alloc(t, c, 200, nil)
		}
		return c.Stats().All.ReservedBytes.Current
	}
	require.EqualValues(t, 512<<10, reserved(0))
	require.EqualValues(t, 256<<10, reserved(finest))
}

// What was freed and not merged serves again whole, each of the small sizes by itself.
func TestMinBlockFastBins(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MinBlock, cfg.MagazineBytes = finest, 1 })
	var at []cupool.Ptr
	for _, size := range []int64{2 * finest, 3 * finest} { // of one size class by default
		b := pooltest.Alloc(t, c, size, nil)
		pooltest.Alloc(t, c, 1, nil) // no free neighbours
		require.NoError(t, c.Free(b))
		at = append(at, b.Ptr())
	}
	require.Equal(t, at[0], pooltest.Alloc(t, c, 2*finest, nil).Ptr())
	require.Equal(t, at[1], pooltest.Alloc(t, c, 3*finest, nil).Ptr())
}

// Canaries and guards begin where the block of 256 ends.
func TestMinBlockSanitized(t *testing.T) {
	for name, s := range map[string]cupool.Sanitizers{"canaries": {Canaries: 1}, "guard": {Guard: true, Canaries: 1}} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{MinBlock: finest, Sanitize: s})
			b := pooltest.Alloc(t, c, 200, nil)
			require.NoError(t, c.Driver().Memset(b.Ptr(), 1, 201, 0))
			require.NoError(t, c.DefaultStream().Sync())
			err := c.Check()
			var e *cupool.CorruptionError
			require.ErrorAs(t, err, &e)
			require.EqualValues(t, 200, e.Offset)
			if s.Guard {
				require.Error(t, c.Driver().Memset(b.Ptr(), 1, finest+1, 0), "the memory ends with the block")
			}
			require.NoError(t, c.Free(b))
		})
	}
}

// An arena over such an allocator keeps its own promise of 512.
func TestMinBlockUnderArena(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{MinBlock: finest})
	for range 3 {
		pooltest.Alloc(t, c, 1, nil)
	}
	r, err := arena.New(c, arena.Config{Size: finest, Overflow: true})
	require.NoError(t, err)
	for i, align := range []int64{1, finest, 512, 4096, 1, 1 << 16} {
		size := int64(finest * (1 + i))
		b, err := r.AllocAligned(size, align, nil)
		require.NoError(t, err)
		require.Zero(t, b.Ptr()%cupool.Ptr(max(align, 512)))
		from, err := c.Lookup(b.Ptr())
		require.NoError(t, err)
		require.LessOrEqual(t, b.Ptr()+cupool.Ptr(size), from.Ptr()+cupool.Ptr(from.Size()), "it lies in what the allocator gave")
	}
	require.NoError(t, r.Close())
}
