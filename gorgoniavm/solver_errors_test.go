package gorgoniavm_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

func TestSolverConfigErrors(t *testing.T) {
	eng, _ := newMeter(t)
	for _, m := range []gorgoniavm.Method{
		nil,
		(*gorgoniavm.SGD)(nil),
		gorgoniavm.SGD{LearnRate: -1},
		gorgoniavm.SGD{LearnRate: math.Inf(1)},
		gorgoniavm.SGD{Regularization: gorgoniavm.Regularization{L1: -1}},
		gorgoniavm.SGD{Regularization: gorgoniavm.Regularization{L2: math.NaN()}},
		gorgoniavm.SGD{Regularization: gorgoniavm.Regularization{BatchSize: -1}},
		gorgoniavm.Momentum{Momentum: 1},
		gorgoniavm.RMSProp{Rho: -0.1},
		gorgoniavm.RMSProp{Clip: -1},
		gorgoniavm.Adam{Beta1: 1},
		gorgoniavm.Adam{Epsilon: -1},
		gorgoniavm.AdamW{Beta2: 2},
		gorgoniavm.AdamW{WeightDecay: -1},
	} {
		_, err := gorgoniavm.NewSolver(eng, m)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig, "%+v", m)
	}
	for _, m := range []gorgoniavm.Method{gorgoniavm.RMSProp{Clip: -1}, gorgoniavm.SGD{Regularization: gorgoniavm.Regularization{Clip: -1}}} {
		_, err := gorgoniavm.NewSolver(eng, m)
		require.ErrorContains(t, err, "Clip = -1: must be finite and not negative")
	}
	for _, none := range []*cupool.Engine{nil, {}} {
		_, err := gorgoniavm.NewSolver(none, gorgoniavm.SGD{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
}

func TestSolverStepErrors(t *testing.T) {
	eng, _ := newMeter(t)
	matrix := func() *tensor.Dense { return tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(2, 3)) }
	column, err := matrix().Slice(nil, tensor.S(1))
	require.NoError(t, err)
	freed := dense(t, eng, tensor.Float64, tensor.Shape{2, 3}, nil)
	require.NoError(t, eng.FreeTensor(freed))
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		w    gorgonia.ValueGrad
		want error
	}{
		"no node":           {nil, cupool.ErrNotSupported},
		"a nil node":        {(*gorgonia.Node)(nil), cupool.ErrNotSupported},
		"no value":          {&weight{}, cupool.ErrNotSupported},
		"no gradient":       {&weight{value: matrix()}, cupool.ErrNotSupported},
		"failing gradient":  {&weight{value: matrix(), err: boom}, boom},
		"gradient's size":   {&weight{value: matrix(), grad: gorgonia.NewF64(1)}, cupool.ErrSizeMismatch},
		"gradient's type":   {&weight{value: gorgonia.NewF32(1), grad: gorgonia.NewF64(1)}, cupool.ErrSizeMismatch},
		"integers":          {&weight{value: gorgonia.NewI(1), grad: gorgonia.NewI(1)}, cupool.ErrNotSupported},
		"gaps":              {&weight{value: column.(*tensor.Dense), grad: column.(*tensor.Dense)}, cupool.ErrNotSupported},
		"freed":             {&weight{value: freed, grad: matrix()}, cupool.ErrUseAfterFree},
		"of another engine": {&weight{value: matrix(), grad: freed}, cupool.ErrUseAfterFree},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{})
			require.NoError(t, err)
			good := &weight{name: "good", value: gorgonia.NewF64(1), grad: gorgonia.NewF64(1)}
			err = s.Step([]gorgonia.ValueGrad{good, c.w})
			require.ErrorIs(t, err, c.want)
			var se *gorgoniavm.SolverError
			require.ErrorAs(t, err, &se)
			require.Equal(t, 1, se.Index)
			require.Equal(t, 1.0, good.value.Data(), "nothing has moved")
			require.NoError(t, s.Close())
		})
	}
}

// A weight that a solver does not take stops a Step before it moves others, wherever
// they are.
func TestSolverWeightsWithGaps(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		eng, _ := d.open(t)
		for _, m := range []gorgoniavm.Method{gorgoniavm.SGD{Regularization: gorgoniavm.Regularization{L2: 1}}, gorgoniavm.Momentum{Nesterov: true}, gorgoniavm.Adam{}} {
			model := newModel(t, eng, tensor.Float64, 1)
			setGrads(t, eng, model, rand.New(rand.NewPCG(1, 1)))
			whole := dense(t, eng, tensor.Float64, tensor.Shape{2, 3}, nil)
			column, err := whole.Slice(nil, tensor.S(1))
			require.NoError(t, err)
			weights, grads := numbers(t, eng, model, false), numbers(t, eng, model, true)
			s, err := gorgoniavm.NewSolver(eng, m)
			require.NoError(t, err)
			err = s.Step(append(model, &weight{value: column, grad: column}))
			require.ErrorIs(t, err, cupool.ErrNotSupported)
			var se *gorgoniavm.SolverError
			require.ErrorAs(t, err, &se)
			require.Equal(t, len(model), se.Index)
			require.Equal(t, weights, numbers(t, eng, model, false))
			require.Equal(t, grads, numbers(t, eng, model, true))
			require.NoError(t, s.Close())
			require.NoError(t, eng.FreeTensor(whole))
			freeModel(t, eng, model)
		}
	})
}

