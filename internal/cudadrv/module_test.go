package cudadrv_test

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudadrv"
)

// module loads the kernels of the tests.
func module(t testing.TB, ctx uintptr) uintptr {
	t.Helper()
	ptx, err := os.ReadFile("../testkit/gputest/kernels.ptx")
	require.NoError(t, err)
	m, r := cudadrv.ModuleLoad(ctx, append(ptx, 0))
	ok(t, r)
	t.Cleanup(func() { ok(t, cudadrv.ModuleUnload(ctx, m)) })
	return m
}

func function(t testing.TB, ctx, module uintptr, name string) uintptr {
	t.Helper()
	f, r := cudadrv.ModuleFunction(ctx, module, name)
	ok(t, r)
	return f
}

func TestModule(t *testing.T) {
	ctx, _ := open(t)
	_, r := cudadrv.ModuleFunction(ctx, module(t, ctx), "no_such_kernel")
	assert.Equal(t, cudadrv.NotFound, r)
}

// TestModuleInCapture loads a module on a thread that captures a stream, which forbids
// most calls.
func TestModuleInCapture(t *testing.T) {
	ctx, stream := open(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ok(t, cudadrv.StreamBeginCapture(ctx, stream))
	m := module(t, ctx)
	ok(t, cudadrv.StreamDropCapture(ctx, stream))
	function(t, ctx, m, "add")
}

// TestLaunch launches kernels with the arguments that they have, and with more, which
// they do not look at.
func TestLaunch(t *testing.T) {
	ctx, stream := open(t)
	const words, wrong = 64, 64
	p, b := pinned(t, ctx, 4*(words+1))
	m := module(t, ctx)
	spin, fill, check, add := function(t, ctx, m, "cupool_spin"), function(t, ctx, m, "cupool_fill"), function(t, ctx, m, "cupool_check"), function(t, ctx, m, "add")
	got := unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), words+1)

	for _, c := range []struct {
		name     string
		function uintptr
		args     []uint64
		r        cudadrv.Result
		wrong    uint32
	}{
		{"one", spin, []uint64{0}, cudadrv.Success, 0},
		{"three", fill, []uint64{uint64(p), words, 7}, cudadrv.Success, 0},
		{"four", check, []uint64{uint64(p), words, 7, uint64(p) + 4*wrong}, cudadrv.Success, 0},
		{"six", check, []uint64{uint64(p), words, 8, uint64(p) + 4*wrong, 1, 2}, cudadrv.Success, words},
		{"seven", add, make([]uint64, 7), cudadrv.InvalidValue, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got[wrong] = 0
			require.Equal(t, c.r, cudadrv.Launch(ctx, c.function, 1, 32, stream, c.args...))
			ok(t, cudadrv.StreamSync(ctx, stream))
			assert.Equal(t, c.wrong, got[wrong])
		})
	}
	t.Run("structure", func(t *testing.T) {
		arg := uint64(1)
		ok(t, cudadrv.LaunchStruct(ctx, spin, 2, 2, 32, stream, uintptr(unsafe.Pointer(&arg))))
		arg = 1 << 62 // the driver has copied it
		ok(t, cudadrv.StreamSync(ctx, stream))
	})
}
