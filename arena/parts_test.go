package arena

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// A program may make a stream for each of its phases: of closed ones nothing stays, also where
// the arena never goes back to its beginning.
func TestForgetsClosedStreams(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	r, err := New(c, Config{Size: 1 << 20})
	require.NoError(t, err)
	_, err = r.Alloc(512, nil)
	require.NoError(t, err)
	for range 5 {
		phase := r.Mark()
		s, err := r.NewStream()
		require.NoError(t, err)
		_, err = r.Alloc(512, s)
		require.NoError(t, err)
		require.NoError(t, r.Release(phase))
		require.Equal(t, 1, len(r.users))
		require.NoError(t, s.Close())
	}
	b, err := r.Alloc(512, nil)
	require.NoError(t, err)
	for range 5 { // nor where nothing goes back
		s, err := r.NewStream()
		require.NoError(t, err)
		require.NoError(t, r.RecordStream(b, s))
		_, err = r.Alloc(512, s)
		require.NoError(t, err)
		require.Equal(t, 1, len(r.users))
		require.Equal(t, 1, len(r.ordered))
		require.NoError(t, s.Close())
	}
	require.NoError(t, r.Close())
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}