// Weights of no elements, and views of one, have no gaps.
func TestSolverSmallestWeights(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		eng, _ := d.open(t)
		matrix := dense(t, eng, tensor.Float64, tensor.Shape{2, 3}, rand.New(rand.NewPCG(1, 1)))
		one, err := matrix.Slice(tensor.S(1), tensor.S(2))
		require.NoError(t, err)
		want := numbers(t, eng, []gorgonia.ValueGrad{&weight{value: matrix}}, false)
		want[5] -= 0.5 * want[5]
		none := &weight{value: dense(t, eng, tensor.Float64, tensor.Shape{0}, nil), grad: dense(t, eng, tensor.Float64, tensor.Shape{0}, nil)}
		model := []gorgonia.ValueGrad{none, &weight{value: one, grad: one}, none}
		for _, m := range []gorgoniavm.Method{gorgoniavm.SGD{LearnRate: 0.5}, gorgoniavm.Adam{}} {
			s, err := gorgoniavm.NewSolver(eng, m, gorgoniavm.KeepGradients())
			require.NoError(t, err)
			require.NoError(t, s.Step(model))
			require.NoError(t, s.Close())
			if _, ok := m.(gorgoniavm.SGD); ok {
				require.Equal(t, want, numbers(t, eng, []gorgonia.ValueGrad{&weight{value: matrix}}, false))
			}
		}
		require.NoError(t, eng.FreeTensor(matrix))
		freeModel(t, eng, model[:1])
	})
}

// A weight that is there twice moves twice by Gorgonia's rules, one step after the other.
// A device, which moves all at once, refuses it.
func TestSolverSameWeightTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		eng, _ := d.open(t)
		ours, theirs := newModel(t, eng, tensor.Float64, 1), newModel(t, nil, tensor.Float64, 1)
		setGrads(t, eng, ours, rand.New(rand.NewPCG(1, 1)))
		setGrads(t, nil, theirs, rand.New(rand.NewPCG(1, 1)))
		before := numbers(t, eng, ours, false)
		s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
		require.NoError(t, err)
		err = s.Step(append(ours, ours[0]))
		if eng.AllocAccessible() {
			require.NoError(t, err)
			require.NoError(t, gorgonia.NewVanillaSolver().Step(append(theirs, theirs[0])))
			require.InDeltaSlice(t, numbers(t, nil, theirs, false), numbers(t, eng, ours, false), 1e-12)
		} else {
			require.ErrorIs(t, err, cupool.ErrNotSupported)
			require.ErrorContains(t, err, "weight 4 w0: it is weight 0, too")
			require.Equal(t, before, numbers(t, eng, ours, false))
		}
		require.NoError(t, s.Close())
		freeModel(t, eng, ours)
	})
}

// Weights of a Step that failed before anything moved are none of the model that the next
// one names.
func TestSolverOtherModelAfterFailure(t *testing.T) {
	eng, _ := newMeter(t)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{})
	require.NoError(t, err)
	one := func() *weight { return &weight{value: gorgonia.NewF64(1), grad: gorgonia.NewF64(1)} }
	a, b := one(), one()
	require.Error(t, s.Step([]gorgonia.ValueGrad{a, b, nil}))
	require.NoError(t, s.Step([]gorgonia.ValueGrad{a}))
	require.NotEqual(t, 1.0, a.value.Data())
	require.Equal(t, 1.0, b.value.Data())
	matrix := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(2, 3))
	require.ErrorIs(t, s.Step([]gorgonia.ValueGrad{&weight{value: matrix, grad: matrix}}), cupool.ErrSizeMismatch)
	require.NoError(t, s.Close())
}

// A model stays what it is.
func TestSolverChangedModel(t *testing.T) {
	eng, _ := newMeter(t)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
	require.NoError(t, err)
	one := &weight{name: "one", value: gorgonia.NewF64(1), grad: gorgonia.NewF64(1)}
	require.NoError(t, s.Step([]gorgonia.ValueGrad{one}))
	require.ErrorIs(t, s.Step([]gorgonia.ValueGrad{one, one}), cupool.ErrSizeMismatch)
	one.value, one.grad = gorgonia.NewF32(1), gorgonia.NewF32(1)
	err = s.Step([]gorgonia.ValueGrad{one})
	require.ErrorIs(t, err, cupool.ErrSizeMismatch)
	require.ErrorContains(t, err, "weight 0 one")
}

// A full device is an error, and the solver goes on when there is room again.
func TestSolverOutOfMemory(t *testing.T) {
	pool, err := cupool.New(cupool.Config{Limit: 4 << 20})
	require.NoError(t, err)
	eng, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	w := &weight{
		value: tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(300_000)),
		grad:  tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(300_000)),
	}
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{})
	require.NoError(t, err)
	require.ErrorIs(t, s.Step([]gorgonia.ValueGrad{w}), cupool.ErrOutOfMemory, "two moments of 2.4 MB are more than 4 MiB")
	require.Zero(t, pool.Stats().All.Allocation.Current, "the one that there was room for is not lost")
	w.value = tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(10))
	w.grad = tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(10))
	require.NoError(t, s.Step([]gorgonia.ValueGrad{w}))
	require.NoError(t, s.Close())
	require.NoError(t, pool.Close())
}

// Weights of another engine are not the solver's to move, where the device computes.
func TestSolverOfAnotherEngine(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if !d.computes {
			t.Skip("the CPU moves them")
		}
		eng, pool := d.open(t)
		other, err := cupool.NewEngine(pool)
		require.NoError(t, err)
		model := newModel(t, other, tensor.Float32, 1)
		s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
		require.NoError(t, err)
		require.ErrorIs(t, s.Step(model), cupool.ErrNotSupported)
		require.NoError(t, s.Close())
		freeModel(t, other, model)
	})
}
