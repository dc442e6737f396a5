package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit/nvtxtest"
)

// A tool sees the operations of a run by name, each with its node.
func TestToolSeesOperations(t *testing.T) {
	got, ok := nvtxtest.Record(t, func(t *testing.T) {
		eng, _ := newMeter(t)
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 2, G.WithShape(2, 3), G.WithInit(G.Ones()))
		G.Must(G.Mul(x, G.Must(G.Transpose(x))))
		vm, err := gorgoniavm.New(g, eng)
		require.NoError(t, err)
		require.NoError(t, vm.RunAll())
		require.NoError(t, vm.Close())
	})
	if !ok {
		return
	}
	require.Contains(t, got, nvtxtest.Event{Domain: "cupool", Name: "gorgonia.linAlgBinOp", Bytes: 2})
	require.Contains(t, got, nvtxtest.Event{End: true, Domain: "cupool", Name: "gorgonia.linAlgBinOp"})
}
