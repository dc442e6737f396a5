package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// strandedStreams is how many streams cache memory and then do nothing.
const strandedStreams = 4

// strandedBlock is the size of the blocks, so large that streams take them
// from each other.
const strandedBlock = 32 * mib

// strand makes streams cache two blocks each, written to.
func strand(r *rig) (streams []*cupool.Stream) {
	for range strandedStreams {
		streams = append(streams, r.stream())
	}
	for range 20 { // so often that the blocks may lie in magazines
		var blocks []cupool.Block
		for i := range 2 * strandedStreams {
			s := streams[i/2]
			blocks = append(blocks, r.alloc(strandedBlock, s))
			require.NoError(r.t, writeOr(r.env, blocks[i], uint64(i), s))
		}
		r.free(blocks...)
	}
	for _, s := range streams {
		require.NoError(r.t, s.Sync())
	}
	return streams
}

// allocStranded allocates on a stream as much as all of them cache: as one
// block where memory can be stitched.
func (r *rig) allocStranded(s *cupool.Stream) (blocks []cupool.Block) {
	r.t.Helper()
	const n = 2 * strandedStreams
	if r.vmm() {
		return append(blocks, r.alloc(n*strandedBlock, s))
	}
	for range n {
		blocks = append(blocks, r.alloc(strandedBlock, s))
	}
	return blocks
}

// testStranded: what streams cache that are idle, or closed, serves another
// one before the device is asked for more, and without the device after that.
func testStranded(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	streams, closed := strand(r), strandedStreams/2
	if e.opt.WaitsRun {
		closed = strandedStreams // no event is done here before somebody waits
	}
	for _, s := range streams[:closed] {
		require.NoError(t, s.Close())
		require.NoError(t, r.Check())
	}
	taker, before := r.stream(), r.Stats()
	for round := range 3 {
		blocks := r.allocStranded(taker)
		st := r.Stats()
		require.Equal(t, before.All.ReservedBytes, st.All.ReservedBytes)
		require.Equal(t, before.DriverAllocs, st.DriverAllocs)
		require.Equal(t, st.All.ReservedBytes.Current, st.MovedBytes)
		require.NoError(t, r.Check())
		for i, b := range blocks {
			require.NoError(t, writeOr(e, b, uint64(100*round+i), taker))
		}
		for i, b := range blocks {
			if !e.opt.NoContents {
				require.NoError(t, verify(b, uint64(100*round+i), taker))
			}
		}
		r.free(blocks...)
	}
	require.NoError(t, r.EmptyCache())
	r.requireNothing()
}
