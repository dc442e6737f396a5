package heap

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// TestIdle: wholly free segments are found, those in use are not, and those that
// were used since are passed over.
func TestIdle(t *testing.T) {
	p := policy
	p.TrackIdle = true
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	a, b, c, s := r.alloc(h, 20*mib), r.alloc(h, 30*mib), r.alloc(h, 40*mib), r.alloc(h, 512)
	require.Empty(t, h.AppendIdle(nil))
	r.free(c, a, s)
	idle := h.AppendIdle(nil)
	require.Len(t, idle, 3)
	require.Equal(t, ledger.Large, idle[0].Kind())
	require.Equal(t, ledger.Small, idle[2].Kind())
	require.EqualValues(t, 2, idle[0].Since)
	require.EqualValues(t, 1, idle[1].Since)
	require.EqualValues(t, 20*mib, h.BestIdle(ledger.Large, 512, 1<<40).Size)
	require.EqualValues(t, 40*mib, h.BestIdle(ledger.Large, 25*mib, 40*mib).Size)
	require.EqualValues(t, 40*mib, h.BestIdle(ledger.Large, 40*mib, 40*mib).Size)
	require.Nil(t, h.BestIdle(ledger.Large, 25*mib, 35*mib), "that one is in use")
	require.Nil(t, h.BestIdle(ledger.Small, 3*mib, 1<<40))
	a = r.alloc(h, 3*mib)
	still := slices.Clone(idle[1:])
	out := h.DetachSegments(idle)
	require.Equal(t, still, out, "the first is in use")
	h.Forget(out, 0)
	require.Empty(t, h.DetachSegments(h.AppendIdle(nil)[:0]))
	r.free(a, b)
	r.check()
	r.close()
}

// TestForget: segments that leave are booked until the device has answered; those
// that it refused come back. With few of many it looks for each, with most it
// passes over all.
func TestForget(t *testing.T) {
	for _, leave := range []int{1, 3, 20} {
		for gone := range leave + 1 {
			r := newRig(t, 1, false, policy)
			h := r.heaps[0]
			var ids []block.ID
			for i := range 20 {
				ids = append(ids, r.alloc(h, 20*mib), r.alloc(h, mib))
				if i%2 == 0 {
					ids = append(ids, r.alloc(h, mib))
				}
			}
			r.free(ids...)
			out := h.AppendIdle(nil)[:leave]
			base := out[0].Seg.Base
			out = h.DetachSegments(out)
			require.Len(t, out, leave)
			require.False(t, h.IsEmpty())
			_, ok := r.space.Index.Find(base)
			require.False(t, ok, "another heap may get the address")
			r.check()
			var bytes int64
			for _, f := range out[:gone] {
				require.NoError(t, r.d.MemFree(device.Ptr(f.Seg.Base)))
				bytes += f.Seg.Size
			}
			require.Equal(t, bytes, h.Forget(out, gone))
			r.check()
			_, ok = r.space.Index.Find(base)
			require.Equal(t, gone == 0, ok)
			r.close()
		}
	}
}

// TestMoveSegment: a segment with its blocks goes to another heap, where they are
// found, freed and merged.
func TestMoveSegment(t *testing.T) {
	r := newRig(t, 2, false, policy)
	from, to := r.heaps[0], r.heaps[1]
	a, b, c := r.alloc(from, 4*mib), r.alloc(from, 4*mib), r.alloc(from, 20*mib)
	other := r.alloc(to, 20*mib)
	r.free(a)
	from.MoveSegment(from.segs[0], to)
	r.check()
	require.Equal(t, "large [Live 20M]", r.layout(from))
	require.Equal(t, "large [Live 20M], large [Free 4M][Live 4M][Free 12M]", r.layout(to))
	e, ok := r.space.Index.Find(r.block(b).Addr())
	require.True(t, ok)
	require.EqualValues(t, 1, e.Owner)
	r.free(b)
	require.Equal(t, "large [Live 20M], large [Free 20M]", r.layout(to))
	r.free(c, other)
	r.check()
	r.close()
}

// TestKeptSegmentMoves: a segment that was reserved on purpose serves small requests of the
// heap that it moves to, too, also after others came there.
func TestKeptSegmentMoves(t *testing.T) {
	r := newRig(t, 3, false, policy)
	from, to, other := r.heaps[0], r.heaps[1], r.heaps[2]
	id := r.alloc(from, 20*mib)
	seg := from.SegmentOf(r.block(id))
	from.KeepSegment(seg)
	require.EqualValues(t, 20*mib, from.Kept())
	r.free(id, r.alloc(other, 20*mib))
	require.Same(t, seg, from.BestIdle(ledger.Large, 20*mib, 20*mib))
	from.MoveSegment(seg, to)
	other.MoveSegment(other.segs[0], to)
	r.check()
	require.EqualValues(t, 20*mib, to.Kept())
	small := r.alloc(to, 1000)
	require.Equal(t, 2, r.d.Stats().Allocations)
	r.free(small)
	to.Unkeep()
	require.Zero(t, to.Kept())
	r.close()
}
