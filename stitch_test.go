package cupool_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
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
func live(t *testing.T, c *cupool.Caching) (blocks []cupool.Block) {
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
