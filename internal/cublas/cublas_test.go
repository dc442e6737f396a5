package cublas_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// gpu is a context, a stream and memory that both sides see.
type gpu struct {
	ctx, stream uintptr
	p           uintptr
	words       []float32
}

func open(t *testing.T) gpu {
	t.Helper()
	gputest.Need(t)
	if _, err := cublas.Find(); errors.Is(err, cublas.ErrMissing) && !fakecuda.Loaded() {
		t.Skip(err)
	}
	device, r := cudadrv.Device(0)
	require.Equal(t, cudadrv.Success, r)
	var g gpu
	g.ctx, r = cudadrv.RetainPrimary(device)
	require.Equal(t, cudadrv.Success, r)
	g.stream, r = cudadrv.NewStream(g.ctx)
	require.Equal(t, cudadrv.Success, r)
	g.p, r = cudadrv.HostAlloc(g.ctx, 4096)
	require.Equal(t, cudadrv.Success, r)
	g.words = unsafe.Slice(*(**float32)(unsafe.Pointer(&g.p)), 1024)
	clear(g.words)
	t.Cleanup(func() {
		assert.Equal(t, cudadrv.Success, cudadrv.HostFree(g.ctx, g.p))
		assert.Equal(t, cudadrv.Success, cudadrv.DestroyStream(g.ctx, g.stream))
		assert.Equal(t, cudadrv.Success, cudadrv.ReleasePrimary(device))
	})
	return g
}

// matrix has rows and columns of words from at on.
func (g gpu) matrix(at int, rows, cols int64) cublas.Matrix {
	return cublas.Matrix{P: g.p + uintptr(4*at), Rows: rows, Cols: cols, Stride: cols, Next: rows * cols}
}

// TestGemm has products of each call, with and without what they add to.
func TestGemm(t *testing.T) {
	g := open(t)
	h, err := cublas.New(g.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	assert.Greater(t, h.Version, 110000)
	const a, b, c = 0, 32, 64
	copy(g.words, []float32{1, 2, 3, 4, 5, 6}) // 2 by 3, and once more
	copy(g.words[6:], []float32{1, 0, 0, 0, 1, 0})
	copy(g.words[b:], []float32{1, 2, 3, 4, 5, 6}) // 3 by 2, and once more
	copy(g.words[b+6:], []float32{7, 8, 9, 10, 11, 12})
	for name, test := range map[string]struct {
		batch       int64
		alpha, beta float64
		want        []float32
	}{
		"one":      {0, 1, 0, []float32{22, 28, 49, 64, 5, 5, 5, 5}},
		"scaled":   {1, 2, 1, []float32{49, 61, 103, 133, 5, 5, 5, 5}},
		"a batch":  {2, 1, 0, []float32{22, 28, 49, 64, 7, 8, 9, 10}},
		"and adds": {2, 1, 2, []float32{32, 38, 59, 74, 17, 18, 19, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			copy(g.words[c:], []float32{5, 5, 5, 5, 5, 5, 5, 5})
			require.NoError(t, h.Gemm(g.stream, &cublas.Product{
				A: g.matrix(a, 2, 3), B: g.matrix(b, 3, 2), C: g.matrix(c, 2, 2), Alpha: test.alpha, Beta: test.beta, Batch: test.batch,
			}))
			require.Equal(t, cudadrv.Success, cudadrv.StreamSync(g.ctx, g.stream))
			assert.Equal(t, test.want, g.words[c:c+8])
		})
	}
	require.ErrorIs(t, h.Gemm(g.stream, &cublas.Product{C: cublas.Matrix{Rows: 1 << 31}}), cublas.ErrSize)
	var e *cublas.Error
	require.ErrorAs(t, h.Gemm(g.stream, &cublas.Product{A: g.matrix(a, 2, 3), B: g.matrix(b, 3, 2), C: cublas.Matrix{P: g.p, Rows: 2, Cols: 2}}), &e)
	assert.ErrorContains(t, e, "CUBLAS_STATUS_INVALID_VALUE")
}

// TestFailedCrossing: a product whose context could not be set leaves nothing set on
// the handle, and the next one goes to its stream all the same.
func TestFailedCrossing(t *testing.T) {
	g := open(t)
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in")
	}
	h, err := cublas.New(g.ctx)
	require.NoError(t, err)
	k, err := gputest.Load(g.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(h.Close(), k.Close())) })
	copy(g.words, []float32{2, 3})
	p := &cublas.Product{A: g.matrix(0, 1, 1), B: g.matrix(1, 1, 1), C: g.matrix(2, 1, 1), Alpha: 1}
	release, err := k.Busy(g.stream)
	require.NoError(t, err)
	defer release()
	t.Cleanup(fakecuda.Reset)
	fakecuda.Fail("cuCtxGetCurrent", 1, int(cudadrv.OutOfMemory), 1)
	require.ErrorContains(t, h.Gemm(g.stream, p), "CUDA_ERROR_OUT_OF_MEMORY")
	require.NoError(t, h.Gemm(g.stream, p))
	require.Equal(t, cudadrv.Success, cudadrv.StreamSync(g.ctx, 0))
	assert.Zero(t, g.words[2], "it waits for its stream")
	release()
	require.Equal(t, cudadrv.Success, cudadrv.StreamSync(g.ctx, g.stream))
	assert.EqualValues(t, 6, g.words[2])
}
