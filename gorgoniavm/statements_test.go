package gorgoniavm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

func TestRead(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		c := newChain()
		var square, sum, x G.Value
		G.Read(c.square, &square)
		G.Read(c.sum, &sum)
		G.Read(c.x, &x)
		vm := c.run(t, e, d.options...)
		assert.Equal(t, []float32{1, 4, 9, 16}, square.Data())
		assert.Equal(t, float32(100), sum.Data())
		assert.Equal(t, []float32{1, 2, 3, 4}, x.Data())
		assert.False(t, e.Owns(square.(tensor.Tensor)), "it is the program's")

		was := square
		require.NoError(t, G.Let(c.x, tensor.New(tensor.WithBacking([]float32{2, 2, 2, 2}))))
		for range 2 {
			require.NoError(t, vm.RunAll())
		}
		assert.Same(t, was, square, "the same tensor is read into again")
		assert.Equal(t, []float32{4, 4, 4, 4}, square.Data())
		assert.Equal(t, float32(32), sum.Data())
		require.NoError(t, vm.Close())
		assert.Equal(t, []float32{4, 4, 4, 4}, square.Data(), "it outlives the VM")
		assert.Zero(t, a.live)
	})
}

// What was read may be given to an input, as a recurrent network does with its state. The next
// run does not write to it.
func TestReadIntoAnInput(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		state := G.NewVector(g, tensor.Float64, G.WithShape(2), G.WithName("state"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2}))))
		next := G.Must(G.Add(state, state))
		var read G.Value
		G.Read(next, &read)
		after := G.Must(G.Sum(G.Must(G.HadamardProd(next, state)))) // reads the state when next is there
		vm := d.vm(t, g, e)
		for f := 1.0; f < 100; f *= 2 {
			require.NoError(t, vm.RunAll())
			require.Equal(t, []float64{2 * f, 4 * f}, read.Data())
			require.Equal(t, 10*f*f, after.Value().Data())
			require.Equal(t, []float64{f, 2 * f}, data(t, e, state.Value()))
			require.NoError(t, G.Let(state, read))
		}
		require.NoError(t, vm.Close())
	})
}

// Set says a = b: the next run begins with what this one came to.
func TestSet(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		a := G.NewVector(g, tensor.Float32, G.WithShape(3), G.WithName("a"), G.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, 3}))))
		n := G.NewScalar(g, tensor.Float32, G.WithName("n"), G.WithValue(float32(0)))
		twice := G.Must(G.Add(a, a))
		next := G.Must(G.Add(n, G.NewConstant(float32(1))))
		G.Set(a, twice)
		G.Set(n, next)
		half := G.Must(G.Mul(a, G.NewConstant(float32(0.5)))) // reads a after the Set
		vm := d.vm(t, g, e, gorgoniavm.Keep(half))
		for i := range 4 {
			require.NoError(t, vm.RunAll())
			f := float32(int(1) << i)
			assert.Equal(t, []float32{f / 2, f, 1.5 * f}, data(t, e, half.Value()), "a run sees the value from before it")
			assert.Equal(t, []float32{2 * f, 4 * f, 6 * f}, data(t, e, a.Value()))
			assert.Equal(t, float32(i+1), n.Value().Data())
		}
		require.NoError(t, vm.Close())
	})
}

// Sets assign what the run began with and came to, in whichever order they are made: one may
// change an input that another reads.
func TestSetsOfOneRun(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, reversed := range []bool{false, true} {
			e, _ := d.open(t)
			g := G.NewGraph()
			var all G.Nodes
			for i := range 4 {
				all = append(all, G.NewVector(g, tensor.Float64, G.WithShape(2), G.WithName(name("x", i)), G.WithValue(tensor.New(tensor.WithBacking([]float64{float64(i), 1})))))
			}
			require.NoError(t, gorgoniavm.ToPool(e, all...))
			sum := G.Must(G.Add(all[2], all[3]))
			sets := [][2]*G.Node{{all[0], all[1]}, {all[1], all[0]}, {all[2], all[3]}, {all[3], sum}}
			if reversed {
				slices.Reverse(sets)
			}
			for _, s := range sets {
				G.Set(s[0], s[1])
			}
			vm := d.vm(t, g, e)
			for range 3 {
				require.NoError(t, vm.RunAll())
			}
			require.NoError(t, vm.Close())
			for i, want := range []float64{1, 0, 8, 13} {
				v := all[i].Value().(*tensor.Dense)
				require.Equal(t, want, data(t, e, v).([]float64)[0], "input %d", i)
				require.NoError(t, e.FreeTensor(v))
			}
		}
	})
}

func TestToPool(t *testing.T) {
	e, a := newMeter(t)
	m := newMLP(4, 6, 3)
	require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
	before := a.live
	assert.Equal(t, gradientBytes(m), before)
	for _, w := range m.weights {
		assert.True(t, e.Owns(w.Value().(tensor.Tensor)))
	}
	require.NoError(t, gorgoniavm.ToPool(e, append(m.weights, m.cost)...), "they are there already; the cost has no value")
	assert.Equal(t, before, a.live)
	a.failIn = 1
	err := gorgoniavm.ToPool(e, m.inputs...)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	assert.ErrorContains(t, err, "x (node 0)")
	for _, w := range m.weights {
		require.NoError(t, e.FreeTensor(w.Value().(tensor.Tensor)))
	}
}
