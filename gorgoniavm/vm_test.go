package gorgoniavm_test

import (
	"math"
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// bits returns numbers as bits, so that NaN equals NaN and -0 is not 0.
func bits(data any) any {
	switch x := data.(type) {
	case float32:
		return math.Float32bits(x)
	case float64:
		return math.Float64bits(x)
	case []float32:
		b := make([]uint32, len(x))
		for i := range x {
			b[i] = math.Float32bits(x[i])
		}
		return b
	case []float64:
		b := make([]uint64, len(x))
		for i := range x {
			b[i] = math.Float64bits(x[i])
		}
		return b
	}
	return data
}

// step is one step of plain gradient descent, on the CPU.
func step(t testing.TB, e *cupool.Engine, weights G.Nodes) {
	t.Helper()
	for _, w := range weights {
		g, err := w.Grad()
		require.NoError(t, err)
		v := w.Value().(*tensor.Dense)
		gd := g.(*tensor.Dense)
		scaled, err := tensor.Mul(gd, float32(0.1))
		require.NoError(t, err)
		_, err = tensor.Sub(v, scaled, tensor.UseUnsafe())
		require.NoError(t, err)
		if e != nil && e.Owns(scaled) {
			require.NoError(t, e.FreeTensor(scaled))
			require.NoError(t, e.Zero(gd))
		} else {
			gd.Zero()
		}
	}
}

func TestMLPIsBitIdentical(t *testing.T) {
	ref := newMLP(16, 20, 30, 10)
	tape := G.NewTapeMachine(ref.g, G.BindDualValues(ref.weights...))
	defer tape.Close()
	e, _ := newPool(t)
	m := newMLP(16, 20, 30, 10)
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...))
	require.NoError(t, err)
	defer vm.Close()
	for i := range 20 {
		require.NoError(t, tape.RunAll())
		require.NoError(t, vm.RunAll())
		assert.Equal(t, bits(ref.cost.Value().Data()), bits(m.cost.Value().Data()), "step %d", i)
		step(t, nil, ref.weights)
		step(t, e, m.weights)
		tape.Reset()
	}
}

func BenchmarkRunAll(b *testing.B) {
	b.Run("vm=tape", func(b *testing.B) {
		m := newMNIST()
		vm := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
		defer vm.Close()
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, vm.RunAll())
			vm.Reset()
		}
	})
	b.Run("vm=pool", func(b *testing.B) {
		e, _ := newPool(b)
		m := newMNIST()
		vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...))
		require.NoError(b, err)
		defer vm.Close()
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, vm.RunAll())
			vm.Reset()
		}
	})
}
