package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// Memory that has more than one address, as kernels see it. Nothing here waits on the
// host between a free and the next use of the memory.

const gpuChunk = 2 << 20 // the granularity of the GPU's virtual memory

// gpuStreams makes n streams.
func (g *gpu) gpuStreams(t *testing.T, n int) (streams []*cupool.Stream) {
	for range n {
		s, err := g.NewStream()
		require.NoError(t, err)
		streams = append(streams, s)
	}
	return streams
}

// put allocates a block and has a kernel fill it.
func (g *gpu) put(t *testing.T, size int64, s *cupool.Stream, value uint32) stamped {
	t.Helper()
	b, err := g.Alloc(size, s)
	require.NoError(t, err)
	x, err := g.fill(b, s, value)
	require.NoError(t, err)
	return x
}

// check has a kernel verify a block.
func (g *gpu) check(t *testing.T, x stamped) {
	t.Helper()
	require.NoError(t, g.k.Check(uintptr(x.s.Handle()), uintptr(x.b.Ptr()), x.b.Size()&^3, x.value, uintptr(g.wrong)))
}

// Kernels write and verify through stitched blocks whose pieces other kernels
// used a moment ago through other addresses, on several streams at once.
func TestGPUStitched(t *testing.T) {
	g := newGPU(t, cupool.Config{Backing: cupool.BackingVMM, MagazineBytes: -1})
	const holes, rounds = 6, 9
	streams := g.gpuStreams(t, 4)
	value := uint32(1)
	stay := map[*cupool.Stream][]stamped{}
	away := map[*cupool.Stream][]stamped{}
	for _, s := range streams {
		for i := range 2 * holes {
			x := g.put(t, 2*gpuChunk, s, value)
			if value++; i%2 == 0 {
				away[s] = append(away[s], x)
			} else {
				stay[s] = append(stay[s], x)
			}
		}
	}
	before := g.Stats()
	for round := range rounds {
		for _, s := range streams {
			require.NoError(t, g.k.Spin(uintptr(s.Handle()), time.Millisecond)) // what follows is queued, not done
			for _, x := range away[s] {
				require.NoError(t, g.retire(x, nil))
			}
			away[s] = nil
			// All holes as one block, as two, and filled one by one again.
			for _, n := range [][]int64{{holes}, {2, holes - 2}, {1, 1, 1, 1, 1, 1}}[round%3] {
				away[s] = append(away[s], g.put(t, 2*gpuChunk*n, s, value))
				value++
			}
			if round%3 == 0 {
				for _, x := range stay[s] {
					g.check(t, x)
				}
			}
		}
	}
	st := g.Stats()
	require.GreaterOrEqual(t, st.Stitches-before.Stitches, int64(2*len(streams)), "it does not stitch")
	require.Positive(t, st.StitchReuses)
	require.Equal(t, before.DriverAllocs, st.DriverAllocs)
	require.Equal(t, before.All.ReservedBytes, st.All.ReservedBytes)
	for _, s := range streams {
		for _, x := range append(away[s], stay[s]...) {
			require.NoError(t, g.retire(x, nil))
		}
		require.NoError(t, s.Sync())
	}
	require.NoError(t, g.Check())
	t.Logf("%d stitches, reused %d times", st.Stitches, st.StitchReuses)
}
