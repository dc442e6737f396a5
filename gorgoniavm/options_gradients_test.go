package gorgoniavm_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Gradients that are not bound are the same, of one run, and move weights as
// those do that are.
func TestGradients(t *testing.T) {
	bound, free := newMLP(16, 20, 30, 10), newMLP(16, 20, 30, 10)
	eng, _ := newPool(t)
	vm, err := gorgoniavm.New(bound.g, eng, gorgoniavm.BindDualValues(bound.weights...))
	require.NoError(t, err)
	other, err := gorgoniavm.New(free.g, eng, gorgoniavm.Gradients(free.weights...))
	require.NoError(t, err)
	zeroing, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{LearnRate: 0.01})
	require.NoError(t, err)
	keeping, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{LearnRate: 0.01}, gorgoniavm.KeepGradients())
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, vm.RunAll())
		require.NoError(t, other.RunAll())
		require.Equal(t, bits(bound.cost.Value().Data()), bits(free.cost.Value().Data()))
		require.NoError(t, zeroing.Step(gorgonia.NodesToValueGrads(bound.weights)))
		require.NoError(t, keeping.Step(gorgonia.NodesToValueGrads(free.weights)))
	}
	require.NoError(t, errors.Join(vm.Close(), other.Close(), zeroing.Close(), keeping.Close()))
	_, err = gorgoniavm.New(free.g, eng, gorgoniavm.Gradients(bound.weights...))
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}

// Gradients that nobody asked for are not computed: that by the images.
func TestGradientsAreFew(t *testing.T) {
	bytes := func(wanted bool) int64 {
		eng, pool := newPool(t)
		m := newMLP(16, 20, 30, 10)
		var opts []gorgoniavm.Option
		if wanted {
			opts = append(opts, gorgoniavm.Gradients(m.weights...))
		}
		vm, err := gorgoniavm.New(m.g, eng, opts...)
		require.NoError(t, err)
		require.NoError(t, vm.RunAll())
		require.NoError(t, vm.Close())
		return pool.Stats().All.AllocatedBytes.Allocated
	}
	const images = 16 * 20 * 4
	require.LessOrEqual(t, bytes(true)+images, bytes(false))
}
