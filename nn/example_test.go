package nn_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// A layer of a network learns by the fused steps: its forward and backward
// pass, the loss and the optimizer.
func ExampleCrossEntropy() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool, cupool.WithTF32()) // TF32 is for GPUs; others ignore it
	if err != nil {
		log.Fatal(err)
	}
	sc := eng.Scope()
	defer sc.Close()

	// Points of the plane: class 1 lies above the diagonal.
	points := []float32{0, 1, 1, 2, -1, 1, 1, 0, 2, 1, 1, -1}
	x, _ := eng.FromHost(tensor.New(tensor.WithShape(6, 2), tensor.WithBacking(points)))
	classes, _ := eng.FromHost(tensor.New(tensor.WithBacking([]int{1, 1, 1, 0, 0, 0})))

	zeros := func(shape ...int) *tensor.Dense {
		return tensor.New(tensor.WithEngine(eng), tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	}
	w := nn.Param{Value: zeros(2, 2), Grad: zeros(2, 2), Momentum: zeros(2, 2), Second: zeros(2, 2)}
	b := nn.Param{Value: zeros(2), Grad: zeros(2), Momentum: zeros(2), Second: zeros(2)}
	if err := nn.Normal(eng, w.Value, 0, 0.1, nn.Seed{Seed: 1, Stream: 0}); err != nil {
		log.Fatal(err)
	}
	y, grad, loss := zeros(6, 2), zeros(6, 2), zeros(6)
	xT, _ := x.SafeT()

	adam := nn.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	for step := 1; step <= 100; step++ {
		if _, err := tensor.MatMul(x, w.Value, tensor.WithReuse(y)); err != nil {
			log.Fatal(err)
		}
		// Between two layers the activation would be ReLU, Sigmoid or Tanh.
		if err := nn.BiasActivate(eng, y, b.Value, nn.NoActivation); err != nil {
			log.Fatal(err)
		}
		if err := eng.Zero(loss); err != nil {
			log.Fatal(err)
		}
		if err := nn.CrossEntropy(eng, y, classes, loss, grad); err != nil {
			log.Fatal(err)
		}
		if err := nn.BiasActivateBack(eng, y, grad, b.Grad, nn.NoActivation); err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.MatMul(xT, grad, tensor.WithReuse(w.Grad)); err != nil {
			log.Fatal(err)
		}
		if err := adam.Step(eng, step, w, b); err != nil {
			log.Fatal(err)
		}
	}
	best, _ := tensor.Argmax(y, 1)
	h, _ := eng.ToHost(best)
	fmt.Println(h.Data())
	// Output: [1 1 1 0 0 0]
}

// Two layers, forth and back.
func ExampleLinear() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	sc := eng.Scope()
	defer sc.Close()
	matrix := func(rows, cols int, values ...float64) *tensor.Dense {
		m, _ := eng.FromHost(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values)))
		return m
	}
	x := matrix(1, 2, 1, 2) // one sample
	w1, b1 := matrix(2, 2, 1, -1, 1, -1), matrix(1, 2, 0, 1)
	w2, b2 := matrix(2, 1, 3, 4), matrix(1, 1, 0.5)
	y, _ := eng.Empty(tensor.Float64, 1, 2)
	z, _ := eng.Empty(tensor.Float64, 1, 1)
	if err := errors.Join(nn.Linear(eng, x, w1, b1, y, nn.ReLU), nn.Linear(eng, y, w2, b2, z, nn.NoActivation)); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(z)
	fmt.Println(h.Data())

	dz := matrix(1, 1, 1) // the gradient by z
	dy, _ := eng.Empty(tensor.Float64, 1, 2)
	dw1, _ := eng.Empty(tensor.Float64, 2, 2)
	dw2, _ := eng.Empty(tensor.Float64, 2, 1)
	db1, _ := eng.Empty(tensor.Float64, 1, 2)
	db2, _ := eng.Empty(tensor.Float64, 1, 1)
	// y came from a ReLU, and dy is by what that was given; x came from nothing.
	err = errors.Join(nn.LinearBack(eng, y, w2, dz, dy, dw2, db2, nn.ReLU), nn.LinearBack(eng, x, w1, dy, nil, dw1, db1, nn.NoActivation))
	if err != nil {
		log.Fatal(err)
	}
	h, _ = eng.ToHost(dw1)
	fmt.Println(h.Data())
	// Output:
	// [9.5]
	// [3 0 6 0]
}

// A dropout, and its gradient, which makes the same choice again. The next draw
// makes another one.
func ExampleDropout() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	y, _ := eng.Empty(tensor.Float64, 6)
	hits, _ := eng.Empty(tensor.Float64, 2)
	draw, err := eng.FromHost(tensor.New(tensor.WithBacking([]int{0})))
	if err != nil {
		log.Fatal(err)
	}
	s := nn.Seed{Seed: 42, Draw: draw}
	show := func(t *tensor.Dense, err error) {
		h, _ := eng.ToHost(t)
		fmt.Println(h.Data(), err)
	}

	show(y, nn.Dropout(eng, x, y, 0.5, s))
	show(x, nn.DropoutBack(eng, x, x, 0.5, s))
	show(x, nn.ScaledDropoutBack(eng, x, x, 0.5, 1, s))
	if err := nn.NextDraw(eng, draw); err != nil {
		log.Fatal(err)
	}
	show(y, nn.Dropout(eng, x, y, 0.5, s))
	show(hits, nn.Binomial(eng, hits, 100, 0.25, s))
	// Output:
	// [0 4 6 8 0 12] <nil>
	// [0 4 6 8 0 12] <nil>
	// [0 4 6 8 0 12] <nil>
	// [0 8 12 0 0 0] <nil>
	// [36 24] <nil>
}
