package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Patterns differ by their tags, and what is looked at lies inside of the block.
func TestPattern(t *testing.T) {
	for _, size := range []int64{1, 15, 16, 63, sampleSize - 1, sampleSize, sampleSize + 1, 4096, fillWhole, fillWhole + 1, 24 << 20} {
		p, q := pattern{7, size}, pattern{8, size}
		require.NotEqual(t, p.sample(), q.sample(), size)
		var n int64
		for _, x := range p.parts() {
			require.True(t, 0 <= x.off && x.off+x.n <= size, size)
			n += x.n
		}
		require.Len(t, p.sample(), int(n), size)
	}
}
