package snapshot_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/snapshot"
)

// viewer is how PyTorch's page goes back from a snapshot, event by event, with what
// it fails at.
type viewer struct {
	segments []span // by address
	blocks   map[snapshot.Ptr]snapshot.Event
}

type span struct {
	start, end snapshot.Ptr
	stream     snapshot.StreamHandle
}

func newViewer(s snapshot.Snapshot) *viewer {
	v := &viewer{blocks: map[snapshot.Ptr]snapshot.Event{}}
	for _, seg := range s.Segments {
		v.segments = append(v.segments, span{seg.Address, seg.Address + snapshot.Ptr(seg.Size), seg.Stream})
		for _, b := range seg.Blocks {
			if b.State == snapshot.Live || b.State == snapshot.Pending {
				v.blocks[b.Address] = snapshot.Event{Address: b.Address, Size: b.Requested}
			}
		}
	}
	return v
}

func (v *viewer) undo(e snapshot.Event) error {
	end := e.Address + snapshot.Ptr(e.Size)
	at := slices.IndexFunc(v.segments, func(s span) bool { return s.start <= e.Address && end <= s.end })
	switch _, ok := v.blocks[e.Address]; e.Kind {
	case snapshot.Alloc:
		delete(v.blocks, e.Address)
	case snapshot.FreeRequested:
		if !ok {
			return fmt.Errorf("there is no block to be freed")
		}
	case snapshot.FreeCompleted:
		v.blocks[e.Address] = e
	case snapshot.SegmentAlloc:
		if at < 0 || v.segments[at].start != e.Address || v.segments[at].end != end {
			return fmt.Errorf("there is no such segment")
		}
		v.segments = slices.Delete(v.segments, at, at+1)
	case snapshot.SegmentMap:
		if at < 0 {
			return fmt.Errorf("the range is in no segment")
		}
		left, right := v.segments[at], v.segments[at]
		left.end, right.start = e.Address, end
		v.segments = slices.Replace(v.segments, at, at+1, left, right)
		v.segments = slices.DeleteFunc(v.segments, func(s span) bool { return s.start == s.end })
	case snapshot.SegmentFree, snapshot.SegmentUnmap:
		v.add(span{e.Address, end, e.Stream}, e.Kind == snapshot.SegmentUnmap)
	}
	return v.drawn()
}

// add adds a segment, which merges with the one behind and the one before.
func (v *viewer) add(n span, merges bool) {
	for _, touches := range []func(s span) bool{
		func(s span) bool { return s.start == n.end }, func(s span) bool { return s.end == n.start },
	} {
		i := slices.IndexFunc(v.segments, touches)
		if merges && i >= 0 && v.segments[i].stream == n.stream {
			n.start, n.end = min(n.start, v.segments[i].start), max(n.end, v.segments[i].end)
			v.segments = slices.Delete(v.segments, i, i+1)
		}
	}
	v.segments = append(v.segments, n)
}

// drawn says what cannot be drawn: a block outside of segments, or two segments in
// one place.
func (v *viewer) drawn() error {
	slices.SortFunc(v.segments, func(a, b span) int { return int(a.start) - int(b.start) })
	for i := 1; i < len(v.segments); i++ {
		if v.segments[i].start < v.segments[i-1].end {
			return fmt.Errorf("two segments overlap")
		}
	}
	for p := range v.blocks {
		if !slices.ContainsFunc(v.segments, func(s span) bool { return s.start <= p && p < s.end }) {
			return fmt.Errorf("block %d is in no segment", p)
		}
	}
	return nil
}

