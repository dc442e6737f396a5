//go:build gpu

package gorgoniavm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// gpuRig is a pool and an engine on a GPU with kernels.
func gpuRig(t *testing.T) (*cupool.Pool, *cupool.Engine) {
	t.Helper()
	dev, err := cupool.Open("cuda:0")
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: dev})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close())
		require.NoError(t, dev.Close())
	})
	eng, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	probe := dense(t, eng, tensor.Float32, tensor.Shape{4}, nil)
	_, err = eng.Square(probe, tensor.UseUnsafe())
	require.NoError(t, err)
	require.NoError(t, eng.FreeTensor(probe))
	if eng.Stats().Fallbacks > 0 && fakecuda.Loaded() {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	return pool, eng
}

// A GPU does what the CPU does, by kernels alone, and takes no memory for it
// after the first step.
func TestSolversOnGPU(t *testing.T) {
	const steps, seed = 20, 7
	methods := map[string]gorgoniavm.Method{
		"AdamW":    gorgoniavm.AdamW{WeightDecay: 0.1},
		"Nesterov": gorgoniavm.Momentum{LearnRate: 0.02, Nesterov: true, Regularization: gorgoniavm.Regularization{L1: 0.01, Clip: 0.5}},
		"L1":       gorgoniavm.Momentum{Regularization: gorgoniavm.Regularization{L1: 0.01}},
		"clipped":  gorgoniavm.RMSProp{Clip: 0.1},
	}
	for name, c := range stock {
		methods[name] = c.method
	}
	for name, m := range methods {
		t.Run(name, func(t *testing.T) {
			host, _ := newPool(t)
			pool, eng := gpuRig(t)
			solvers := map[*cupool.Engine]*gorgoniavm.Solver{}
			models := map[*cupool.Engine][]gorgonia.ValueGrad{}
			for _, e := range []*cupool.Engine{host, eng} {
				s, err := gorgoniavm.NewSolver(e, m)
				require.NoError(t, err)
				solvers[e], models[e] = s, newModel(t, e, tensor.Float32, seed)
			}
			before := eng.Stats().Fallbacks
			var after int64
			for step := range uint64(steps) {
				for e, s := range solvers {
					setGrads(t, e, models[e], rand.New(rand.NewPCG(seed, step)))
					before := pool.Stats().All.Allocation.Allocated
					require.NoError(t, s.Step(models[e]))
					after = pool.Stats().All.Allocation.Allocated
					require.True(t, step == 0 || after == before, "step %d took memory", step)
				}
			}
			require.Equal(t, before, eng.Stats().Fallbacks, eng.Stats().ByOp)
			require.InDeltaSlice(t, numbers(t, host, models[host], false), numbers(t, eng, models[eng], false), 1e-4)
			for _, g := range numbers(t, eng, models[eng], true) {
				require.Zero(t, g)
			}
			for e, s := range solvers {
				require.NoError(t, s.Close())
				freeModel(t, e, models[e])
			}
		})
	}
}

// Weights of another engine are not the solver's to move.
func TestSolverOfAnotherEngineOnGPU(t *testing.T) {
	pool, eng := gpuRig(t)
	other, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	model := newModel(t, other, tensor.Float32, 1)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
	require.NoError(t, err)
	require.ErrorIs(t, s.Step(model), cupool.ErrNotSupported)
	require.NoError(t, s.Close())
	freeModel(t, other, model)
}
