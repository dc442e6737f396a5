package cupool_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/philox"
)

// as64 returns the elements of a tensor as float64.
func (e *bench) as64(t tensor.Tensor) []float64 { return floatsOf(e.host(t)) }

// requireNear requires t's elements to be want but for the rounding of several
// operations on numbers around 1, which is appended lest small results count.
func (e *bench) requireNear(want []float64, t tensor.Tensor, what string) {
	e.t.Helper()
	e.requireClose(append(want, 1), append(e.as64(t), 1), 10*bounds[t.Dtype()], what)
}

// matrixShapes are a batch of one, odd sizes, and more than one tile of the
// kernels.
var matrixShapes = [][]int{{1, 1}, {1, 7}, {7, 1}, {5, 3}, {33, 31}, {64, 70}, {3, 0}, {0, 3}}

func TestBiasActivate(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, act := range []cupool.Activation{cupool.NoActivation, cupool.ReLU, cupool.Sigmoid, cupool.Tanh, cupool.Rectify} {
				for _, s := range matrixShapes {
					e.checkBias(dt, act, s[0], s[1])
				}
			}
		}
	})
}

// checkBias goes forth and back.
func (e *bench) checkBias(dt tensor.Dtype, act cupool.Activation, rows, cols int) {
	what := fmt.Sprint(dt, act, rows, cols)
	x, b := e.from(random(e.r, dt, rows, cols)), e.from(random(e.r, dt, 1, cols))
	want := e.as64(x)
	layers.BiasActivate(want, e.as64(b), act)
	require.NoError(e.t, e.BiasActivate(x, b, act), what)
	e.requireNear(want, x, what)

	dy, db := e.from(random(e.r, dt, rows, cols)), e.from(random(e.r, dt, cols))
	wantDX, wantDB := e.as64(dy), make([]float64, cols)
	layers.BiasActivateBack(e.as64(x), wantDX, wantDB, max(cols, 1), act)
	if rows*cols > 0 {
		require.NoError(e.t, e.BiasActivateBack(x, dy, db, act), what)
		e.requireNear(wantDX, dy, what)
		e.requireNear(wantDB, db, what)
	}
	require.NoError(e.t, e.BiasActivateBack(x, dy, nil, act), what)
	e.free(x, b, dy, db)
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
	x, loss, grad := e.from(random(e.r, dt, rows, cols)), e.from(random(e.r, dt, rows)), must(e.Empty(dt, rows, cols))
	classes := make([]int, rows)
	for i := range classes {
		classes[i] = e.r.IntN(cols+1) - 1 // -1 wants none
	}
	target := func(r, c int) float64 {
		if classes[r] == c {
			return 1
		}
		return 0
	}
	host := tensor.New(tensor.WithShape(rows), tensor.WithBacking(classes))
	if weights {
		host = random(e.r, dt, rows, cols)
		given := e.as64(host)
		target = func(r, c int) float64 { return given[r*cols+c] }
	}
	y := e.from(host)
	wantLoss, wantGrad := e.as64(loss), make([]float64, rows*cols)
	layers.CrossEntropy(e.as64(x), wantLoss, wantGrad, cols, 1/float64(rows), target)
	require.NoError(e.t, e.CrossEntropy(x, y, loss, grad), what)
	e.requireNear(wantLoss, loss, what)
	e.requireNear(wantGrad, grad, what)
	clear(wantLoss)
	layers.CrossEntropy(e.as64(x), wantLoss, wantGrad, cols, -0.25, target)
	require.NoError(e.t, e.ScaledCrossEntropy(x, y, loss, grad, -0.25), what)
	e.requireNear(wantLoss, loss, what)
	e.requireNear(wantGrad, grad, what)
	e.free(x, loss, grad, y)
}

