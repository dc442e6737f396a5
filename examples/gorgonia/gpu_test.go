//go:build gpu

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/internal/fakecuda"
)

// A GPU learns what the host learns, from the same seed, and leaves nothing of
// the perceptron to it.
func TestTrainingOnGPU(t *testing.T) {
	onOneProcessor(t)
	for _, args := range [][]string{
		{"-shift", "0"},
		{"-shift", "1", "-optimizer", "adam"},
		{"-shift", "0", "-graph"},
		{"-shift", "1", "-graph", "-optimizer", "adam"},
	} {
		args = append(args, "-hidden", "24", "-train-samples", "100", "-data", smallData(t))
		host := runReport(t, args...)
		gpu := runReport(t, append(args, "-device", "cuda")...)
		if gpu.FallbackOps > 0 && fakecuda.Loaded() {
			t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
		}
		require.Zero(t, gpu.FallbackOps)
		if slices.Contains(args, "-graph") {
			require.EqualValues(t, gpu.Steps-1, gpu.GraphSteps, gpu.GraphError)
			require.Zero(t, host.GraphSteps)
			require.NotEmpty(t, host.GraphError)
			require.Zero(t, gpu.PoolByteShare, "the last step takes no memory")
		} else {
			require.Greater(t, gpu.PoolByteShare, 0.9) // fused layers of this size take little; of MNIST's it is 0.995
		}
		require.Empty(t, gpu.ForeignOps)
		require.Zero(t, gpu.LeakedBlocks)
		require.InDelta(t, host.LossFirst, gpu.LossFirst, 1e-4)
		require.InDelta(t, host.LossLast, gpu.LossLast, 1e-2)
		require.Equal(t, gpu.LiveBytesFirst, gpu.LiveBytesLast)
	}
}

// Steps as CUDA graphs have the losses of others. One sample in a batch is a
// matrix too.
func TestGraphsOnGPU(t *testing.T) {
	for _, batch := range []string{"1", "7"} {
		args := []string{"-shift", "0", "-hidden", "12", "-train-samples", "15", "-batch", batch, "-data", smallData(t), "-device", "cuda"}
		want, got := runReport(t, args...), runReport(t, append(args, "-graph")...)
		if got.FallbackOps > 0 && fakecuda.Loaded() {
			t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
		}
		require.EqualValues(t, got.Steps-1, got.GraphSteps, got.GraphError)
		require.InDelta(t, want.LossLast, got.LossLast, 1e-5)
		require.Equal(t, want.TestAccuracy, got.TestAccuracy)
	}
}

// Networks of images run there too, and in managed memory. Without dropout they
// have the host's losses.
func TestImageNetsOnGPU(t *testing.T) {
	t.Run("convnet", func(t *testing.T) {
		args := []string{"-net", "convnet", "-data", smallData(t), "-train-samples", "20", "-batch", "10", "-epochs", "1"}
		onBothMemories(t, args, func(r report) { require.NotEqual(t, r.LossFirst, r.LossLast) })
	})
	t.Run("resnet", func(t *testing.T) { // few images: there is much to compute for the stand-in driver
		dir := t.TempDir()
		require.NoError(t, training.WriteSubset(dir, 4, 10))
		args := []string{"-net", "resnet", "-data", dir, "-train-samples", "4", "-batch", "2", "-epochs", "1", "-optimizer", "adam", "-lr", "0.001"}
		host := runReport(t, args...)
		onBothMemories(t, args, func(r report) {
			require.InDelta(t, host.LossFirst, r.LossFirst, 1e-4)
			require.InDelta(t, host.LossLast, r.LossLast, 1e-2)
			require.InDelta(t, host.TestAccuracy, r.TestAccuracy, 0.11, "one image of ten")
		})
	})
}

// onBothMemories runs two steps in the device's memory and in managed memory.
func onBothMemories(t *testing.T, args []string, check func(report)) {
	for _, device := range []string{"cuda", "cuda:0,managed"} {
		r := runReport(t, append(args, "-device", device)...)
		require.Equal(t, 2, r.Steps)
		require.Zero(t, r.LeakedBlocks)
		require.InEpsilon(t, r.LiveBytesFirst, r.LiveBytesLast, 0.01) // a block that is used again may be larger than what is asked for
		check(r)
	}
}

// Gorgonia's own machine needs memory that the CPU can touch.
func TestStockMachineOnGPU(t *testing.T) {
	for _, args := range [][]string{{"-vm", "tape"}, {"-vm", "stock"}, {"-compare"}} {
		status, _, stderr := runSmall(t.Context(), append(args, "-device", "cuda")...)
		require.Equal(t, training.ExitFailed, status)
		require.Contains(t, stderr, "which cannot touch the memory of cuda:0")
	}
	r := runReport(t, "-vm", "tape", "-device", "cuda:0,managed", "-train-samples", "100")
	require.Less(t, r.LossLast, r.LossFirst)
}

// smallData writes a few images, for a driver that runs kernels on the CPU.
func smallData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, training.WriteSubset(dir, 100, 20))
	return dir
}

// A recurrent network has the losses there that it has on the host, and nothing
// is left to Gorgonia.
func TestRNNOnGPU(t *testing.T) {
	onOneProcessor(t)
	for _, args := range [][]string{{"-cell", "lstm"}, {"-cell", "gru"}, {"-cell", "lstm", "-graph"}, {"-cell", "gru", "-graph"}} {
		args = append(args, "-net", "rnn", "-hidden", "9", "-steps", "4", "-batch", "5", "-train-samples", "60", "-epochs", "2")
		host := runReport(t, args...)
		gpu := runReport(t, append(args, "-device", "cuda")...)
		if gpu.FallbackOps > 0 && fakecuda.Loaded() {
			t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
		}
		require.Zero(t, gpu.FallbackOps)
		require.Empty(t, gpu.ForeignOps)
		require.Zero(t, gpu.LeakedBlocks)
		require.InDelta(t, host.LossFirst, gpu.LossFirst, 1e-4)
		require.InDelta(t, host.LossLast, gpu.LossLast, 1e-2)
		require.Equal(t, gpu.LiveBytesFirst, gpu.LiveBytesLast)
		if slices.Contains(args, "-graph") {
			require.EqualValues(t, gpu.Steps-1, gpu.GraphSteps, gpu.GraphError)
		}
	}
}
