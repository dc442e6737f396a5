package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
)

func TestOptimizers(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			// More tensors than a launch takes, of different sizes.
			var params, plain []cupool.Param
			var all []tensor.Tensor
			for i := range 19 {
				s := []int{1 + 37*i}
				p := cupool.Param{Value: e.from(random(e.r, dt, s...)), Grad: e.from(random(e.r, dt, s...)),
					Momentum: e.from(random(e.r, dt, s...)), Second: e.from(must(tensor.Square(random(e.r, dt, s...))).(*tensor.Dense))}
				all = append(all, p.Value, p.Grad, p.Momentum, p.Second)
				params = append(params, p)
				plain = append(plain, cupool.Param{Value: p.Value, Grad: p.Grad})
			}
			e.checkStep("SGD", params, func() error {
				return e.SGDStep(cupool.SGD{LearningRate: 0.1, Momentum: 0.9, WeightDecay: 0.01}, params...)
			},
				func(w, g, m, v []float64) { layers.SGD(w, g, m, 0.1, 0.9, 0.01) })
			e.checkStep("plain SGD", params, func() error { return e.SGDStep(cupool.SGD{LearningRate: 0.1}, plain...) },
				func(w, g, m, v []float64) { layers.SGD(w, g, nil, 0.1, 0, 0) })
			rate, step := e.from(single(dt, 0.25)), e.from(single(dt, 7))
			e.checkStep("SGD by a rate of the device", params, func() error {
				return e.SGDStep(cupool.SGD{LearningRate: 1000, Rate: rate, Momentum: 0.9}, params...)
			}, func(w, g, m, v []float64) { layers.SGD(w, g, m, 0.25, 0.9, 0) })
			o := layers.AdamOptions{LR: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Decay: 0.01}
			e.checkStep("Adam", params, func() error {
				return e.AdamStep(cupool.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}, 3, params...)
			}, func(w, g, m, v []float64) { layers.Adam(w, g, m, v, 3, o) })
			o.LR = 0.25
			e.checkStep("Adam by a rate and step of the device", params, func() error {
				return e.AdamStep(cupool.Adam{Rate: rate, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}, 0, params...)
			}, func(w, g, m, v []float64) { layers.Adam(w, g, m, v, 7, o) })
			e.free(append(all, rate, step)...)
		}
	})
}

// checkStep compares a step with one in float64.
func (e *bench) checkStep(what string, params []cupool.Param, step func() error, want func(w, g, m, v []float64)) {
	var ws, ms, vs [][]float64
	for _, p := range params {
		w, m, v := e.as64(p.Value), e.as64(p.Momentum), e.as64(p.Second)
		want(w, e.as64(p.Grad), m, v)
		ws, ms, vs = append(ws, w), append(ms, m), append(vs, v)
	}
	require.NoError(e.t, step())
	for i, p := range params {
		e.requireNear(ws[i], p.Value, what)
		e.requireNear(ms[i], p.Momentum, what)
		e.requireNear(vs[i], p.Second, what)
	}
}
