package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nn"
)

// normShapes have one block a channel and several, and batches without planes.
var normShapes = [][]int{{4, 3, 2, 5}, {1, 1, 3, 3}, {7, 40}, {2, 3, 4}, {5, 2, 31, 33}, {3, 600, 2, 1}, {0, 3, 2, 2}}

func TestBatchNorm(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for i, s := range normShapes {
				if e.GPU && quick() && s[1] > 100 {
					continue
				}
				acts := []nn.Activation{nn.NoActivation, nn.Rectify, nn.Tanh}
				e.checkBatchNorm(dt, s, acts[i%3], i%2 == 0, false)
				e.checkBatchNorm(dt, s, acts[(i+1)%3], i%2 == 1, true)
			}
		}
	})
}

// normed are the tensors of a normalization, and its sizes.
type normed struct {
	n           *layers.Norm
	s           nn.BatchStats
	scale, bias tensor.Tensor // nil: none
}

func (e *bench) newNormed(dt tensor.Dtype, shape []int, act nn.Activation, scaled, evaluate bool) *normed {
	c := shape[1]
	positive := random(e.Rand, dt, c)
	for i := range c {
		positive.Set(i, value(dt, 0.5+e.Rand.Float64()))
	}
	n := &normed{
		n: &layers.Norm{Batch: shape[0], Channels: c, Plane: tensor.Shape(shape[2:]).TotalSize(), Momentum: 0.25, Epsilon: 1e-3, Training: !evaluate, Activation: layers.Activation(act)},
		s: nn.BatchStats{Momentum: 0.25, Epsilon: 1e-3, Evaluate: evaluate, Mean: must(e.Empty(dt, c)), Inverse: must(e.Empty(dt, c)), RunningMean: e.From(random(e.Rand, dt, c)), RunningVariance: e.From(positive)},
	}
	if len(shape) == 2 {
		n.n.Plane = 1
	}
	if scaled {
		n.scale, n.bias = e.From(random(e.Rand, dt, c)), e.From(random(e.Rand, dt, 1, c, 1, 1))
	}
	return n
}

func (e *bench) freeNormed(n *normed) {
	e.FreeAll(n.s.Mean, n.s.Inverse, n.s.RunningMean, n.s.RunningVariance)
	if n.scale != nil {
		e.FreeAll(n.scale, n.bias)
	}
}

// stats returns copies of the statistics.
func (e *bench) stats(s nn.BatchStats) layers.NormStats[float64] {
	return layers.NormStats[float64]{Mean: e.As64(s.Mean), Inverse: e.As64(s.Inverse), RunningMean: e.As64(s.RunningMean), RunningVariance: e.As64(s.RunningVariance)}
}

// numbers returns a tensor's, or nil for nil.
func (e *bench) numbers(t tensor.Tensor) []float64 {
	if t == nil {
		return nil
	}
	return e.As64(t)
}

func (e *bench) checkBatchNorm(dt tensor.Dtype, shape []int, act nn.Activation, scaled, evaluate bool) {
	what := fmt.Sprint(dt, shape, act, scaled, evaluate)
	n := e.newNormed(dt, shape, act, scaled, evaluate)
	x, y, dy, dx := e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...)), e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...))
	want, wantY := e.stats(n.s), e.As64(y)
	require.NoError(e.T, nn.BatchNorm(e.Engine, x, n.scale, n.bias, y, n.s, act), what)
	if shape[0] > 0 {
		layers.BatchNorm(n.n, e.As64(x), e.numbers(n.scale), e.numbers(n.bias), wantY, want)
		e.RequireNear(wantY, y, what)
		e.RequireNear(want.RunningMean, n.s.RunningMean, what)
		e.RequireNear(want.RunningVariance, n.s.RunningVariance, what)
		e.checkBatchNormBack(n, x, y, dy, dx, act, what)
	}
	e.FreeAll(x, y, dy, dx)
	e.freeNormed(n)
}

func (e *bench) checkBatchNormBack(n *normed, x, y, dy, dx *tensor.Dense, act nn.Activation, what string) {
	c := n.n.Channels
	dscale, dbias := must(e.Empty(x.Dtype(), c)), must(e.Empty(x.Dtype(), c))
	wantDX, wantScale, wantBias := e.As64(dx), make([]float64, c), make([]float64, c)
	layers.BatchNormBack(n.n, e.As64(x), e.As64(y), e.As64(dy), e.numbers(n.scale), wantDX, wantScale, wantBias, e.stats(n.s))
	require.NoError(e.T, nn.BatchNormBack(e.Engine, x, y, dy, n.scale, dx, dscale, dbias, n.s, act), what)
	e.RequireNear(wantDX, dx, what)
	e.requireSums(wantScale, dscale, n.n.Batch*n.n.Plane, what)
	e.requireSums(wantBias, dbias, n.n.Batch*n.n.Plane, what)
	if act == nn.NoActivation {
		require.NoError(e.T, e.Zero(dx))
		require.NoError(e.T, nn.BatchNormBack(e.Engine, x, nil, dy, n.scale, dx, nil, nil, n.s, act), what)
		e.RequireNear(wantDX, dx, what)
	}
	e.FreeAll(dscale, dbias)
}

