//go:build gpu

package gorgoniavm_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
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
		part  int // of the launches of operations one by one
	}{
		"lstm":            {func() *model { return newLSTMLayer(4, 8, 8, steps, 5) }, 7, 5},
		"gru":             {func() *model { return newGRULayer(4, 8, 8, steps, 5) }, 9, 5},
		"character model": {func() *model { return newCharacterModel(4, 8, steps, 6) }, 60, 1},
	} {
		t.Run(name, func(t *testing.T) {
			few := launchesOf(t, c.build())
			all := launchesOf(t, c.build(), gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)))
			t.Logf("%v, %v one by one", few, all)
			require.Less(t, few["kernels"], c.most*steps)
			require.Less(t, c.part*few["kernels"], all["kernels"])
		})
	}
}

// ran returns the cost and the gradients of some runs.
func ran(t *testing.T, e *cupool.Engine, m *model, vm *gorgoniavm.VM, runs int) (all []any) {
	t.Helper()
	for range runs {
		require.NoError(t, vm.RunAll())
		all = append(all, m.cost.Value().Data())
		for _, w := range m.weights {
			g, err := w.Grad()
			require.NoError(t, err)
			all = append(all, data(t, e, g))
		}
	}
	return all
}

// requireRan compares what runs came to: to the bit on the stand-in driver.
func requireRan(t *testing.T, want, got []any, seed uint64) {
	t.Helper()
	for i := range want {
		if fakecuda.Loaded() {
			require.Equal(t, want[i], got[i], "seed %d", seed)
		} else if _, ok := want[i].([]float32); ok {
			require.InDeltaSlice(t, want[i], got[i], 1e-3, "seed %d", seed)
		}
	}
}

// Random graphs of elementwise operations have the values and gradients of
// operations one by one, also as CUDA graphs, and in every run.
func TestGroupsOfRandomGraphs(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	grouped := 0
	e, _ := newReplayMeter(t)
	for i := range uint64(60) {
		seed := first + i
		m := newRandomGraph(seed, []tensor.Dtype{tensor.Float32, tensor.Float64}[seed%2], 1+int(seed%30))
		var want []any
		for _, opts := range [][]gorgoniavm.Option{{gorgoniavm.WithLogger(slog.New(slog.DiscardHandler))}, {}, {gorgoniavm.Replay()}} {
			vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.Gradients(m.weights...))...)
			require.NoError(t, err)
			got := ran(t, e, m, vm, 3)
			if want == nil {
				want = got
			}
			requireRan(t, want, got, seed)
			require.Empty(t, vm.Fallbacks())
			grouped += gorgoniavm.Groups(vm)
			require.NoError(t, vm.Close())
		}
	}
	require.Greater(t, grouped, 60)
}

// All values are what they are one by one, where a program wants to see them.
func TestGroupsTraced(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for range 20 {
		seed++
		m := newRandomGraph(seed, tensor.Float32, 20)
		e, _ := newReplayMeter(t)
		values := func(opts ...gorgoniavm.Option) map[int64]any {
			vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.TraceValues())...)
			require.NoError(t, err)
			defer func() { require.NoError(t, vm.Close()) }()
			require.NoError(t, vm.RunAll())
			got := make(map[int64]any)
			for _, n := range m.g.AllNodes() {
				if n.Value() != nil {
					got[n.ID()] = data(t, e, n.Value())
				}
			}
			return got
		}
		want := values(gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)))
		for n, got := range values() {
			requireRan(t, []any{want[n]}, []any{got}, seed)
		}
	}
}

// A program that changes a slice between runs has the values of that slice, also
// where it was part of a group.
func TestGroupsOfChangedSlices(t *testing.T) {
	for _, replay := range []bool{false, true} {
		e, _ := newReplayMeter(t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(4, 2), G.WithName("x"),
			G.WithValue(tensor.New(tensor.WithShape(4, 2), tensor.WithBacking([]float32{0, 1, 2, 3, 4, 5, 6, 7}))))
		cut := G.Must(G.Slice(x, G.S(0, 2)))
		y := G.Must(G.Square(G.Must(G.Neg(cut))))
		_, err := G.Grad(G.Must(G.Sum(y)), x)
		require.NoError(t, err)
		opts := []gorgoniavm.Option{gorgoniavm.Gradients(x), gorgoniavm.Keep(y)}
		if replay {
			opts = append(opts, gorgoniavm.Replay())
		}
		vm, err := gorgoniavm.New(g, e, opts...)
		require.NoError(t, err)
		run := func(want, gradient []float32) {
			t.Helper()
			for range 3 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, want, data(t, e, y.Value()))
				d, err := x.Grad()
				require.NoError(t, err)
				require.Equal(t, gradient, data(t, e, d))
			}
		}
		require.Positive(t, gorgoniavm.Groups(vm))
		run([]float32{0, 1, 4, 9}, []float32{0, 2, 4, 6, 0, 0, 0, 0})
		require.NoError(t, G.UnsafeLet(cut, G.S(1, 3)))
		run([]float32{4, 9, 16, 25}, []float32{0, 0, 4, 6, 8, 10, 0, 0})
		require.Zero(t, gorgoniavm.Groups(vm))
		require.NoError(t, vm.Close())
	}
}
