package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// TestSpans: random ranges become the spans of all offsets that any of them has.
func TestSpans(t *testing.T) {
	const offsets = 64
	r := testkit.Rand(t)
	for range 500 {
		var taken [offsets]bool
		var got spans
		for range 1 + r.IntN(12) {
			lo := r.Int64N(offsets)
			hi := lo + 1 + r.Int64N(min(offsets-lo, 8))
			got.add(lo, hi)
			for i := lo; i < hi; i++ {
				taken[i] = true
			}
		}
		var want spans
		for i, is := range taken {
			switch {
			case is && i > 0 && taken[i-1]:
				want[len(want)-1].hi++
			case is:
				want = append(want, span{int64(i), int64(i) + 1})
			}
		}
		require.Equal(t, want, got)
		for off := range int64(offsets) {
			first := 0
			for first < len(want) && want[first].hi <= off {
				first++
			}
			for from := range first + 1 {
				require.Equal(t, first, got.after(from, off))
			}
		}
	}
}
