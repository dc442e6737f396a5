package gpu

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
)

// places follows a walk as the kernels do, for operand k.
func places(w *kernels.Walk3, k, n int) []int {
	var ps []int
	for i := range n {
		at, rest := 0, i
		for d := int(w.Dims) - 1; d >= 0; d-- {
			at += rest % int(w.Shape[d]) * int(w.Stride[k][d])
			rest /= int(w.Shape[d])
		}
		ps = append(ps, at)
	}
	return ps
}

// offsets are where a tensor's elements are, in row-major order.
func offsets(shape, strides []int) []int {
	ps := []int{0}
	for d, size := range shape {
		var next []int
		for _, p := range ps {
			for i := range size {
				next = append(next, p+i*strides[d])
			}
		}
		ps = next
	}
	return ps
}

// TestWalks compares walks of random tensors, of which dimensions are merged,
// with the places of their elements.
func TestWalks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		shape := make([]int, r.IntN(6))
		strides := [3][]int{make([]int, len(shape)), make([]int, len(shape)), make([]int, len(shape))}
		n := 1
		for d := len(shape) - 1; d >= 0; d-- {
			shape[d] = 1 + r.IntN(3)
			for k := range strides {
				strides[k][d] = []int{n, n, n, 0, r.IntN(50)}[r.IntN(5)]
			}
			n *= shape[d]
		}
		w, ok := walk3(shape, strides[0], strides[1], strides[2])
		require.True(t, ok)
		require.GreaterOrEqual(t, w.Dims, int64(1))
		for k, s := range strides {
			require.Equal(t, offsets(shape, s), places(&w, k, n), "seed %d: shape %v, strides %v", seed, shape, s)
		}
	}
	w, ok := walk3([]int{4, 1, 5, 6}, []int{30, 7, 6, 1})
	require.True(t, ok)
	require.Equal(t, int64(1), w.Dims, "no gaps, one dimension")
	deep := []int{2, 2, 2, 2, 2, 2, 2, 2, 2}
	_, ok = walk3(deep, []int{1, 2, 4, 8, 16, 32, 64, 128, 256})
	require.False(t, ok, "more dimensions than a kernel takes")
}

func TestSplitAxes(t *testing.T) {
	v := view{shape: []int{2, 3, 4}, strides: []int{12, 4, 1}}
	across, along, ok := splitAxes(&v, []int{1})
	require.True(t, ok)
	require.Equal(t, []int{2, 4}, across.shape)
	require.Equal(t, []int{12, 1}, across.strides)
	require.Equal(t, []int{3}, along.shape)
	require.Equal(t, 8, across.n)
	across, along, ok = splitAxes(&v, nil)
	require.True(t, ok)
	require.Empty(t, across.shape)
	require.Equal(t, 1, across.n)
	require.Equal(t, 24, along.n)
	for _, axes := range [][]int{{3}, {-1}, {1, 1}} {
		_, _, ok := splitAxes(&v, axes)
		require.False(t, ok, "%v", axes)
	}
}

// TestMatrixOf: what is returned has the tensor's elements, and strides that
// cuBLAS takes.
func TestMatrixOf(t *testing.T) {
	for _, c := range []struct {
		rows, cols, rowStride, colStride int
		ok, transposed                   bool
	}{
		{3, 4, 4, 1, true, false},  // plain
		{3, 4, 7, 1, true, false},  // columns of a wider one
		{3, 4, 1, 3, true, true},   // transposed
		{3, 4, 1, 9, true, true},   // rows of that
		{1, 4, 1, 1, true, false},  // one row of a transposed column
		{4, 1, 1, 1, true, false},  // a column
		{4, 1, 5, 1, true, false},  // a column of a matrix
		{1, 4, 1, 5, true, true},   // the same, transposed
		{3, 4, 8, 2, false, false}, // every other column
		{3, 4, 0, 1, false, false}, // one row for all
	} {
		v := view{p: 4096}
		m, ok := v.matrixOf(c.rows, c.cols, c.rowStride, c.colStride)
		require.Equal(t, c.ok, ok, "%+v", c)
		if !ok {
			continue
		}
		require.Equal(t, c.transposed, m.Transposed, "%+v", c)
		require.Equal(t, [2]int64{int64(c.rows), int64(c.cols)}, [2]int64{m.Rows, m.Cols})
		for i := range c.rows {
			for j := range c.cols {
				require.Equal(t, i*c.rowStride+j*c.colStride, elementOf(m, i, j), "%+v", c)
			}
		}
		back := transposedMatrix(m)
		require.Equal(t, elementOf(m, c.rows-1, c.cols-1), elementOf(back, c.cols-1, c.rows-1))
	}
}

// elementOf is where an element of a matrix is.
func elementOf(m cublas.Matrix, i, j int) int {
	if m.Transposed {
		i, j = j, i
	}
	return i*int(m.Stride) + j
}
