package gorgoniavm_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// On an engine whose tensors have lifetimes, VM and solver compute what they
// compute without, with the garbage collector after every step and freed memory
// poisoned.
func TestVMWithLifetimes(t *testing.T) {
	const steps = 8
	losses := func(opts ...cupool.EngineOption) (ls []any) {
		pool, err := cupool.New(cupool.Config{})
		require.NoError(t, err)
		eng, err := cupool.NewEngine(pool, opts...)
		require.NoError(t, err)
		m := newMLP(16, 20, 30, 10)
		require.NoError(t, gorgoniavm.ToPool(eng, m.weights...))
		vm, err := gorgoniavm.New(m.g, eng, gorgoniavm.BindDualValues(m.weights...))
		require.NoError(t, err)
		s, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{LearnRate: 0.01})
		require.NoError(t, err)
		for range steps {
			require.NoError(t, vm.RunAll())
			ls = append(ls, bits(m.cost.Value().Data()))
			require.NoError(t, s.Step(gorgonia.NodesToValueGrads(m.weights)))
			runtime.GC()
			_, err := pool.ProcessDeferred()
			require.NoError(t, err)
			poison(t, eng)
		}
		require.NoError(t, errors.Join(vm.Close(), s.Close()))
		for _, n := range m.weights {
			require.NoError(t, eng.FreeTensor(n.Value().(*tensor.Dense)))
		}
		require.NoError(t, pool.Close())
		return ls
	}
	require.Equal(t, losses(), losses(cupool.WithLifetimes()))
}
