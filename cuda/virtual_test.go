//go:build gpu

package cuda_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/planner"
)

// Memory that has more than one address, changes hands, is planned or sleeps,
// as kernels see it. Nothing here waits on the host between a free and the
// next use of the memory.

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

// What other streams leave idle serves one that needs it, under kernels; what
// a stream at work may still use does not.
func TestGPUStranded(t *testing.T) {
	for _, b := range []cupool.Backing{cupool.BackingVMM, cupool.BackingSegments} {
		t.Run(b.String(), func(t *testing.T) {
			g := newGPU(t, cupool.Config{Backing: b})
			const size = 64 << 20
			streams := g.gpuStreams(t, 4)
			var idle []stamped
			for i, s := range streams {
				idle = append(idle, g.put(t, size, s, uint32(i)))
			}
			for _, x := range idle {
				require.NoError(t, g.retire(x, nil))
			}
			busy := streams[0]
			release, err := g.k.Busy(uintptr(busy.Handle()))
			require.NoError(t, err)
			last := g.put(t, size, busy, 77)
			require.NoError(t, g.retire(last, nil))
			for _, s := range streams[1:] {
				require.NoError(t, s.Sync())
			}
			require.NoError(t, streams[3].Close())
			taker, before := g.gpuStreams(t, 1)[0], g.Stats()
			var got []stamped
			for i := range 3 { // as many as are idle
				got = append(got, g.put(t, size, taker, uint32(100+i)))
				require.NotEqual(t, last.b.Ptr(), got[i].b.Ptr())
			}
			st := g.Stats()
			require.Equal(t, before.DriverAllocs, st.DriverAllocs)
			require.EqualValues(t, 3*size, st.MovedBytes)
			release()
			for _, x := range got {
				require.NoError(t, g.retire(x, nil))
			}
			require.NoError(t, errors.Join(taker.Sync(), busy.Sync(), g.Check()))
			t.Logf("%d moves, %d events, %d queries", st.Moves, st.EventsRecorded-before.EventsRecorded, st.EventQueries-before.EventQueries)
		})
	}
}

// A planned iteration gives kernels the same addresses each time.
func TestGPUPlanner(t *testing.T) {
	g := newGPU(t, cupool.Config{})
	p, err := planner.New(g.Pool, planner.Config{})
	require.NoError(t, err)
	s := g.gpuStreams(t, 1)[0]
	sizes := []int64{3 << 20, 512, 40 << 20, 1 << 20, 7 << 20, 100 << 10, 24 << 20, 2 << 20}
	var first []cupool.Ptr
	value := uint32(1)
	for round := range 12 {
		require.NoError(t, p.BeginIteration())
		var at []cupool.Ptr
		var live []stamped
		for i, size := range sizes {
			b, err := p.Alloc(size, s)
			require.NoError(t, err)
			x, err := g.fill(b, s, value)
			require.NoError(t, err)
			value++
			at, live = append(at, b.Ptr()), append(live, x)
			if i%2 == 1 { // free the older one of two, right behind the kernel that checks it
				g.check(t, live[0])
				require.NoError(t, p.Free(live[0].b))
				live = live[1:]
			}
		}
		for _, x := range live {
			g.check(t, x)
			require.NoError(t, p.Free(x.b))
		}
		require.NoError(t, p.EndIteration())
		require.NoError(t, p.Wait(context.Background()))
		switch {
		case round == 4:
			first = at
		case round > 4:
			require.True(t, slices.Equal(first, at), "round %d", round)
		}
	}
	st := p.Stats()
	require.GreaterOrEqual(t, st.PlannedHits, int64(7*len(sizes)))
	require.Zero(t, st.Deviations)
	require.NoError(t, errors.Join(s.Sync(), p.Close(), g.Check()))
	t.Logf("%d planned hits, %d MiB of arenas", st.PlannedHits, st.ArenaBytes>>20)
}

// The memory goes to others and comes back to the same addresses, with the
// contents that were to be kept; kernels write and verify all of it.
func TestGPUSleep(t *testing.T) {
	g := newGPU(t, cupool.Config{Backing: cupool.BackingVMM, MagazineBytes: -1})
	s := g.gpuStreams(t, 1)[0]
	var kept, lost []stamped
	for i := range 8 {
		x := g.put(t, 8<<20, s, uint32(i))
		if i%2 == 0 {
			lost = append(lost, x)
			continue
		}
		kept = append(kept, x)
	}
	for _, x := range lost[:3] {
		require.NoError(t, g.retire(x, nil))
	}
	lost = lost[3:]
	kept = append(kept, g.put(t, 24<<20, s, 50)) // stitched
	kept = append(kept, g.put(t, 5000, s, 51))
	require.Positive(t, g.Stats().Stitches)
	for round := range 3 {
		require.NoError(t, s.Sync())
		free, _, err := g.Driver().MemInfo()
		require.NoError(t, err)
		held := g.Stats().All.ReservedBytes.Current
		start := time.Now()
		require.NoError(t, g.Sleep(func(b cupool.Block) bool {
			return slices.ContainsFunc(kept, func(x stamped) bool { return x.b == b })
		}))
		slept := time.Since(start)
		now, _, err := g.Driver().MemInfo()
		require.NoError(t, err)
		require.GreaterOrEqual(t, now-free, held, "the device has the memory")
		require.Zero(t, g.Stats().All.ReservedBytes.Current)
		_, err = g.Alloc(512, s)
		require.ErrorIs(t, err, cupool.ErrAsleep)
		start = time.Now()
		require.NoError(t, g.Wake())
		t.Logf("%d MiB: asleep after %v, awake after %v", held>>20, slept, time.Since(start))
		for _, x := range kept {
			g.check(t, x)
		}
		for i := range lost {
			x, err := g.fill(lost[i].b, s, uint32(1000+10*round+i))
			require.NoError(t, err)
			g.check(t, x)
			lost[i] = x
		}
		require.NoError(t, g.retire(g.put(t, 30<<20, s, 99), nil))
	}
	for _, x := range append(kept, lost...) {
		require.NoError(t, g.retire(x, nil))
	}
	require.NoError(t, errors.Join(s.Sync(), g.Check()))
}
