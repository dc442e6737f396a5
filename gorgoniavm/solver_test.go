package gorgoniavm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// weight is a gorgonia.ValueGrad.
type weight struct {
	name        string
	value, grad gorgonia.Value
	err         error
}

func (w *weight) Value() gorgonia.Value         { return w.value }
func (w *weight) Grad() (gorgonia.Value, error) { return w.grad, w.err }
func (w *weight) Name() string                  { return w.name }

// shapes of the weights that tests solve for; nil is a scalar.
var shapes = []tensor.Shape{{7, 5}, nil, {5}, {2, 3, 4}}

// newModel makes random weights of a type, with tensors in eng's pool, if there
// is one, or in Go's memory. The same seed makes the same weights.
func newModel(t *testing.T, eng *cupool.Engine, dt tensor.Dtype, seed uint64) (model []gorgonia.ValueGrad) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for i, s := range shapes {
		w := &weight{name: fmt.Sprint("w", i)}
		if s == nil {
			w.value, w.grad = scalar(dt, r.NormFloat64()), scalar(dt, 0)
		} else {
			w.value, w.grad = dense(t, eng, dt, s, r), dense(t, eng, dt, s, nil)
		}
		model = append(model, w)
	}
	return model
}

func scalar(dt tensor.Dtype, x float64) gorgonia.Value {
	if dt == tensor.Float32 {
		return gorgonia.NewF32(float32(x))
	}
	return gorgonia.NewF64(x)
}

// dense makes a tensor of random numbers, or zeros, in eng's pool if there is one.
func dense(t *testing.T, eng *cupool.Engine, dt tensor.Dtype, s tensor.Shape, r *rand.Rand) *tensor.Dense {
	t.Helper()
	d := tensor.New(tensor.Of(dt), tensor.WithShape(s...))
	if r != nil {
		fill(d, r)
	}
	if eng == nil {
		return d
	}
	d, err := eng.FromHost(d)
	require.NoError(t, err)
	return d
}

func fill(d *tensor.Dense, r *rand.Rand) {
	for i := range d.DataSize() {
		if d.Dtype() == tensor.Float32 {
			d.Float32s()[i] = float32(r.NormFloat64())
		} else {
			d.Float64s()[i] = r.NormFloat64()
		}
	}
}

// tensorsOf returns a model's weights that are tensors.
func tensorsOf(model []gorgonia.ValueGrad) []gorgonia.ValueGrad {
	return slices.DeleteFunc(model, func(n gorgonia.ValueGrad) bool { return n.Value().Shape().IsScalar() })
}

// setGrads gives a model random gradients.
func setGrads(t *testing.T, eng *cupool.Engine, model []gorgonia.ValueGrad, r *rand.Rand) {
	t.Helper()
	for _, n := range model {
		switch g := n.(*weight).grad.(type) {
		case *gorgonia.F32:
			*g = gorgonia.F32(r.NormFloat64())
		case *gorgonia.F64:
			*g = gorgonia.F64(r.NormFloat64())
		case *tensor.Dense:
			h := tensor.New(tensor.Of(g.Dtype()), tensor.WithShape(g.Shape()...))
			fill(h, r)
			if eng == nil {
				require.NoError(t, tensor.Copy(g, h))
			} else {
				require.NoError(t, eng.Copy(g, h))
			}
		}
	}
}

// numbers returns the elements of a model's weights or gradients.
func numbers(t *testing.T, eng *cupool.Engine, model []gorgonia.ValueGrad, grads bool) (xs []float64) {
	t.Helper()
	for _, n := range model {
		v := n.Value()
		if grads {
			v, _ = n.Grad()
		}
		if d, ok := v.(*tensor.Dense); ok && eng != nil {
			h, err := eng.ToHost(d)
			require.NoError(t, err)
			v = h
		}
		switch x := v.Data().(type) {
		case float32:
			xs = append(xs, float64(x))
		case float64:
			xs = append(xs, x)
		case []float64:
			xs = append(xs, x...)
		case []float32:
			for _, x := range x {
				xs = append(xs, float64(x))
			}
		}
	}
	return xs
}

