package heap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/sizeclass"
)

// TestTake: which of the free blocks of 4, 8 and 2.5 MiB, in this order, serves a
// request.
func TestTake(t *testing.T) {
	const none = -1
	for name, tc := range map[string]struct {
		change func(h *Heap, p *Policy)
		size   int64
		at     int64 // the offset of the block that serves
		bytes  int64 // that it takes; 0: as requested
	}{
		"best fit":                 {func(*Heap, *Policy) {}, 5*mib/2 - 512, 16 * mib, 5 * mib / 2},
		"best fit, exactly":        {func(*Heap, *Policy) {}, 8 * mib, 6 * mib, 0},
		"best fit, splits":         {func(*Heap, *Policy) {}, 5 * mib, 6 * mib, 0},
		"nothing as large":         {func(*Heap, *Policy) {}, 9 * mib, none, 0},
		"the rest is too small":    {func(*Heap, *Policy) {}, 3*mib + 512, 0, 4 * mib},
		"the rest is large enough": {func(_ *Heap, p *Policy) { p.MinSplit = mib - 512 }, 3*mib + 512, 0, 0},
		"first fit":                {func(_ *Heap, p *Policy) { p.FirstFit = true }, 2 * mib, 0, 0},
		"fragmented":               {func(h *Heap, _ *Policy) { h.fragmented = true }, 2 * mib, 0, 0},
		"kept whole, below":        {func(_ *Heap, p *Policy) { p.MaxSplit = 6 * mib }, 2 * mib, 16 * mib, 5 * mib / 2},
		"kept whole, none below":   {func(_ *Heap, p *Policy) { p.MaxSplit = 6 * mib }, 5 * mib, none, 0},
		"kept whole":               {func(_ *Heap, p *Policy) { p.MaxSplit, p.MaxNonSplitRounding = 6*mib, 2*mib }, 7 * mib, 6 * mib, 8 * mib},
		"kept whole, waste":        {func(_ *Heap, p *Policy) { p.MaxSplit, p.MaxNonSplitRounding = 6*mib, mib }, 7 * mib, none, 0},
		"first fit, none below":    {func(_ *Heap, p *Policy) { p.MaxSplit, p.FirstFit = 6*mib, true }, 5 * mib, none, 0},
		"a small one":              {func(*Heap, *Policy) {}, 512, none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, false, policy)
			h := r.heaps[0]
			a, x := r.alloc(h, 4*mib), r.alloc(h, 2*mib)
			b, y := r.alloc(h, 8*mib), r.alloc(h, 2*mib)
			c, z := r.alloc(h, 5*mib/2), r.alloc(h, 3*mib/2)
			r.free(a, b, c)
			require.Equal(t, "large [Free 4M][Live 2M][Free 8M][Live 2M][Free 2560K][Live 1536K]", r.layout(h))
			tc.change(h, &r.space.Policy)
			id, got := h.Take(tc.size, tc.size, 0)
			fits := tc.at != none
			require.Equal(t, fits, id != 0)
			if fits {
				require.EqualValues(t, tc.at, r.addr(id))
				if tc.bytes == 0 {
					tc.bytes = tc.size
				}
				require.Equal(t, tc.bytes, got.Size)
				require.Equal(t, tc.size, got.Requested())
				require.Equal(t, block.MakeWord(got.Word().Gen(), block.Live), got.Word())
				require.Contains(t, r.at(got.Addr()), id)
				r.check()
				r.free(id)
			}
			r.free(x, y, z)
			r.close()
		})
	}
}

