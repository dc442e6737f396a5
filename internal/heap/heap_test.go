package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
)

// TestMapAddresses: a space keeps no map of its blocks by address until it is told to. Then it
// has what is out and what lies in the fast bins, and what goes out later.
func TestMapAddresses(t *testing.T) {
	p := policy
	p.FastLimit, p.SmallLimit = mib, 3*mib/2 // no power of two
	r := newRig(t, 1, true, p)
	h := r.heaps[0]
	for k := range r.space.byAddr {
		r.space.byAddr[k].Store(nil)
	}
	small, large := r.alloc(h, 1000), r.alloc(h, 3*mib)
	before := r.space.Bytes()
	freed := r.alloc(h, 5000)
	again := r.block(freed).Addr()
	r.free(freed)
	require.Equal(t, before, r.space.Bytes())
	require.Zero(t, r.space.At(ledger.Small, r.block(small).Addr()))

	require.True(t, r.space.MapAddresses())
	require.False(t, r.space.MapAddresses(), "they are kept already")
	h.Each(func(_ *block.Segment, id block.ID, b *block.Block) { h.NoteAddress(id, b) })
	require.Greater(t, r.space.Bytes(), before)
	require.Equal(t, []block.ID{small}, r.at(r.block(small).Addr()))
	require.Equal(t, []block.ID{large}, r.at(r.block(large).Addr()))
	require.Equal(t, freed, r.alloc(h, 5000))
	require.Equal(t, []block.ID{freed}, r.at(again))
	var later []block.ID
	for range 8 {
		later = append(later, r.alloc(h, p.SmallLimit+512))
	}
	for _, id := range later {
		require.Equal(t, []block.ID{id}, r.at(r.block(id).Addr()))
	}
	r.free(small, freed, large)
	r.free(later...)
	r.close()
}
