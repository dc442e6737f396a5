package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// holes allocates 2n blocks of two chunks each and frees every second one.
// It returns the blocks that stay, with their contents written, and the
// bytes of a hole.
func holes(t *testing.T, r *rig, s *cupool.Stream, n int) (stay []cupool.Block, size int64) {
	size = 2 * granularityOf(&r.cfg)
	if size <= r.cfg.SmallLimit || size == 0 {
		t.Skip("no virtual memory, or not for blocks of this size")
	}
	var away []cupool.Block
	for i := range 2 * n {
		b := r.alloc(size, s)
		if i%2 == 0 {
			away = append(away, b)
			continue
		}
		stay = append(stay, b)
		if !r.env.opt.NoContents {
			require.NoError(t, write(b, uint64(i), s))
		}
	}
	r.free(away...)
	return stay, size
}

// seams are spots around every border of two chunks in a block.
func seams(b cupool.Block, chunk int64) (out []spot) {
	for off := chunk; off < b.Size(); off += chunk {
		out = append(out, spot{off - 32, 64})
	}
	return out
}

// testStitch: free memory in pieces serves a request for all of it, without
// the device, and a mapping that was made once serves again.
func testStitch(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	s := r.stream()
	stay, size := holes(t, r, s, 4)
	if r.cfg.MagazineBytes >= 0 {
		r.flush()
	}
	before := r.Stats()
	for round := range 3 {
		b := r.alloc(4*size, s)
		st := r.Stats()
		require.Equal(t, before.DriverAllocs, st.DriverAllocs)
		require.Equal(t, before.All.ReservedBytes.Current, st.All.ReservedBytes.Current)
		require.EqualValues(t, 1, st.Stitches)
		require.EqualValues(t, round, st.StitchReuses)
		require.NoError(t, r.Check())
		chunk := size / 2
		if !e.opt.NoContents {
			for _, sp := range seams(b, chunk) {
				require.NoError(t, s.CopyIn(b.Ptr()+cupool.Ptr(sp.off), pattern(uint64(100+round), sp)))
			}
			require.NoError(t, s.Memset(b.Ptr(), 7, 100))
			for _, sp := range seams(b, chunk) {
				got := make([]byte, sp.n)
				require.NoError(t, s.CopyOut(got, b.Ptr()+cupool.Ptr(sp.off)))
				require.Equal(t, pattern(uint64(100+round), sp), got)
			}
			for i, o := range stay {
				require.NoError(t, verify(o, uint64(2*i+1), s))
			}
		}
		got, err := r.Lookup(b.Ptr() + cupool.Ptr(4*size-1))
		require.NoError(t, err)
		require.Equal(t, b, got)
		r.free(b)
	}
	r.free(stay...)
	r.flush()
	r.requireAllFree()
	require.NoError(t, r.EmptyCache())
	r.requireNothing()
}

// testStitchPending: what another stream still uses is not stitched from,
// and what was stitched is not given back while another stream uses it.
func testStitchPending(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	s, u := r.stream(), r.stream()
	size := 2 * granularityOf(&r.cfg)
	if size <= r.cfg.SmallLimit || size == 0 {
		t.Skip("no virtual memory, or not for blocks of this size")
	}
	var blocks, copies [4]cupool.Block
	for i := range blocks {
		blocks[i] = r.alloc(size, s)
		copies[i] = r.alloc(size, u)
		require.NoError(t, writeOr(e, blocks[i], uint64(i), s))
	}
	require.NoError(t, s.Sync())
	release := r.makeBusy(u)
	for i := range blocks {
		require.NoError(t, copyTo(copies[i], blocks[i], u))
	}
	require.NoError(t, r.FreeOn(blocks[0], u))
	r.free(blocks[1])
	require.NoError(t, r.FreeOn(blocks[2], u))
	big := r.alloc(3*size, s) // one piece is free, the rest has to grow
	require.NoError(t, s.Memset(big.Ptr(), 0xEE, big.Size()))
	require.EqualValues(t, 2, r.Stats().BlocksPending)
	require.NoError(t, r.Check())
	release()
	require.NoError(t, u.Sync())
	for i := range copies {
		if i != 1 && !e.opt.NoContents { // what the owner freed without a word is its own fault
			require.NoError(t, verify(copies[i], uint64(i), u))
		}
	}

	// The same with a stitched block: its pieces are pending with it.
	r.free(big)
	stitched := r.alloc(4*size, s)
	require.NoError(t, writeOr(e, stitched, 77, s))
	require.NoError(t, s.Sync())
	to := r.alloc(4*size, u)
	release = r.makeBusy(u)
	require.NoError(t, copyTo(to, stitched, u))
	require.NoError(t, r.FreeOn(stitched, u))
	again := r.alloc(4*size, s)
	require.NoError(t, s.Memset(again.Ptr(), 0xEE, again.Size()))
	require.NoError(t, r.Check())
	release()
	require.NoError(t, u.Sync())
	if !e.opt.NoContents {
		require.NoError(t, verify(to, 77, u))
	}
	r.free(blocks[3], again, to)
	r.free(copies[:]...)
	r.flush()
	r.requireAllFree()
}

func writeOr(e *env, b cupool.Block, seed uint64, s *cupool.Stream) error {
	if e.opt.NoContents {
		return nil
	}
	return write(b, seed, s)
}
