package heap

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
)

// TestDetach: whole free chunks leave, the longest row first, no more than are
// asked for, and blocks beside them stay.
func TestDetach(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	a, b, c, d := r.alloc(h, 4*mib), r.alloc(h, 3*mib), r.alloc(h, 8*mib), r.alloc(h, 1*mib+512)
	r.free(a, c)
	require.Equal(t, "large [Free 4M][Live 3M][Free 8M][Live 1049088][Free 2096640]", r.layout(h))
	chunks := h.WholeChunks()
	require.False(t, chunks.Empty())
	require.True(t, chunks.Of(ledger.Small).Empty())
	require.EqualValues(t, 4*mib, r.giveBack(h, 3*mib))
	require.Equal(t, "large [Free 4M][Live 3M][Free 1M][Gap 4M][Free 3M][Live 1049088][Free 2096640]", r.layout(h))
	require.EqualValues(t, 6*mib, r.giveBack(h, 1<<40), "one chunk behind the gap, two before")
	require.True(t, h.WholeChunks().Empty())
	require.Zero(t, r.giveBack(h, 1<<40))
	r.free(b, d)
	r.check()
	r.close()
}

// TestAttach: memory goes to another heap, of either kind, without passing the
// device: to the end of a range, or into a gap where the end has no addresses.
func TestAttach(t *testing.T) {
	r := newRig(t, 2, true, policy)
	from, to := r.heaps[0], r.heaps[1]
	r.d.most = 16 * mib
	full := r.alloc(to, 16*mib)
	r.free(full)
	r.giveBack(to, 6*mib)
	require.Equal(t, "large [Gap 6M][Free 10M]", r.layout(to))
	a, b := r.alloc(from, 10*mib), r.alloc(from, 512)
	r.free(a, b)
	creates := r.space.Memory.Creates.Load()
	out, err := from.Detach(from.WholeChunks(), 1<<40)
	require.NoError(t, err)
	require.EqualValues(t, 12*mib, out.Bytes())
	n, err := to.Attach(from, ledger.Large, out)
	require.NoError(t, err)
	require.EqualValues(t, 12*mib, n)
	r.check()
	require.Equal(t, "large [Free 16M], large [Free 6M]", r.layout(to))
	require.Equal(t, creates, r.space.Memory.Creates.Load())

	out, err = to.Detach(to.WholeChunks(), 6*mib)
	require.NoError(t, err)
	r.d.FailNth(simdev.MemMap, 2, errBroken)
	n, err = from.Attach(to, ledger.Small, out)
	require.ErrorIs(t, err, errBroken)
	require.EqualValues(t, 2*mib, n, "the others went back to the device")
	r.check()
	require.EqualValues(t, 18*mib, r.budget.Held())
	r.close()
}

// yielded is a heap whose idle stitched range maps all of the nine chunks that are free, and
// another heap that took so many bytes of them.
func yielded(t *testing.T, size int64) (r *rig, from, to *Heap, between []block.ID) {
	r, from, between = scattered(t)
	to = &Heap{}
	to.Init(r.space, 1, new(ledger.Guard))
	r.heaps = append(r.heaps, to)
	r.free(r.alloc(from, 18*mib))
	unmaps := r.d.Calls(simdev.MemUnmap)
	r.move(from, to, size)
	require.Equal(t, size/unit, r.d.Calls(simdev.MemUnmap)-unmaps, "the range stays mapped")
	require.Len(t, from.stitches, 1)
	return r, from, to, between
}

// move has a heap take whole chunks of another one.
func (r *rig) move(from, to *Heap, size int64) {
	r.t.Helper()
	out, err := from.Yield(from.WholeChunks(), size)
	require.NoError(r.t, err)
	n, err := to.Attach(from, ledger.Large, out)
	require.NoError(r.t, err)
	require.Equal(r.t, size, n)
	r.check()
}

// TestYield: what another heap took of a stitched range does not serve, and what is left
// of it does. When the chunks come back, the range serves as before.
func TestYield(t *testing.T) {
	r, from, to, between := yielded(t, 6*mib)
	id, n := r.maps(from, 12*mib)
	require.Zero(t, n, "the range has so much left")
	r.distinct()
	st := from.stitches[0]
	st.skip, st.seg.Base = st.skip-2*mib, st.seg.Base-2*mib
	require.ErrorContains(t, from.checkStitch(st), "another heap took")
	st.skip, st.seg.Base = st.skip+2*mib, st.seg.Base+2*mib
	r.free(id)
	r.move(to, from, 6*mib)
	id, n = r.maps(from, 18*mib)
	require.Zero(t, n)
	r.distinct()
	r.free(id)
	r.free(between...)
	r.close()
}

