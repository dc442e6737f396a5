//go:build gpu

package gorgoniavm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// newGorgoniaConvnet is gorgonia's example with its dropout and its loss, and fewer
// channels.
func newGorgoniaConvnet() *model {
	m := startModel()
	x := G.NewTensor(m.g, tensor.Float32, 4, G.WithShape(2, 1, 28, 28), G.WithName("x"), G.WithValue(values(1, 2, 1, 28, 28)))
	y := G.NewMatrix(m.g, tensor.Float32, G.WithShape(2, 10), G.WithName("y"), G.WithValue(oneHot(2, 2, 10)))
	m.inputs = G.Nodes{x, y}
	h := x
	for i, c := range []int{4, 8, 12} {
		h = square(3, 1, 1, false, true).of(m, tensor.Float32, h, i, c)
		h = G.Must(G.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		h = G.Must(G.Dropout(h, 0.2))
	}
	h = G.Must(G.Reshape(h, tensor.Shape{2, 12 * 9}))
	h = G.Must(G.Dropout(m.denseLayer(h, 8, 25, false, true), 0.55))
	out := G.Must(G.LogSoftMax(m.denseLayer(h, 9, 10, false, false)))
	m.cost = G.Must(G.Mul(G.Must(G.Mean(G.Must(G.HadamardProd(y, out)))), G.NewConstant(float32(-10))))
	if _, err := G.Grad(m.cost, m.weights...); err != nil {
		panic(err)
	}
	return m
}

// submissions are all that gives a device something to do.
var submissions = []string{"cuLaunchKernel", "cublasGemmEx", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyAsync"}

// A step of training of Gorgonia's convolutional network is few launches. How many
// a convolution divides its sums among depends on its size.
func TestLaunchesOfAConvnet(t *testing.T) {
	e, _ := newReplayMeter(t)
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver counts")
	}
	m := newGorgoniaConvnet()
	nodes := append(slices.Clone(m.inputs), m.weights...)
	require.NoError(t, gorgoniavm.ToPool(e, nodes...))
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...))
	require.NoError(t, err)
	solver, err := gorgoniavm.NewSolver(e, gorgoniavm.RMSProp{}, gorgoniavm.KeepGradients())
	require.NoError(t, err)
	step := func() {
		require.NoError(t, vm.RunAll())
		require.NoError(t, solver.Step(G.NodesToValueGrads(m.weights)))
	}
	step() // makes constants
	fakecuda.Count(true)
	step()
	counts := make(map[string]int)
	for _, name := range submissions {
		if n := fakecuda.Calls(name); n > 0 {
			counts[name] = n
		}
	}
	fakecuda.Count(false)
	t.Log(counts)
	require.LessOrEqual(t, counts["cuLaunchKernel"]+counts["cublasGemmEx"], 36)
	delete(counts, "cuLaunchKernel")
	delete(counts, "cublasGemmEx")
	require.Equal(t, map[string]int{"cuMemcpyAsync": 1}, counts, "of the losses")
	require.Empty(t, vm.Fallbacks())
	require.NoError(t, vm.Close())
	require.NoError(t, solver.Close())
	for _, n := range nodes {
		require.NoError(t, e.FreeTensor(n.Value().(tensor.Tensor)))
	}
}
