//go:build gpu

package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// A GPU draws by itself, and the launches of a recording draw what runs one by one
// do: new numbers each time, the same for an operation and its gradient.
func TestReplayDraws(t *testing.T) {
	const drop = 0.3
	e, a := newReplayMeter(t)
	d := newDropped(t, drop)
	read := func(v G.Value) any { return data(t, e, v) }
	var want [5][]any
	one, err := gorgoniavm.New(d.g, e, gorgoniavm.WithSeed(7), gorgoniavm.TraceValues())
	require.NoError(t, err)
	for i := range want {
		want[i] = d.run(t, one, read)
		requireDropped(t, drop, want[i])
	}
	require.Empty(t, one.Fallbacks())
	require.NoError(t, one.Close())

	vm, err := gorgoniavm.New(d.g, e, gorgoniavm.WithSeed(7), gorgoniavm.TraceValues(), gorgoniavm.Replay())
	require.NoError(t, err)
	for i := range want {
		require.Equal(t, want[i], d.run(t, vm, read), "run %d", i)
	}
	require.Equal(t, gorgoniavm.ReplayStats{Recordings: 1, Launches: 4}, vm.Replays())
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
}

// A run that runs out of memory leaves nothing behind, whatever it was to be for.
func TestDrawsOutOfMemory(t *testing.T) {
	gpuRig(t) // or skips
	e, a := newGPUMeter(t)
	for n := 1; ; n++ {
		d := newDropped(t, 0.5)
		vm, err := gorgoniavm.New(d.g, e)
		require.NoError(t, err)
		a.failIn = n
		err = vm.RunAll()
		a.failIn = 0
		if err != nil {
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			require.NoError(t, vm.RunAll(), "the next run")
		}
		require.NoError(t, vm.Close())
		require.Zero(t, a.live)
		if err == nil {
			return
		}
	}
}
