package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
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

// testSteady repeats the step on two streams: the device is asked for nothing more.
func testSteady(t *testing.T, e *env) {
	r := e.rig(t)
	streams := []*cupool.Stream{r.DefaultStream(), r.stream()}
	first := [][]cupool.Ptr{step(r, streams[0]), step(r, streams[1])}
	start := r.Stats()
	for round := range scaled(256) {
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
	require.Equal(t, start.Mapped+start.Grown, end.Mapped+end.Grown)
	require.Equal(t, start.All.ReservedBytes, end.All.ReservedBytes)
	require.NoError(t, r.Check())
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
		require.Equal(t, before.Mapped+before.Grown, after.Mapped+after.Grown)
		require.Equal(t, before.Hits+1, after.Hits)
		r.free(b)
	}
}

// testTrim: as much goes as has to, of virtual memory not a chunk more.
func testTrim(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	w := r.whole()
	blocks := []cupool.Block{r.alloc(w, nil), r.alloc(2*w, nil), r.alloc(3*w, nil), r.alloc(100, nil)}
	reserved := func() int64 { return r.Stats().All.ReservedBytes.Current }
	all, small := reserved(), r.Stats().Small.ReservedBytes.Current
	r.free(blocks[:3]...)
	for _, keep := range []int64{all, all - 1, all - 3*w, all - 3*w - 1, small + w, small, 0} {
		before := reserved()
		n, err := r.Trim(keep)
		require.NoError(t, err)
		require.Equal(t, before-n, reserved())
		require.LessOrEqual(t, reserved(), max(keep, small), "what backs the live block stays")
		if g := granularityOf(&r.cfg); g > 0 && keep > 0 {
			require.Greater(t, reserved(), keep-g, "no more goes than has to")
		}
	}
	r.free(blocks[3])
	n, err := r.Trim(0)
	require.NoError(t, err)
	require.Equal(t, small, n)
	r.requireNothing()
}
