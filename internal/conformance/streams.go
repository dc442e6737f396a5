package conformance

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// testStreamClosed closes a stream that holds cached and live memory.
func testStreamClosed(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	for range 3 {
		r.free(r.alloc(5000, s))
	}
	homed, plain, big := r.alloc(5000, s), r.alloc(70000, s), r.alloc(3*mib, s)
	r.free(r.alloc(5000, s), r.alloc(200*kib, s), r.alloc(2*mib, s))
	if !e.opt.NoContents {
		require.NoError(t, write(homed, 1, s))
		require.NoError(t, write(plain, 2, s))
	}
	before := r.Stats()
	require.NoError(t, s.Close())
	after := r.Stats()
	require.Equal(t, before.All.ReservedBytes, after.All.ReservedBytes)
	require.Equal(t, before.LiveBytes, after.LiveBytes)
	require.Equal(t, before.CachedBytes, after.CachedBytes)
	require.Equal(t, before.Streams-1, after.Streams)
	require.NoError(t, r.Check())
	if !e.opt.NoContents {
		require.NoError(t, verify(homed, 1, r.DefaultStream()))
		require.NoError(t, verify(plain, 2, r.DefaultStream()))
	}

	r.unchanged(func() {
		_, err := r.Alloc(5000, s)
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.ErrorIs(t, s.Close(), cupool.ErrClosed)
		require.ErrorIs(t, r.DefaultStream().Close(), cupool.ErrNotSupported)
		require.NoError(t, r.RecordStream(homed, r.DefaultStream()), "it is the owner now")
		for name, err := range map[string]error{
			"Sync": s.Sync(), "Copy": s.Copy(homed.Ptr(), plain.Ptr(), 8), "CopyIn": s.CopyIn(homed.Ptr(), make([]byte, 8)),
			"CopyOut": s.CopyOut(make([]byte, 8), homed.Ptr()), "Memset": s.Memset(homed.Ptr(), 1, 8),
			"WaitStream of it": r.DefaultStream().WaitStream(s),
		} {
			require.ErrorIs(t, err, cupool.ErrClosed, name)
		}
		_, err = s.Record()
		require.ErrorIs(t, err, cupool.ErrClosed)
	})
	require.ErrorIs(t, s.WaitStream(r.DefaultStream()), cupool.ErrClosed)
	owner, err := r.ownerOf(big)
	require.NoError(t, err)
	require.Equal(t, r.DefaultStream().Handle(), owner)

	// Its memory serves the default stream.
	b := r.alloc(2*mib, nil)
	require.Equal(t, after.DriverAllocs, r.Stats().DriverAllocs)
	r.free(homed, plain, big, b)
	r.flush()
	r.requireAllFree()
}

// testStreamClosedPending closes streams that blocks wait for, and that
// blocks which wait for others belong to.
func testStreamClosedPending(t *testing.T, e *env) {
	r := e.rig(t)
	s, u := r.stream(), r.stream()
	mine, theirs := r.alloc(5000, s), r.alloc(6000, u)
	used := r.alloc(7000, nil)
	require.NoError(t, r.RecordStream(used, s))
	release := r.makeBusy(u)
	require.NoError(t, r.FreeOn(mine, u))
	require.NoError(t, r.FreeOn(theirs, s))
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, r.Stats().BlocksPending, "u is busy, s is closed and so done")
	require.NoError(t, r.Check())
	release()
	require.NoError(t, u.Close())
	require.Zero(t, r.Stats().BlocksPending)
	require.NoError(t, r.Check())

	// Recorded while it was open, or after: both are over.
	require.NoError(t, r.RecordStream(used, u))
	r.free(used)
	require.Zero(t, r.Stats().BlocksPending)
	r.flush()
	r.requireAllFree()
}

