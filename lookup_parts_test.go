package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// A part of a block is found again, and never in a block that had its address
// before.
func TestLookupOfParts(t *testing.T) {
	atBase(t, func(t *testing.T, c *cupool.Pool, _ *pooltest.Script) {
		const size, part = 8 << 20, 3<<20 + 512
		first, err := c.Alloc(size, nil)
		require.NoError(t, err)
		p := first.Ptr() + part
		for range 3 {
			got, err := c.Lookup(p)
			require.NoError(t, err)
			require.Equal(t, first, got)
		}
		require.NoError(t, c.Free(first))
		_, err = c.Lookup(p)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)

		small, err := c.Alloc(2<<20, nil) // the address lies behind it
		require.NoError(t, err)
		require.Equal(t, first.Ptr(), small.Ptr())
		_, err = c.Lookup(p)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
		require.NoError(t, c.Free(small))

		second, err := c.Alloc(size, nil)
		require.NoError(t, err)
		require.Equal(t, first.Ptr(), second.Ptr())
		got, err := c.Lookup(p)
		require.NoError(t, err)
		require.Equal(t, second, got)
		require.NotEqual(t, first, got)
		require.NoError(t, c.Free(second))
	})
}
