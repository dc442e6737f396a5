package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/nn"
)

func TestActivate(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, act := range activations {
				for _, n := range []int{0, 1, 3, 4, 63, 1030} {
					e.checkActivate(dt, act, n)
				}
			}
		}
		if e.GPU {
			require.Zero(t, e.Stats().Fallbacks)
		}
	})
}

// checkActivate goes forth and back, to another tensor and in place.
func (e *bench) checkActivate(dt tensor.Dtype, act nn.Activation, n int) {
	what := fmt.Sprint(dt, act, n)
	x, y := e.From(random(e.Rand, dt, n)), must(e.Empty(dt, n))
	want := e.As64(x)
	layers.Activate(want, layers.Activation(act))
	require.NoError(e.T, nn.Activate(e.Engine, x, y, act), what)
	e.RequireNear(want, y, what)
	require.NoError(e.T, nn.Activate(e.Engine, x, x, act), what)
	e.RequireNear(want, x, what+" in place")

	dy, dx := e.From(random(e.Rand, dt, n)), must(e.Empty(dt, n))
	layers.ActivateBack(want, e.As64(y), e.As64(dy), layers.Activation(act))
	require.NoError(e.T, nn.ActivateBack(e.Engine, y, dy, dx, act), what)
	e.RequireNear(want, dx, what+" back")
	require.NoError(e.T, nn.ActivateBack(e.Engine, y, dy, dy, act), what)
	e.RequireNear(want, dy, what+" back in place")
	e.FreeAll(x, y, dy, dx)
}

// Views may begin anywhere.
func TestActivateUnaligned(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float32, 11))
		want := e.As64(x)
		layers.Activate(want[1:10], layers.Rectify)
		part := must(x.Slice(tensor.S(1, 10)))
		require.NoError(t, nn.Activate(e.Engine, part, part, nn.Rectify))
		e.RequireNear(want, x, "a part")
		e.FreeAll(x)
	})
}

// Rectify's slope is 1 at 0, and 0 below it and at NaN.
func TestRectifyAtTheEdges(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			edges := tensor.New(tensor.Of(dt), tensor.WithShape(6))
			for i, v := range []float64{0, math.Copysign(0, -1), -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
				edges.Set(i, value(dt, v))
			}
			x, ones := e.From(edges), e.From(tensor.Ones(dt, 6))
			require.NoError(t, nn.Activate(e.Engine, x, x, nn.Rectify))
			require.NoError(t, nn.ActivateBack(e.Engine, x, ones, ones, nn.Rectify))
			require.Equal(t, []float64{1, 1, 0, 0, 1, 0}, e.As64(ones))
			e.FreeAll(x, ones)
		}
	})
}

func TestActivateErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, f := e.From(random(e.Rand, tensor.Float64, 8)), e.From(random(e.Rand, tensor.Float32, 8))
		y, short, before := e.From(random(e.Rand, tensor.Float64, 8)), must(x.Slice(tensor.S(0, 7))), e.As64(x)
		shifted := must(x.Slice(tensor.S(1, 8)))
		failures{
			"nothing":           {nn.Activate(e.Engine, nil, y, nn.ReLU), cupool.ErrNotSupported},
			"no result":         {nn.Activate(e.Engine, x, nil, nn.ReLU), cupool.ErrNotSupported},
			"another size":      {nn.Activate(e.Engine, y, short, nn.ReLU), cupool.ErrSizeMismatch},
			"another type":      {nn.Activate(e.Engine, f, x, nn.ReLU), cupool.ErrNotSupported},
			"partly in place":   {nn.Activate(e.Engine, short, shifted, nn.ReLU), cupool.ErrNotSupported},
			"back from nothing": {nn.ActivateBack(e.Engine, nil, y, x, nn.ReLU), cupool.ErrNotSupported},
			"back without dy":   {nn.ActivateBack(e.Engine, y, nil, x, nn.ReLU), cupool.ErrNotSupported},
			"dx is y":           {nn.ActivateBack(e.Engine, x, y, x, nn.ReLU), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, before, e.As64(x))
		e.FreeAll(x, y, f)
	})
}

// TestNoSuchActivation: a step of an activation that is none fails, and changes nothing.
func TestNoSuchActivation(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		all := e.Scope()
		defer func() { require.NoError(t, all.Close()) }()
		of := func(shape ...int) tensor.Tensor { return e.From(random(e.Rand, tensor.Float32, shape...)) }
		a, b, c, bias := of(2, 2), of(2, 2), of(2, 2), of(2)
		image, filter, pooled, back, same := of(1, 1, 2, 2), of(1, 1, 1, 1), of(1, 1, 1, 1), of(1, 1, 2, 2), of(1, 1, 2, 2)
		conv, window := nn.Conv{Kernel: [2]int{1, 1}}, nn.Window{Size: [2]int{2, 2}}
		stats := nn.BatchStats{Mean: of(2), Inverse: of(2), Epsilon: 1}
		for _, act := range []nn.Activation{nn.NoActivation - 1, nn.Rectify + 1} {
			want := e.As64(c)
			failures{
				"Activate":         {nn.Activate(e.Engine, a, c, act), cupool.ErrNotSupported},
				"ActivateBack":     {nn.ActivateBack(e.Engine, a, b, c, act), cupool.ErrNotSupported},
				"BiasActivate":     {nn.BiasActivate(e.Engine, c, bias, act), cupool.ErrNotSupported},
				"BiasActivateBack": {nn.BiasActivateBack(e.Engine, a, c, nil, act), cupool.ErrNotSupported},
				"Linear":           {nn.Linear(e.Engine, a, b, nil, c, act), cupool.ErrNotSupported},
				"LinearBack":       {nn.LinearBack(e.Engine, a, b, b, c, nil, nil, act), cupool.ErrNotSupported},
				"Conv2d":           {nn.Conv2d(e.Engine, image, filter, nil, same, conv, act), cupool.ErrNotSupported},
				"Conv2dBack":       {nn.Conv2dBack(e.Engine, image, filter, back, same, nil, nil, conv, act), cupool.ErrNotSupported},
				"MaxPool2dBack":    {nn.MaxPool2dBack(e.Engine, image, pooled, pooled, back, window, act), cupool.ErrNotSupported},
				"BatchNorm":        {nn.BatchNorm(e.Engine, a, nil, nil, c, stats, act), cupool.ErrNotSupported},
				"BatchNormBack":    {nn.BatchNormBack(e.Engine, a, b, b, nil, c, nil, nil, stats, act), cupool.ErrNotSupported},
			}.require(t)
			e.RequireNear(want, c, "nothing has changed")
		}
	})
}