// TestYieldEverything: a range whose chunks are all another heap's goes with the addresses.
func TestYieldEverything(t *testing.T) {
	r, from, to, between := yielded(t, 18*mib)
	r.free(between...)
	r.move(from, to, 6*mib)
	require.NoError(t, from.DropGaps(false))
	require.Len(t, from.stitches, 1)
	require.NoError(t, from.DropGaps(true))
	require.Empty(t, from.stitches)
	require.True(t, from.IsEmpty())
	require.Equal(t, len(to.ranges[ledger.Large]), r.d.Stats().Reservations)
	r.check()
	r.close()
}

// TestYieldAndRelease: memory that another heap gives back to the device is unmapped where a
// stitched range maps it, too, whatever the range's heap did and does with it.
func TestYieldAndRelease(t *testing.T) {
	for name, use := range map[string]func(r *rig, from, to *Heap){
		"nothing":        func(*rig, *Heap, *Heap) {},
		"the range goes": func(r *rig, from, _ *Heap) { require.NoError(r.t, from.DropIdleStitches()) },
		"ranges move": func(r *rig, from, to *Heap) {
			_, _, err := to.MoveRanges(ledger.Large, from)
			require.NoError(r.t, err)
		},
		"everything moves": func(_ *rig, from, to *Heap) { from.MoveAll(to) },
		"it sleeps": func(r *rig, from, to *Heap) {
			_, err := from.Sleep()
			require.NoError(r.t, err)
			_, err = from.Wake()
			require.NoError(r.t, err)
		},
		"the other sleeps": func(r *rig, from, to *Heap) {
			_, err := to.Sleep()
			require.NoError(r.t, err)
			_, err = to.Wake()
			require.NoError(r.t, err)
		},
		"a block lies beside": func(r *rig, from, to *Heap) {
			id, n := r.maps(from, 12*mib)
			require.Zero(r.t, n)
			_, err := from.Sleep()
			require.NoError(r.t, err)
			_, err = from.Wake()
			require.NoError(r.t, err)
			r.free(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, from, to, between := yielded(t, 6*mib)
			use(r, from, to)
			r.check()
			for _, h := range []*Heap{to, from} {
				r.giveBack(h, 1<<40)
				require.Equal(t, r.budget.Held(), r.d.Stats().UsedBytes)
			}
			id := r.alloc(to, 6*mib) // perhaps with handles that were others' before
			r.move(from, to, 0)
			r.check()
			r.free(append(between, id)...)
			r.move(to, from, 6*mib)
			r.distinct()
			r.check()
			r.close()
		})
	}
}

// TestMoveRanges: ranges go to another heap as they are, with what was stitched of
// them alone.
func TestMoveRanges(t *testing.T) {
	r, from, between := scattered(t)
	to := &Heap{}
	to.Init(r.space, 1, new(ledger.Guard))
	r.heaps = append(r.heaps, to)
	r.free(r.alloc(from, 18*mib))
	require.Len(t, from.stitches, 1)
	r.free(between...)
	n, bytes, err := from.MoveRanges(ledger.Large, to)
	require.NoError(t, err)
	require.Equal(t, 12, n)
	require.EqualValues(t, 24*mib, bytes)
	require.True(t, from.IsEmpty())
	require.Len(t, to.stitches, 1)
	require.Equal(t, "large [Free 24M]", r.layout(to))
	r.check()
	r.close()
}

// TestMoveAll: live blocks, gaps, stitched blocks and sleeping chunks go to another
// heap and are freed there.
func TestMoveAll(t *testing.T) {
	r := newRig(t, 2, true, policy)
	from, to := r.heaps[0], r.heaps[1]
	var ids, rows []block.ID
	for range 3 {
		rows = append(rows, r.alloc(from, 6*mib))
		ids = append(ids, r.alloc(from, 2*mib))
	}
	ids = append(ids, r.alloc(from, 1000), r.alloc(to, 3*mib))
	r.free(rows...)
	r.budget.Limit = r.budget.Held()
	ids = append(ids, r.alloc(from, 12*mib))
	r.giveBack(from, 4*mib)
	slept, err := from.Sleep()
	require.NoError(t, err)
	require.Positive(t, slept)
	from.MoveAll(to)
	r.check()
	require.True(t, from.IsEmpty())
	woken, err := to.Wake()
	require.NoError(t, err)
	require.Equal(t, slept, woken)
	r.check()
	for _, id := range ids {
		require.EqualValues(t, 1, r.block(id).Owner())
		e, ok := r.space.Index.Find(r.block(id).Addr())
		require.True(t, ok)
		require.EqualValues(t, 1, e.Owner)
	}
	r.free(ids...)
	r.check()
	r.close()
}

