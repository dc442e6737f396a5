//go:build gpu

package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/gorgoniavm"
)

// Convolutions on a GPU have the numbers of the tape machine, one by one and as
// graphs, and nothing of them is computed on the CPU.
func TestFusedConvsOnGPU(t *testing.T) {
	for name, c := range fusedConvs {
		t.Run(name, func(t *testing.T) { requireReplays(t, c.build()) })
	}
}

func TestFusedNormsOnGPU(t *testing.T) {
	for name, c := range fusedNorms {
		t.Run(name, func(t *testing.T) { requireReplays(t, c.build()) })
	}
}

// requireReplays compares runs one by one with the tape machine, and with graphs.
func requireReplays(t *testing.T, m *model) {
	t.Helper()
	const steps = 4
	e, _ := newReplayMeter(t)
	want := m.tape(t, steps)
	vm := open(t, m, e)
	got := m.train(t, e, vm, steps)
	nearAll(t, want, got)
	require.Empty(t, vm.Fallbacks())
	replayed := open(t, m, e, gorgoniavm.Replay())
	requireSame(t, got, m.train(t, e, replayed, steps))
	require.NoError(t, replayed.Replays().Err)
	require.EqualValues(t, 1, replayed.Replays().Recordings)
}

func TestConvsOfAllSizesOnGPU(t *testing.T) {
	gpuRig(t) // or skips
	eachConv(t, func(t *testing.T, m *model, what string) {
		e, _ := newGPUMeter(t)
		requireTapes(t, m, e, what)
	})
}

func TestConvsWithAValueKeptOnGPU(t *testing.T) {
	gpuRig(t) // or skips
	e, _ := newGPUMeter(t)
	requireKept(t, e, keptConvs())
	requireKept(t, e, keptNorms())
}

// A Rectify behind a sum is computed with the sum, in one launch.
func TestRectifyInAGroup(t *testing.T) {
	gpuRig(t) // or skips
	m := fusedNorms["a residual"].build()
	e, _ := newGPUMeter(t)
	vm := open(t, m, e)
	forward, back := gorgoniavm.Rectified(vm)
	require.Equal(t, []int{0, 0}, []int{forward, back})
	require.Positive(t, gorgoniavm.Groups(vm))
	nearAll(t, m.tape(t, 3), m.train(t, e, vm, 3))
}
