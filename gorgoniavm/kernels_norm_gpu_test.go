//go:build gpu

package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// A recording learns running statistics with every launch, as runs without do, and
// is made anew when the operation evaluates.
func TestReplayedBatchNorm(t *testing.T) {
	l := newLayerTest(t, tensor.Float32)
	y, op := l.normed(3, 2, 2, 3)
	tape := G.NewTapeMachine(l.m.g)
	runs(t, tape, 6)
	want := stats(t, op)
	require.NoError(t, op.SetTraining(false))
	runs(t, tape, 1)
	evaluated := doubles(t, nil, y.Value())
	require.NoError(t, tape.Close())

	e, _ := newReplayMeter(t)
	vm := l.onDevice(t, e, gorgoniavm.Keep(y), gorgoniavm.Replay())
	runs(t, vm, 6)
	require.EqualValues(t, 5, vm.Replays().Launches, "%+v", vm.Replays())
	require.NoError(t, vm.SyncStats())
	requireStats(t, l, want, op)
	require.NoError(t, op.SetTraining(false))
	runs(t, vm, 1)
	require.EqualValues(t, 2, vm.Replays().Recordings)
	requireClose(t, l.dt, evaluated, doubles(t, e, y.Value()), "evaluated")
	runs(t, vm, 2)
	require.NoError(t, vm.SyncStats())
	requireStats(t, l, want, op)
}
