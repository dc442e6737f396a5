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
	require.EqualValues(t, was+68*mib, h.Held())
	r.check()
	r.free(append(all, other, third, fourth)...)
	r.close()
}
