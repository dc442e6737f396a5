package nn_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
	"github.com/cupool/cupool/nn"
)

// matrixShapes are a batch of one, odd sizes, and more than one tile of the
// kernels.
var matrixShapes = [][]int{{1, 1}, {1, 7}, {7, 1}, {5, 3}, {33, 31}, {64, 70}, {3, 0}, {0, 3}}

func TestBiasActivate(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, act := range []nn.Activation{nn.NoActivation, nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Rectify} {
				for _, s := range matrixShapes {
					e.checkBias(dt, act, s[0], s[1])
				}
			}
		}
	})
}

// checkBias goes forth and back.
func (e *bench) checkBias(dt tensor.Dtype, act nn.Activation, rows, cols int) {
	what := fmt.Sprint(dt, act, rows, cols)
	x, b := e.From(random(e.Rand, dt, rows, cols)), e.From(random(e.Rand, dt, 1, cols))
	want := e.As64(x)
	layers.BiasActivate(want, e.As64(b), layers.Activation(act))
	require.NoError(e.T, nn.BiasActivate(e.Engine, x, b, act), what)
	e.RequireNear(want, x, what)

	dy, db := e.From(random(e.Rand, dt, rows, cols)), e.From(random(e.Rand, dt, cols))
	wantDX, wantDB := e.As64(dy), make([]float64, cols)
	layers.BiasActivateBack(e.As64(x), wantDX, wantDB, max(cols, 1), layers.Activation(act))
	if rows*cols > 0 {
		require.NoError(e.T, nn.BiasActivateBack(e.Engine, x, dy, db, act), what)
		e.RequireNear(wantDX, dy, what)
		e.RequireNear(wantDB, db, what)
	}
	require.NoError(e.T, nn.BiasActivateBack(e.Engine, x, dy, nil, act), what)
	e.FreeAll(x, b, dy, db)
}

func TestCrossEntropy(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, s := range matrixShapes {
				for _, weights := range []bool{false, true} {
					e.checkCrossEntropy(dt, s[0], s[1], weights)
				}
			}
		}
	})
}

func (e *bench) checkCrossEntropy(dt tensor.Dtype, rows, cols int, weights bool) {
	what := fmt.Sprint(dt, rows, cols, weights)
	x, loss, grad := e.From(random(e.Rand, dt, rows, cols)), e.From(random(e.Rand, dt, rows)), must(e.Empty(dt, rows, cols))
	classes := make([]int, rows)
	for i := range classes {
		classes[i] = e.Rand.IntN(cols+1) - 1 // -1 wants none
	}
	target := func(r, c int) float64 {
		if classes[r] == c {
			return 1
		}
		return 0
	}
	host := tensor.New(tensor.WithShape(rows), tensor.WithBacking(classes))
	if weights {
		host = random(e.Rand, dt, rows, cols)
		given := e.As64(host)
		target = func(r, c int) float64 { return given[r*cols+c] }
	}
	y := e.From(host)
	wantLoss, wantGrad := e.As64(loss), make([]float64, rows*cols)
	layers.CrossEntropy(e.As64(x), wantLoss, wantGrad, cols, 1/float64(rows), target)
	require.NoError(e.T, nn.CrossEntropy(e.Engine, x, y, loss, grad), what)
	e.RequireNear(wantLoss, loss, what)
	e.RequireNear(wantGrad, grad, what)
	clear(wantLoss)
	layers.CrossEntropy(e.As64(x), wantLoss, wantGrad, cols, -0.25, target)
	require.NoError(e.T, nn.ScaledCrossEntropy(e.Engine, x, y, loss, grad, -0.25), what)
	e.RequireNear(wantLoss, loss, what)
	e.RequireNear(wantGrad, grad, what)
	e.FreeAll(x, loss, grad, y)
}

func TestRandomTensors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, n := range []int{1, 2, 3, 5, 1000} {
			d, f := must(e.Empty(tensor.Float64, n)), must(e.Empty(tensor.Float32, n))
			seed := nn.Seed{Seed: e.Rand.Uint64(), Stream: e.Rand.Uint64()}
			wantD, wantF := make([]float64, n), make([]float32, n)

			philox.Uniform(wantD, -1, 3, seed.Stream, seed.Seed)
			philox.Uniform(wantF, -1, 3, seed.Stream, seed.Seed)
			require.NoError(t, nn.Uniform(e.Engine, d, -1, 2, seed))
			require.NoError(t, nn.Uniform(e.Engine, f, -1, 2, seed))
			e.RequireNear(widened(wantD), d, "uniform")
			e.RequireNear(widened(wantF), f, "uniform")

			philox.Normal(wantD, 3, 2, seed.Stream, seed.Seed)
			philox.Normal(wantF, 3, 2, seed.Stream, seed.Seed)
			require.NoError(t, nn.Normal(e.Engine, d, 3, 2, seed))
			require.NoError(t, nn.Normal(e.Engine, f, 3, 2, seed))
			e.RequireNear(widened(wantD), d, "normal")
			e.RequireNear(widened(wantF), f, "normal")
			e.FreeAll(d, f)
		}
	})
}

// The largest of uniform numbers is the bound where it rounds to that, everywhere.
func TestUniformRoundsUp(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := must(e.Empty(tensor.Float32, 4))
		largest := nn.Seed{Seed: 1, Stream: 245165} // word 2 is 1 − 2⁻²⁴
		require.NoError(t, nn.Uniform(e.Engine, x, 1, 2, largest))
		require.Equal(t, 2.0, e.As64(x)[2])
		require.NoError(t, nn.Uniform(e.Engine, x, 0, 1, largest))
		require.Equal(t, 1-0x1p-24, e.As64(x)[2])
		e.FreeAll(x)
	})
}

