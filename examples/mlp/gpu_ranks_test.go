//go:build gpu

package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/nccl"
)

// The stand-in has as many devices as ranks are tested.
func init() {
	if fakecuda.Loaded() && os.Getenv("FAKECUDA_DEVICES") == "" {
		os.Setenv("FAKECUDA_DEVICES", "8")
	}
}

// needRanks skips where NCCL or so many GPUs are missing.
func needRanks(t *testing.T, n int) {
	t.Helper()
	noLauncher(t)
	_, err := nccl.Version("")
	if errors.Is(err, cupool.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	all, err := cuda.Devices()
	require.NoError(t, err)
	if len(all) < n {
		t.Skipf("%d GPUs, not %d", len(all), n)
	}
}

// onGPUs is a training that the stand-in's kernels, which the CPU runs, take
// seconds for.
const onGPUs = "-device cuda -shift 0 -hidden 8 -train-samples 32 -batch 16 -epochs 2"

// Eight GPUs learn what one learns with the same batch.
func TestEightGPUs(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			needRanks(t, n)
			one := trainRanks(t, onGPUs)
			requireClose(t, one, trainRanks(t, fmt.Sprint(onGPUs, " -gpus ", n)), n)
		})
	}
}

// So they do when the steps, with the exchange of gradients, are graphs.
func TestGPUsByGraph(t *testing.T) {
	needRanks(t, 2)
	steps := trainRanks(t, onGPUs+" -gpus 2")
	requireClose(t, steps, trainRanks(t, onGPUs+" -gpus 2 -graph -bucket 1"), 2)
}

// GPUs may also exchange gradients through the host.
func TestGPUsThroughHost(t *testing.T) {
	needRanks(t, 2)
	requireClose(t, trainRanks(t, onGPUs), trainRanks(t, onGPUs+" -gpus 2 -comm host"), 2)
}
