//go:build gpu

package gorgoniavm_test

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// newGPUMeter is newMeter on a GPU with kernels.
func newGPUMeter(t testing.TB) (*cupool.Engine, *meter) {
	t.Helper()
	d, err := cupool.Open("cuda:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return newMeterOn(t, d)
}

// Every model trains on a GPU to what it trains to on the CPU, as far as
// float32 goes, and steps hold on to nothing.
func TestModelsOnGPU(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		t.Run(name, func(t *testing.T) {
			gpuRig(t) // or skips
			m := models[name]()
			want := m.tape(t, 3)
			e, a := newGPUMeter(t)
			vm := open(t, m, e)
			got := m.train(t, e, vm, 3)
			nearAll(t, want, got)
			require.NoError(t, vm.RunAll())
			live := a.live
			require.NoError(t, vm.RunAll())
			assert.Equal(t, live, a.live)
			t.Logf("on the CPU: %v", vm.Fallbacks())
		})
	}
}

// What is computed on the CPU is known, and most is not.
func TestFallbacksOnGPU(t *testing.T) {
	for name, want := range map[string]map[string]int64{
		"mlp":                 {},
		"rnn":                 {},
		"lstm":                {},
		"linear regression":   {},
		"slices and concat":   {},
		"reductions":          {},
		"log softmax":         {},
		"logistic regression": {},
		"convnet":             {},
		"batch norm":          {},
		"group norm":          {},
		"pool and norm":       {},
		"average pool":        {},
		"upsample":            {},
		"activations":         {},
		"by indices":          {},
		"sparsemax":           {},
		"products":            {},
	} {
		t.Run(name, func(t *testing.T) {
			gpuRig(t) // or skips
			m := models[name]()
			e, _ := newGPUMeter(t)
			vm := open(t, m, e)
			require.NoError(t, vm.RunAll())
			assert.Equal(t, want, vm.Fallbacks())
		})
	}
}

// In managed memory the CPU computes everything, as on the host.
func TestModelsInManagedMemory(t *testing.T) {
	for _, name := range []string{"mlp", "convnet"} {
		t.Run(name, func(t *testing.T) {
			m := models[name]()
			want := m.tape(t, 3)
			d, err := cuda.Open(0, cuda.Managed())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			e, _ := newMeterOn(t, d)
			assert.Equal(t, want, m.train(t, e, open(t, m, e), 3))
		})
	}
}

// VMs on streams of their own run at once.
func TestTwoVMsOnGPU(t *testing.T) {
	gpuRig(t) // or skips
	_, a := newGPUMeter(t)
	want, got := make([]trained, 2), make([]trained, 2)
	var wg sync.WaitGroup
	for i := range got {
		s, err := a.NewStream()
		require.NoError(t, err)
		e, err := cupool.NewEngine(a, cupool.WithStream(s))
		require.NoError(t, err)
		m := models["mlp"]()
		want[i] = m.tape(t, 10)
		vm := open(t, m, e)
		wg.Go(func() { got[i] = m.train(t, e, vm, 10) })
	}
	wg.Wait()
	for i := range got {
		nearAll(t, want[i], got[i])
	}
}

// A run that runs out of device memory leaves nothing behind.
func TestOutOfMemoryOnGPU(t *testing.T) {
	gpuRig(t) // or skips
	for _, name := range []string{"mlp", "convnet", "pool and norm"} {
		t.Run(name, func(t *testing.T) {
			m := models[name]()
			want := m.tape(t, 1)
			e, a := newGPUMeter(t)
			vm := open(t, m, e)
			require.NoError(t, vm.RunAll())
			zeroGradients(t, e, m)
			live := a.live
			for n := 1; ; n++ {
				a.failIn = n
				err := vm.RunAll()
				if err == nil {
					break
				}
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				require.LessOrEqual(t, a.live, live)
			}
			a.failIn = 0
			zeroGradients(t, e, m)
			near(t, want.Costs[0], m.train(t, e, vm, 1).Costs[0])
		})
	}
}

// A step whose layers are fused takes less than half of the launches.
func TestLaunchesOfAStep(t *testing.T) {
	gpuRig(t) // or skips
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver counts")
	}
	launches := func(opts ...gorgoniavm.Option) int {
		m := newMLP(16, 20, 30, 20, 10)
		e, _ := newGPUMeter(t)
		vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.Gradients(m.weights...))...)
		require.NoError(t, err)
		defer vm.Close()
		require.NoError(t, vm.RunAll()) // makes constants
		fakecuda.Count(true)
		defer fakecuda.Count(false)
		require.NoError(t, vm.RunAll())
		return fakecuda.Calls("cuLaunchKernel") + fakecuda.Calls("cublasGemmEx")
	}
	fused, all := launches(), launches(gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)))
	t.Logf("%d launches, %d without fused layers", fused, all)
	require.Less(t, 2*fused, all)
	require.Greater(t, fused, 6)
}

// BenchmarkStepOnGPU is a step of training of networks that are so small that
// what the CPU does for it is what takes time, with their inputs on the device.
func BenchmarkStepOnGPU(b *testing.B) {
	nets := map[string]func() *model{
		"mlp":     newMNIST,
		"convnet": newGorgoniaConvnet,
		"rnn":     func() *model { return newLSTMLayer(2, 4, 8, 32, 6) },
	}
	for _, name := range slices.Sorted(maps.Keys(nets)) {
		b.Run(name+"/bound gradients", func(b *testing.B) {
			m := nets[name]()
			benchmarkStep(b, m, nil, gorgoniavm.BindDualValues(m.weights...))
		})
		b.Run(name+"/gradients", func(b *testing.B) {
			m := nets[name]()
			benchmarkStep(b, m, []gorgoniavm.SolverOption{gorgoniavm.KeepGradients()}, gorgoniavm.Gradients(m.weights...))
		})
		b.Run(name+"/replay", func(b *testing.B) {
			m := nets[name]()
			benchmarkStep(b, m, []gorgoniavm.SolverOption{gorgoniavm.KeepGradients()}, gorgoniavm.Gradients(m.weights...), gorgoniavm.Replay())
		})
	}
}

func benchmarkStep(b *testing.B, m *model, solving []gorgoniavm.SolverOption, opts ...gorgoniavm.Option) {
	_, a := newGPUMeter(b)
	e := newStreamEngine(b, a.Pool)
	all := append(slices.Clone(m.inputs), m.weights...)
	require.NoError(b, gorgoniavm.ToPool(e, all...))
	defer func() {
		for _, n := range all {
			require.NoError(b, e.FreeTensor(n.Value().(tensor.Tensor)))
		}
	}()
	vm, err := gorgoniavm.New(m.g, e, opts...)
	require.NoError(b, err)
	defer vm.Close()
	solver, err := gorgoniavm.NewSolver(e, gorgoniavm.Adam{LearnRate: 0.01}, solving...)
	require.NoError(b, err)
	defer solver.Close()
	model := gorgonia.NodesToValueGrads(m.weights)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, vm.RunAll())
		require.NoError(b, solver.Step(model))
	}
	require.NoError(b, e.Sync())
}
