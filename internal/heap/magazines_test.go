package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// homed is a heap with magazines, and a block of 1000 bytes in one of them, cached.
func homed(t *testing.T) (*rig, *Heap, block.ID) {
	p := policy
	p.HomeLimit, p.MagazineBytes = mib, 64*kib
	r := newRig(t, 1, false, p)
	return r, r.heaps[0], r.home(r.heaps[0], 1000)
}

// home returns a block in the magazines, cached.
func (r *rig) home(h *Heap, size int64) block.ID {
	r.t.Helper()
	for range 3 {
		id := r.alloc(h, size)
		b := r.block(id)
		if b.Word().Has(block.Homed) {
			require.True(r.t, b.FreeHomed(b.Word().Gen()))
			return id
		}
		r.free(id)
	}
	require.Fail(r.t, "the size does not recur")
	return 0
}

// get takes a block out of the magazines.
func (r *rig) get(h *Heap, id block.ID) (gen uint64) {
	got, _, gen, _ := h.Magazine.Get(1000)
	require.Equal(r.t, id, got)
	return gen
}

// TestHomes: a block whose size recurs lies in the magazines when it is freed; it
// leaves them when memory is wanted, and what it did there is counted.
func TestHomes(t *testing.T) {
	r, h, id := homed(t)
	b := r.block(id)
	require.Equal(t, block.Cached, b.Word().State())
	require.EqualValues(t, 1024, h.HomedBytes())
	held := h.Held()
	live := func() int64 {
		live, pending, all := h.Usage()
		require.Zero(t, pending)
		require.Equal(t, held, all)
		return live
	}
	require.Zero(t, live())
	r.check()
	gen := b.Word().Gen()
	require.Equal(t, gen+1, r.get(h, id))
	require.EqualValues(t, 1024, live())
	require.True(t, b.FreeHomed(gen+1))
	var homes [2]Homes
	h.AddHomes(&homes)
	require.Equal(t, [2]Homes{ledger.Small: {
		Hits: 1, HitBytes: 1024, HitReq: 1000, Cached: 1, CachedBytes: 1024, CachedReq: 1000, LargestCached: 1024, HomedBytes: 1024,
	}}, homes)
	require.True(t, h.Flush())
	require.Zero(t, h.HomedBytes())
	require.Zero(t, live())
	require.EqualValues(t, 1, h.Ledger.Tallies(ledger.Small)[ledger.MagazineHits].Added)
	r.check()
}

// TestEvicted: what loses its home to blocks of other sizes is free, from the first block of
// the table on.
func TestEvicted(t *testing.T) {
	p := policy
	p.HomeLimit, p.MagazineBytes = mib, 1<<30
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	homes := map[block.ID]int64{}
	for i := range int64(1500) {
		size := 100 + 64*i
		id := r.home(h, size)
		homes[id] = r.block(id).Size
	}
	require.Contains(t, homes, block.ID(1))
	var bytes int64
	for id, size := range homes {
		if r.block(id).Word().Has(block.Homed) {
			bytes += size
		}
	}
	require.Equal(t, bytes, h.HomedBytes())
	r.check()
	require.True(t, h.Flush())
	require.Zero(t, h.HomedBytes())
	r.close()
}

// TestUnhome: a live block that leaves the magazines stays live; a cached one stays
// where it is.
func TestUnhome(t *testing.T) {
	r, h, id := homed(t)
	b := r.block(id)
	require.False(t, h.Unhome(id, b), "it is cached")
	require.EqualValues(t, 1024, h.HomedBytes())
	r.get(h, id)
	require.Equal(t, block.Live, b.Word().State())
	for range 2 { // the second time it has no home
		require.True(t, h.Unhome(id, b))
		require.Zero(t, h.HomedBytes())
		require.Equal(t, block.MakeWord(b.Word().Gen(), block.Live), b.Word())
	}
	r.free(id)
	r.check()
}

// TestUnhomeAll: the magazines are empty afterwards; live blocks stay live, others are
// free.
func TestUnhomeAll(t *testing.T) {
	for _, live := range []bool{false, true} {
		r, h, id := homed(t)
		b := r.block(id)
		if live {
			r.get(h, id)
		}
		h.UnhomeAll()
		require.Zero(t, h.HomedBytes())
		require.Equal(t, live, b.Size > 0 && b.Word().State() == block.Live)
		if live {
			r.free(id)
		}
		r.check()
		require.False(t, h.InUse())
	}
}

// TestRehome: a live block that lost its home gets one again, and the next request of its
// size finds it there, unless it may have none.
func TestRehome(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *rig, h *Heap, b *block.Block)
		want   bool
	}{
		"live":               {func(*rig, *Heap, *block.Block) {}, true},
		"used otherwise":     {func(_ *rig, _ *Heap, b *block.Block) { b.MarkUsed() }, false},
		"homeless":           {func(_ *rig, h *Heap, _ *block.Block) { h.noHomes = 1 }, false},
		"as large as may be": {func(r *rig, _ *Heap, _ *block.Block) { r.space.Policy.HomeLimit = 1024 }, true},
		"too large":          {func(r *rig, _ *Heap, _ *block.Block) { r.space.Policy.HomeLimit = 512 }, false},
		"with room":          {func(r *rig, _ *Heap, _ *block.Block) { r.space.Policy.MagazineBytes = 1024 }, true},
		"with too little":    {func(r *rig, _ *Heap, _ *block.Block) { r.space.Policy.MagazineBytes = 1023 }, false},
		"the magazines shut": {func(_ *rig, h *Heap, _ *block.Block) { h.Magazine.Shut() }, false},
		"not to stay": {func(r *rig, _ *Heap, _ *block.Block) {
			r.space.Stay = func(int64) (block.Stay, bool) { return block.Long, false }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, id := homed(t)
			b := r.block(id)
			r.get(h, id)
			require.True(t, h.Unhome(id, b))
			tc.change(r, h, b)
			require.Equal(t, tc.want, h.Rehome(id, b))
			require.Equal(t, tc.want, b.IsHomed())
			r.check()
			if tc.want {
				r.get(h, id)
				require.True(t, h.Unhome(id, b))
			}
			r.free(id)
			r.check()
		})
	}
}

// TestNoHomes: after a block that waited, or where the magazines are full, blocks get
// no home; and goroutines that empty each other's magazines are crowded.
func TestNoHomes(t *testing.T) {
	_, h, _ := homed(t)
	require.False(t, h.Crowded(5000), "no block of the size is there")
	for range crowdFlushes {
		require.False(t, h.Crowded(1000))
	}
	h.NoHomes()
	require.Equal(t, noHomesAfterPending, h.noHomes)
	h.Flush()
	homeless := func(times int) {
		for range times {
			id, b := h.Take(1000, 1024, h.Missed(1000, 0))
			require.False(t, b.Word().Has(block.Homed))
			h.Put(id, b)
		}
	}
	homeless(noHomesAfterPending)
	require.Zero(t, h.noHomes)
	h.homedBytes = 64 * kib // full
	homeless(100)
}