// TestBatchNormOfOne: a single element has no unbiased variance.
func TestBatchNormOfOne(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		n := e.newNormed(tensor.Float64, []int{1, 2}, nn.NoActivation, false, false)
		x, y := e.From(random(e.Rand, tensor.Float64, 1, 2)), must(e.Empty(tensor.Float64, 1, 2))
		require.NoError(t, nn.BatchNorm(e.Engine, x, nil, nil, y, n.s, nn.NoActivation))
		require.Equal(t, []float64{0, 0}, e.As64(y))
		requireSpecial(t, []float64{math.NaN(), math.NaN()}, e.As64(n.s.RunningVariance))
		e.FreeAll(x, y)
		e.freeNormed(n)
	})
}

// TestBatchNormBackOfNothing: an empty batch has gradients of 0 by scale and bias.
func TestBatchNormBackOfNothing(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, evaluate := range []bool{false, true} {
			n := e.newNormed(tensor.Float32, []int{0, 3, 2, 2}, nn.Tanh, true, evaluate)
			x, dx := must(e.Empty(tensor.Float32, 0, 3, 2, 2)), must(e.Empty(tensor.Float32, 0, 3, 2, 2))
			dscale, dbias := e.From(random(e.Rand, tensor.Float32, 3)), e.From(random(e.Rand, tensor.Float32, 3))
			require.NoError(t, nn.BatchNormBack(e.Engine, x, x, x, n.scale, dx, dscale, dbias, n.s, nn.Tanh))
			require.Equal(t, make([]float64, 3), e.As64(dscale))
			require.Equal(t, make([]float64, 3), e.As64(dbias))
			require.NoError(t, nn.BatchNormBack(e.Engine, x, x, x, n.scale, dx, nil, nil, n.s, nn.Tanh))
			e.FreeAll(x, dx, dscale, dbias)
			e.freeNormed(n)
		}
	})
}

// requireSums requires t's elements to be want but for the rounding of sums of so
// many numbers around 1, which one after the other adds up.
func (e *bench) requireSums(want []float64, t tensor.Tensor, of int, what string) {
	e.T.Helper()
	most := 10 * math.Sqrt(float64(of))
	e.RequireClose(append(want, most), append(e.As64(t), most), 10*enginetest.Bounds[t.Dtype()], what)
}

// TestBatchNormFarFromZero: squares of large numbers do not cancel.
func TestBatchNormFarFromZero(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		xs := make([]float32, 4096)
		for i := range xs {
			xs[i] = 1e4 + float32(i%2)
		}
		n := e.newNormed(tensor.Float32, []int{64, 1, 8, 8}, nn.NoActivation, false, false)
		x, y := e.From(tensor.New(tensor.WithShape(64, 1, 8, 8), tensor.WithBacking(xs))), must(e.Empty(tensor.Float32, 64, 1, 8, 8))
		require.NoError(t, nn.BatchNorm(e.Engine, x, nil, nil, y, n.s, nn.NoActivation))
		require.InDelta(t, 1e4+0.5, e.As64(n.s.Mean)[0], 1e-2)
		require.InDelta(t, 1/math.Sqrt(0.25+1e-3), e.As64(n.s.Inverse)[0], 1e-3)
		e.FreeAll(x, y)
		e.freeNormed(n)
	})
}

// TestBatchNormOfNaN: a NaN or an infinity spoils its channel and no other.
func TestBatchNormOfNaN(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			n := e.newNormed(tensor.Float64, []int{2, 2, 1, 2}, nn.NoActivation, false, false)
			x, y := e.From(tensor.New(tensor.WithShape(2, 2, 1, 2), tensor.WithBacking([]float64{1, bad, 1, 2, 3, 4, 3, 4}))), must(e.Empty(tensor.Float64, 2, 2, 1, 2))
			require.NoError(t, nn.BatchNorm(e.Engine, x, nil, nil, y, n.s, nn.NoActivation))
			for i, v := range e.As64(y) {
				require.Equal(t, i/2%2 == 0, math.IsNaN(v), "%v %d", bad, i)
			}
			e.FreeAll(x, y)
			e.freeNormed(n)
		}
	})
}

