package tensorop_test

import (
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// bench is an engine to be tested and its allocator.
type bench struct{ *enginetest.Bench }

// both runs a test on the engines of enginetest.Both.
func both(t *testing.T, f func(t *testing.T, e *bench)) {
	enginetest.Both(t, func(t *testing.T, e *enginetest.Bench) { f(t, &bench{e}) })
}

// newBench returns an engine of enginetest.New.
func newBench(t testing.TB, far bool, opts ...cupool.EngineOption) *bench {
	return &bench{enginetest.New(t, far, opts...)}
}

// newGPU returns an engine that computes on a GPU, or skips.
func newGPU(t *testing.T, opts ...cupool.EngineOption) *bench {
	return &bench{enginetest.NewGPU(t, opts...)}
}

// must returns v, and panics with err where that is not nil.
func must[T any](v T, err error) T { return testkit.Must(v, err) }

var (
	random     = enginetest.Random
	randomOf   = enginetest.RandomOf
	value      = enginetest.Value
	special    = enginetest.Special
	view       = enginetest.View
	transposed = enginetest.Transposed
	floats     = enginetest.Floats
	productsOf = enginetest.ProductsOf
	elements   = enginetest.Elements
	isFloat    = enginetest.IsFloat
	floatsOf   = enginetest.FloatsOf
	bounds     = enginetest.Bounds
)
