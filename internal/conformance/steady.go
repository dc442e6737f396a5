package conformance

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// step is one step of a training-like program: blocks of many sizes, some of
// them freed on the way, all of them at the end. It returns the addresses in
// the order of the calls.
func step(r *rig, s *cupool.Stream) (at []cupool.Ptr) {
	sizes := []int64{100, 512, 3000, 70 * kib, 300 * kib, 900, 2*mib + 5, 1 * mib, 64, 3 * mib, 40 * kib, 512, 100, 5 * mib, 7000, 1}
	var live []cupool.Block
	for i, n := range sizes {
		b := r.alloc(n, s)
		at = append(at, b.Ptr())
		live = append(live, b)
		if i%3 == 2 {
			r.free(live[0], live[2])
			live = append(live[1:2], live[3:]...)
		}
	}
	r.free(live...)
	return at
}

func testSteady(t *testing.T, e *env) {
	for _, name := range []string{"default_stream", "two_streams"} {
		t.Run(name, func(t *testing.T) {
			r := e.rig(t)
			streams := []*cupool.Stream{r.DefaultStream()}
			if name == "two_streams" {
				streams = append(streams, r.stream())
			}
			var first [][]cupool.Ptr
			for _, s := range streams {
				first = append(first, step(r, s))
			}
			start := r.Stats()
			for round := range scaled(1024) {
				for i, s := range streams {
					at := step(r, s)
					if r.cfg.MagazineBytes < 0 {
						require.Equal(t, first[i], at, "round %d", round)
					}
				}
				require.Equal(t, start.DriverAllocs, r.Stats().DriverAllocs, "round %d asked the device", round)
			}
			end := r.Stats()
			require.Zero(t, end.DriverFrees)
			require.Equal(t, start.Misses, end.Misses)
			require.Equal(t, start.All.ReservedBytes, end.All.ReservedBytes)
			require.Greater(t, end.HitRatio(), 0.7)
			require.NoError(t, r.Check())
		})
	}
}

// testSteadyOneSize allocates and frees blocks of one size, which is what
// magazines are for: the set of addresses stays the same. Every processor
// has magazines of its own, so there is one.
func testSteadyOneSize(t *testing.T, e *env) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, size := range []int64{1, 512, 100 * kib, mib, mib + 1, 3 * mib, 12 * mib} {
		r := e.rig(t)
		seen := map[cupool.Ptr]bool{}
		for round := range scaled(1024) {
			var blocks [4]cupool.Block
			for i := range blocks {
				blocks[i] = r.alloc(size, nil)
				if round == 0 {
					seen[blocks[i].Ptr()] = true
				}
				require.True(t, seen[blocks[i].Ptr()], "round %d: %v was not used in the first round", round, blocks[i])
			}
			r.free(blocks[:]...)
		}
		st := r.Stats()
		require.LessOrEqual(t, st.Misses, int64(4))
		if r.cfg.MagazineBytes >= 4*size {
			require.Greater(t, st.MagazineHits, st.Hits/2, "size %d", size)
		}
		require.NoError(t, r.Check())
	}
}

func testFreeAll(t *testing.T, e *env) {
	r := e.rig(t)
	c := choices(testkit.Seed(t), 0)
	streams := []*cupool.Stream{r.DefaultStream(), r.stream()}
	for range 5 {
		var live []cupool.Block
		for range scaled(1000) {
			live = append(live, r.alloc(1+int64(c.IntN(1<<(1+c.IntN(17)))), streams[c.IntN(2)]))
			if c.IntN(3) == 0 {
				i := c.IntN(len(live))
				r.free(live[i])
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
		}
		for len(live) > 0 {
			i := c.IntN(len(live))
			r.free(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		r.flush()
		r.requireAllFree()
		if st := r.Stats(); !r.vmm() {
			require.Zero(t, st.All.InactiveSplit.Current)
			require.Zero(t, st.All.InactiveSplitBytes.Current)
			require.Equal(t, st.All.Segment.Current, int64(strings.Count(r.Snapshot().Layout(), "\n")))
		}
	}
	require.NoError(t, r.EmptyCache())
	r.requireNothing()
	require.Equal(t, r.Stats().DriverAllocs, r.Stats().DriverFrees)
}

func testReserve(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	for _, size := range []int64{1, 700 * kib, 3 * mib, 17 * mib} {
		require.NoError(t, r.Reserve(size, s))
		before := r.Stats()
		b := r.alloc(size, s)
		after := r.Stats()
		require.Equal(t, before.DriverAllocs, after.DriverAllocs)
		require.Equal(t, before.Misses, after.Misses)
		require.Equal(t, before.Hits+1, after.Hits)
		r.free(b)
	}
	require.NoError(t, r.Reserve(1000, nil), "nil is the default stream")
	require.ErrorIs(t, r.Reserve(-1, s), cupool.ErrInvalidSize)
	require.Zero(t, r.Stats().LiveBytes)
}

func testTrim(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	w := r.whole()
	blocks := []cupool.Block{r.alloc(w, nil), r.alloc(2*w, nil), r.alloc(3*w, nil), r.alloc(100, nil)}
	reserved := func() int64 { return r.Stats().All.ReservedBytes.Current }
	all := reserved()
	small := r.Stats().Small.ReservedBytes.Current
	r.unchanged(func() {
		n, err := r.Trim(0)
		require.NoError(t, err)
		require.Zero(t, n, "everything is live")
		_, err = r.Trim(-1)
		require.ErrorIs(t, err, cupool.ErrInvalidSize)
	})
	r.free(blocks[:3]...)
	n, err := r.Trim(all)
	require.NoError(t, err)
	require.Zero(t, n)
	if g := granularityOf(&r.cfg); g > 0 {
		for _, keep := range []int64{all - 1, all - 3*w, all - 3*w - 1, small + w, small} {
			before := reserved()
			n, err := r.Trim(keep)
			require.NoError(t, err)
			require.Equal(t, before-n, reserved())
			require.LessOrEqual(t, reserved(), keep)
			require.Greater(t, reserved(), keep-g, "no more goes than has to")
		}
	} else {
		n, err = r.Trim(all - 1)
		require.NoError(t, err)
		require.Equal(t, 3*w, n, "the largest goes first")
		require.Equal(t, all-3*w, reserved())
		n, err = r.Trim(all - 3*w - 2*w)
		require.NoError(t, err)
		require.Equal(t, 2*w, n)
	}
	_, err = r.Trim(0)
	require.NoError(t, err)
	require.Equal(t, small, reserved(), "what backs the live block stays")
	r.free(blocks[3])
	n, err = r.Trim(math.MaxInt64)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = r.Trim(0)
	require.NoError(t, err)
	require.Equal(t, small, n)
	r.requireNothing()
}
