package block

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/testkit"
)

// Between the portions of two tours, blocks are split and merged. Each tour leaves no gap: a
// portion begins where the one before ended, or below in a block that holds that place. A
// block that is live all the time is seen once.
func TestTour(t *testing.T) {
	const q = sizeclass.Quantum
	r := testkit.Rand(t)
	merged := 0
	for range 100 {
		a := newArena(t, 600*q)
		live := map[ID]bool{} // whether it is so since the tours began
		ids := []ID{}
		change := func() {
			if n := len(ids); n > 0 && r.IntN(2) == 0 {
				i := r.IntN(n)
				a.release(ids[i])
				delete(live, ids[i])
				ids[i], ids = ids[n-1], ids[:n-1]
			} else if size := (1 + r.Int64N(4)) * q; a.free.BestFit(size) != 0 {
				id := a.alloc(t, size)
				ids, live[id] = append(ids, id), false
			}
		}
		for range 400 {
			change()
		}
		for id := range live {
			live[id] = true
		}
		tours, at := [2]*Tour{new(Tour), new(Tour)}, [2]uint64{a.Base, a.Base}
		seen := [2]map[ID]int{{}, {}}
		for _, tour := range tours {
			tour.Begin(&a.Segment)
		}
		for tours[0].Goes() || tours[1].Goes() {
			i := r.IntN(2)
			if !tours[i].Goes() {
				i = 1 - i
			}
			first, most := true, 1+r.IntN(20)
			came, done := tours[i].Next(a.tab, most, func(id ID, b *Block) {
				if first && b.Addr() < at[i] {
					merged++
					require.Greater(t, b.Addr()+uint64(b.Size), at[i], "all of it was seen before")
				} else {
					require.Equal(t, at[i], b.Addr(), "blocks tile the segment")
				}
				first, at[i] = false, b.Addr()+uint64(b.Size)
				seen[i][id]++
			})
			require.LessOrEqual(t, came, most)
			require.Equal(t, done, !tours[i].Goes())
			for range r.IntN(30) {
				change()
			}
		}
		for i := range tours {
			require.Equal(t, a.Base+uint64(a.Size), at[i], "the end")
			for id, always := range live {
				if always {
					require.Equal(t, 1, seen[i][id])
				}
			}
		}
		require.Empty(t, a.tours)
		require.NoError(t, a.Check(a.tab, q))
	}
	require.NotZero(t, merged, "no portion began below the one before")
}
