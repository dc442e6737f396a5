package gorgoniavm_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
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
		v, ok := w.Value().(*tensor.Dense)
		if !ok {
			require.NoError(t, G.Let(w, *w.Value().(*G.F32)-0.1**g.(*G.F32)))
			G.WithGrad(G.NewF32(0))(w)
			continue
		}
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

// data returns a copy of a value's numbers.
func data(t testing.TB, e *cupool.Engine, v G.Value) any {
	t.Helper()
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v.Data()
	}
	if e == nil {
		return d.Clone().(*tensor.Dense).Data()
	}
	h, err := e.ToHost(d)
	require.NoError(t, err)
	return h.Data()
}

// gradients returns a model's gradients.
func gradients(t testing.TB, e *cupool.Engine, m *model) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for _, w := range m.weights {
		g, err := w.Grad()
		require.NoError(t, err)
		all[w.Name()] = bits(data(t, e, g))
	}
	return all
}

// trained is what some steps of training came to.
type trained struct {
	Costs     []any
	Gradients []map[string]any
}

// train runs steps of training from the model's present weights, and gives the
// weights their values back. e is nil for gorgonia's own machine. What is to be
// done before each step is given its number.
func (m *model) train(t testing.TB, e *cupool.Engine, vm G.VM, steps int, before ...func(i int)) trained {
	t.Helper()
	var r trained
	start := make([]any, len(m.weights))
	for i, w := range m.weights {
		start[i] = clone(t, e, w.Value())
	}
	for i := range steps {
		for _, f := range before {
			f(i)
		}
		require.NoError(t, vm.RunAll())
		r.Costs = append(r.Costs, bits(m.cost.Value().Data()))
		r.Gradients = append(r.Gradients, gradients(t, e, m))
		step(t, e, m.weights)
		vm.Reset()
	}
	for i, w := range m.weights {
		require.NoError(t, G.Let(w, start[i]))
	}
	return r
}

// clone returns a copy in Go's heap.
func clone(t testing.TB, e *cupool.Engine, v G.Value) any {
	t.Helper()
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v.Data()
	}
	if e == nil || !e.Owns(d) {
		return d.Clone()
	}
	h, err := e.ToHost(d)
	require.NoError(t, err)
	return h
}

// tape trains a model on gorgonia's tape machine. The order in which gorgonia
// adds up gradients changes from graph to graph, so that machines are compared
// on one and the same.
func (m *model) tape(t testing.TB, steps int) trained {
	t.Helper()
	vm := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
	defer vm.Close()
	return m.train(t, nil, vm, steps)
}

// TestBitIdentical compares every model's costs and gradients with those of
// the tape machine, over some steps of training.
func TestBitIdentical(t *testing.T) {
	for name, build := range models {
		t.Run(name, func(t *testing.T) {
			m := build()
			want := m.tape(t, 5)
			e, _ := newMeter(t)
			vm, err := gorgoniavm.New(m.g, e, gorgoniavm.BindDualValues(m.weights...))
			require.NoError(t, err)
			got := m.train(t, e, vm, 5)
			require.NoError(t, vm.Close())
			require.Equal(t, want, got)
		})
	}
}

// BenchmarkRunAll runs the same graph on both machines.
func BenchmarkRunAll(b *testing.B) {
	for _, c := range []struct {
		name  string
		build func() *model
	}{
		{"mnist", newMNIST},
		{"convnet", func() *model { return newConvnetOf(20, 28, 8, 16) }},
		{"lstm", newLSTM},
	} {
		b.Run("graph="+c.name+"/vm=tape", func(b *testing.B) {
			m := c.build()
			vm := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
			defer vm.Close()
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, vm.RunAll())
				vm.Reset()
			}
		})
		b.Run("graph="+c.name+"/vm=pool", func(b *testing.B) {
			m := c.build()
			vm, err := gorgoniavm.New(m.g, newPlainPool(b), gorgoniavm.BindDualValues(m.weights...))
			require.NoError(b, err)
			defer vm.Close()
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, vm.RunAll())
				vm.Reset()
			}
		})
	}
}
