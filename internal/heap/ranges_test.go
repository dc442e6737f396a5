package heap

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
)

var errBroken = errors.New("broken")

// chunks prints the chunks of a kind's ranges: "[2 2 gap:4]", in MiB.
func (r *rig) chunks(h *Heap, k ledger.Kind) (out []string) {
	for _, x := range h.ranges[k] {
		var list []string
		for _, ch := range x.chunks {
			name := fmt.Sprint(ch.size / mib)
			switch ch.handle {
			case 0:
				name = "gap:" + name
			case asleep:
				name = "asleep:" + name
			}
			list = append(list, name)
		}
		out = append(out, fmt.Sprint(list))
	}
	return out
}

// giveBack gives at least so many bytes of whole free chunks back.
func (r *rig) giveBack(h *Heap, need int64) int64 {
	r.t.Helper()
	out, err := h.Detach(h.WholeChunks(), need)
	require.NoError(r.t, err)
	require.NoError(r.t, h.Release(out))
	r.check()
	return out.Bytes()
}

// TestGrowByWhatIsMissing: a range grows at its end by no more than a request lacks
// beside the free bytes there.
func TestGrowByWhatIsMissing(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	a := r.alloc(h, 5*mib)
	require.Equal(t, "large [Live 5M][Free 1M]", r.layout(h))
	require.EqualValues(t, mib, h.tail(ledger.Large))
	b := r.alloc(h, 8*mib)
	require.Equal(t, "large [Live 5M][Live 8M][Free 1M]", r.layout(h))
	require.Equal(t, []string{"[2 2 2 2 2 2 2]"}, r.chunks(h, ledger.Large))
	s := r.alloc(h, 1000)
	require.Equal(t, []string{"[2]"}, r.chunks(h, ledger.Small))
	require.EqualValues(t, 16*mib, h.Held())
	r.check()
	require.EqualValues(t, 2*mib, h.Missing(ledger.Large, 2*mib, Allow{}), "what is smaller than a chunk is not stitched")
	require.EqualValues(t, 0, h.Missing(ledger.Large, mib, Allow{}))
	require.EqualValues(t, 0, h.Missing(ledger.Small, 512, Allow{}))
	r.free(a, b, s)
	r.close()
}

// TestFillGaps: memory that is missing comes into gaps, and into no more of them.
func TestFillGaps(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	var ids []block.ID
	for range 6 {
		ids = append(ids, r.alloc(h, 2*mib))
	}
	r.free(ids[1], ids[3])
	require.EqualValues(t, 4*mib, r.giveBack(h, 4*mib))
	id := r.alloc(h, 2*mib)
	r.check()
	require.EqualValues(t, 10*mib, h.Held())
	r.free(append(ids[4:], id, ids[0], ids[2])...)
	r.close()
}

