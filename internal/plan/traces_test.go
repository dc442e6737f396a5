package plan_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/plan"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/trace"
)

// ofStreams returns the blocks of each stream of a trace, sizes rounded to
// 512 bytes. Those that never die live to its end.
func ofStreams(t *trace.Trace) [][]plan.Interval {
	lists := make([][]plan.Interval, len(t.Streams))
	at := make([]*plan.Interval, t.Blocks) // nil: of no bytes
	count := make([]int, len(t.Streams))
	for _, e := range t.Events {
		if e.Op == trace.Alloc {
			count[e.Stream]++
		}
	}
	for i := range lists {
		lists[i] = make([]plan.Interval, 0, count[i])
	}
	for now, e := range t.Events {
		switch {
		case e.Op == trace.Alloc && e.Size > 0:
			list := &lists[e.Stream]
			*list = append(*list, plan.Interval{Size: (e.Size + 511) / 512 * 512, Birth: int32(now), Death: int32(len(t.Events))})
			at[e.ID] = &(*list)[len(*list)-1]
		case e.Op == trace.Free && at[e.ID] != nil:
			at[e.ID].Death = int32(now)
		}
	}
	return lists
}

// traceBounds are the traces that plans are held to figures on: the most that
// the height of a plan may be as a multiple of the bytes that live at once.
var traceBounds = map[string]float64{"gpt2": 1.003, "prefetch": 1.003, "resnet50": 1.003, "vit_ckpt": 1.003}

// longBounds are the same for programs that keep blocks. Their search takes
// half a minute, so that only the long form runs it.
var longBounds = map[string]float64{"rl": 1.03, "serve": 1.02}

// realTraces returns the recorded traces of bench/testdata: the two shortest of
// traceBounds, or all in the long form without the race detector.
func realTraces(t *testing.T) []*trace.Trace {
	files, err := filepath.Glob("../../bench/testdata/traces/*.trace.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*trace.Trace
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".trace.gz")
		if (!testkit.Long() || testkit.Race) && name != "prefetch" && name != "resnet50" {
			continue
		}
		tr, err := trace.ReadFile(file)
		require.NoError(t, err)
		tr.Name = name
		all = append(all, tr)
	}
	return all
}

// The plans of real programs are right, and those of the programs of
// traceBounds take no more memory than what lives at once, in units of 2 MiB.
func TestRealTraces(t *testing.T) {
	const unit = 2 << 20
	log, n := 0.0, 0
	for _, tr := range realTraces(t) {
		peak := int64(0)
		bound, bounded := traceBounds[tr.Name]
		for stream, blocks := range ofStreams(tr) {
			if len(blocks) == 0 {
				continue
			}
			target := (plan.Bound(blocks) + unit - 1) / unit * unit
			o := plan.Options{Target: target}
			most := bound
			if !bounded {
				most = longBounds[tr.Name]
			}
			if most == 0 {
				o.Rounds = 2 // one for each order
			}
			start := time.Now()
			r, err := plan.Solve(context.Background(), blocks, o)
			require.NoError(t, err)
			t.Logf("%s, stream %d: %d blocks, %d rounds, height ÷ bound %.6f, %v", tr.Name, stream, len(blocks), r.Rounds, float64(r.Height)/float64(r.Bound), time.Since(start).Round(time.Millisecond))
			require.NoError(t, plan.Check(blocks, r.Offsets))
			if most > 0 {
				require.Less(t, float64(r.Height)/float64(r.Bound), most, tr.Name)
			}
			peak += (r.Height + unit - 1) / unit * unit
		}
		ratio := float64(peak) / float64(tr.PeakRequested)
		t.Logf("%s: peak ÷ requested %.6f", tr.Name, ratio)
		if bounded {
			log, n = log+math.Log(ratio), n+1
		}
	}
	mean := math.Exp(log / float64(n))
	t.Logf("geometric mean of those that are bounded %.6f", mean)
	require.Less(t, mean, 1.005)
}