func freeModel(t *testing.T, eng *cupool.Engine, model []gorgonia.ValueGrad) {
	t.Helper()
	for _, n := range model {
		w := n.(*weight)
		for _, v := range []gorgonia.Value{w.value, w.grad} {
			if d, ok := v.(*tensor.Dense); ok {
				require.NoError(t, eng.FreeTensor(d))
			}
		}
	}
}

// Gorgonia's solvers, by what they are called here. Its Momentum forgets the
// momentum of scalars, and regularizes that of tensors instead of the weights.
var stock = map[string]struct {
	method gorgoniavm.Method
	stock  func() gorgonia.Solver
}{
	"SGD": {gorgoniavm.SGD{LearnRate: 0.1}, func() gorgonia.Solver { return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1)) }},
	"SGD, all options": {
		gorgoniavm.SGD{LearnRate: 0.1, Regularization: gorgoniavm.Regularization{L1: 0.01, L2: 0.02, BatchSize: 3, Clip: 0.3}},
		func() gorgonia.Solver {
			return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1), gorgonia.WithL1Reg(0.01), gorgonia.WithL2Reg(0.02), gorgonia.WithBatchSize(3), gorgonia.WithClip(0.3))
		},
	},
	"Momentum": {gorgoniavm.Momentum{}, func() gorgonia.Solver { return gorgonia.NewMomentum() }},
	"Momentum, options": {
		gorgoniavm.Momentum{LearnRate: 0.02, Momentum: 0.8, Regularization: gorgoniavm.Regularization{BatchSize: 2, Clip: 0.4}},
		func() gorgonia.Solver {
			return gorgonia.NewMomentum(gorgonia.WithLearnRate(0.02), gorgonia.WithMomentum(0.8), gorgonia.WithBatchSize(2), gorgonia.WithClip(0.4))
		},
	},
	"RMSProp": {gorgoniavm.RMSProp{}, func() gorgonia.Solver { return gorgonia.NewRMSPropSolver() }},
	"RMSProp, options": {
		gorgoniavm.RMSProp{LearnRate: 0.01, Rho: 0.9, Epsilon: 1e-6, L2: 0.001},
		func() gorgonia.Solver {
			return gorgonia.NewRMSPropSolver(gorgonia.WithLearnRate(0.01), gorgonia.WithRho(0.9), gorgonia.WithEps(1e-6), gorgonia.WithL2Reg(0.001))
		},
	},
	"Adam": {gorgoniavm.Adam{}, func() gorgonia.Solver { return gorgonia.NewAdamSolver() }},
	"Adam, all options": {
		gorgoniavm.Adam{LearnRate: 0.01, Beta1: 0.8, Beta2: 0.99, Epsilon: 1e-6, Regularization: gorgoniavm.Regularization{L1: 0.01, L2: 0.02, BatchSize: 3, Clip: 0.3}},
		func() gorgonia.Solver {
			return gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01), gorgonia.WithBeta1(0.8), gorgonia.WithBeta2(0.99), gorgonia.WithEps(1e-6),
				gorgonia.WithL1Reg(0.01), gorgonia.WithL2Reg(0.02), gorgonia.WithBatchSize(3), gorgonia.WithClip(0.3))
		},
	},
}