// TestTakeKept: a small request that no small block serves takes the best fit of memory
// that was reserved on purpose, and of no other.
func TestTakeKept(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *Policy)
		keep   []int // of the segments of 20, 30 and 40 MiB, the first of which has a block of 18
		unkeep bool
		serves int64 // bytes of the segment that serves; 0: none
	}{
		"none":                   {},
		"the best fit":           {keep: []int{0, 1, 2}, serves: 20 * mib},
		"a larger one":           {keep: []int{2, 1}, serves: 30 * mib},
		"no more":                {keep: []int{0, 1, 2}, unkeep: true},
		"blocks are kept whole":  {keep: []int{1, 2}, change: func(p *Policy) { p.MaxSplit = 10 * mib }},
		"at the limit":           {keep: []int{0, 1}, change: func(p *Policy) { p.MaxSplit = 2 * mib }},
		"one is below the limit": {keep: []int{0, 1}, change: func(p *Policy) { p.MaxSplit = 2*mib + 512 }, serves: 20 * mib},
		"no block is split":      {keep: []int{0, 1, 2}, change: func(p *Policy) { p.NoSplit = true }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, false, policy)
			h := r.heaps[0]
			live := r.alloc(h, 18*mib)
			r.free(r.alloc(h, 30*mib), r.alloc(h, 40*mib))
			for _, i := range tc.keep {
				h.KeepSegment(h.segs[i])
			}
			if tc.unkeep {
				h.Unkeep()
			}
			if tc.change != nil {
				tc.change(&r.space.Policy)
			}
			require.Equal(t, tc.serves > 0, h.FitSize(ledger.Small, 1024) > 0)
			id, b := h.Take(1000, 1024, 0)
			require.Equal(t, tc.serves > 0, id != 0)
			if id != 0 {
				require.Equal(t, tc.serves, h.SegmentOf(b).Size)
				require.Equal(t, ledger.Large, h.Kind(b))
				r.check()
				r.free(id)
			}
			r.free(live)
			r.close()
		})
	}
}

// TestTakeAmongLarge: where enough of the pool is free for large blocks, a small request that
// no small block serves takes the smallest of these that fits, and gives it back to them.
func TestTakeAmongLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		live   int64 // bytes of large blocks; 8 MiB beside these are free
		smalls int   // blocks of 1 MiB
		serves bool
	}{
		"much is free":          {22 * mib, 2, true},
		"a 32nd is free":        {246 * mib, 2, true}, // of 256, with 2 for small blocks
		"less is free":          {248 * mib, 2, false},
		"no small range so far": {22 * mib, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, true, policy)
			h := r.heaps[0]
			a, between, b, live := r.alloc(h, 6*mib), r.alloc(h, 2*mib), r.alloc(h, 2*mib), r.alloc(h, tc.live-2*mib)
			var smalls []block.ID
			for range tc.smalls {
				smalls = append(smalls, r.alloc(h, mib))
			}
			r.free(a, b)
			require.Equal(t, tc.serves, h.FitSize(ledger.Small, 1024) > 0)
			require.Equal(t, tc.serves, h.Missing(ledger.Small, 1024, Allow{}) == 0)
			held := h.Held()
			id := r.alloc(h, 1024)
			require.Equal(t, tc.serves, h.Held() == held)
			if tc.serves {
				require.EqualValues(t, 8*mib, r.addr(id), "the best, not the first")
				require.Equal(t, ledger.Large, h.Kind(r.block(id)))
			}
			r.check()
			r.free(id)
			r.check()
			require.EqualValues(t, 2*mib, r.block(h.fit(ledger.Large, 2*mib)).Size)
			r.free(between, live)
			r.free(smalls...)
			r.close()
		})
	}
}

// TestTakeMergesFew: a small request that no small block serves merges the largest of the fast
// bins. Where these bring nothing, the others stay as they are, if large memory serves.
func TestTakeMergesFew(t *testing.T) {
	const n = 2 * fewMerges
	for name, tc := range map[string]struct {
		beside bool // the freed blocks are neighbours
		large  bool // large memory is free
		size   int64
		in     ledger.Kind
		left   int // in the fast bins
	}{
		"the largest serve":        {true, true, 192 * kib, ledger.Small, n - 2},
		"large memory serves":      {false, true, 192 * kib, ledger.Large, n - fewMerges},
		"nothing else, all merged": {true, false, 128 * n * kib, ledger.Small, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy
			p.FastLimit = mib
			r := newRig(t, 1, true, p)
			h := r.heaps[0]
			var freed, live []block.ID
			for range n {
				freed = append(freed, r.alloc(h, 128*kib))
				if !tc.beside {
					live = append(live, r.alloc(h, 512))
				}
			}
			for id := h.free[ledger.Small].Largest(); id != 0; id = h.free[ledger.Small].Largest() { // nothing else is free
				live = append(live, r.alloc(h, min(r.block(id).Size, mib)))
			}
			if tc.large {
				id := r.alloc(h, 4*mib)
				live = append(live, r.alloc(h, 2*mib))
				r.free(id)
			}
			r.free(freed...)
			held := h.Held()
			id := r.alloc(h, tc.size)
			require.Equal(t, held, h.Held())
			require.Equal(t, tc.in, h.Kind(r.block(id)))
			require.Equal(t, tc.left, h.fast.Len())
			r.check()
			r.free(id)
			r.free(live...)
			r.close()
		})
	}
}