// TestChunkSizes: handles grow with the pool, up to MaxChunk, and are never larger
// than what is needed.
func TestChunkSizes(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	const gib = 1 << 30
	for _, tc := range []struct {
		k                ledger.Kind
		have, need, want int64
	}{
		{ledger.Large, 0, 100 * mib, unit},
		{ledger.Large, gib / 4, 100 * mib, unit},
		{ledger.Large, gib / 2, 100 * mib, 4 * mib},
		{ledger.Large, 3 * gib / 2, 100 * mib, 8 * mib},
		{ledger.Large, 100 * gib, 100 * mib, 32 * mib},
		{ledger.Large, 3 * gib, 100 * mib, 16 * mib},
		{ledger.Large, 100 * gib, 7 * mib, 8 * mib},
		{ledger.Large, 100 * gib, 5 * mib, 4 * mib},
		{ledger.Large, 100 * gib, 1, unit},
		{ledger.Small, 100 * gib, 100 * mib, unit},
	} {
		require.Equal(t, tc.want, h.chunkSize(tc.k, tc.have, tc.need), "%+v", tc)
	}
	h.fragmented = true
	for have, want := range map[int64]int64{gib / 4: 8 * mib, gib / 8: 4 * mib, gib: 10 * mib, 5 * gib / 4: 8 * mib, 100 * gib: 32 * mib} {
		require.EqualValues(t, want, h.chunkSize(ledger.Large, have, 100*mib), "fragmented: %d", have)
	}
	r.space.Policy.MaxChunk = 8 * mib
	require.EqualValues(t, 8*mib, h.chunkSize(ledger.Large, 100*gib, 100*mib))
	h.fragmented = false
	require.EqualValues(t, 8*mib, h.chunkSize(ledger.Large, 100*gib, 100*mib))
	require.EqualValues(t, 8*mib, h.requestChunkSize(ledger.Large, gib, gib))
	r.space.Policy.MaxChunk = 1
	require.EqualValues(t, unit, h.chunkSize(ledger.Large, 100*gib, 100*mib))
	r.space.Policy.MaxChunk = 32 * mib
	require.Zero(t, h.Extra(unit))
	r.space.Policy.GrowthFactor = 1.5
	r.alloc(h, 20*mib)
	require.EqualValues(t, 10*mib, h.Extra(unit))
	r.space.Policy.MaxSplit = 8 * mib
	require.EqualValues(t, 6*mib, h.Extra(unit))
	r.space.Policy.MaxSplit = 0
	id := r.alloc(h, 2*mib)
	require.EqualValues(t, 30*mib, h.Held(), "10 MiB more and not 2")
	r.budget.Limit = 34 * mib
	r.free(id)
	r.alloc(h, 12*mib)
	require.EqualValues(t, 32*mib, h.Held(), "as much as there is")
	r.check()
}

// TestRequestChunkSize: a range grows by larger handles for a large request, also where it
// lacks little.
func TestRequestChunkSize(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	for _, c := range []struct{ need, request, want int64 }{ // MiB
		{19, 19, 0}, {20, 20, 2}, {39, 39, 2}, {40, 40, 4}, {1000, 1000, 32},
		{5, 60, 4}, {3, 60, 2}, {1, 60, 0},
	} {
		require.EqualValues(t, c.want*mib, h.requestChunkSize(ledger.Large, c.need*mib, c.request*mib), "%+v", c)
		require.Zero(t, h.requestChunkSize(ledger.Small, c.need*mib, c.request*mib))
	}
	h.fragmented = true
	require.Zero(t, h.requestChunkSize(ledger.Large, 40*mib, 40*mib))
	h.fragmented = false
	first := r.alloc(h, 50*mib)
	require.Len(t, h.ranges[ledger.Large][0].chunks, 12+1)
	r.free(first)
	second := r.alloc(h, 60*mib) // of which it lacks 10
	require.EqualValues(t, 60*mib, h.Held())
	require.Len(t, h.ranges[ledger.Large][0].chunks, 12+1+3)
	r.check()
	r.free(second)
	r.close()
}

// TestGrowIntoGaps: memory comes into the gaps of a range before its end grows, and
// only the first part of a larger gap is filled.
func TestGrowIntoGaps(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	a, b, c := r.alloc(h, 8*mib), r.alloc(h, 2*mib), r.alloc(h, 8*mib)
	r.free(a)
	require.EqualValues(t, 8*mib, r.giveBack(h, 1<<40))
	require.Equal(t, "large [Gap 8M][Live 2M][Live 8M]", r.layout(h))
	require.Equal(t, []string{"[gap:2 gap:2 gap:2 gap:2 2 2 2 2 2]"}, r.chunks(h, ledger.Large))
	d := r.alloc(h, 3*mib)
	r.check()
	require.Equal(t, "large [Live 3M][Free 1M][Gap 4M][Live 2M][Live 8M]", r.layout(h))
	e := r.alloc(h, 4*mib)
	r.check()
	require.Equal(t, "large [Live 3M][Live 4M][Free 1M][Live 2M][Live 8M]", r.layout(h))
	require.Len(t, r.chunks(h, ledger.Large), 1)
	require.Zero(t, h.GapRanges())
	r.free(b, c, d, e)
	require.EqualValues(t, 1, r.d.Stats().Reservations)
	r.close()
}

