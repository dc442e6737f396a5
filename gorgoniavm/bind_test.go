package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// TestLetAndSet: the VM's own methods bind what RunAll computed to an input, for
// as long as it has that.
func TestLetAndSet(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, _ := newEngine(t)
			g, w, upd := updating()
			vm, err := gorgoniavm.New(g, e)
			require.NoError(t, err)
			require.NoError(t, vm.Let(w, tensor.New(tensor.WithBacking([]float64{5, 5, 5}))))
			for range 4 {
				require.NoError(t, vm.RunAll())
				require.NoError(t, vm.Set(w, upd))
			}
			require.NoError(t, vm.Close())
			require.Equal(t, []float64{9, 45, 405}, w.Value().Data(), "in Go's heap")
		})
	}
}

func TestLetAndSetErrors(t *testing.T) {
	e, _ := newPool(t)
	g, w, upd := updating()
	inner := G.Must(G.Square(upd))
	G.Must(G.Sum(inner))
	_, other, _ := updating()
	vm, err := gorgoniavm.New(g, e)
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	var config *cupool.ConfigError
	require.ErrorAs(t, vm.Let(other, 1.0), &config)
	require.ErrorAs(t, vm.Set(w, other), &config)
	require.ErrorAs(t, vm.Set(nil, w), &config)
	require.ErrorIs(t, vm.Set(w, inner), gorgoniavm.ErrNoValue)
	require.ErrorContains(t, vm.Let(upd, 1.0), "non input node")
	require.ErrorContains(t, vm.Let(w, tensor.New(tensor.WithBacking([]float64{1}))), "shape")
	require.NoError(t, vm.Close())
}
