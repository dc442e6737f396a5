package native

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// A block may be used on one stream after the other for as long as the program runs: of closed
// ones nothing stays.
func TestForgetsClosedStreams(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t)})
	n, err := New(c, Config{})
	require.NoError(t, err)
	b, err := n.Alloc(512, nil)
	require.NoError(t, err)
	for range 5 {
		s, err := n.NewStream()
		require.NoError(t, err)
		require.NoError(t, n.RecordStream(b, s))
		require.Equal(t, []*cupool.Stream{s}, n.books.at(b.Ptr()).users)
		require.NoError(t, s.Close())
	}
	require.NoError(t, n.Free(b))
	require.NoError(t, n.Close())
	require.NoError(t, c.Close())
}
