package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cupool/cupool"
	"gorgonia.org/tensor"
)

// newEngine makes an engine on a pool of its own, which must be empty again
// at the end of the test.
func newEngine(t *testing.T) *cupool.Engine {
	t.Helper()
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

// inScope runs f in a scope of eng, with what tensor operations panic with
// as a failure of the test.
func inScope(t *testing.T, eng *cupool.Engine, f func()) {
	t.Helper()
	scope := eng.Scope()
	err := func() (err error) {
		defer catch(&err)
		f()
		return nil
	}()
	if err != nil {
		t.Error(err)
	}
	if err := scope.Close(); err != nil {
		t.Error(err)
	}
}

// randomBatch is n samples of a width, each of one of so many classes.
func randomBatch(eng *cupool.Engine, rng *rand.Rand, n, width, classes int) (x, y *tensor.Dense) {
	xs, ys := make([]float64, n*width), make([]int, n)
	for i := range xs {
		xs[i] = rng.NormFloat64()
	}
	for i := range n {
		ys[i] = rng.IntN(classes)
	}
	return upload(eng, xs, n, width), upload(eng, ys, n)
}

// The gradients of the whole network, against (f(w+h)−f(w−h))/2h.
func TestGradients(t *testing.T) {
	const n, h = 5, 1e-5
	for name, widths := range map[string][]int{
		"no hidden layer":   {7, 4},
		"one hidden layer":  {7, 6, 4},
		"two hidden layers": {7, 6, 5, 4},
	} {
		t.Run(name, func(t *testing.T) {
			eng, rng := newEngine(t), rand.New(rand.NewPCG(3, 4))
			inScope(t, eng, func() {
				net := newMLP(eng, tensor.Float64, rng, widths...)
				x, y := randomBatch(eng, rng, n, widths[0], widths[len(widths)-1])
				for _, p := range net.params() { // biases are 0 so far
					for i, v := range p.value.Data().([]float64) {
						p.value.Data().([]float64)[i] = v + 0.1*rng.NormFloat64()
					}
				}
				loss := func() (sum float64) {
					inScope(t, eng, func() {
						acts := net.forward(x)
						losses := zeros(eng, net.dt, n)
						net.crossEntropy(acts[len(acts)-1], y, losses)
						sum = number(eng, must(tensor.Sum(losses))) / n
					})
					return sum
				}
				inScope(t, eng, func() {
					acts := net.forward(x)
					net.backward(acts, net.crossEntropy(acts[len(acts)-1], y, zeros(eng, net.dt, n)), (*peers)(nil).ready)
				})
				for i, p := range net.params() {
					values, grads := p.value.Data().([]float64), p.grad.Data().([]float64)
					for j, v := range values {
						values[j] = v + h
						up := loss()
						values[j] = v - h
						down := loss()
						values[j] = v
						if want := (up - down) / (2 * h); math.Abs(grads[j]-want) > 1e-7*(1+math.Abs(want)) {
							t.Errorf("parameter %d[%d]: gradient %v, by differences %v", i, j, grads[j], want)
						}
					}
				}
			})
		})
	}
}

// Without a capture, what is forked gives the gradients and updates that backward
// and step give.
func TestBackwardForked(t *testing.T) {
	const n = 5
	for _, hidden := range [][]int{nil, {4}, {4, 3}} {
		after := func(forked bool) (values []float64) {
			eng := newEngine(t)
			inScope(t, eng, func() {
				r := rand.New(rand.NewPCG(1, 2))
				net := newMLP(eng, tensor.Float64, r, slices.Concat([]int{6}, hidden, []int{2})...)
				x := uploadAs(eng, net.dt, normal(r, n*6), n, 6)
				y := upload(eng, []int{0, 1, 1, 0, 1}, n)
				opt := newSGD(net)
				for i := range 3 {
					at := turn{number: i + 1, rate: 0.1}
					acts := net.forward(x)
					d := net.crossEntropy(acts[len(acts)-1], y, zeros(eng, net.dt, n))
					if forked {
						net.backwardForked(acts, d, func(layer int) error { return opt.stepLayer(at, layer) })
					} else {
						net.backward(acts, d, (*peers)(nil).ready)
						opt.step(at)
					}
				}
				for _, p := range net.params() {
					values = append(values, p.value.Data().([]float64)...)
				}
			})
			return values
		}
		if want, got := after(false), after(true); !slices.Equal(want, got) {
			t.Errorf("hidden layers %v: parameters %v, want %v", hidden, got, want)
		}
	}
}

// normal returns normally distributed values.
func normal(r *rand.Rand, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = r.NormFloat64()
	}
	return values
}

func TestGraphSize(t *testing.T) {
	for _, c := range []struct{ steps, most, want int }{
		{468, 30, 30}, {468, 117, 117}, {468, 100, 94}, {468, 468, 468}, {468, 1000, 468}, {468, 1, 1},
		{58, 30, 29}, {59, 30, 30}, {10, 4, 4}, {10, 9, 5}, {7, 4, 4}, {1, 30, 1},
	} {
		if got := graphSize(c.steps, c.most); got != c.want {
			t.Errorf("graphSize(%d, %d) is %d, want %d", c.steps, c.most, got, c.want)
		}
	}
}

func TestCrossEntropy(t *testing.T) {
	eng := newEngine(t)
	inScope(t, eng, func() {
		logits := upload(eng, []float64{math.Log(1), math.Log(3), 0, 1000}, 2, 2)
		y := upload(eng, []int{0, 1}, 2)
		losses := zeros(eng, tensor.Float64, 2)
		d := (&mlp{eng: eng, dt: tensor.Float64}).crossEntropy(logits, y, losses)
		if got, want := number(eng, must(tensor.Sum(losses))), -math.Log(0.25); math.Abs(got-want) > 1e-12 {
			t.Errorf("loss %v, want %v", got, want)
		}
		want := []float64{(0.25 - 1) / 2, 0.75 / 2, 0, 0}
		for i, got := range d.Data().([]float64) {
			if math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("gradient %v, want %v", d.Data(), want)
				break
			}
		}
	})
}

// Both optimizers, against their formulas in plain float64.
func TestOptimizers(t *testing.T) {
	const lr, steps = 0.1, 3
	grads := [steps]float64{0.5, -2, 1}
	sgd, adam := 1.0, 1.0
	var v, m1, m2 float64
	for i, g := range grads {
		v = 0.9*v + g
		sgd -= lr * v
		m1, m2 = 0.9*m1+0.1*g, 0.999*m2+0.001*g*g
		k := float64(i + 1)
		adam -= lr * (m1 / (1 - math.Pow(0.9, k))) / (math.Sqrt(m2/(1-math.Pow(0.999, k))) + 1e-8)
	}
	for name, want := range map[string]float64{"sgd": sgd, "adam": adam} {
		t.Run(name, func(t *testing.T) {
			eng := newEngine(t)
			inScope(t, eng, func() {
				net := newMLP(eng, tensor.Float64, rand.New(rand.NewPCG(1, 2)), 2, 3)
				w := net.params()[0]
				check(w.value.Memset(1.0))
				opt := optimizers[name](net)
				for i, g := range grads {
					check(w.grad.Memset(g))
					inScope(t, eng, func() { opt.step(turn{number: i + 1, rate: lr}) })
				}
				for _, got := range w.value.Data().([]float64) {
					if math.Abs(got-want) > 1e-12 {
						t.Errorf("weight %v after %d steps, want %v", got, steps, want)
					}
				}
			})
		})
	}
}
