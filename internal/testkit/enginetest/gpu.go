//go:build gpu

package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/testkit"
)

func init() { NewGPU = newGPU }

// newGPU returns an engine that computes on a GPU, or on the stand-in
// driver, which runs the same kernels on the CPU.
func newGPU(t testing.TB, opts ...cupool.EngineOption) *Bench {
	d, err := cuda.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(), "leaks") })
	e, err := cupool.NewEngine(Poisoned{c}, opts...)
	require.NoError(t, err)
	if tensorop.Of(e).GPU() == nil {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	return &Bench{Engine: e, Pool: c, T: t, Rand: testkit.Rand(t), Far: true, GPU: true}
}
