package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/trace"
)

// explainAll are programs of all kinds.
func explainAll(t *testing.T) map[string]*trace.Trace {
	all := map[string]*trace.Trace{"nothing": parse(t, "# nothing\n")}
	for seed := range uint64(4) {
		all[fmt.Sprint("random, seed ", seed)] = random(t, seed, 3000)
	}
	for name, write := range workloads {
		w := &workload{Rand: rand.New(rand.NewPCG(1, 2))}
		write(w)
		all[name] = parse(t, w.text.String())
	}
	for _, pattern := range []string{golden + "/*.trace", "../../../bench/testdata/traces/*.trace.gz"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			tr, err := trace.ReadFile(file)
			require.NoError(t, err)
			all[filepath.Base(file)] = tr
		}
	}
	return all
}

// The rows sum to reserved minus requested, at the peak and at all samples. What
// the trace and the device say is the same.
func TestExplain(t *testing.T) {
	for name, tr := range explainAll(t) {
		for _, backing := range []string{"vmm", "segments"} {
			t.Run(name+", "+backing, func(t *testing.T) {
				r, err := Run(context.Background(), tr, Options{Backing: backing, Explain: true, Samples: 20})
				require.NoError(t, err)
				requested := requestedAfter(tr)
				checkSums(t, r.Explanation, requested)
				e := r.Explanation
				require.Equal(t, requested[e.PeakRequestedEvent], r.PeakRequestedBytes)

				// Of the events at which reserved memory grew to its peak or nearly
				// so, it is the last with the most requested.
				want, most := 0, int64(0)
				for i, p := range r.Reserved {
					grew := i == 0 || p.Bytes > r.Reserved[i-1].Bytes
					if grew && float64(p.Bytes) >= nearPeak*float64(r.PeakReservedBytes) && requested[p.Event] >= requested[want] {
						want, most = p.Event, p.Bytes
					}
				}
				require.Equal(t, want, e.Event)
				require.Equal(t, most, e.Reserved)
			})
		}
	}
}

// requestedAfter returns the bytes that a trace requests after each event.
func requestedAfter(tr *trace.Trace) []int64 {
	after, sizes := make([]int64, len(tr.Events)+1), make([]int64, tr.Blocks)
	for i, e := range tr.Events {
		after[i+1] = after[i]
		switch e.Op {
		case trace.Alloc:
			sizes[e.ID] = e.Size
			after[i+1] += e.Size
		case trace.Free:
			after[i+1] -= sizes[e.ID]
		}
	}
	return after
}

func checkSums(t *testing.T, e *Explanation, requested []int64) {
	t.Helper()
	found := false
	for _, m := range append(e.Course, Moment{e.Event, e.Reserved, e.Requested, e.Lost}) {
		for i, l := range m.Lost {
			require.Equal(t, Reason(i), l.Reason)
			require.GreaterOrEqual(t, l.Bytes, l.Largest)
			require.GreaterOrEqual(t, l.Bytes, int64(0))
		}
		require.Len(t, m.Lost, int(numReasons))
		require.Equal(t, m.Reserved-m.Requested, sumOf(m.Lost), "event %d", m.Event)
		require.Equal(t, requested[m.Event], m.Requested, "event %d", m.Event)
		found = found || m.Event == e.Event
	}
	require.True(t, found)
	for i := range e.Course[1:] {
		require.Less(t, e.Course[i].Event, e.Course[i+1].Event)
	}
}

// The memory of a plan is reserved from the start, so that the moment is that of
// the most requested.
func TestExplainPlanned(t *testing.T) {
	all := explainAll(t)
	maps.DeleteFunc(all, func(name string, tr *trace.Trace) bool {
		return len(tr.Events) == 0 || filepath.Ext(name) == ".gz" // which take long
	})
	for name, tr := range all {
		r, err := Run(context.Background(), tr, Options{Backing: "planned", Explain: true, Samples: 20})
		require.NoError(t, err)
		requested := requestedAfter(tr)
		checkSums(t, r.Explanation, requested)
		require.Equal(t, r.PeakRequestedBytes, r.Explanation.Requested, name)
		require.Equal(t, r.Explanation.PeakRequestedEvent, r.Explanation.Event, name)
	}
}

