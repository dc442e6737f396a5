package replay

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/trace"
	"github.com/cupool/cupool/snapshot"
)

// programs are traces of all kinds, by name.
func programs(t *testing.T) map[string]*trace.Trace {
	all := map[string]*trace.Trace{"nothing": parse(t, "# nothing\n")}
	for seed := range uint64(4) {
		all[fmt.Sprint("random, seed ", seed)] = random(t, seed, 1000)
	}
	files, err := filepath.Glob(golden + "/*.trace")
	require.NoError(t, err)
	for _, file := range files {
		tr, err := trace.ReadFile(file)
		require.NoError(t, err)
		all[filepath.Base(file)] = tr
	}
	return all
}

// The rows sum to reserved minus requested, and what is requested is what the
// trace says, at the peak of reserved memory, or of what a plan serves.
func TestExplain(t *testing.T) {
	for name, tr := range programs(t) {
		requested := requestedAfter(tr)
		for _, backing := range []string{"vmm", "segments", "planned"} {
			r, err := Run(context.Background(), tr, Options{Backing: backing, Explain: true})
			require.NoError(t, err, "%s, %s", name, backing)
			e := r.Explanation
			require.Equal(t, e.Reserved-e.Requested, sumOf(e.Lost), "%s, %s", name, backing)
			require.Equal(t, requested[e.Event], e.Requested, "%s, %s", name, backing)
			if backing == "planned" {
				require.Equal(t, r.PeakRequestedBytes, e.Requested, name)
				continue
			}
			require.GreaterOrEqual(t, float64(e.Reserved), nearPeak*float64(r.PeakReservedBytes), "%s, %s", name, backing)
			for _, p := range r.Reserved {
				if p.Event > e.Event && p.Bytes == r.PeakReservedBytes {
					require.LessOrEqual(t, requested[p.Event], e.Requested, "%s, %s: a later event asks for more", name, backing)
				}
			}
		}
	}
}

// On a device that is too small, what is requested is what was served.
func TestExplainFailures(t *testing.T) {
	tr := parse(t, "a 0 4194304 0\na 1 8388608 0\nf 1\na 2 1099511627776 0\na 3 9437184 0\nf 0\n")
	for _, backing := range []string{"vmm", "segments", "planned"} {
		r, err := Run(context.Background(), tr, Options{Backing: backing, Capacity: 20 << 20, Explain: true})
		require.NoError(t, err)
		require.Positive(t, r.FailedAllocs)
		require.Less(t, r.Explanation.Requested, int64(20<<20))
		require.Equal(t, r.Explanation.Reserved-r.Explanation.Requested, sumOf(r.Explanation.Lost), backing)
	}
}

func sumOf(list []Loss) (sum int64) {
	for _, l := range list {
		sum += l.Bytes
	}
	return sum
}

// nonZero prints the losses that there are: reason, pieces, bytes, largest.
func nonZero(t *testing.T, list []Loss) (text []string) {
	for _, l := range list {
		if l.Bytes != 0 {
			name, err := l.Reason.MarshalText()
			require.NoError(t, err)
			text = append(text, fmt.Sprintf("%s: %d of %s, at most %s", name, l.Pieces, bytesize.Exact(l.Bytes), bytesize.Exact(l.Largest)))
		}
	}
	return text
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
			[]string{"partial_handles: 1 of 1M, at most 1M"},
			[]string{"rounding: 1 of 1M, at most 1M", "partial_segments: 3 of 16M, at most 6M"}, // when 4 is allocated
		},
		"a small block has no use for the little that large ones left": {
			"a 0 6291456 0\na 1 41943040 0\na 2 6291456 0\nf 0\nf 2\na 3 11534336 0\nf 3\na 4 1000 0\n",
			[]string{"rounding: 1 of 24, at most 24", "partial_handles: 1 of 2047K, at most 2047K", "other_pool: 6 of 12M, at most 2M"},
			[]string{"rounding: 1 of 24, at most 24", "partial_segments: 1 of 2047K, at most 2047K", "other_pool: 1 of 20M, at most 20M"},
		},
		"another stream has no use for it either": {
			"a 0 4194304 0\nf 0\na 1 3145728 1\n",
			[]string{"partial_handles: 1 of 1M, at most 1M", "other_streams: 2 of 4M, at most 2M"},
			[]string{"partial_segments: 1 of 17M, at most 17M", "other_streams: 1 of 20M, at most 20M"},
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
			require.Equal(t, want, nonZero(t, r.Explanation.Lost), "%s, %s", name, backing)
		}
	}
}

const mib = 1 << 20

// segmentOf makes a segment of blocks such as "live 3", of MiB; a live or
// pending one was requested with 1 KiB less.
func segmentOf(at cupool.Ptr, s snapshot.Segment, blocks ...string) snapshot.Segment {
	s.Address = at
	for _, text := range blocks {
		b := snapshot.Block{Address: at}
		if _, err := fmt.Sscanf(text, "%s %d", &b.State, &b.Size); err != nil {
			panic(err)
		}
		b.Size *= mib
		if b.State == "live" || b.State == "pending" {
			b.Requested = b.Size - 1024
		}
		s.Blocks = append(s.Blocks, b)
		s.Size += b.Size
		at += cupool.Ptr(b.Size)
	}
	return s
}

// Every byte of an address range, of what is stitched from it, and of segments
// has its reason, by the handle that it is in.
func TestLostIn(t *testing.T) {
	large := snapshot.Segment{Type: "large", Virtual: true}
	stitched, other, small := large, large, large
	stitched.Stitched, other.Stream, small.Type = true, 7, "small"
	p := cupool.Snapshot{Segments: []snapshot.Segment{
		segmentOf(100*mib, large,
			"live 3", "free 9", // handles of 4: 1 beside a block, two whole ones
			"part 4", "part 1", "free 3", // a stitched block ends in the second
			"gap 8",
			"pending 2", "cached 1", "free 1"),
		segmentOf(200*mib, stitched, "live 5"),
		segmentOf(300*mib, other, "free 4", "live 2", "free 2"),
		segmentOf(400*mib, small, "live 1", "free 3"),
		segmentOf(500*mib, snapshot.Segment{Type: "large"}, "live 3", "free 17"),
		segmentOf(600*mib, snapshot.Segment{Type: "large"}, "free 20"),
	}}
	var mapped []piece
	for i, at := range []cupool.Ptr{100, 104, 108, 112, 116, 128, 200, 204, 250, 300, 304, 400} {
		mapped = append(mapped, piece{at * mib, 4 * mib, uintptr(i)})
	}
	lost := lostIn(p, mapped, place{0, "large"})
	require.Equal(t, []string{
		"rounding: 5 of 5K, at most 1K", "pending: 1 of 2M, at most 2M", "cached: 1 of 1M, at most 1M",
		"partial_handles: 3 of 5M, at most 3M", "whole_handles: 2 of 8M, at most 4M",
		"partial_segments: 1 of 17M, at most 17M", "whole_segments: 1 of 20M, at most 20M",
		"other_pool: 1 of 3M, at most 3M", "other_streams: 2 of 6M, at most 4M",
	}, nonZero(t, lost))
	lost = lostIn(p, mapped, place{7, "large"})
	require.Equal(t, []string{
		"rounding: 5 of 5K, at most 1K", "pending: 1 of 2M, at most 2M", "cached: 1 of 1M, at most 1M",
		"partial_handles: 1 of 2M, at most 2M", "whole_handles: 1 of 4M, at most 4M",
		"other_streams: 8 of 53M, at most 20M",
	}, nonZero(t, lost))
}