func TestGroupNorm(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, c := range []struct {
				shape  []int
				groups int
			}{{[]int{2, 6, 3, 3}, 3}, {[]int{3, 4, 40, 41}, 1}, {[]int{2, 3, 5}, 3}, {[]int{5, 8}, 2}, {[]int{0, 2, 2}, 1}} {
				e.checkGroupNorm(dt, c.shape, c.groups)
			}
		}
	})
}

func (e *bench) checkGroupNorm(dt tensor.Dtype, shape []int, groups int) {
	what := fmt.Sprint(dt, shape, groups)
	x, y, dy, dx := e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...)), e.From(random(e.Rand, dt, shape...)), must(e.Empty(dt, shape...))
	mean, inverse := must(e.Empty(dt, shape[0]*groups)), must(e.Empty(dt, shape[0]*groups))
	require.NoError(e.T, nn.GroupNorm(e.Engine, x, y, mean, inverse, groups, 1e-3), what)
	require.NoError(e.T, nn.GroupNormBack(e.Engine, x, dy, dx, mean, inverse, groups), what)
	if shape[0] > 0 {
		rows := shape[0] * groups
		n := &layers.Norm{Batch: 1, Channels: rows, Plane: len(e.As64(x)) / rows, Epsilon: 1e-3, Training: true}
		s := layers.NormStats[float64]{Mean: make([]float64, rows), Inverse: make([]float64, rows)}
		wantY, wantDX := e.As64(y), e.As64(dx)
		layers.BatchNorm(n, e.As64(x), nil, nil, wantY, s)
		layers.BatchNormBack(n, e.As64(x), nil, e.As64(dy), nil, wantDX, nil, nil, s)
		e.RequireNear(wantY, y, what)
		e.RequireNear(wantDX, dx, what)
	}
	e.FreeAll(x, y, dy, dx, mean, inverse)
}

// TestNormErrors: what does not fit changes nothing.
func TestNormErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, c, v := e.From(random(e.Rand, tensor.Float32, 2, 3, 4)), must(e.Empty(tensor.Float32, 3)), must(e.Empty(tensor.Float32, 24))
		y, d := must(e.Empty(tensor.Float32, 2, 3, 4)), must(e.Empty(tensor.Float64, 3))
		c2 := must(e.Empty(tensor.Float32, 3))
		norm := func(x, scale, y tensor.Tensor, s nn.BatchStats) error {
			return nn.BatchNorm(e.Engine, x, scale, nil, y, s, nn.NoActivation)
		}
		before := e.As64(x)
		own := nn.BatchStats{Mean: c, Inverse: c2}
		failures{
			"a vector":         {norm(v, nil, y, own), cupool.ErrNotSupported},
			"no tensor":        {norm(nil, nil, y, own), cupool.ErrNotSupported},
			"scale's type":     {norm(x, d, y, own), cupool.ErrNotSupported},
			"scale's size":     {norm(x, v, y, own), cupool.ErrSizeMismatch},
			"in place":         {norm(x, nil, x, own), cupool.ErrNotSupported},
			"no statistics":    {norm(x, nil, y, nn.BatchStats{}), cupool.ErrNotSupported},
			"the same ones":    {norm(x, nil, y, nn.BatchStats{Mean: c, Inverse: c}), cupool.ErrNotSupported},
			"one running":      {norm(x, nil, y, nn.BatchStats{Mean: c, Inverse: c2, RunningMean: c}), cupool.ErrNotSupported},
			"none running":     {norm(x, nil, y, nn.BatchStats{Evaluate: true}), cupool.ErrNotSupported},
			"y of activation":  {nn.BatchNormBack(e.Engine, x, nil, y, nil, y, nil, nil, own, nn.Tanh), cupool.ErrNotSupported},
			"gradient in x":    {nn.BatchNormBack(e.Engine, x, nil, y, nil, x, nil, nil, own, nn.NoActivation), cupool.ErrNotSupported},
			"uneven groups":    {nn.GroupNorm(e.Engine, x, y, c, c2, 2, 0), cupool.ErrSizeMismatch},
			"no groups":        {nn.GroupNormBack(e.Engine, x, y, y, c, c2, 0), cupool.ErrSizeMismatch},
			"groups' size":     {nn.GroupNorm(e.Engine, x, y, c, c2, 3, 0), cupool.ErrSizeMismatch},
			"groups of vector": {nn.GroupNormBack(e.Engine, v, y, y, c, c2, 1), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, before, e.As64(x))
		e.FreeAll(x, c, c2, v, y, d)
	})
}