// testClosedStreamMagazines: the magazines of a closed stream refer to
// blocks that are another stream's now.
func testClosedStreamMagazines(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	b := r.alloc(5000, s)
	for range 3 {
		r.free(b)
		b = r.alloc(5000, s)
	}
	require.NoError(t, s.Close()) // with the block live, in its home
	for range 10 {
		r.free(b)
		_, err := r.Alloc(5000, s)
		require.ErrorIs(t, err, cupool.ErrClosed)
		b = r.alloc(5000, nil)
	}
	r.free(b)
}

// testRecycledSlots moves the books' slots between streams, whose magazines
// then refer to blocks of the other one, and checks that no stream is given
// another one's memory and that nothing is counted twice.
func testRecycledSlots(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	streams := []*cupool.Stream{r.stream(), r.stream()}
	allocs := int64(0)
	get := func(s *cupool.Stream, n int, size func(int) int64) (blocks []cupool.Block) {
		for i := range n {
			b := r.alloc(size(i), s)
			allocs++
			blocks = append(blocks, b)
			if owner, err := r.ownerOf(b); err != nil || owner != s.Handle() {
				t.Fatalf("a block for stream %#x is memory of stream %#x (%v)", s.Handle(), owner, err)
			}
		}
		return blocks
	}
	recurring := func(i int) int64 { return 1024 + 512*int64(i/8) }
	once := func(i int) int64 { return 64*1024 + 512*int64(i) }
	var keep [2][]cupool.Block
	for round := range scaled(40) {
		me := round % 2
		s, other := streams[me], streams[1-me]
		// Blocks with a home lose it by having to wait, and their slots go
		// from the stream to all streams, as there are so many.
		homed := get(s, 120, recurring)
		others := get(s, 500, once)
		r.free(others[:300]...)
		for _, b := range homed {
			require.NoError(t, r.RecordStream(b, other))
			r.free(b)
		}
		require.NoError(t, other.Sync())
		r.free(others[300:]...)
		// The other stream gives the slots homes of its own. Some of its
		// blocks stay live, some lie in its magazines.
		theirs := get(other, 240, recurring)
		for i, b := range theirs {
			if i%2 == 0 {
				r.free(b)
			} else {
				keep[1-me] = append(keep[1-me], b)
			}
		}
		// Now the stream's magazines are full of slots that are not its own.
		for range 3 {
			r.free(get(s, 240, recurring)...)
		}
		r.free(keep[me]...)
		keep[me] = nil
		if round%4 == 3 {
			r.flush()
		}
		require.NoError(t, r.Check())
		st := r.Stats()
		live := int64(len(keep[0]) + len(keep[1]))
		require.Equal(t, allocs, st.All.Allocation.Allocated, "round %d", round)
		require.Equal(t, live, st.All.Allocation.Current)
		require.Equal(t, allocs, st.Hits+st.Misses)
	}
	r.free(keep[0]...)
	r.free(keep[1]...)
}

func testAdopted(t *testing.T, e *env) {
	r := e.rig(t)
	h, err := r.device.NewStream()
	require.NoError(t, err)
	def, err := r.AdoptStream(0)
	require.NoError(t, err)
	require.Same(t, r.DefaultStream(), def)

	var same [8]*cupool.Stream
	var wg sync.WaitGroup
	for i := range same {
		wg.Go(func() { same[i], _ = r.AdoptStream(h) })
	}
	wg.Wait()
	for _, s := range same {
		require.Same(t, same[0], s)
	}
	s := same[0]
	require.Equal(t, h, s.Handle())
	b := r.alloc(5000, s)
	r.free(b)
	require.NoError(t, s.Close())
	require.NoError(t, r.device.SyncStream(h), "it is not the allocator's to destroy")
	again, err := r.AdoptStream(h)
	require.NoError(t, err)
	require.NotSame(t, s, again)
	r.free(r.alloc(5000, again))
	r.closeAll()
	require.NoError(t, r.device.DestroyStream(h))
}

// check reports an error from any goroutine.
func check(t *testing.T, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}
