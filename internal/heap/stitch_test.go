package heap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
)

// scattered is a heap of virtual memory whose free chunks are apart: three rows of
// 6 MiB between live blocks of 2, and no more memory on the device.
func scattered(t *testing.T) (r *rig, h *Heap, between []block.ID) {
	r = newRig(t, 1, true, policy)
	h = r.heaps[0]
	var rows []block.ID
	for range 3 {
		rows = append(rows, r.alloc(h, 6*mib))
		between = append(between, r.alloc(h, 2*mib))
	}
	r.free(rows...)
	r.budget.Limit = r.budget.Held()
	require.Equal(t, "large [Free 6M][Live 2M][Free 6M][Live 2M][Free 6M][Live 2M]", r.layout(h))
	return r, h, between
}

// TestStitch: free chunks that are apart make one block, are taken meanwhile, and
// merge where they are when the block is freed. The range serves again.
func TestStitch(t *testing.T) {
	r, h, between := scattered(t)
	mapped := h.Work().Mapped
	id := r.alloc(h, 15*mib)
	r.check()
	require.Equal(t, mapped+1, h.Work().Mapped)
	require.Equal(t, "large [Part 2M][Part 2M][Part 2M][Live 2M][Part 2M][Part 2M][Part 2M][Live 2M][Part 2M][Part 1M][Free 3M][Live 2M], stitched [Live 15M]", r.layout(h))
	require.True(t, h.InUse())
	addr := r.block(id).Addr()
	e, ok := r.space.Index.Find(addr + 14*mib)
	require.True(t, ok)
	require.True(t, e.Seg.Stitched)
	require.EqualValues(t, 1, r.space.Stitches.Load())
	r.free(id)
	r.check()
	require.Equal(t, "large [Free 6M][Live 2M][Free 6M][Live 2M][Free 6M][Live 2M]", r.layout(h))
	_, ok = r.space.Index.Find(addr)
	require.False(t, ok)

	maps := r.d.Calls(simdev.MemMap)
	for _, size := range []int64{15 * mib, 13 * mib, 8 * mib} { // all on its first chunks
		id = r.alloc(h, size)
		r.check()
		require.Len(t, h.stitches, 1)
		r.free(id)
	}
	require.Equal(t, maps, r.d.Calls(simdev.MemMap))
	require.Equal(t, mapped+1, h.Work().Mapped)
	require.EqualValues(t, 3, r.space.StitchReuses.Load())
	part := r.alloc(h, 5*mib) // takes chunks of the range
	again := r.alloc(h, 10*mib)
	require.Len(t, h.stitches, 1, "its other chunks are free")
	r.check()
	another := r.alloc(h, 2*mib)
	require.Len(t, h.stitches, 1, "the rest is in one piece")
	r.check()
	r.free(part, again, another)
	require.NoError(t, h.DropIdleStitches())
	require.Empty(t, h.stitches)
	require.EqualValues(t, 1, r.d.Stats().Reservations)
	r.free(between...)
	r.close()
}

// TestStitchParts: a stitched block begins and ends inside of chunks where what is
// free there fills it, or where whole chunks are too few.
func TestStitchParts(t *testing.T) {
	for name, c := range map[string]struct {
		blocks [4]int64 // in MiB; the first and the third are freed
		need   int64
		want   string
		skip   int64
	}{
		"it ends in a chunk":               {blocks: [4]int64{5, 2, 3, 2}, need: 7, want: "[Part 2M][Part 2M][Part 1M][Live 2M][Free 1M][Part 2M][Live 2M]"},
		"it begins in a chunk":             {blocks: [4]int64{4, 3, 3, 2}, need: 7, want: "[Part 2M][Part 2M][Live 3M][Part 1M][Part 2M][Live 2M]", skip: 1},
		"it begins and ends in chunks":     {blocks: [4]int64{5, 2, 3, 2}, need: 8, want: "[Part 2M][Part 2M][Part 1M][Live 2M][Part 1M][Part 2M][Live 2M]", skip: 1},
		"the part that it fills best":      {blocks: [4]int64{4, 3, 4, 1}, need: 5, want: "[Part 2M][Part 2M][Live 3M][Part 1M][Free 3M][Live 1M]", skip: 1},
		"of a block without a whole chunk": {blocks: [4]int64{5, 2, 2, 4}, need: 6, want: "[Part 2M][Part 2M][Part 1M][Live 2M][Part 1M][Free 1M][Live 4M][Free 1M]", skip: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy
			p.SmallLimit = mib / 2
			r := newRig(t, 1, true, p)
			h := r.heaps[0]
			var ids []block.ID
			for _, size := range c.blocks {
				ids = append(ids, r.alloc(h, size*mib))
			}
			r.free(ids[0], ids[2])
			r.budget.Limit = r.budget.Held()
			free := r.layout(h)
			require.Zero(t, h.Missing(ledger.Large, c.need*mib, Allow{}))
			var maps int64
			for range 2 { // the second time on the range that is there
				id := r.alloc(h, c.need*mib)
				r.check()
				require.Equal(t, fmt.Sprintf("large %s, stitched [Live %dM]", c.want, c.need), r.layout(h))
				require.Len(t, h.stitches, 1)
				st := h.stitches[0]
				require.EqualValues(t, uint64(st.base)+uint64(c.skip)*mib, r.block(id).Addr())
				e, ok := r.space.Index.Find(r.block(id).Addr() + uint64(c.need)*mib - 1)
				require.True(t, ok)
				require.Same(t, st.seg, e.Seg)
				if maps != 0 {
					require.EqualValues(t, maps, r.d.Calls(simdev.MemMap))
				}
				maps = int64(r.d.Calls(simdev.MemMap))
				r.free(id)
				r.check()
				require.Equal(t, free, r.layout(h))
			}
			r.free(ids[1], ids[3])
			r.close()
		})
	}
}

