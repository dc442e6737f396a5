package tensorop_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

func TestBatchMatMul(t *testing.T) { both(t, checkBatchMatMul) }

func checkBatchMatMul(t *testing.T, e *bench) {
	for _, dt := range floats {
		for _, s := range [][4]int{{1, 1, 1, 1}, {3, 2, 4, 5}, {2, 1, 7, 3}, {5, 3, 1, 1}, {4, 33, 31, 2}} {
			n, rows, inner, cols := s[0], s[1], s[2], s[3]
			a, b := e.From(random(e.Rand, dt, n, rows, inner)), e.From(random(e.Rand, dt, n, inner, cols))
			bT := transposed(e.From(random(e.Rand, dt, n, cols, inner)), 0, 2, 1)
			for _, right := range []*tensor.Dense{b, bT} {
				c := must(e.Empty(dt, n, rows, cols))
				require.NoError(t, e.BatchMatMul(a, right, c))
				e.RequireNear(productsOf(e.As64(a), e.As64(right), n, rows, inner, cols), c, fmt.Sprint(dt, s))
				e.FreeAll(c)
			}
			e.FreeAll(a, b, bT)
		}
		x, y := e.From(random(e.Rand, dt, 2, 3, 4)), e.From(random(e.Rand, dt, 3, 4))
		require.ErrorIs(t, e.BatchMatMul(x, x, x), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.BatchMatMul(x, y, x), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.BatchMatMul(x, nil, x), cupool.ErrSizeMismatch)
		e.FreeAll(x, y)
	}
	if e.GPU {
		require.Zero(t, e.Stats().Fallbacks)
	}
}
