package conformance

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

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
				t.Fatalf("a block for %v is memory of %v (%v)", s.Handle(), owner, err)
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
		require.Equal(t, allocs, st.Hits+st.Mapped+st.Grown)
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