func widened[T layers.Float](xs []T) []float64 {
	fs := make([]float64, len(xs))
	for i, x := range xs {
		fs[i] = float64(x)
	}
	return fs
}

// TestFusedErrors: nothing is changed by what a fused step does not take.
func TestFusedErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, b, n := e.From(random(e.Rand, tensor.Float64, 3, 4)), e.From(random(e.Rand, tensor.Float64, 4)), e.From(random(e.Rand, tensor.Float64, 3))
		f, i := e.From(random(e.Rand, tensor.Float32, 4)), e.From(random(e.Rand, tensor.Int, 3, 4))
		gone := e.From(random(e.Rand, tensor.Float64, 4))
		views := transposed(x.ShallowClone())
		e.FreeAll(gone)
		before := e.As64(x)
		adam := nn.Adam{LearningRate: 1}
		failures{
			"no matrix":       {nn.BiasActivate(e.Engine, b, b, nn.ReLU), cupool.ErrNotSupported},
			"no tensor":       {nn.BiasActivate(e.Engine, nil, b, nn.ReLU), cupool.ErrNotSupported},
			"no bias":         {nn.BiasActivate(e.Engine, x, nil, nn.ReLU), cupool.ErrNotSupported},
			"another type":    {nn.BiasActivate(e.Engine, x, f, nn.ReLU), cupool.ErrNotSupported},
			"integers":        {nn.BiasActivate(e.Engine, i, b, nn.ReLU), cupool.ErrNotSupported},
			"another size":    {nn.BiasActivate(e.Engine, x, n, nn.ReLU), cupool.ErrSizeMismatch},
			"freed":           {nn.BiasActivate(e.Engine, x, gone, nn.ReLU), cupool.ErrUseAfterFree},
			"a view":          {nn.BiasActivate(e.Engine, views, n, nn.ReLU), cupool.ErrNotSupported},
			"sizes back":      {nn.BiasActivateBack(e.Engine, x, b, nil, nn.ReLU), cupool.ErrSizeMismatch},
			"classes":         {nn.CrossEntropy(e.Engine, x, b, n, x), cupool.ErrSizeMismatch},
			"no classes":      {nn.CrossEntropy(e.Engine, x, nil, n, x), cupool.ErrNotSupported},
			"nil classes":     {nn.CrossEntropy(e.Engine, x, (*tensor.Dense)(nil), n, x), cupool.ErrNotSupported},
			"no gradient":     {nn.SGD{}.Step(e.Engine, nn.Param{Value: x}), cupool.ErrNotSupported},
			"gradient's size": {nn.SGD{}.Step(e.Engine, nn.Param{Value: x, Grad: b}), cupool.ErrSizeMismatch},
			"rate's size":     {nn.SGD{Rate: b}.Step(e.Engine, nn.Param{Value: x, Grad: x}), cupool.ErrSizeMismatch},
			"step's type":     {nn.Adam{StepNumber: f}.Step(e.Engine, 1, nn.Param{Value: x, Grad: x, Momentum: x, Second: x}), cupool.ErrNotSupported},
			"no moments":      {adam.Step(e.Engine, 1, nn.Param{Value: x, Grad: x}), cupool.ErrNotSupported},
			"step 0":          {adam.Step(e.Engine, 0, nn.Param{Value: x, Grad: x, Momentum: x, Second: x}), cupool.ErrNotSupported},
			"random integers": {nn.Uniform(e.Engine, i, 0, 1, nn.Seed{}), cupool.ErrNotSupported},
			"random nothing":  {nn.Normal(e.Engine, nil, 0, 1, nn.Seed{}), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, before, e.As64(x))
		e.FreeAll(x, b, n, f, i)
	})
}

// TestMasked: the error for a tensor with a mask names it.
func TestMasked(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float32, 3, 3))
		masked := x.ShallowClone()
		masked.SetMask(make([]bool, 9))
		err := nn.Activate(e.Engine, masked, x, nn.ReLU)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, "without gaps and a mask")
		e.FreeAll(x)
	})
}

// TestZeroDense: the zero Dense, whose methods panic, is no tensor.
func TestZeroDense(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, none := e.From(random(e.Rand, tensor.Float32, 3, 3)), new(tensor.Dense)
		for name, err := range map[string]error{
			"Activate":  nn.Activate(e.Engine, none, x, nn.ReLU),
			"Apply":     nn.Apply(e.Engine, nn.Sin, x, none),
			"Dropout":   nn.Dropout(e.Engine, none, none, 0.5, nn.Seed{}),
			"Linear":    nn.Linear(e.Engine, x, none, nil, x, nn.ReLU),
			"Normal":    nn.Normal(e.Engine, none, 0, 1, nn.Seed{}),
			"SGD.Step":  nn.SGD{}.Step(e.Engine, nn.Param{Value: none, Grad: x}),
			"Adam.Step": nn.Adam{}.Step(e.Engine, 1, nn.Param{Value: x, Grad: x, Momentum: none, Second: x}),
		} {
			var own *cupool.EngineError
			require.ErrorAs(t, err, &own, name)
			require.ErrorIs(t, err, cupool.ErrNotSupported, name)
		}
		e.FreeAll(x)
	})
}