// TestStitchOfBothKinds: chunks that small blocks leave serve a large block where it
// is allowed, also what lies in fast bins.
func TestStitchOfBothKinds(t *testing.T) {
	for _, fast := range []int64{0, mib} {
		for _, asked := range []bool{false, true} { // how much is missing
			p := policy
			p.FastLimit = fast
			r := newRig(t, 1, true, p)
			h := r.heaps[0]
			var smalls, between []block.ID
			for range 2 { // apart
				smalls = append(smalls, r.alloc(h, mib), r.alloc(h, mib), r.alloc(h, mib), r.alloc(h, mib))
				between = append(between, r.alloc(h, mib), r.alloc(h, mib))
			}
			a, b := r.alloc(h, 4*mib), r.alloc(h, 2*mib)
			r.free(a)
			r.free(smalls...)
			r.budget.Limit = r.budget.Held()
			_, err := r.try(h, 12*mib, Allow{})
			require.ErrorIs(t, err, device.ErrOutOfMemory)
			require.EqualValues(t, 8*mib, h.Missing(ledger.Large, 12*mib, Allow{}))
			if asked {
				require.Zero(t, h.Missing(ledger.Large, 12*mib, Allow{SmallChunks: true}))
				require.EqualValues(t, 512, h.Missing(ledger.Large, 12*mib+512, Allow{SmallChunks: true}))
			}
			id := r.alloc(h, 12*mib)
			r.check()
			r.distinct()
			var n [2]Census
			h.Count(&n)
			require.EqualValues(t, 8*mib, n[ledger.Small].Lent)
			require.EqualValues(t, -8*mib, n[ledger.Large].Lent)
			_, err = r.try(h, 1000, Allow{})
			require.ErrorIs(t, err, device.ErrOutOfMemory, "all chunks are lent")
			r.free(id)
			s := r.alloc(h, 1000)
			r.check()
			r.free(append(between, s, b)...)
			r.close()
		}
	}
}

// TestErrStitches: a heap keeps so many ranges and no more, unless it is allowed.
func TestErrStitches(t *testing.T) {
	r, h, between := scattered(t)
	idle := &stitch{chunks: []*chunk{h.ranges[ledger.Large][0].chunks[3]}, asleep: true} // of a chunk in use
	for range maxStitches {
		x := *idle
		h.stitches = append(h.stitches, &x)
	}
	_, err := r.try(h, 12*mib, Allow{})
	require.ErrorIs(t, err, ErrStitches)
	id, err := r.try(h, 12*mib, Allow{MoreStitches: true})
	require.NoError(t, err)
	require.Len(t, h.stitches, maxStitches+1)
	h.stitches = h.stitches[maxStitches:]
	r.check()
	r.free(append(between, id)...)
	r.close()
}

// TestFailingDrop: an idle range that cannot be unmapped stays; one whose addresses cannot
// be given back is gone.
func TestFailingDrop(t *testing.T) {
	r, h, between := scattered(t)
	r.free(r.alloc(h, 18*mib))
	r.d.FailNth(simdev.MemUnmap, 1, errBroken)
	require.ErrorIs(t, h.DropIdleStitches(), errBroken)
	require.Len(t, h.stitches, 1, "it stays")
	r.d.FailNth(simdev.AddressFree, 1, errBroken)
	require.ErrorIs(t, h.DropIdleStitches(), errBroken)
	require.Empty(t, h.stitches, "its addresses are left over")
	r.check()
	r.free(between...)
	r.close()
}