// Small programs, of which each loses memory for reasons of its own.
func TestExplainReasons(t *testing.T) {
	for name, c := range map[string]struct {
		trace    string
		vmm      []string
		segments []string
	}{
		"sizes are rounded": {
			"a 0 1536 0\na 1 3145000 0\n",
			[]string{"rounding: 1 of 216, at most 216", "partial_handles: 1 of 1049088, at most 1049088", "other_pool: 1 of 2095616, at most 2095616"},
			[]string{"rounding: 1 of 216, at most 216", "partial_segments: 1 of 17826304, at most 17826304", "other_pool: 1 of 2095616, at most 2095616"},
		},
		"a stitched block ends in a handle": {
			"a 0 6291456 0\na 1 2097152 0\na 2 6291456 0\na 3 2097152 0\nf 0\nf 2\na 4 11534336 0\na 5 4194304 0\n",
			[]string{"stitched_ends: 1 of 1M, at most 1M"},
			[]string{"rounding: 1 of 1M, at most 1M", "partial_segments: 3 of 16M, at most 6M"}, // when 4 is allocated
		},
		"a small block has no use for what large ones left": {
			"a 0 6291456 0\na 1 2097152 0\na 2 6291456 0\nf 0\nf 2\na 3 11534336 0\nf 3\na 4 1000 0\n",
			[]string{"rounding: 1 of 24, at most 24", "partial_handles: 1 of 2047K, at most 2047K", "other_pool: 2 of 12M, at most 6M"},
			[]string{"rounding: 1 of 24, at most 24", "partial_segments: 1 of 2047K, at most 2047K", "other_pool: 2 of 18M, at most 12M"},
		},
		"another stream has no use for it either": {
			"a 0 4194304 0\nf 0\na 1 3145728 1\n",
			[]string{"partial_handles: 1 of 1M, at most 1M", "other_streams_whole: 1 of 4M, at most 4M"},
			[]string{"partial_segments: 1 of 17M, at most 17M", "other_streams_whole: 1 of 20M, at most 20M"},
		},
		"rests of a segment": {
			"a 0 600000 0\na 1 600000 0\na 2 600000 0\nf 1\na 3 1000000 0\n",
			[]string{"rounding: 3 of 576, at most 448", "partial_handles: 2 of 1947K, at most 1361K"},
			[]string{"rounding: 3 of 576, at most 448", "partial_segments: 3 of 1947K, at most 1071K"},
		},
	} {
		for backing, want := range map[string][]string{"vmm": c.vmm, "segments": c.segments} {
			r, err := Run(context.Background(), parse(t, c.trace), Options{Backing: backing, Explain: true})
			require.NoError(t, err)
			require.Equal(t, want, nonZero(r.Explanation.Lost), "%s, %s", name, backing)
		}
	}
}

// A device that is too small: what is requested is what was served.
func TestExplainFailures(t *testing.T) {
	tr := parse(t, "a 0 4194304 0\na 1 8388608 0\nf 1\na 2 1099511627776 0\na 3 9437184 0\nf 0\n")
	for _, device := range []string{"sim", "host"} {
		for _, backing := range []string{"vmm", "segments", "planned"} {
			r, err := Run(context.Background(), tr, Options{Device: device, Backing: backing, Capacity: 20 << 20, Explain: true, Samples: 3})
			require.NoError(t, err)
			require.Positive(t, r.FailedAllocs)
			for _, m := range r.Explanation.Course {
				require.Less(t, m.Requested, int64(20<<20))
				require.Equal(t, m.Reserved-m.Requested, sumOf(m.Lost), backing)
			}
		}
	}
}

func sumOf(list []Loss) (sum int64) {
	for _, l := range list {
		sum += l.Bytes
	}
	return sum
}

// What lies in magazines is cached, until a request needs it.
func TestExplainMagazines(t *testing.T) {
	w := &workload{}
	for range 200 {
		w.temporary(1000)
	}
	tr := parse(t, w.text.String())
	for _, backing := range []string{"vmm", "segments"} {
		r, err := Run(context.Background(), tr, Options{Backing: backing, Explain: true, Magazines: true, Samples: 10})
		require.NoError(t, err)
		checkSums(t, r.Explanation, requestedAfter(tr))
		require.True(t, slices.ContainsFunc(r.Explanation.Course, func(m Moment) bool { return m.Lost[Cached].Bytes == 1024 }))
	}
}

// A line of JSON has the explanation when it is asked for.
func TestExplainJSON(t *testing.T) {
	tr := parse(t, "a 0 1000 0\n")
	for _, explain := range []bool{true, false} {
		r, err := Run(context.Background(), tr, Options{Backing: "vmm", Explain: explain, Repeat: 2})
		require.NoError(t, err)
		line, err := json.Marshal(r)
		require.NoError(t, err)
		var got struct{ Explain *json.RawMessage }
		require.NoError(t, json.Unmarshal(line, &got))
		require.Equal(t, explain, got.Explain != nil)
	}
}
