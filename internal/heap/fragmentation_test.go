package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/vmem"
)

// TestNoteStitch: a heap is fragmented when its pool stitched more than it has and what
// it was asked for is worth, and stays so.
func TestNoteStitch(t *testing.T) {
	for _, c := range []struct {
		asked, others int64 // bytes, of the heap and of the pool's other heaps
		mapped        int
		want          bool
	}{
		{0, 0, 100, false},
		{0, 0, 101, true},
		{1 << 30, 0, 100 + stitchesPerGiB, false},
		{1 << 30, 0, 100 + stitchesPerGiB + 1, true},
		{1 << 29, 1 << 29, 100 + stitchesPerGiB, false},
		{1 << 29, 1 << 29, 100 + stitchesPerGiB + 1, true},
		{1 << 60, 0, 1 << 30, false}, // and nothing overflows
	} {
		s := &Space{Memory: &vmem.Mapper{}}
		s.Memory.Handles.Store(100)
		h, other := Heap{space: s}, Heap{space: s}
		h.asked = c.asked
		other.noteAsked(c.others)
		other.tellAsked()
		h.noteStitch(c.mapped)
		require.Equal(t, c.want, h.fragmented, "%+v", c)
		h.asked = 1 << 59
		h.noteStitch(0)
		require.Equal(t, c.want, h.fragmented, "%+v", c)
		require.False(t, other.fragmented, "it did not stitch")
	}
}

// TestNoteAsked: a heap tells others of what it was asked for when that is much.
func TestNoteAsked(t *testing.T) {
	h := Heap{space: &Space{}}
	h.noteAsked(askedPart - 1)
	require.Zero(t, h.space.asked.Load())
	h.noteAsked(1)
	h.noteAsked(7)
	require.EqualValues(t, askedPart, h.space.asked.Load())
	require.EqualValues(t, 7, h.asked)
}

// TestAskedOfClosedHeaps: what a heap was asked for counts when it is closed, too.
func TestAskedOfClosedHeaps(t *testing.T) {
	r := newRig(t, 1, true, policy)
	r.heaps[0].noteAsked(7)
	r.heaps[0].Close()
	require.EqualValues(t, 7, r.space.asked.Load())
}

// TestBecomesFragmented: the chunks of stitches count.
func TestBecomesFragmented(t *testing.T) {
	r, h, between := scattered(t)
	require.EqualValues(t, 12, h.space.Memory.Creates.Load())
	h.asked = 0
	for want := 6; want <= 18; want += 6 {
		r.free(r.alloc(h, 12*mib))
		require.EqualValues(t, want, h.space.mapped.Load())
		require.Equal(t, want > 12, h.fragmented)
		require.NoError(t, h.DropIdleStitches())
	}
	r.free(between...)
	r.close()
}

// TestGrowsAhead: a fragmented heap grows up to a little more than was ever in use,
// where that is allowed and the device has memory, and else stitches.
func TestGrowsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		most       int64
		allow      Allow
		more       int64 // bytes that the device has
		fragmented bool
		want       string
	}{
		"it grows":               {32 * mib, Allow{Growth: true}, 8 * mib, true, "[Live 2M][Live 8M]"},
		"it holds enough":        {31 * mib, Allow{Growth: true}, 8 * mib, true, "stitched [Live 8M]"},
		"not allowed":            {32 * mib, Allow{}, 8 * mib, true, "stitched [Live 8M]"},
		"the device has no more": {32 * mib, Allow{Growth: true}, 6 * mib, true, "stitched [Live 8M]"},
		"it is not fragmented":   {1 << 30, Allow{Growth: true}, 8 * mib, false, "stitched [Live 8M]"},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, between := scattered(t) // holds 24 MiB
			h.fragmented, h.most = c.fragmented, c.most
			r.budget.Limit += c.more
			id, err := r.try(h, 8*mib, c.allow)
			require.NoError(t, err)
			require.Contains(t, r.layout(h), c.want)
			require.EqualValues(t, c.most, h.most, "less is in use")
			r.check()
			r.free(append(between, id)...)
			r.close()
		})
	}
}

// TestGrowsAheadForBig: a heap that is not fragmented grows at its end for a big request
// where that leaves little free, and else stitches.
func TestGrowsAheadForBig(t *testing.T) {
	allowed := Allow{Growth: true}
	for name, c := range map[string]struct {
		hole, live, tail, request int64 // MiB
		allow                     Allow
		more                      int64 // MiB that the device has
		held                      int64 // MiB in the end
		stitched                  bool
	}{
		"it has enough":          {2, 2, 124, 126, allowed, 4, 130, false},
		"it lacks some":          {2, 2, 124, 128, allowed, 4, 132, false},
		"too much would be free": {4, 2, 122, 126, allowed, 4, 128, true},
		"not big":                {2, 104, 24, 25, allowed, 4, 130, true},
		"not allowed":            {2, 2, 124, 126, Allow{}, 4, 128, true},
		"the device has no more": {2, 2, 124, 128, allowed, 2, 130, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, true, policy)
			h := r.heaps[0]
			hole, live, tail := r.alloc(h, c.hole*mib), r.alloc(h, c.live*mib), r.alloc(h, c.tail*mib)
			r.budget.Limit = r.budget.Held() + c.more*mib
			r.free(hole, tail)
			id, err := r.try(h, c.request*mib, c.allow)
			require.NoError(t, err)
			require.EqualValues(t, c.held*mib, h.Held())
			require.Equal(t, c.stitched, len(h.stitches) == 1, r.layout(h))
			r.check()
			r.free(live, id)
			r.close()
		})
	}
}

// TestFragmentedChunks: a fragmented heap grows by larger chunks, and by no more than
// a request needs where the device has no more.
func TestFragmentedChunks(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	const held = fragmentedChunkFraction * 4 * mib
	var all []block.ID
	for range fragmentedChunkFraction { // not at once
		all = append(all, r.alloc(h, 4*mib))
	}
	last := func() int64 {
		chunks := h.ranges[ledger.Large][0].chunks
		return chunks[len(chunks)-1].size
	}
	require.EqualValues(t, unit, last())
	id := r.alloc(h, 3*mib)
	require.EqualValues(t, held+4*mib, h.Held(), "two chunks")
	r.free(id)
	h.fragmented = true
	other := r.alloc(h, 5*mib)
	require.EqualValues(t, held+8*mib, h.Held(), "it lacks one MiB")
	require.EqualValues(t, 4*mib, last())
	r.budget.Limit = r.budget.Held() + unit
	third := r.alloc(h, 5*mib) // 3 of which are there
	require.EqualValues(t, held+8*mib+unit, h.Held())
	require.EqualValues(t, unit, last())
	r.check()
	r.budget.Limit = 1 << 30
	was := h.Held()
	fourth := r.alloc(h, 66*mib) // many chunks
	require.EqualValues(t, was+66*mib, h.Held())
	r.check()
	r.free(append(all, other, third, fourth)...)
	r.close()
}
