//go:build gpu

package gorgoniavm_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// launchesOf returns what a step of a model launches.
func launchesOf(t *testing.T, m *model, opts ...gorgoniavm.Option) map[string]int {
	t.Helper()
	gpuRig(t) // or skips
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver counts")
	}
	e, _ := newGPUMeter(t)
	vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.Gradients(m.weights...))...)
	require.NoError(t, err)
	defer vm.Close()
	require.NoError(t, vm.RunAll()) // makes constants
	fakecuda.Count(true)
	defer fakecuda.Count(false)
	require.NoError(t, vm.RunAll())
	require.Empty(t, vm.Fallbacks())
	return map[string]int{"kernels": fakecuda.Calls("cuLaunchKernel"), "groups": gorgoniavm.Groups(vm)}
}

// A step of a recurrent layer takes a few launches, forward and back.
func TestLaunchesOfRecurrentLayers(t *testing.T) {
	const steps = 10
	for name, c := range map[string]struct {
		build func() *model
		most  int // launches a step of the sequence; the stand-in driver counts a product of cuBLAS as two
	}{
		"lstm": {func() *model { return newLSTMLayer(4, 8, 8, steps, 5) }, 7},
		"gru":  {func() *model { return newGRULayer(4, 8, 8, steps, 5) }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			few := launchesOf(t, c.build())
			all := launchesOf(t, c.build(), gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)))
			t.Logf("%v, %v one by one", few, all)
			require.Less(t, few["kernels"], c.most*steps)
			require.Less(t, 8*few["kernels"], all["kernels"])
		})
	}
}