// TestSleepAndWake: chunks give their memory back and keep their addresses; what was
// freed meanwhile stays free, and stitched blocks have their memory again.
func TestSleepAndWake(t *testing.T) {
	r, h, between := scattered(t)
	live := r.alloc(h, 10*mib)
	idle := r.alloc(h, 6*mib)
	addr := r.block(live).Addr()
	r.free(idle)
	held := r.budget.Held()
	slept, err := h.Sleep()
	require.NoError(t, err)
	require.Equal(t, held, slept)
	require.Zero(t, r.budget.Held())
	require.Zero(t, r.d.Stats().UsedBytes)
	require.Zero(t, r.d.Stats().Mappings)
	r.check()
	require.Equal(t, held, h.Held(), "its addresses are taken")
	r.free(between[0])
	r.check()
	woken, err := h.Wake()
	require.NoError(t, err)
	require.Equal(t, slept, woken)
	require.Equal(t, addr, r.block(live).Addr())
	require.EqualValues(t, 12+5, r.d.Stats().Mappings)
	r.check()

	_, err = h.Sleep()
	require.NoError(t, err)
	r.free(live) // while it sleeps
	r.budget.Limit = 10 * mib
	_, err = h.Wake()
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	r.check()
	_, err = h.Sleep()
	require.NoError(t, err)
	require.Zero(t, r.budget.Held())
	r.budget.Limit = held
	_, err = h.Wake()
	require.NoError(t, err)
	require.Empty(t, h.stitches, "nothing uses it")
	r.check()
	r.free(between[1:]...)
	r.close()
}

// TestCloseAsleep: ranges whose memory sleeps are given back, and say how much
// slept.
func TestCloseAsleep(t *testing.T) {
	r, h, between := scattered(t)
	r.d.FailNth(simdev.MemUnmap, 1, errBroken)
	slept, err := h.Sleep()
	require.ErrorIs(t, err, errBroken)
	require.EqualValues(t, 22*mib, slept, "one chunk stays as it is")
	r.check()
	r.free(between...)
	n, err := h.CloseRanges()
	require.NoError(t, err)
	require.Equal(t, slept, n)
	require.True(t, h.IsEmpty())
	r.close()
}

// TestCloseBesideStitches: where a stitched range cannot be given back, nothing of its chunks stays in the
// books, and it goes later.
func TestCloseBesideStitches(t *testing.T) {
	for _, call := range []simdev.Call{simdev.MemUnmap, simdev.AddressFree} {
		for _, times := range []int{1, 2} {
			r, h, between := scattered(t)
			rows := []block.ID{r.alloc(h, 8*mib), r.alloc(h, 8*mib)}
			r.free(rows...)
			r.free(between...)
			require.Len(t, h.stitches, 2)
			failed := r.d.Calls(call)
			r.d.FailAlways(call, errBroken)
			if times == 1 {
				r.d.FailAlways(call, nil)
				r.d.FailNth(call, 1, errBroken)
			}
			_, err := h.CloseRanges()
			require.ErrorIs(t, err, errBroken)
			require.Greater(t, r.d.Calls(call), failed)
			r.d.FailAlways(call, nil)
			r.check()
			require.True(t, h.IsEmpty())
			require.Empty(t, h.stitches)
			require.NoError(t, h.space.Memory.Retry())
			r.close()
		}
	}
}

// TestCloseBesideYielded: the same of a range that maps chunks which another heap took.
func TestCloseBesideYielded(t *testing.T) {
	for _, always := range []bool{false, true} {
		r, from, to, between := yielded(t, 6*mib)
		r.free(between...)
		require.True(t, slices.ContainsFunc(from.stitches[0].chunks, (*chunk).away))
		r.d.FailNth(simdev.MemUnmap, 1, errBroken)
		if always {
			r.d.FailAlways(simdev.MemUnmap, errBroken)
		}
		_, err := from.CloseRanges()
		require.ErrorIs(t, err, errBroken)
		r.d.FailAlways(simdev.MemUnmap, nil)
		r.check()
		require.Empty(t, from.stitches)
		require.NoError(t, from.space.Memory.Retry())
		require.Equal(t, len(to.ranges[ledger.Large]), r.d.Stats().Reservations)
		r.close()
	}
}
