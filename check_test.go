package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// Every rule, broken on purpose: Check reports its number.
func TestCheck(t *testing.T) {
	for rule, ways := range cupool.Corruptions {
		for name, corrupt := range ways {
			t.Run(rule+"/"+name, func(t *testing.T) {
				var c *cupool.Caching
				if rule == "C5" {
					c = stitchedPool(t)
				} else {
					var d *countingDriver
					c, d = newPool(t, 1<<30)
					x := newScript(t, c, d).run("a=2M b=3M free:a")
					require.Equal(t, "0 large: [Free 2M][Live 3M][Free 15M]", x.layout())
				}
				require.NoError(t, c.Check())
				corrupt(c)
				require.ErrorContains(t, c.Check(), rule)
			})
		}
	}
}

// stitchedPool returns an allocator on virtual memory with 24 MiB that are
// live on two pieces of 12 MiB.
func stitchedPool(t *testing.T) *cupool.Caching {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, Limit: 40 * mib, MagazineBytes: -1})
	require.NoError(t, err)
	alloc := func(size int64) cupool.Block {
		b, err := c.Alloc(size, nil)
		require.NoError(t, err)
		return b
	}
	left, _, right := alloc(12*mib), alloc(8*mib), alloc(12*mib)
	require.NoError(t, c.Free(left))
	require.NoError(t, c.Free(right))
	alloc(24 * mib)
	require.Contains(t, c.Layout(), "large: [Live 24M]\n")
	return c
}

// A rule that is broken is reported with the picture of the segment.
func TestCheckShowsTheSegment(t *testing.T) {
	c, d := newPool(t, 1<<30)
	newScript(t, c, d).run("a=2M b=3M free:a")
	cupool.Corruptions["B2"]["free neighbours"](c)
	require.ErrorContains(t, c.Check(), "in segment 0x10000000000 [Free 2M][Free 3M][Free 15M]")
}