// Every method moves weights on every device as Gorgonia's solvers do, takes no
// memory of the pool after the first step, and zeroes the gradients.
func TestSolversBesideGorgonias(t *testing.T) {
	const steps, seed = 50, 3
	tolerance := map[tensor.Dtype]float64{tensor.Float64: 1e-10, tensor.Float32: 1e-4}
	everywhere(t, func(t *testing.T, d device) {
		for name, c := range stock {
			for dt, delta := range tolerance {
				t.Run(fmt.Sprint(name, " ", dt), func(t *testing.T) {
					eng, pool := d.open(t)
					ours, theirs := newModel(t, eng, dt, seed), newModel(t, nil, dt, seed)
					if _, ok := c.method.(gorgoniavm.Momentum); ok {
						ours, theirs = tensorsOf(ours), tensorsOf(theirs)
					}
					start := numbers(t, nil, theirs, false)
					other := c.stock()
					solve(t, d, eng, pool, c.method, ours, steps, func(step uint64, rate float64) {
						gorgonia.WithLearnRate(rate)(other)
						setGrads(t, eng, ours, rand.New(rand.NewPCG(seed, step)))
						setGrads(t, nil, theirs, rand.New(rand.NewPCG(seed, step)))
						require.NoError(t, other.Step(theirs))
					})
					require.InDeltaSlice(t, numbers(t, nil, theirs, false), numbers(t, eng, ours, false), delta)
					require.NotEqual(t, start, numbers(t, eng, ours, false))
					freeModel(t, eng, ours)
				})
			}
		}
	})
}

// solve takes steps with a method, whose rate changes. before is called before
// each.
func solve(t *testing.T, d device, eng *cupool.Engine, pool *meter, method gorgoniavm.Method, model []gorgonia.ValueGrad, steps int, before func(step uint64, rate float64)) {
	t.Helper()
	s, err := gorgoniavm.NewSolver(eng, method)
	require.NoError(t, err)
	fallbacks, rate := eng.Stats().Fallbacks, s.LearnRate()
	for step := range uint64(steps) {
		require.NoError(t, s.SetLearnRate(rate/float64(1+step%3)))
		before(step, s.LearnRate())
		allocated := pool.Stats().All.Allocation.Allocated
		require.NoError(t, s.Step(model))
		require.True(t, step == 0 || pool.Stats().All.Allocation.Allocated == allocated, "step %d took memory", step)
	}
	if d.computes {
		require.Equal(t, fallbacks, eng.Stats().Fallbacks, eng.Stats().ByOp)
	}
	for _, g := range numbers(t, eng, model, true) {
		require.Zero(t, g, "gradients are zeroed")
	}
	require.NoError(t, s.Close())
}

// The methods that Gorgonia has not, or not right, beside their formulas.
func TestSolversByFormula(t *testing.T) {
	const first, mu, steps, seed = 0.05, 0.9, 50, 5
	formulas := map[string]struct {
		method gorgoniavm.Method
		move   func(w, g, rate float64, state *[2]float64, step int) float64
	}{
		"Nesterov": {
			gorgoniavm.Momentum{LearnRate: first, Momentum: mu, Nesterov: true},
			func(w, g, rate float64, s *[2]float64, _ int) float64 {
				s[0] = mu*s[0] + rate*g
				return w - (rate*g + mu*s[0])
			},
		},
		"Momentum, L2": {
			gorgoniavm.Momentum{LearnRate: first, Momentum: mu, Regularization: gorgoniavm.Regularization{L2: 0.1}},
			func(w, g, rate float64, s *[2]float64, _ int) float64 {
				s[0] = mu*s[0] + rate*(g+0.1*w)
				return w - s[0]
			},
		},
		"AdamW": {
			gorgoniavm.AdamW{LearnRate: first, WeightDecay: 0.1},
			func(w, g, rate float64, s *[2]float64, step int) float64 {
				s[0], s[1] = 0.9*s[0]+0.1*g, 0.999*s[1]+0.001*g*g
				mean, variance := s[0]/(1-math.Pow(0.9, float64(step))), s[1]/(1-math.Pow(0.999, float64(step)))
				return w*(1-rate*0.1) - rate*mean/(math.Sqrt(variance)+1e-8)
			},
		},
		"RMSProp, Clip": {
			gorgoniavm.RMSProp{LearnRate: first, Rho: mu, Clip: 0.5},
			func(w, g, rate float64, s *[2]float64, _ int) float64 {
				s[0] = mu*s[0] + (1-mu)*g*g
				return w - rate*min(max(g, -0.5), 0.5)/math.Sqrt(s[0]+1e-8)
			},
		},
	}
	everywhere(t, func(t *testing.T, d device) {
		for name, f := range formulas {
			t.Run(name, func(t *testing.T) {
				eng, pool := d.open(t)
				model := newModel(t, eng, tensor.Float64, seed)
				want := numbers(t, eng, model, false)
				states := make([][2]float64, len(want))
				solve(t, d, eng, pool, f.method, model, steps, func(step uint64, rate float64) {
					setGrads(t, eng, model, rand.New(rand.NewPCG(seed, step)))
					for i, g := range numbers(t, eng, model, true) {
						want[i] = f.move(want[i], g, rate, &states[i], int(step)+1)
					}
				})
				require.InDeltaSlice(t, want, numbers(t, eng, model, false), 1e-9)
				freeModel(t, eng, model)
			})
		}
	})
}

