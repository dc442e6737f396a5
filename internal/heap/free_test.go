package heap

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/testkit"
)

func r1(addr uint64) device.Ptr { return device.Ptr(addr) }

// TestMerge: a freed block merges with its free neighbours, in every order.
func TestMerge(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		p := policy
		p.TrackIdle = true
		r := newRig(t, 1, false, p)
		h := r.heaps[0]
		ids := []block.ID{r.alloc(h, 4*mib), r.alloc(h, 6*mib), r.alloc(h, 10*mib)}
		require.Equal(t, "large [Live 4M][Live 6M][Live 10M]", r.layout(h))
		require.True(t, h.InUse())
		for _, i := range order {
			require.Zero(t, h.segs[0].IdleSince)
			r.free(ids[i])
			r.check()
		}
		require.Equal(t, "large [Free 20M]", r.layout(h))
		require.False(t, h.InUse())
		require.EqualValues(t, 1, h.segs[0].IdleSince)
		require.EqualValues(t, 20*mib, h.FreeBytes(ledger.Large))
		require.EqualValues(t, 20*mib, h.Held())
		r.close()
	}
}

// TestFastBins: small blocks that were freed serve requests of about their size as
// they are, and merge before a request fails.
func TestFastBins(t *testing.T) {
	p := policy
	p.FastLimit = mib
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	var ids []block.ID
	for range 4 {
		ids = append(ids, r.alloc(h, 512*kib))
	}
	require.Equal(t, "small [Live 512K][Live 512K][Live 512K][Live 512K]", r.layout(h))
	r.free(ids[:2]...)
	r.check()
	require.Equal(t, "small [Cached 512K][Cached 512K][Live 512K][Live 512K]", r.layout(h), "as they are")
	require.Equal(t, ids[1], r.alloc(h, 500*kib), "the last that came, whole")
	r.free(ids[1])
	require.Equal(t, ids[0], r.alloc(h, mib), "merged")
	require.Equal(t, "small [Live 1M][Live 512K][Live 512K]", r.layout(h))
	r.free(ids[0], ids[2], ids[3])
	require.True(t, h.MergeFast())
	require.False(t, h.MergeFast())
	require.False(t, h.Flush())
	require.Equal(t, "small [Free 2M]", r.layout(h))
	r.check()
	r.close()
}

// TestPend: a pending block merges with nothing and is booked as such until it is
// put back.
func TestPend(t *testing.T) {
	r := newRig(t, 1, false, policy)
	h := r.heaps[0]
	a, b := r.alloc(h, 4*mib), r.alloc(h, 16*mib)
	r.block(a).SetUses(1)
	h.Pend(r.block(a))
	r.pending = 4 * mib
	r.free(b)
	require.Equal(t, "large [Pending 4M][Free 16M]", r.layout(h))
	require.Equal(t, noHomesAfterPending, h.noHomes)
	require.True(t, h.InUse())
	r.check()
	r.block(a).SetUses(0)
	r.free(a)
	r.pending = 0
	require.Equal(t, "large [Free 20M]", r.layout(h))
	r.check()
	r.close()
}

// TestHeapRandom takes and puts blocks of two heaps, on segments and on virtual
// memory, moves memory between them and gives it back. No two live blocks overlap
// within the addresses of the device, all rules hold and the books balance.
func TestHeapRandom(t *testing.T) {
	for range testkit.Rounds(24) {
		for _, virtual := range []bool{false, true} {
			seed := rand.Uint64()
			t.Logf("seed %d, virtual memory: %v", seed, virtual)
			randomHeap(t, rand.New(rand.NewPCG(seed, 0)), virtual)
		}
	}
}

func randomHeap(t *testing.T, rnd *rand.Rand, virtual bool) {
	p := policy
	p.FirstFit = rnd.IntN(4) == 0
	if rnd.IntN(2) == 0 {
		p.FastLimit = mib
	}
	r := newRig(t, 2, virtual, p)
	r.budget.limit = 300 * mib
	var live []block.ID
	for step := range 500 {
		h, other := r.heaps[0], r.heaps[1]
		if rnd.IntN(2) == 0 {
			h, other = other, h
		}
		switch n := rnd.IntN(20); {
		case n < 9:
			size := 1 + rnd.Int64N(1<<(9+rnd.IntN(17)))
			id, err := r.try(h, size, Allow{SmallChunks: rnd.IntN(2) == 0})
			if err != nil {
				require.ErrorIs(t, err, device.ErrOutOfMemory)
				break
			}
			b := r.block(id)
			require.Equal(t, size, b.Requested())
			require.GreaterOrEqual(t, b.Size, size)
			for _, o := range live {
				x := r.block(o)
				require.False(t, b.Addr() < x.Addr()+uint64(x.Size) && x.Addr() < b.Addr()+uint64(b.Size), "step %d: two live blocks overlap", step)
			}
			live = append(live, id)
		case n < 16 && len(live) > 0:
			i := rnd.IntN(len(live))
			r.free(live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case n == 16 && virtual:
			out, err := h.Detach(h.WholeChunks(), 1+rnd.Int64N(20*mib))
			require.NoError(t, err)
			if rnd.IntN(2) == 0 {
				require.NoError(t, h.Release(out))
				break
			}
			n, err := other.Attach(h, ledger.Kind(rnd.IntN(2)), out)
			require.NoError(t, err)
			require.Equal(t, out.Bytes(), n)
		case n == 17 && virtual:
			require.NoError(t, h.DropGaps(rnd.IntN(2) == 0))
			if rnd.IntN(2) == 0 {
				require.NoError(t, h.DropIdleStitches())
			}
		case n == 18 && !h.InUse():
			h.MergeFast()
			if k := ledger.Kind(rnd.IntN(2)); virtual {
				_, _, err := h.MoveRanges(k, other)
				require.NoError(t, err)
			} else if seg := h.BestIdle(k, 0, 1<<40); seg != nil {
				h.MoveSegment(seg, other)
			}
		case n == 19 && rnd.IntN(4) == 0:
			h.UnhomeAll()
			h.MoveAll(other)
			require.True(t, h.IsEmpty(), r.layout(h))
		}
		if step%4 == 0 {
			r.check()
		}
	}
	r.free(live...)
	r.check()
	r.close()
}
