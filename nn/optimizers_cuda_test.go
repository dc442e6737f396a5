//go:build gpu

package nn_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nn"
)

var (
	bounds = enginetest.Bounds
)

// TestGraphGoesOn launches one graph as several steps of an optimizer, with a
// learning rate and a number that change from step to step.
func TestGraphGoesOn(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	e.Engine = must(cupool.NewEngine(e.Pool, cupool.WithStream(must(e.Pool.NewStream())))) // the default stream cannot be captured
	for _, dt := range floats {
		param := func() nn.Param {
			return nn.Param{Value: e.From(random(e.Rand, dt, 41)), Grad: e.From(random(e.Rand, dt, 41)), Momentum: e.From(tensor.New(tensor.Of(dt), tensor.WithShape(41))),
				Second: e.From(tensor.New(tensor.Of(dt), tensor.WithShape(41)))}
		}
		sgd, adam, rate, step := param(), param(), e.From(single(dt, 0)), e.From(single(dt, 0))
		one := value(dt, 1)
		update := func() error {
			if _, err := tensor.Add(step, one, tensor.UseUnsafe()); err != nil {
				return err
			}
			a := nn.Adam{Rate: rate, StepNumber: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
			return errors.Join(nn.SGD{Rate: rate, Momentum: 0.9}.Step(e.Engine, sgd), a.Step(e.Engine, 0, adam))
		}
		require.NoError(t, update()) // by a rate of 0, which changes no value
		for _, p := range []nn.Param{sgd, adam} {
			require.NoError(t, errors.Join(e.Zero(p.Momentum), e.Zero(p.Second)))
		}
		require.NoError(t, e.Zero(step))
		g, err := e.Capture(update)
		require.NoError(t, err)
		wantSGD, wantAdam := e.As64(sgd.Value), e.As64(adam.Value)
		m, am, av := make([]float64, 41), make([]float64, 41), make([]float64, 41)
		for i := 1; i <= 5; i++ {
			lr := 0.5 / float64(i)
			require.NoError(t, e.Copy(rate, single(dt, lr)))
			require.NoError(t, g.Launch())
			layers.SGD(wantSGD, e.As64(sgd.Grad), m, lr, 0.9, 0)
			layers.Adam(wantAdam, e.As64(adam.Grad), am, av, i, layers.AdamOptions{LR: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
			e.RequireClose(wantSGD, e.As64(sgd.Value), 10*bounds[dt], "SGD")
			e.RequireClose(wantAdam, e.As64(adam.Value), 10*bounds[dt], "Adam")
		}
		require.NoError(t, g.Close())
		e.FreeAll(sgd.Value, sgd.Grad, sgd.Momentum, sgd.Second, adam.Value, adam.Grad, adam.Momentum, adam.Second, rate, step)
	}
	require.Zero(t, e.Live())
}
