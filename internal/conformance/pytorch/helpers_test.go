package pytorch_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

const mib = 1 << 20

var backings = pooltest.Backings

func allocateAndFree(t *testing.T, c *cupool.Pool, size int64) cupool.Ptr {
	b := pooltest.Alloc(t, c, size, nil)
	require.NoError(t, c.Free(b))
	return b.Ptr()
}

// slow submits work to a stream that ends when release is called.
func slow(t *testing.T, s *cupool.Stream) (release func()) {
	ch := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-ch }))
	release = sync.OnceFunc(func() { close(ch) })
	t.Cleanup(release)
	return release
}