// TestGapInTheMiddle: one block stands for gaps in a row, of which any may be
// filled.
func TestGapInTheMiddle(t *testing.T) {
	r := newRig(t, 2, true, policy)
	h, other := r.heaps[0], r.heaps[1]
	a := r.alloc(h, 6*mib)
	r.free(a)
	out, err := h.Detach(h.WholeChunks(), 6*mib)
	require.NoError(t, err)
	x := h.ranges[ledger.Large][0]
	require.NoError(t, h.Slots(2))
	add, err := h.create(x, 2*mib, []int64{2 * mib})
	require.NoError(t, err)
	h.fillGap(x, 1, add[0])
	require.Equal(t, "large [Gap 2M][Free 2M][Gap 2M]", r.layout(h))
	n, err := other.Attach(h, ledger.Small, out)
	require.NoError(t, err)
	require.EqualValues(t, 6*mib, n)
	require.Equal(t, "small [Free 6M]", r.layout(other))
	r.check()
	r.close()
}

// TestScarceAddresses: where the device refuses addresses for all its memory a range
// takes fewer, and the heap makes more ranges, filling gaps first.
func TestScarceAddresses(t *testing.T) {
	r := newRig(t, 1, true, policy)
	r.d.most = 16 * mib // a quarter of a quarter of a quarter of the device
	h := r.heaps[0]
	a, b := r.alloc(h, 8*mib), r.alloc(h, 8*mib)
	require.EqualValues(t, 16*mib, h.ranges[ledger.Large][0].limit)
	c := r.alloc(h, 6*mib)
	require.Len(t, h.ranges[ledger.Large], 2)
	require.Equal(t, "large [Live 8M][Live 8M], large [Live 6M]", r.layout(h))
	d := r.alloc(h, 10*mib)
	r.check()
	_, err := r.try(h, 18*mib, Allow{})
	require.ErrorIs(t, err, device.ErrOutOfMemory, "more than a reservation may have")
	r.check()

	r.free(c)
	r.giveBack(h, 6*mib)
	require.Equal(t, "large [Live 8M][Live 8M], large [Gap 6M][Live 10M]", r.layout(h))
	e := r.alloc(h, 8*mib) // more than the gaps of the newest range
	r.check()
	r.free(a, b, d, e)
	r.check()
	r.close()
}

// TestRangesThatAreLeft: ranges that hold no memory any more go, the newest stays
// unless all are to go.
func TestRangesThatAreLeft(t *testing.T) {
	r := newRig(t, 1, true, policy)
	r.d.most = 16 * mib
	h := r.heaps[0]
	a, b := r.alloc(h, 16*mib), r.alloc(h, 16*mib)
	r.free(a, b)
	require.EqualValues(t, 32*mib, r.giveBack(h, 1<<40))
	require.Equal(t, 1, h.GapRanges())
	require.NoError(t, h.DropGaps(false))
	require.Zero(t, h.GapRanges())
	require.Equal(t, "large [Gap 16M]", r.layout(h))
	require.Zero(t, h.Held())
	require.False(t, h.IsEmpty())
	require.NoError(t, h.DropGaps(true))
	require.True(t, h.IsEmpty())
	require.Zero(t, r.d.Stats().Reservations)
	r.close()
}

// TestFailingGrowth: each call of the device fails once at each of its places while
// a heap grows, fills gaps, stitches, makes a range longer, gives back, sleeps and wakes.
// A call that fails leaves the heap as it was, the books balance at every step, and
// everything goes back in the end.
func TestFailingGrowth(t *testing.T) {
	for _, call := range []simdev.Call{
		simdev.AddressReserve, simdev.AddressFree, simdev.MemCreate, simdev.MemRelease,
		simdev.MemMap, simdev.MemSetAccess, simdev.MemUnmap,
	} {
		for nth, reached := 1, true; reached; nth++ {
			r := newRig(t, 2, true, policy)
			r.d.FailNth(call, nth, errBroken)
			failing(t, r)
			reached = r.d.Calls(call) >= int64(nth)
			r.d.FailNth(call, 0, nil)
			r.check()
			r.close()
		}
	}
}

