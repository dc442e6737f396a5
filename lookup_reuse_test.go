package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// freedHook is a device that calls a function when memory was freed, before the
// allocator knows.
type freedHook struct {
	*pooltest.Driver
	freed func(p cupool.Ptr)
}

func (d *freedHook) MemFree(p cupool.Ptr) error {
	err := d.Driver.MemFree(p)
	if f := d.freed; f != nil && err == nil {
		d.freed = nil
		f(p)
	}
	return err
}

// TestLookupOfReusedAddress: while the device frees a segment, another block may
// get the same address, small after large or the other way round. What finds
// blocks by address finds that one.
func TestLookupOfReusedAddress(t *testing.T) {
	const little, big = 1000, 20 << 20
	for name, sizes := range map[string]struct{ first, then int64 }{
		"small, then large": {little, big},
		"large, then small": {big, little},
		"small, then small": {little, little},
		"large, then large": {big, big},
	} {
		for what, use := range map[string]func(t *testing.T, c *cupool.Pool, b cupool.Block){
			"FreePtr": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				require.NoError(t, c.FreePtr(b.Ptr(), b.Size()))
				require.ErrorIs(t, c.Free(b), cupool.ErrDoubleFree)
			},
			"FreePtr of any size": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				require.NoError(t, c.FreePtr(b.Ptr(), -1))
			},
			"Lookup": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				got, err := c.Lookup(b.Ptr())
				require.NoError(t, err)
				require.Equal(t, b, got)
				require.NoError(t, c.Free(b))
			},
			"Lookup inside": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				got, err := c.Lookup(b.Ptr() + cupool.Ptr(b.Size()) - 1)
				require.NoError(t, err)
				require.Equal(t, b, got)
				require.NoError(t, c.Free(b))
			},
		} {
			for _, own := range []bool{false, true} {
				t.Run(name+", "+what+map[bool]string{false: "", true: ", of another stream"}[own], func(t *testing.T) {
					d := &freedHook{Driver: pooltest.NewDriver(1 << 30)}
					c, err := cupool.New(cupool.Config{Driver: d, MagazineBytes: -1})
					require.NoError(t, err)
					var s *cupool.Stream
					if own {
						s, err = c.NewStream()
						require.NoError(t, err)
					}
					b := pooltest.Alloc(t, c, sizes.first, nil)
					at := b.Ptr()
					require.NoError(t, c.Free(b))
					called := false
					d.freed = func(p cupool.Ptr) {
						called = true
						require.Equal(t, at, p)
						now := pooltest.Alloc(t, c, sizes.then, s)
						require.Equal(t, at, now.Ptr(), "the device has the address to give")
						use(t, c, now)
					}
					require.NoError(t, c.EmptyCache())
					require.True(t, called)
					require.NoError(t, c.Check())
					again := pooltest.Alloc(t, c, sizes.then, s) // the same address once more, with nothing under way
					require.NoError(t, c.FreePtr(again.Ptr(), again.Size()))
					require.NoError(t, c.Check())
					require.NoError(t, c.Close())
				})
			}
		}
	}
}