func TestPolicy(t *testing.T) {
	p := Policy{SmallLimit: mib, MaxSplit: 8 * mib, MaxNonSplitRounding: 2 * mib}
	require.Equal(t, ledger.Small, p.KindOf(mib))
	require.Equal(t, ledger.Large, p.KindOf(mib+512))
	require.EqualValues(t, math.MaxInt64, p.FitsBelow(ledger.Small, 512))
	require.EqualValues(t, 8*mib, p.FitsBelow(ledger.Large, 8*mib-512))
	require.EqualValues(t, 10*mib, p.FitsBelow(ledger.Large, 8*mib))
	require.EqualValues(t, math.MaxInt64, (&Policy{}).FitsBelow(ledger.Large, 8*mib))
	require.True(t, p.isOversize(ledger.Large, 8*mib))
	require.False(t, p.isOversize(ledger.Large, 8*mib-512))
	require.False(t, p.isOversize(ledger.Small, 8*mib))
}

// TestNoSplit: every block has a segment of its own, and is booked as the segment
// is, whatever was asked for.
func TestNoSplit(t *testing.T) {
	p := policy
	p.NoSplit = true
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	require.NoError(t, h.Slots(2))
	m, err := r.d.MemAlloc(4 * mib)
	require.NoError(t, err)
	id, b := h.AddSegment(m, 4*mib, ledger.Small)
	h.HandOut(600, 1024, id, b, 0)
	require.Equal(t, "small [Live 4M]", r.layout(h))
	require.Equal(t, ledger.Small, h.Kind(b))
	require.Equal(t, h.segs[0], h.SegmentOf(b))
	r.check()
	r.free(id)
	r.check()
	r.close()
}

// TestAt prefers the live one of two blocks, of both kinds, that began at an
// address.
func TestAt(t *testing.T) {
	r := newRig(t, 1, false, policy)
	h := r.heaps[0]
	for _, sizes := range [][2]int64{{3 * mib, 1000}, {1000, 3 * mib}, {1000, 1000}, {3 * mib, 3 * mib}} {
		first := r.alloc(h, sizes[0])
		addr := r.block(first).Addr()
		r.free(first)
		out := h.AppendIdle(nil)
		h.DetachSegments(out)
		require.NoError(t, r.d.MemFree(r1(addr)))
		second := r.alloc(h, sizes[1]) // while the heap does not know yet that the device has the memory
		require.Equal(t, addr, r.block(second).Addr())
		require.Contains(t, r.at(addr), second)
		require.Equal(t, block.Live, r.block(second).Word().State())
		require.Equal(t, segment(max(sizes[0], 512)), h.Forget(out, 1))
		r.check()
		r.free(second)
		out = h.AppendIdle(nil)
		h.DetachSegments(out)
		require.NoError(t, r.d.MemFree(r1(addr)))
		h.Forget(out, 1)
	}
	require.Empty(t, r.at(1))
	require.NotZero(t, r.space.Bytes())
	r.close()
}

// Blocks of half a quantum are found by their addresses, side by side.
func TestFineBlocksByAddress(t *testing.T) {
	p := policy
	p.MinBlock = sizeclass.Least
	r := newRig(t, 1, false, p)
	var ids []block.ID
	for range 8 {
		ids = append(ids, r.alloc(r.heaps[0], 1))
	}
	for i, id := range ids {
		b := r.space.Blocks.At(id)
		require.Equal(t, r.space.Blocks.At(ids[0]).Addr()+uint64(i)*sizeclass.Least, b.Addr())
		require.Contains(t, r.at(b.Addr()), id)
	}
}

// The fast bins of blocks of half a quantum have room for no more than half the size.
func TestFineFastLimit(t *testing.T) {
	p := policy
	p.MinBlock, p.FastLimit = sizeclass.Least, block.FastLimit
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	for _, size := range []int64{mib, mib - sizeclass.Least} {
		id := r.alloc(h, size)
		r.free(id)
		require.Equal(t, size < mib, r.space.Blocks.At(id).Word().State() == block.Cached, "%d", size)
	}
	require.NoError(t, h.Check(0))
}
