package enginetest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/kernels/images"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// NewGPU returns an engine that computes on a GPU, or on the stand-in driver,
// which runs the same kernels on the CPU. It skips the test where there is
// neither.
func NewGPU(t testing.TB, opts ...cupool.EngineOption) *Bench {
	t.Helper()
	d, err := cuda.Open(0)
	gputest.NoError(t, err)
	e := newOn(t, d, opts)
	NeedKernels(t, e.Engine)
	e.Far, e.GPU = true, true
	return e
}

// NeedKernels skips the test where the stand-in has no kernels. A GPU has them, and an
// engine takes those that there are.
func NeedKernels(t testing.TB, e *cupool.Engine) {
	t.Helper()
	err := e.Stream().Pool().Driver().(gpu.Device).LoadKernels(images.Of)
	if fakecuda.Loaded() && errors.Is(err, cupool.ErrNotSupported) {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	require.NoError(t, err)
	require.NotNil(t, tensorop.Of(e).GPU(), "the engine has no kernels")
}
