package replay

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/testlevel"
	"github.com/cupool/cupool/internal/trace"
)

// moreThanPeaks are the recorded traces whose plans take more than 1.005 times
// what is requested at once: by how much. They take a minute, so
// that only the long form of a plain build runs them.
var moreThanPeaks = map[string]float64{"rl.trace.gz": 1.03, "serve.trace.gz": 1.02}

// A trace that was recorded whole is served from its plan whole.
func TestPlanned(t *testing.T) {
	files, err := filepath.Glob(golden + "/*.trace")
	require.NoError(t, err)
	more, err := filepath.Glob("../../../bench/testdata/traces/*.trace.gz")
	require.NoError(t, err)
	for _, file := range append(files, more...) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(t *testing.T) {
			factor, long := moreThanPeaks[filepath.Base(file)]
			if long && (!testlevel.Long() || testlevel.Race || atomic.Invariants) {
				t.Skip("a minute: only in plain builds with CUPOOL_TEST=long")
			}
			tr, err := trace.ReadFile(file)
			require.NoError(t, err)
			seen := 0
			o := Options{Backing: "planned", Repeat: 2, Samples: 50, Progress: func(n int) { seen += n }}
			r, err := Run(context.Background(), tr, o)
			require.NoError(t, err)
			require.Equal(t, o.Passes()*len(tr.Events), seen)
			require.Equal(t, "planned", r.Backing)
			require.Zero(t, r.FailedAllocs)
			require.Zero(t, r.Plan.Deviations, r.Plan.LastDeviation)
			uses := 0
			for _, e := range tr.Events {
				if e.Op == trace.Use {
					uses++
				}
			}
			if uses == 0 {
				require.Equal(t, r.Plan.PlannedHits+count(tr, 0), int64(tr.Blocks), "all that has any bytes")
				require.Less(t, float64(r.PeakReservedBytes), float64(tr.PeakRequested)*max(factor, 1.005)+16<<20)
			}
			for _, s := range r.Samples {
				require.LessOrEqual(t, s.Requested, s.Live)
				require.LessOrEqual(t, s.Live, r.PeakReservedBytes)
			}
		})
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
	for seed := range uint64(5) {
		tr := random(t, seed+100, 3000)
		for _, capacity := range []int64{0, 300 << 20} {
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
