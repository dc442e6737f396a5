package tensors_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/native"
	"github.com/cupool/cupool/planner"
)

// TestNewEngineNil: without an allocator there is no engine, whatever the type
// of the nil is.
func TestNewEngineNil(t *testing.T) {
	for name, a := range map[string]cupool.Allocator{
		"nil":          nil,
		"nil *Pool":    (*cupool.Pool)(nil),
		"nil *Planner": (*planner.Planner)(nil),
		"nil *Arena":   (*arena.Arena)(nil),
		"nil *Native":  (*native.Allocator)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			require.Nil(t, pooltest.PanicOf(func() { _, err = cupool.NewEngine(a) }))
			require.ErrorIs(t, err, cupool.ErrInvalidConfig)
		})
	}
}

// TestTensorsOfPointers: tensors whose elements hold Go pointers are refused, as
// Go does not see what lies in the pool.
func TestTensorsOfPointers(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		// tensor.New does not tell the engine the type of the elements, but every
		// operation does.
		use := func(dt tensor.Dtype) (tensor.Tensor, error) {
			d := tensor.New(tensor.Of(dt), tensor.WithShape(2), tensor.WithEngine(e.Engine))
			defer e.FreeAll(d)
			for what, f := range map[string]func() error{
				"Zero":   func() error { return e.Zero(d) },
				"Copy":   func() error { return e.Copy(d, d) },
				"Repeat": func() error { return testkit.Second(tensor.Repeat(d, 0, 2)) },
				"ElEq":   func() error { return testkit.Second(tensor.ElEq(d, d)) },
			} {
				require.ErrorIs(t, f(), cupool.ErrNotSupported, "%s of %v", what, dt)
			}
			return nil, testkit.Second(e.ToHost(d))
		}
		for name, make := range map[string]func() (tensor.Tensor, error){
			"FromHost":        func() (tensor.Tensor, error) { return e.FromHost(tensor.New(tensor.WithBacking([]string{"a", "b"}))) },
			"Empty":           func() (tensor.Tensor, error) { return e.Empty(tensor.String, 2) },
			"New":             func() (tensor.Tensor, error) { return use(tensor.String) },
			"New of pointers": func() (tensor.Tensor, error) { return use(tensor.UnsafePointer) },
		} {
			d, err := make()
			if err == nil {
				t.Errorf("%s: no error", name)
				_ = e.FreeTensor(d)
				continue
			}
			require.ErrorIs(t, err, cupool.ErrNotSupported, name)
		}
		require.Zero(t, e.Live())
	})
}
