package cuda

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/kernels/images"
)

// TestImages wants PTX loaded where the driver refuses the machine code, and no
// second try where anything else fails.
func TestImages(t *testing.T) {
	needFake(t)
	ptx := []byte(".version\x00")
	for name, c := range map[string]struct {
		images  iter.Seq2[[]byte, error]
		code    cudadrv.Result
		refused int // images
		loads   int
		err     string
	}{
		"machine code":             {loads: 1},
		"unknown architecture":     {code: cudadrv.NoBinary, refused: 1, loads: 2},
		"unknown format":           {code: cudadrv.InvalidImage, refused: 1, loads: 2},
		"PTX too new":              {code: cudadrv.UnsupportedPTX, refused: 1, loads: 2},
		"no memory":                {code: cudadrv.OutOfMemory, refused: 1, loads: 1, err: "CUDA_ERROR_OUT_OF_MEMORY"},
		"all refused":              {code: cudadrv.NoBinary, refused: 2, loads: 2, err: "cuModuleLoadData"},
		"none for an architecture": {images: one(ptx, nil), loads: 1},
		"neither":                  {images: one([]byte("text\x00"), nil), loads: 1, err: "cuModuleLoadData"},
		"damaged":                  {images: one(nil, assert.AnError), err: assert.AnError.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			d := openTest(t)
			fakecuda.Reset()
			fakecuda.Count(true)
			if c.refused > 0 {
				fakecuda.Fail("cuModuleLoadData", 1, int(c.code), c.refused)
			}
			err := d.LoadKernels(func(m kernels.Module, major, minor int) iter.Seq2[[]byte, error] {
				require.Equal(t, [...]int{8, 0}, [...]int{major, minor}, "the stand-in is an A100")
				if c.images != nil {
					return c.images
				}
				return images.Of(m, major, minor)
			})
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.loads, fakecuda.Calls("cuModuleLoadData"))
		})
	}
}

// Kernels that could not be loaded are loaded by a later call.
func TestLoadAgain(t *testing.T) {
	needFake(t)
	for _, call := range []string{"cuModuleLoadData", "cuModuleGetFunction"} {
		d := openTest(t)
		fakecuda.Reset()
		fakecuda.Fail(call, 1, int(cudadrv.OutOfMemory), 1)
		require.ErrorIs(t, d.LoadKernels(images.Of), device.ErrOutOfMemory, call)
		require.NoError(t, d.LoadKernels(images.Of), call)
		require.NoError(t, d.Close())
	}
}

func one(image []byte, err error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) { yield(image, err) }
}
