package tensors_test

import (
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

type bench = enginetest.Bench

var (
	both = enginetest.Both
	view = enginetest.View
)

// mortals runs a test on engines with lifetimes.
func mortals(t *testing.T, f func(t *testing.T, e *bench)) {
	t.Run("near", func(t *testing.T) { f(t, enginetest.New(t, false, cupool.WithLifetimes())) })
	t.Run("far", func(t *testing.T) { f(t, enginetest.New(t, true, cupool.WithLifetimes())) })
	if enginetest.NewGPU != nil {
		t.Run("gpu", func(t *testing.T) { f(t, enginetest.NewGPU(t, cupool.WithLifetimes())) })
	}
}