func TestRandomTensors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, n := range []int{1, 2, 3, 5, 1000} {
			d, f := must(e.Empty(tensor.Float64, n)), must(e.Empty(tensor.Float32, n))
			seed := cupool.Seed{Seed: e.r.Uint64(), Stream: e.r.Uint64()}
			wantD, wantF := make([]float64, n), make([]float32, n)

			philox.Uniform(wantD, -1, 3, seed.Stream, seed.Seed)
			philox.Uniform(wantF, -1, 3, seed.Stream, seed.Seed)
			require.NoError(t, e.Uniform(d, -1, 2, seed))
			require.NoError(t, e.Uniform(f, -1, 2, seed))
			e.requireNear(widened(wantD), d, "uniform")
			e.requireNear(widened(wantF), f, "uniform")

			philox.Normal(wantD, 3, 2, seed.Stream, seed.Seed)
			philox.Normal(wantF, 3, 2, seed.Stream, seed.Seed)
			require.NoError(t, e.Normal(d, 3, 2, seed))
			require.NoError(t, e.Normal(f, 3, 2, seed))
			e.requireNear(widened(wantD), d, "normal")
			e.requireNear(widened(wantF), f, "normal")
			e.free(d, f)
		}
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
		x, b, n := e.from(random(e.r, tensor.Float64, 3, 4)), e.from(random(e.r, tensor.Float64, 4)), e.from(random(e.r, tensor.Float64, 3))
		f, i := e.from(random(e.r, tensor.Float32, 4)), e.from(random(e.r, tensor.Int, 3, 4))
		gone := e.from(random(e.r, tensor.Float64, 4))
		views := transposed(x.ShallowClone())
		e.free(gone)
		before := e.as64(x)
		adam := cupool.Adam{LearningRate: 1}
		for what, c := range map[string]struct {
			err  error
			want error
		}{
			"no matrix":       {e.BiasActivate(b, b, cupool.ReLU), cupool.ErrNotSupported},
			"no tensor":       {e.BiasActivate(nil, b, cupool.ReLU), cupool.ErrNotSupported},
			"no bias":         {e.BiasActivate(x, nil, cupool.ReLU), cupool.ErrNotSupported},
			"another type":    {e.BiasActivate(x, f, cupool.ReLU), cupool.ErrNotSupported},
			"integers":        {e.BiasActivate(i, b, cupool.ReLU), cupool.ErrNotSupported},
			"another size":    {e.BiasActivate(x, n, cupool.ReLU), cupool.ErrSizeMismatch},
			"freed":           {e.BiasActivate(x, gone, cupool.ReLU), cupool.ErrUseAfterFree},
			"a view":          {e.BiasActivate(views, n, cupool.ReLU), cupool.ErrNotSupported},
			"sizes back":      {e.BiasActivateBack(x, b, nil, cupool.ReLU), cupool.ErrSizeMismatch},
			"classes":         {e.CrossEntropy(x, b, n, x), cupool.ErrSizeMismatch},
			"no classes":      {e.CrossEntropy(x, nil, n, x), cupool.ErrNotSupported},
			"no gradient":     {e.SGDStep(cupool.SGD{}, cupool.Param{Value: x}), cupool.ErrNotSupported},
			"gradient's size": {e.SGDStep(cupool.SGD{}, cupool.Param{Value: x, Grad: b}), cupool.ErrSizeMismatch},
			"rate's size":     {e.SGDStep(cupool.SGD{Rate: b}, cupool.Param{Value: x, Grad: x}), cupool.ErrSizeMismatch},
			"step's type":     {e.AdamStep(cupool.Adam{Step: f}, 1, cupool.Param{Value: x, Grad: x, Momentum: x, Second: x}), cupool.ErrNotSupported},
			"no moments":      {e.AdamStep(adam, 1, cupool.Param{Value: x, Grad: x}), cupool.ErrNotSupported},
			"step 0":          {e.AdamStep(adam, 0, cupool.Param{Value: x, Grad: x, Momentum: x, Second: x}), cupool.ErrNotSupported},
			"random integers": {e.Uniform(i, 0, 1, cupool.Seed{}), cupool.ErrNotSupported},
			"random nothing":  {e.Normal(nil, 0, 1, cupool.Seed{}), cupool.ErrNotSupported},
		} {
			require.ErrorIs(t, c.err, c.want, what)
			var ours *cupool.EngineError
			require.ErrorAs(t, c.err, &ours, what)
		}
		require.Equal(t, before, e.as64(x))
		e.free(x, b, n, f, i)
	})
}

func TestBatchMatMul(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, s := range [][4]int{{1, 1, 1, 1}, {3, 2, 4, 5}, {2, 1, 7, 3}, {5, 3, 1, 1}, {4, 33, 31, 2}} {
				n, rows, inner, cols := s[0], s[1], s[2], s[3]
				a, b := e.from(random(e.r, dt, n, rows, inner)), e.from(random(e.r, dt, n, inner, cols))
				bT := transposed(e.from(random(e.r, dt, n, cols, inner)), 0, 2, 1)
				for _, right := range []*tensor.Dense{b, bT} {
					c := must(e.Empty(dt, n, rows, cols))
					require.NoError(t, e.BatchMatMul(a, right, c))
					e.requireNear(productsOf(e.as64(a), e.as64(right), n, rows, inner, cols), c, fmt.Sprint(dt, s))
					e.free(c)
				}
				e.free(a, b, bT)
			}
			x, y := e.from(random(e.r, dt, 2, 3, 4)), e.from(random(e.r, dt, 3, 4))
			require.ErrorIs(t, e.BatchMatMul(x, x, x), cupool.ErrSizeMismatch)
			require.ErrorIs(t, e.BatchMatMul(x, y, x), cupool.ErrSizeMismatch)
			require.ErrorIs(t, e.BatchMatMul(x, nil, x), cupool.ErrSizeMismatch)
			e.free(x, y)
		}
		if e.gpu {
			require.Zero(t, e.Stats().Fallbacks)
		}
	})
}

// productsOf multiplies n pairs of matrices.
func productsOf(a, b []float64, n, rows, inner, cols int) []float64 {
	c := make([]float64, n*rows*cols)
	for at := range c {
		i, j := at/cols, at%cols // i counts the rows of all matrices
		for k := range inner {
			c[at] += a[i*inner+k] * b[(i/rows*inner+k)*cols+j]
		}
	}
	return c
}
