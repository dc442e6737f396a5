package cudadrv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
)

// TestHostRegister fails in the second of its calls, and takes the first back.
func TestHostRegister(t *testing.T) {
	ctx, _ := open(t)
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in")
	}
	t.Cleanup(fakecuda.Reset)
	b := make([]byte, 1<<16)
	for _, entry := range []string{"cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"} {
		fakecuda.Fail(entry, 1, int(cudadrv.NotSupported), 1)
		_, r := cudadrv.HostRegister(ctx, b)
		require.Equal(t, cudadrv.NotSupported, r, entry)
		assert.NotEqual(t, cudadrv.Success, cudadrv.HostUnregister(ctx, b), entry)
	}
	_, r := cudadrv.HostRegister(ctx, b)
	ok(t, r)
	ok(t, cudadrv.HostUnregister(ctx, b))
}
