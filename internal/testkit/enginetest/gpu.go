//go:build gpu

package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/tensorop"
)

func init() { NewGPU = newGPU }

// newGPU returns an engine that computes on a GPU, or on the stand-in
// driver, which runs the same kernels on the CPU.
func newGPU(t testing.TB, opts ...cupool.EngineOption) *Bench {
	d, err := cuda.Open(0)
	require.NoError(t, err)
	e := newOn(t, d, opts)
	if tensorop.Of(e.Engine).GPU() == nil {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	e.Far, e.GPU = true, true
	return e
}
