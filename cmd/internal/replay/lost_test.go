package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/snapshot"
)

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

// nonZero prints the losses that there are: reason, pieces, bytes, largest.
func nonZero(list []Loss) (text []string) {
	for _, l := range list {
		if l.Bytes != 0 {
			text = append(text, fmt.Sprintf("%v: %d of %s, at most %s", l.Reason, l.Pieces, bytesize.Exact(l.Bytes), bytesize.Exact(l.Largest)))
		}
	}
	return text
}

// Every byte of an address range, of what is stitched from it, and of segments
// has its reason, by the handle that it is in.
func TestLostIn(t *testing.T) {
	large := snapshot.Segment{Type: "large", Virtual: true}
	stitched, other, small := large, large, large
	stitched.Stitched, other.Stream, small.Type = true, 7, "small"
	p := cupool.Snapshot{Segments: []snapshot.Segment{
		segmentOf(100*mib, large,
			"live 3", "free 9", // handles of 4: 1 beside a block, two whole ones, of which the second is mapped again
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
	mapped[6].handle, mapped[7].handle, mapped[8].handle = 3, 4, 2
	lost, err := lostIn(p, mapped)
	require.NoError(t, err)
	require.Equal(t, []string{
		"rounding: 5 of 5K, at most 1K", "pending: 1 of 2M, at most 2M", "cached: 1 of 1M, at most 1M",
		"partial_handles: 2 of 2M, at most 1M", "stitched_ends: 1 of 3M, at most 3M", "stitched_ranges: 1 of 4M, at most 4M", "whole_handles: 1 of 4M, at most 4M",
		"partial_segments: 1 of 17M, at most 17M", "whole_segments: 1 of 20M, at most 20M",
		"other_pool: 1 of 3M, at most 3M", "other_streams_partial: 1 of 2M, at most 2M", "other_streams_whole: 1 of 4M, at most 4M",
	}, nonZero(lost.seenFrom(place{0, "large"})))
	require.Equal(t, []string{
		"rounding: 5 of 5K, at most 1K", "pending: 1 of 2M, at most 2M", "cached: 1 of 1M, at most 1M",
		"partial_handles: 1 of 2M, at most 2M", "whole_handles: 1 of 4M, at most 4M",
		"other_streams_partial: 5 of 25M, at most 17M", "other_streams_whole: 3 of 28M, at most 20M",
	}, nonZero(lost.seenFrom(place{7, "large"})))

	_, err = lostIn(p, slices.Delete(mapped, 1, 2))
	require.EqualError(t, err, "no memory is mapped at 0x6800000, in a free block")
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := range numReasons {
		text, err := json.Marshal(Loss{Reason: r})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"reason":"%v","bytes":0,"pieces":0,"largest_bytes":0}`, r), string(text))
		require.Equal(t, strings.ToLower(r.String()), r.String())
		e := Explanation{Pool: "large"}
		for _, name := range []string{r.String(), e.Text(r)} {
			require.NotEmpty(t, name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
	require.Equal(t, "free for large blocks", (&Explanation{Pool: "small"}).Text(OtherPool))
}
