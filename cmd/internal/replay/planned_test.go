package replay

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/trace"
)

// A trace that was recorded whole is served from its plan whole.
func TestPlanned(t *testing.T) {
	files, err := filepath.Glob(golden + "/*.trace")
	require.NoError(t, err)
	for _, file := range files {
		tr, err := trace.ReadFile(file)
		require.NoError(t, err)
		seen := 0
		o := Options{Backing: "planned", Repeat: 2, Samples: 50, Progress: func(n int) { seen += n }}
		r, err := Run(context.Background(), tr, o)
		require.NoError(t, err, file)
		require.Equal(t, o.Passes()*len(tr.Events), seen)
		require.Equal(t, "planned", r.Backing)
		require.Zero(t, r.FailedAllocs)
		require.Zero(t, r.Plan.Deviations, r.Plan.LastDeviation)
		if !slices.ContainsFunc(tr.Events, func(e trace.Event) bool { return e.Op == trace.Use }) {
			require.Equal(t, r.Plan.PlannedHits+count(tr, 0), int64(tr.Blocks), "all that has any bytes")
			require.Less(t, float64(r.PeakReservedBytes), 1.005*float64(tr.PeakRequested)+16<<20)
		}
		for _, s := range r.Samples {
			require.LessOrEqual(t, s.Requested, s.Live)
			require.LessOrEqual(t, s.Live, r.PeakReservedBytes)
		}
	}
}

// count returns the allocations of so many bytes.
func count(t *trace.Trace, size int64) (n int64) {
	for _, e := range t.Events {
		if e.Op == trace.Alloc && e.Size == size {
			n++
		}
	}
	return n
}

// Random programs, with streams, uses and failures, keep their contents.
func TestPlannedKeepsContents(t *testing.T) {
	for seed := range testkit.Choose[uint64](5, 1) {
		tr := random(t, seed+100, 1500)
		for _, capacity := range []int64{0, 100 << 20} {
			r, err := Run(context.Background(), tr, Options{Backing: "planned", Device: "host", Verify: true, Capacity: capacity, Repeat: 2})
			require.NoError(t, err, "seed %d", seed)
			require.Positive(t, r.Checked)
			require.Positive(t, r.Plan.PlannedHits)
		}
	}
}

func TestPlannedIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Run(ctx, random(t, 1, 100), Options{Backing: "planned"})
	require.ErrorIs(t, err, context.Canceled)
}
