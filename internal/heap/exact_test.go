package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/simdev"
)

// largeHandles is a heap of ten handles of 8 MiB, and a block of 33 MiB in it.
func largeHandles(t *testing.T) (r *rig, h *Heap, id block.ID) {
	r = newRig(t, 1, true, policy)
	h = r.heaps[0]
	r.free(r.alloc(h, 80*mib))
	require.Len(t, h.ranges[1][0].chunks, 10)
	return r, h, r.alloc(h, 33*mib)
}

func (r *rig) cutLast(h *Heap, id block.ID) int64 {
	r.t.Helper()
	released, err := h.CutLast(r.block(id))
	require.NoError(r.t, err)
	r.check()
	return released
}

// TestCutLast: the handle that a block ends in becomes as large as the block needs.
func TestCutLast(t *testing.T) {
	r, h, id := largeHandles(t)
	require.EqualValues(t, 6*mib, r.cutLast(h, id))
	require.Equal(t, "large [Live 33M][Free 1M][Gap 6M][Free 40M]", r.layout(h))
	require.EqualValues(t, 74*mib, r.budget.Held())
	require.Zero(t, r.cutLast(h, id))
	r.giveBack(h, 1<<40)
	require.EqualValues(t, 34*mib, r.budget.Held())
	next := r.alloc(h, 40*mib) // the gaps serve again
	r.check()
	r.free(id, next)
	r.check()
	r.close()
}

// TestCutLastMappedTwice: idle stitched ranges that have the handle go, for they would
// show memory that the device has back.
func TestCutLastMappedTwice(t *testing.T) {
	r, h, id := largeHandles(t)
	behind := r.alloc(h, 39*mib)
	r.free(id)
	r.budget.Limit = r.budget.Held() + 4*mib
	r.free(r.alloc(h, 41*mib)) // an idle range of all that is free
	require.Len(t, h.stitches, 1)
	id = r.alloc(h, 33*mib)
	r.free(behind)
	r.d.FailNth(simdev.MemUnmap, 1, errBroken)
	require.Zero(t, r.cutLast(h, id), "the range cannot be unmapped")
	require.EqualValues(t, 80*mib, r.budget.Held())
	require.EqualValues(t, 6*mib, r.cutLast(h, id))
	require.Empty(t, h.stitches)
	require.Equal(t, 10, r.d.Stats().Mappings)
	require.EqualValues(t, 74*mib, r.d.Stats().UsedBytes)
	r.free(id)
	r.close()
}

// TestCutLastStitched: likewise where the block is stitched.
func TestCutLastStitched(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	r.free(r.alloc(h, 80*mib))
	first, row, between := r.alloc(h, 16*mib), r.alloc(h, 24*mib), r.alloc(h, 8*mib)
	r.free(row)
	r.budget.Limit = r.budget.Held()
	r.free(r.alloc(h, 56*mib)) // an idle range of all that is free
	id := r.alloc(h, 35*mib)
	require.Equal(t, "large [Live 16M][Part 3M][Free 21M][Live 8M][Part 8M][Part 8M][Part 8M][Part 8M], stitched [Live 35M]", r.layout(h))
	require.Len(t, h.stitches, 1)
	require.Len(t, h.stitches[0].chunks, 7)
	require.Zero(t, r.cutLast(h, id), "there is no memory for the smaller handle")
	r.budget.Limit += 4 * mib
	require.EqualValues(t, 4*mib, r.cutLast(h, id))
	require.Equal(t, "large [Live 16M][Part 3M][Free 1M][Gap 4M][Free 16M][Live 8M][Part 8M][Part 8M][Part 8M][Part 8M], stitched [Live 35M]", r.layout(h))
	require.Len(t, h.stitches[0].chunks, 5, "what the range had behind its block is mapped no more")
	require.Zero(t, r.cutLast(h, id))
	r.free(id)
	r.check()
	r.free(r.alloc(h, 36*mib), between, first)
	r.check()
	r.close()
}

// TestCutLastOfOthers: a handle that another block has a part of stays, and so do small
// blocks and what ends with its handle.
func TestCutLastOfOthers(t *testing.T) {
	r, h, id := largeHandles(t)
	behind, inside, whole := r.alloc(h, 3*mib), r.alloc(h, 2*mib), r.alloc(h, 42*mib)
	tiny := r.alloc(h, 512) // not among the large ones, which leave nothing
	r.free(whole)
	for _, id := range []block.ID{id, behind, inside, tiny} {
		require.Zero(t, r.cutLast(h, id))
	}
	r.free(inside)
	require.Zero(t, r.cutLast(h, behind), "it begins in the middle of the handle")
	whole = r.alloc(h, 44*mib)
	require.Zero(t, r.cutLast(h, whole))
	r.free(behind, tiny, whole)
	behind = r.alloc(h, 7*mib) // all that the handle has behind the first block
	require.Zero(t, r.cutLast(h, id))
	require.Equal(t, "large [Live 33M][Live 7M][Free 40M], small [Free 2M]", r.layout(h))
	r.distinct()
	r.free(id, behind)
	r.close()
}

// TestCutLastFails: where a call of the device fails, the block keeps its memory. Where the
// memory cannot be mapped again, that is an error.
func TestCutLastFails(t *testing.T) {
	for name, c := range map[string]struct {
		call simdev.Call
		nth  int
	}{
		"reserve": {simdev.AddressReserve, 1}, "create": {simdev.MemCreate, 1}, "unmap of the new handle": {simdev.MemUnmap, 1},
		"unmap": {simdev.MemUnmap, 2}, "map": {simdev.MemMap, 2}, "access": {simdev.MemSetAccess, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, id := largeHandles(t)
			r.d.FailNth(c.call, c.nth, errBroken)
			require.Zero(t, r.cutLast(h, id))
			require.EqualValues(t, 80*mib, r.budget.Held())
			require.Equal(t, 10, r.d.Stats().Mappings)
			require.EqualValues(t, 6*mib, r.cutLast(h, id))
			r.free(id)
			r.close()
		})
	}
	r, h, id := largeHandles(t)
	r.d.FailNth(simdev.MemMap, 2, errBroken)       // of the new handle
	r.d.FailNth(simdev.MemSetAccess, 2, errBroken) // of the old one
	_, err := h.CutLast(r.block(id))
	require.ErrorIs(t, err, errBroken)
	require.EqualValues(t, 80*mib, r.budget.Held())
	require.NoError(t, h.Check(0))
}
