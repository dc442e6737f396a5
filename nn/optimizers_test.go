package nn_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/nn"
)

func TestOptimizers(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			// More tensors than a launch takes, of different sizes.
			var params, plain, squared []nn.Param
			var all []tensor.Tensor
			for i := range 19 {
				s := []int{1 + 37*i}
				p := nn.Param{Value: e.From(random(e.Rand, dt, s...)), Grad: e.From(random(e.Rand, dt, s...)),
					Momentum: e.From(random(e.Rand, dt, s...)), Second: e.From(must(tensor.Square(random(e.Rand, dt, s...))).(*tensor.Dense))}
				all = append(all, p.Value, p.Grad, p.Momentum, p.Second)
				params = append(params, p)
				plain = append(plain, nn.Param{Value: p.Value, Grad: p.Grad})
				squared = append(squared, nn.Param{Value: p.Value, Grad: p.Grad, Momentum: p.Second}) // RMSProp's is not negative
			}
			e.checkStep("SGD", params, func() error {
				return nn.SGD{LearningRate: 0.1, Momentum: 0.9, WeightDecay: 0.01}.Step(e.Engine, params...)
			},
				func(w, g, m, v []float64) { layers.SGD(w, g, m, 0.1, 0.9, 0.01) })
			e.checkStep("plain SGD", params, func() error { return nn.SGD{LearningRate: 0.1}.Step(e.Engine, plain...) },
				func(w, g, m, v []float64) { layers.SGD(w, g, nil, 0.1, 0, 0) })
			rate, step := e.From(single(dt, 0.25)), e.From(single(dt, 7.5))
			e.checkStep("SGD by a rate of the device", params, func() error {
				return nn.SGD{LearningRate: 1000, Rate: rate, Momentum: 0.9}.Step(e.Engine, params...)
			}, func(w, g, m, v []float64) { layers.SGD(w, g, m, 0.25, 0.9, 0) })
			r := layers.RMSPropOptions{LR: 0.1, Rho: 0.9, Epsilon: 1e-4, Decay: 0.01, Clip: 0.25}
			e.checkStep("RMSProp", params, func() error {
				return nn.RMSProp{LearningRate: 0.1, Rho: 0.9, Epsilon: 1e-4, WeightDecay: 0.01, Clip: 0.25}.Step(e.Engine, squared...)
			}, func(w, g, m, v []float64) { layers.RMSProp(w, g, v, r) })
			r = layers.RMSPropOptions{LR: 0.25, Rho: 0.9, Epsilon: 1e-4}
			e.checkStep("RMSProp by a rate of the device", params, func() error {
				return nn.RMSProp{LearningRate: 1000, Rate: rate, Rho: 0.9, Epsilon: 1e-4}.Step(e.Engine, squared...)
			}, func(w, g, m, v []float64) { layers.RMSProp(w, g, v, r) })
			o := layers.AdamOptions{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Decay: 0.01}
			e.checkStep("Adam", params, func() error {
				return nn.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}.Step(e.Engine, 3, params...)
			}, func(w, g, m, v []float64) { layers.Adam(w, g, m, v, 3, o) })
			o.LR = 0.25
			e.checkStep("Adam by a rate and step of the device", params, func() error {
				return nn.Adam{Rate: rate, StepNumber: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}.Step(e.Engine, 0, params...)
			}, func(w, g, m, v []float64) { layers.Adam(w, g, m, v, 7.5, o) })
			e.FreeAll(append(all, rate, step)...)
		}
	})
}

// checkStep compares a step with one in float64.
func (e *bench) checkStep(what string, params []nn.Param, step func() error, want func(w, g, m, v []float64)) {
	var ws, ms, vs [][]float64
	for _, p := range params {
		w, m, v := e.As64(p.Value), e.As64(p.Momentum), e.As64(p.Second)
		want(w, e.As64(p.Grad), m, v)
		ws, ms, vs = append(ws, w), append(ms, m), append(vs, v)
	}
	require.NoError(e.T, step())
	for i, p := range params {
		e.RequireNear(ws[i], p.Value, what)
		e.RequireNear(ms[i], p.Momentum, what)
		e.RequireNear(vs[i], p.Second, what)
	}
}

// TestGraphGoesOn launches one graph as several steps of an optimizer, with a
// learning rate and a number that change from step to step.
func TestGraphGoesOn(t *testing.T) {
	e := newGPU(t)
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
			layers.Adam(wantAdam, e.As64(adam.Grad), am, av, float64(i), layers.AdamOptions{LR: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
			e.RequireClose(wantSGD, e.As64(sgd.Value), 10*bounds[dt], "SGD")
			e.RequireClose(wantAdam, e.As64(adam.Value), 10*bounds[dt], "Adam")
		}
		require.NoError(t, g.Close())
		e.FreeAll(sgd.Value, sgd.Grad, sgd.Momentum, sgd.Second, adam.Value, adam.Grad, adam.Momentum, adam.Second, rate, step)
	}
	require.Zero(t, e.Live())
}