// failing uses every part of two heaps, whatever fails, and frees all blocks.
func failing(t *testing.T, r *rig) {
	t.Helper()
	h, other := r.heaps[0], r.heaps[1]
	var ids [6]block.ID
	get := func(i int, size int64) {
		for range 2 { // the second time it succeeds
			was, ranges, mappings := r.layout(h), len(h.stitches), r.d.Stats().Mappings
			id, err := r.try(h, size, Allow{SmallChunks: true})
			if err == nil {
				ids[i] = id
				r.check()
				return
			}
			require.ErrorIs(t, err, errBroken)
			r.check()
			if r.budget.Limit == r.budget.Held() { // it could not grow
				require.Equal(t, was, r.layout(h))
				require.Len(t, h.stitches, ranges)
				require.Equal(t, mappings, r.d.Stats().Mappings)
			}
		}
		require.Fail(t, "two calls failed")
	}
	put := func(i int) {
		r.free(ids[i])
		ids[i] = 0
	}
	note := func(err error) {
		if err != nil {
			require.ErrorIs(t, err, errBroken)
		}
		r.check()
	}
	get(0, 6*mib)
	get(1, 2*mib)
	get(2, 6*mib)
	get(3, 1000)
	get(4, 2*mib)
	get(5, 4*mib)
	put(0)
	put(2)
	put(5)
	r.budget.Limit = r.budget.Held() // no more: stitch
	get(0, 12*mib)
	_, err := h.Sleep()
	note(err)
	for range 3 {
		_, err = h.Wake()
		note(err)
	}
	require.NoError(t, err)
	put(0)
	get(0, 12*mib) // on the same range
	put(0)
	get(0, 16*mib) // which becomes longer
	put(0)
	out, err := h.Detach(h.WholeChunks(), 4*mib)
	_, e := other.Attach(h, ledger.Small, out)
	note(errors.Join(err, e))
	out, err = h.Detach(h.WholeChunks(), 4*mib)
	note(errors.Join(err, h.Release(out)))
	note(h.DropIdleStitches())
	note(h.DropGaps(false))
	r.budget.Limit = 1 << 30
	get(0, 8*mib) // into the gaps
	for i := range ids {
		if ids[i] != 0 {
			put(i)
		}
	}
	_, _, err = h.MoveRanges(ledger.Large, other)
	note(err)
	note(h.DropIdleStitches())
	h.MoveAll(other)
	r.check()
}

// TestRangesAreForgotten: the map of addresses gives back what it knows about a
// range that is closed, so that ranges that come and go at other addresses each
// time do not make it larger.
func TestRangesAreForgotten(t *testing.T) {
	r := newRig(t, 1, true, policy)
	h := r.heaps[0]
	r.alloc(h, 3*mib) // at addresses of its own
	small := r.space.byAddr[ledger.Small].Load()
	var first, most block.ID // of the numbers of blocks
	for round := range 200 {
		var ids []block.ID
		for range 16 {
			ids = append(ids, r.alloc(h, mib))
		}
		require.GreaterOrEqual(t, small.Bytes(), int64(8*16*kib), "a leaf for each 2 MiB")
		if most = max(most, slices.Max(ids)); round < 20 {
			first = most
		}
		r.free(ids...)
		h.MergeFast()
		for _, x := range h.ranges[ledger.Small] {
			_, err := h.closeRange(x)
			require.NoError(t, err)
		}
		h.ranges[ledger.Small] = nil
		require.LessOrEqual(t, small.Bytes(), int64(4*32*kib), "nodes above leaves")
	}
	require.Equal(t, first, most, "numbers are used again")
	require.NoError(t, h.Check(0))
}