// anything is a small snapshot with events that have nothing to do with it, or only
// by chance.
func anything(r *rand.Rand) snapshot.Snapshot {
	s := snapshot.Snapshot{Segments: []snapshot.Segment{}}
	at := snapshot.Ptr(0)
	for range r.IntN(4) {
		at += snapshot.Ptr(r.IntN(3))
		seg := snapshot.Segment{Address: at, Stream: snapshot.StreamHandle(r.IntN(2)), Virtual: r.IntN(2) == 0}
		for range 1 + r.IntN(5) {
			b := snapshot.Block{Address: at, Size: 1 + r.Int64N(3), State: []snapshot.State{snapshot.Live, snapshot.Pending, snapshot.Free, snapshot.Part, snapshot.Gap}[r.IntN(5)]}
			if b.State == snapshot.Live || b.State == snapshot.Pending {
				b.Requested = b.Size
			}
			seg.Blocks = append(seg.Blocks, b)
			seg.Size += b.Size
			at += snapshot.Ptr(b.Size)
		}
		s.Segments = append(s.Segments, seg)
	}
	kinds := []snapshot.Kind{
		snapshot.Alloc, snapshot.FreeRequested, snapshot.FreeCompleted, snapshot.SegmentAlloc, snapshot.SegmentFree,
		snapshot.SegmentMap, snapshot.SegmentUnmap, snapshot.Stitch, snapshot.Trim, snapshot.Taken, snapshot.OutOfMemory,
	}
	for i := range r.IntN(40) {
		s.Events = append(s.Events, snapshot.Event{
			Kind: kinds[r.IntN(len(kinds))], Time: time.Unix(int64(i), 0), Address: snapshot.Ptr(r.IntN(30)), Size: 1 + r.Int64N(6),
			Stream: snapshot.StreamHandle(r.IntN(2)), Weight: 1,
		})
	}
	return s
}

// Whatever a history lacks, the viewer can follow what is written of it, and all that
// is live in the end has been allocated if its segment came.
func TestViewerFollows(t *testing.T) {
	r := testkit.Rand(t)
	kept := map[snapshot.Kind]int{}
	for range testkit.Choose(4000, 1000) {
		s := anything(r)
		list, err := snapshot.Read(bytes.NewReader(torch(t, s)))
		require.NoError(t, err)
		v := newViewer(list[0])
		require.NoError(t, v.drawn())
		for i, e := range slices.Backward(list[0].Events) {
			kept[e.Kind]++
			require.NoError(t, v.undo(e), "event %d, %v", i, e)
		}
	}
	require.Len(t, kept, 11, "all kinds were met: %v", kept)
}

// A history that has everything is written whole.
func TestHistoryIsWhole(t *testing.T) {
	for name, events := range map[string][]snapshot.Event{
		"segments": {
			{Kind: snapshot.SegmentAlloc, Address: 100, Size: 20}, {Kind: snapshot.Alloc, Address: 100, Size: 5}, {Kind: snapshot.Alloc, Address: 105, Size: 5},
			{Kind: snapshot.FreeRequested, Address: 105, Size: 5}, {Kind: snapshot.Alloc, Address: 110, Size: 5}, {Kind: snapshot.FreeRequested, Address: 110, Size: 5},
			{Kind: snapshot.FreeCompleted, Address: 110, Size: 5}, {Kind: snapshot.SegmentAlloc, Address: 120, Size: 9}, {Kind: snapshot.Alloc, Address: 120, Size: 9},
			{Kind: snapshot.FreeRequested, Address: 120, Size: 9}, {Kind: snapshot.FreeCompleted, Address: 120, Size: 9}, {Kind: snapshot.SegmentFree, Address: 120, Size: 9},
		},
		"virtual memory": {
			{Kind: snapshot.SegmentMap, Address: 100, Size: 10}, {Kind: snapshot.Alloc, Address: 100, Size: 5}, {Kind: snapshot.SegmentMap, Address: 110, Size: 20},
			{Kind: snapshot.Alloc, Address: 105, Size: 5}, {Kind: snapshot.FreeRequested, Address: 105, Size: 5}, {Kind: snapshot.Alloc, Address: 110, Size: 15},
			{Kind: snapshot.FreeRequested, Address: 110, Size: 15}, {Kind: snapshot.FreeCompleted, Address: 110, Size: 15}, {Kind: snapshot.SegmentUnmap, Address: 120, Size: 10},
		},
	} {
		for i := range events {
			events[i].Number, events[i].Time, events[i].Weight = uint64(i+1), time.Unix(int64(i), 0).UTC(), 1
		}
		list, err := snapshot.Read(bytes.NewReader(torch(t, snapshot.Snapshot{Events: events, Segments: []snapshot.Segment{{
			Address: 100, Size: 20, Virtual: name != "segments", Blocks: []snapshot.Block{
				{Address: 100, Size: 5, Requested: 5, State: snapshot.Live},
				{Address: 105, Size: 5, Requested: 5, State: snapshot.Pending},
				{Address: 110, Size: 10, State: snapshot.Free},
			},
		}}})))
		require.NoError(t, err)
		require.Equal(t, events, list[0].Events, name)
	}
}
