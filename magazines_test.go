package cupool_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// A magazine that is emptied again and again for a block of a size that it
// holds is that of another goroutine: it stays, and the stream grows.
func TestCrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { // no time passes
		c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{})})
		require.NoError(t, err)
		const size = 64 << 10
		lie := func() { // in a magazine
			for range 3 {
				b, err := c.Alloc(size, nil)
				require.NoError(t, err)
				require.NoError(t, c.Free(b))
			}
		}
		for i := range 16 {
			lie()
			require.True(t, c.FlushOwn(size), "time %d", i+1)
		}
		lie()
		require.False(t, c.FlushOwn(size))
		require.NotZero(t, c.HomedBytes())
		require.True(t, c.FlushOwn(2*size), "another size")
		lie()
		time.Sleep(11 * time.Millisecond)
		require.True(t, c.FlushOwn(size), "once in a while")
		require.NoError(t, c.Check())
		require.NoError(t, c.Close())
	})
}
