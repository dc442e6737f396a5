package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// bench is an engine to be tested and its allocator.
type bench struct{ *enginetest.Bench }

// both runs a test on the engines of enginetest.Both.
func both(t *testing.T, f func(t *testing.T, e *bench)) {
	enginetest.Both(t, func(t *testing.T, e *enginetest.Bench) { f(t, &bench{e}) })
}

// failures are errors of steps, and what they have to be around.
type failures map[string]struct{ err, want error }

func (fs failures) require(t *testing.T) {
	t.Helper()
	for what, f := range fs {
		require.ErrorIs(t, f.err, f.want, what)
		var ours *cupool.EngineError
		require.ErrorAs(t, f.err, &ours, what)
	}
}

// must returns v, and panics with err where that is not nil.
func must[T any](v T, err error) T { return testkit.Must(v, err) }

var (
	random     = enginetest.Random
	value      = enginetest.Value
	single     = enginetest.Single
	transposed = enginetest.Transposed
	floats     = enginetest.Floats
	productsOf = enginetest.ProductsOf
	bounds     = enginetest.Bounds
)

// newGPU returns an engine that computes on a GPU, on a stream that can be
// captured, or skips.
func newGPU(t *testing.T) *bench {
	e := &bench{enginetest.NewGPU(t)}
	e.Engine = must(cupool.NewEngine(e.Pool, cupool.WithStream(must(e.Pool.NewStream()))))
	return e
}

// quick reports whether a test on a GPU is to be short: the kernels of the stand-in
// driver run on the CPU.
func quick() bool { return fakecuda.Loaded() && !testkit.Long() }
