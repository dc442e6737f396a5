package cupool_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// What small blocks have left free serves a large one, and goes back to them.
func TestStitchOfSmallChunks(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 320 * mib}), Backing: cupool.BackingVMM, MagazineBytes: -1})
	require.NoError(t, err)
	fill := func(n int) (blocks []cupool.Block) {
		for range n {
			b, err := c.Alloc(mib, nil)
			require.NoError(t, err)
			blocks = append(blocks, b)
		}
		return blocks
	}
	fixed := fill(288) // a small program would have the large pool grow
	blocks := fill(32)
	require.EqualValues(t, 320*mib, c.Stats().All.ReservedBytes.Current, "the device is full")
	kept := blocks[5]
	for _, b := range append(blocks[:5:5], blocks[6:]...) {
		require.NoError(t, c.Free(b))
	}

	before := c.Stats().DriverAllocs
	for range 2 {
		large, err := c.Alloc(20*mib, nil)
		require.NoError(t, err)
		require.NoError(t, c.Check())
		fill(11) // beside it
		require.NoError(t, c.Check())
		require.EqualValues(t, 320*mib, c.Stats().LiveBytes)
		require.NoError(t, c.Free(large))
		for _, b := range live(t, c) {
			if b != kept && !slices.Contains(fixed, b) {
				require.NoError(t, c.Free(b))
			}
		}
		require.NoError(t, c.Check())
	}
	st := c.Stats()
	require.Equal(t, before, st.DriverAllocs)
	require.EqualValues(t, 1, st.Stitches)
	require.EqualValues(t, 1, st.StitchReuses)

	_, err = c.Alloc(31*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory, "half a chunk is not enough")
	for _, b := range append(fixed, kept) {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Close())
}

// live returns the allocator's live blocks.
func live(t *testing.T, c *cupool.Pool) (blocks []cupool.Block) {
	for _, seg := range c.Snapshot().Segments {
		for _, b := range seg.Blocks {
			if b.State == "live" {
				h, err := c.Lookup(b.Address)
				require.NoError(t, err)
				blocks = append(blocks, h)
			}
		}
	}
	return blocks
}

// The memory that a closed stream leaves goes to others pool by pool; a range
// that was stitched from both pools ends with that.
func TestStitchOfBothPoolsMoves(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 320 * mib}), Backing: cupool.BackingVMM, MagazineBytes: -1})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	alloc := func(size int64, s *cupool.Stream) cupool.Block {
		b, err := c.Alloc(size, s)
		require.NoError(t, err)
		require.NoError(t, c.Check())
		return b
	}
	free := func(blocks ...cupool.Block) {
		for _, b := range blocks {
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Check())
		}
	}
	fixed := alloc(288*mib, nil)
	var blocks []cupool.Block
	for range 16 {
		blocks = append(blocks, alloc(mib, s))
	}
	free(append(blocks, alloc(16*mib, s))...)
	free(alloc(30*mib, s))
	require.EqualValues(t, 1, c.Stats().Stitches)

	require.NoError(t, s.Close())
	free(alloc(16*mib, nil), alloc(mib, nil)) // takes the one pool, and then the other
	free(alloc(32*mib, nil))
	require.EqualValues(t, 2, c.Stats().Stitches)
	free(fixed)
	require.NoError(t, c.Close())
}

// What was stitched goes along when all chunks that it was stitched of go to another
// stream: else the device would not have the memory back.
func TestStitchMovesWithItsChunks(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingVMM, MagazineBytes: -1})
	require.NoError(t, err)
	s := newStreamOf(t, c)
	var free, live []cupool.Block
	for range 2 {
		free = append(free, pooltest.Alloc(t, c, 4*mib, s))
		live = append(live, pooltest.Alloc(t, c, 2*mib, s))
	}
	for _, b := range free {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 8*mib, s)))
	require.EqualValues(t, 1, c.Stats().Stitches)
	for _, b := range live {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, s.Close())
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 12*mib, newStreamOf(t, c))))
	require.EqualValues(t, 12*mib, c.Stats().All.ReservedBytes.Current, "the chunks have moved")
	require.NoError(t, c.EmptyCache())
	require.Zero(t, d.Stats().Mappings+d.Stats().MemHandles)
	require.NoError(t, c.Close())
	require.Zero(t, d.Stats().Reservations)
}

// A small program's small chunks stay: they would have to be mapped again soon.
func TestSmallChunksOfSmallPrograms(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, MagazineBytes: -1})
	require.NoError(t, err)
	var blocks []cupool.Block
	for range 16 {
		blocks = append(blocks, pooltest.Alloc(t, c, mib, nil))
	}
	for _, b := range blocks {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 8*mib, nil)))
	require.EqualValues(t, 24*mib, c.Stats().All.ReservedBytes.Current)
	require.Zero(t, c.Stats().Stitches)
	require.NoError(t, c.Close())
}

// A heap that had to stitch often grows where free memory would do, up to a little
// more than was in use, but not beyond the soft limit.
func TestFragmentedSoftLimit(t *testing.T) {
	for soft, want := range map[int64]int64{0: 416 * mib, 402 * mib: 400 * mib} {
		c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, MagazineBytes: -1, SoftLimit: soft})
		require.NoError(t, err)
		var blocks []cupool.Block
		for range 200 {
			blocks = append(blocks, pooltest.Alloc(t, c, 2*mib, nil))
		}
		for i := 0; i < len(blocks); i += 2 { // 100 chunks that are apart
			require.NoError(t, c.Free(blocks[i]))
		}
		for _, x := range []struct{ size, n int64 }{{8, 20}, {24, 8}, {66, 3}, {198, 1}, {198, 1}, {48, 3}} {
			var large []cupool.Block
			for range x.n {
				large = append(large, pooltest.Alloc(t, c, x.size*mib, nil))
			}
			require.EqualValues(t, 400*mib, c.Stats().All.ReservedBytes.Current)
			if x.size == 48 {
				break
			}
			for _, b := range large {
				require.NoError(t, c.Free(b))
			}
		}
		pooltest.Alloc(t, c, 4*mib, nil)
		require.EqualValues(t, want, c.Stats().All.ReservedBytes.Current, "soft limit %d", soft)
		require.NoError(t, c.Check())
	}
}
