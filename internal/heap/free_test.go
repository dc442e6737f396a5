package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
)

func r1(addr uint64) device.Ptr { return device.Ptr(addr) }

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
	r.pend(a)
	r.free(b)
	require.Equal(t, "large [Pending 4M][Free 16M]", r.layout(h))
	require.Equal(t, noHomesAfterPending, h.noHomes)
	require.True(t, h.InUse())
	r.check()
	r.finish(a)
	require.Equal(t, "large [Free 20M]", r.layout(h))
	r.check()
	r.close()
}

// TestPendSince: memory of a block that was pending is free since the program gave it back,
// but for chunks with other blocks that were given back later.
func TestPendSince(t *testing.T) {
	p := policy
	p.TrackFrees = true
	r := newRig(t, 1, true, p)
	h, now := r.heaps[0], r.space.Time
	before := func(time uint64) (n int64) { return h.WholeChunks().FreedBefore(time).Bytes() }
	a, b, c := r.alloc(h, 16*mib), r.alloc(h, 15*mib), r.alloc(h, mib+mib/2)
	r.pend(a, b) // at 1 and 2
	r.free(c)    // at 3
	now.Store(9)
	r.finish(b, a)
	require.EqualValues(t, 3, h.FreedAt())
	require.Zero(t, before(1))
	require.EqualValues(t, 16*mib, before(2))
	require.EqualValues(t, 30*mib, before(3), "but for the handle that it shares with the third")
	require.EqualValues(t, 34*mib, before(4))
	r.close()
}
