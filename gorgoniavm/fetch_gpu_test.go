//go:build gpu

package gorgoniavm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// requireOneWait checks that a step waited for the cost and for nothing else.
func requireOneWait(t *testing.T) {
	t.Helper()
	require.Equal(t, 1, fakecuda.Calls("cuEventSynchronize"))
	require.Zero(t, fakecuda.Calls("cuStreamSynchronize")+fakecuda.Calls("cuMemcpyDtoHAsync_v2"))
}

// A step waits for the cost alone, not for the gradients, which come after it.
func TestWaitsOfAStep(t *testing.T) {
	gpuRig(t) // or skips
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver counts")
	}
	m := newMLP(16, 20, 30, 20, 10)
	_, a := newGPUMeter(t)
	e := newStreamEngine(t, a.Pool)
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...))
	require.NoError(t, err)
	defer func() { require.NoError(t, vm.Close()) }()
	require.NoError(t, vm.RunAll())
	fakecuda.Count(true)
	defer fakecuda.Count(false)
	require.NoError(t, vm.RunAll())
	requireOneWait(t)
}

// A wait or a copy that fails is an error of the run, and the next run is right.
// Without page-locked memory the cost is read when it is needed.
func TestFetchFailures(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver fails when it is told to")
	}
	for _, replay := range []bool{false, true} {
		for call, fails := range map[string]bool{"cuEventSynchronize": true, "cuEventRecord": true, "cuMemcpyAsync": true, "cuMemHostAlloc": false} {
			t.Run(fmt.Sprint(call, ", replay ", replay), func(t *testing.T) {
				e, a := newReplayMeter(t)
				m := newMLP(4, 6, 5, 3)
				require.NoError(t, gorgoniavm.ToPool(e, append(slices.Clone(m.inputs), m.weights...)...)) // no other copies
				opts := []gorgoniavm.Option{gorgoniavm.Gradients(m.weights...)}
				if replay {
					opts = append(opts, gorgoniavm.Replay())
				}
				vm, err := gorgoniavm.New(m.g, e, opts...)
				require.NoError(t, err)
				if !fails {
					fakecuda.Fail(call, 1, 2, 1)
				}
				require.NoError(t, vm.RunAll())
				want := bits(m.cost.Value().Data())
				require.NoError(t, vm.RunAll())
				if fails {
					fakecuda.Fail(call, 1, 999, 1)
					require.Error(t, vm.RunAll())
				}
				fakecuda.Reset()
				require.NoError(t, vm.RunAll())
				near(t, want, bits(m.cost.Value().Data()))
				require.NoError(t, vm.Close())
				for _, n := range append(m.inputs, m.weights...) {
					require.NoError(t, e.FreeTensor(n.Value().(tensor.Tensor)))
				}
				require.Zero(t, a.live)
			})
		}
	}
}
