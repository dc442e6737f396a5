package conformance

import (
	"errors"
	"testing"
	"time"

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
	for name, closed := range map[string]int{"idle": 0, "closed": strandedStreams, "both": strandedStreams / 2} {
		t.Run(name, func(t *testing.T) {
			if e.opt.WaitsRun && closed < strandedStreams {
				t.Skip("no event is done here before somebody waits")
			}
			r := e.rig(t, unlimited)
			streams := strand(r)
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
		})
	}
}

// roundingSlack is the bytes by which a segment may be larger than its block.
const roundingSlack = 4 << 10

// testStrandedBusy: what a stream freed is not taken from it while its work
// is not over.
func testStrandedBusy(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	busy, taker := r.stream(), r.stream()
	b, to := r.alloc(2*strandedBlock, busy), r.alloc(2*strandedBlock, busy)
	require.NoError(t, writeOr(e, b, 7, busy))
	require.NoError(t, busy.Sync())
	release := r.makeBusy(busy)
	require.NoError(t, copyTo(to, b, busy))
	r.free(b)
	before := r.Stats().All.ReservedBytes.Current
	own := r.alloc(2*strandedBlock, taker)
	require.NoError(t, taker.Memset(own.Ptr(), 0xEE, own.Size()))
	require.InDelta(t, before+2*strandedBlock, r.Stats().All.ReservedBytes.Current, roundingSlack)
	require.Zero(t, r.Stats().MovedBytes)
	release()
	require.NoError(t, busy.Sync())
	require.NoError(t, taker.Sync())
	if !e.opt.NoContents {
		require.NoError(t, verify(to, 7, busy))
	}
	if !e.opt.WaitsRun {
		more := r.alloc(2*strandedBlock, taker)
		require.InDelta(t, 2*strandedBlock, r.Stats().MovedBytes, roundingSlack, "now it is")
		require.NoError(t, r.Check())
		r.free(more)
	}
	r.free(own, to)
}

// testStrandedTurns: streams that take turns come to rest: each has what it needs after
// a while, of its own or, of virtual memory, on another's, and the device is not asked
// for memory any more. An event says that a lender is idle, and one that a block is.
func testStrandedTurns(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	streams := []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream()}
	var last cupool.Stats
	for range 64 {
		last = r.Stats()
		for _, s := range streams {
			b := r.alloc(2*strandedBlock, s)
			require.NoError(t, s.Memset(b.Ptr(), 1, mib))
			r.free(b)
			require.NoError(t, s.Sync())
		}
	}
	st := r.Stats()
	require.Equal(t, last.DriverAllocs, st.DriverAllocs)
	require.Equal(t, last.Moves, st.Moves)
	events := 0
	if r.vmm() {
		events = 2 * len(streams)
	}
	require.LessOrEqual(t, st.EventsRecorded, last.EventsRecorded+int64(events))
	require.LessOrEqual(t, st.All.ReservedBytes.Peak, int64(len(streams))*(2*strandedBlock+roundingSlack))
}

// testStrandedNoWait: a miss does not wait for those who wait for work, here
// the closing of a stream whose work needs what is allocated.
func testStrandedNoWait(t *testing.T, e *env) {
	if e.opt.WaitsRun {
		t.Skip("waits make the device run here")
	}
	r := e.rig(t, unlimited)
	if !r.vmm() {
		t.Skip("giving segments back waits for the device itself")
	}
	closing, s := r.stream(), r.stream()
	r.free(r.alloc(8*strandedBlock, closing))
	release := r.makeBusy(closing)
	closed := make(chan error)
	go func() { closed <- closing.Close() }()
	for {
		b, err := r.Alloc(1, closing)
		if errors.Is(err, cupool.ErrClosed) {
			break // now it waits for the stream's work
		}
		require.NoError(t, err)
		r.free(b)
		time.Sleep(time.Millisecond)
	}
	b := r.alloc(9*strandedBlock, s) // it would hang
	release()
	require.NoError(t, <-closed)
	r.free(b)
}
