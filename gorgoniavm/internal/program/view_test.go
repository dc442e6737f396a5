package program

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// elements are where the elements of a view are, in their order.
func elements(v View) (at []int) {
	for r := range v.Rows {
		for c := range v.Columns {
			at = append(at, v.Offset+r*v.Stride+c)
		}
	}
	return at
}

// A part of a part has the elements that the outer one counts.
func TestViewOfView(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	served := 0
	for range 20_000 {
		inner := View{Slot: 3, Offset: r.IntN(4), Rows: 1 + r.IntN(4), Columns: 1 + r.IntN(4)}
		inner.Stride = inner.Columns + r.IntN(3)
		outer := View{Slot: 5, Rows: 1 + r.IntN(3), Columns: 1 + r.IntN(4)}
		outer.Stride = outer.Columns + r.IntN(4)
		room := inner.size() - ((outer.Rows-1)*outer.Stride + outer.Columns)
		if room < 0 {
			continue
		}
		outer.Offset = r.IntN(room + 1)
		got, ok := outer.of(inner)
		if !ok {
			continue
		}
		served++
		at := elements(inner)
		var want []int
		for _, i := range elements(outer) {
			want = append(want, at[i])
		}
		require.Equal(t, want, elements(got), "seed %d: %+v of %+v", seed, outer, inner)
		require.Equal(t, 3, got.Slot)
	}
	require.Greater(t, served, 1000)
}
