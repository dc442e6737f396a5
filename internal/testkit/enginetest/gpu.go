package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/tensorop"
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

// NeedKernels skips the test where an engine on the stand-in has no kernels. On a
// GPU it has them.
func NeedKernels(t testing.TB, e *cupool.Engine) {
	t.Helper()
	if tensorop.Of(e).GPU() == nil {
		require.True(t, fakecuda.Loaded(), "the engine has no kernels")
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
}