// After the first one, steps take no memory from Go or the pool.
func TestSolverStepsAllocateNothing(t *testing.T) {
	for name, c := range stock {
		t.Run(name, func(t *testing.T) {
			eng, pool := newMeter(t)
			model := newModel(t, eng, tensor.Float32, 1)
			live := pool.Stats().All.Allocation.Current
			s, err := gorgoniavm.NewSolver(eng, c.method)
			require.NoError(t, err)
			require.NoError(t, s.Step(model))
			allocated := pool.Stats().All.Allocation.Allocated
			require.Zero(t, testing.AllocsPerRun(20, func() { err = errors.Join(err, s.Step(model)) }))
			require.NoError(t, err)
			require.Equal(t, allocated, pool.Stats().All.Allocation.Allocated)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
			require.Equal(t, live, pool.Stats().All.Allocation.Current, "Close gives everything back")
			require.ErrorIs(t, s.Step(model), cupool.ErrClosed)
			freeModel(t, eng, model)
		})
	}
}

// What a solver remembers is not a step's scope's.
func TestSolverInAScope(t *testing.T) {
	eng, _ := newMeter(t)
	model := newModel(t, eng, tensor.Float64, 1)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{})
	require.NoError(t, err)
	for range 3 {
		scope := eng.Scope()
		require.NoError(t, s.Step(model))
		require.NoError(t, scope.Close())
	}
	require.NoError(t, s.Close(), "nobody else has freed it")
	freeModel(t, eng, model)
}

func TestSolverLearnRate(t *testing.T) {
	eng, _ := newMeter(t)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
	require.NoError(t, err)
	require.Equal(t, 0.001, s.LearnRate())
	require.NoError(t, s.SetLearnRate(2))
	w := &weight{value: gorgonia.NewF64(1), grad: gorgonia.NewF64(3)}
	require.NoError(t, s.Step([]gorgonia.ValueGrad{w}))
	require.Equal(t, -5.0, w.value.Data())
	require.ErrorIs(t, s.SetLearnRate(0), cupool.ErrInvalidConfig)
	require.ErrorIs(t, s.SetLearnRate(math.NaN()), cupool.ErrInvalidConfig)
	require.ErrorIs(t, s.SetLearnRate(math.Inf(1)), cupool.ErrInvalidConfig)
}

// Gradients that are kept are still there.
func TestSolverKeepGradients(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		eng, _ := d.open(t)
		for _, m := range []gorgoniavm.Method{gorgoniavm.SGD{}, gorgoniavm.Momentum{}, gorgoniavm.Momentum{Nesterov: true}, gorgoniavm.RMSProp{Clip: 0.1, L2: 0.1}, gorgoniavm.Adam{}, gorgoniavm.AdamW{}} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				model := newModel(t, eng, dt, 1)
				setGrads(t, eng, model, rand.New(rand.NewPCG(1, 1)))
				want := numbers(t, eng, model, true)
				s, err := gorgoniavm.NewSolver(eng, m, gorgoniavm.KeepGradients())
				require.NoError(t, err)
				for range 2 {
					require.NoError(t, s.Step(model))
					require.Equal(t, want, numbers(t, eng, model, true), "%+v", m)
				}
				require.NoError(t, s.Close())
				freeModel(t, eng, model)
			}
		}
	})
}
