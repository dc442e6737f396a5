package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// The loss of a step by itself, and the gradient of the sum over the samples.
func ExampleEngine_ScaledCrossEntropy() {
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

	logits, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 1, 2, 2})))
	classes, _ := eng.FromHost(tensor.New(tensor.WithBacking([]int{0, 1})))
	loss, _ := eng.Empty(tensor.Float64, 2)
	grad, _ := eng.Empty(tensor.Float64, 2, 2)
	if err := eng.ScaledCrossEntropy(logits, classes, loss, grad, 1); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(loss)
	g, _ := eng.ToHost(grad)
	fmt.Printf("%.2f %v\n", h.Data(), g.Data())
	// Output: [0.69 0.69] [-0.5 0.5 0.5 -0.5]
}

// A layer of a network learns by the fused steps: its forward and backward
// pass, the loss and the optimizer.
func ExampleEngine_CrossEntropy() {
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
	w := cupool.Param{Value: zeros(2, 2), Grad: zeros(2, 2), Momentum: zeros(2, 2), Second: zeros(2, 2)}
	b := cupool.Param{Value: zeros(2), Grad: zeros(2), Momentum: zeros(2), Second: zeros(2)}
	if err := eng.Normal(w.Value, 0, 0.1, cupool.Seed{Seed: 1, Stream: 0}); err != nil {
		log.Fatal(err)
	}
	y, grad, loss := zeros(6, 2), zeros(6, 2), zeros(6)
	xT, _ := x.SafeT()

	adam := cupool.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	for step := 1; step <= 100; step++ {
		if _, err := tensor.MatMul(x, w.Value, tensor.WithReuse(y)); err != nil {
			log.Fatal(err)
		}
		// Between two layers the activation would be ReLU, Sigmoid or Tanh.
		if err := eng.BiasActivate(y, b.Value, cupool.NoActivation); err != nil {
			log.Fatal(err)
		}
		if err := eng.Zero(loss); err != nil {
			log.Fatal(err)
		}
		if err := eng.CrossEntropy(y, classes, loss, grad); err != nil {
			log.Fatal(err)
		}
		if err := eng.BiasActivateBack(y, grad, b.Grad, cupool.NoActivation); err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.MatMul(xT, grad, tensor.WithReuse(w.Grad)); err != nil {
			log.Fatal(err)
		}
		if err := eng.AdamStep(adam, step, w, b); err != nil {
			log.Fatal(err)
		}
	}
	best, _ := tensor.Argmax(y, 1)
	h, _ := eng.ToHost(best)
	fmt.Println(h.Data())
	// Output: [1 1 1 0 0 0]
}

// Two layers, forth and back.
func ExampleEngine_Linear() {
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
	if err := errors.Join(eng.Linear(x, w1, b1, y, cupool.ReLU), eng.Linear(y, w2, b2, z, cupool.NoActivation)); err != nil {
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
	err = errors.Join(eng.LinearBack(y, w2, dz, dy, dw2, db2, cupool.ReLU), eng.LinearBack(x, w1, dy, nil, dw1, db1, cupool.NoActivation))
	if err != nil {
		log.Fatal(err)
	}
	h, _ = eng.ToHost(dw1)
	fmt.Println(h.Data())
	// Output:
	// [9.5]
	// [3 0 6 0]
}

func ExampleEngine_SGDStep() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	w, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2})))
	g, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{10, 0})))
	defer eng.FreeTensor(w, g)

	err = eng.SGDStep(cupool.SGD{LearningRate: 0.1, Momentum: 0, WeightDecay: 0.5}, cupool.Param{Value: w, Grad: g})
	if err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(w)
	fmt.Println(h.Data())

	// Random numbers depend on the seed and their place only.
	if err := eng.Uniform(w, 0, 1, cupool.Seed{Seed: 42}); err != nil {
		log.Fatal(err)
	}
	h, _ = eng.ToHost(w)
	fmt.Printf("%.4f\n", h.Data())
	// Output:
	// [-0.050000000000000044 1.9]
	// [0.4686 0.3409]
}

func ExampleEngine_BatchMatMul() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	a, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 1, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	b, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 1), tensor.WithBacking([]float64{1, 10, 100, 1000})))
	c, _ := eng.Empty(tensor.Float64, 2, 1, 1)
	defer eng.FreeTensor(a, b, c)
	if err := eng.BatchMatMul(a, b, c); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(c)
	fmt.Println(h.Data())
	// Output: [21 4300]
}

// What the activations make of three numbers.
func ExampleActivation() {
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
	bias, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{0, 0, 0})))
	if err != nil {
		log.Fatal(err)
	}

	for _, act := range []cupool.Activation{cupool.NoActivation, cupool.ReLU, cupool.Sigmoid, cupool.Tanh, cupool.Rectify} {
		x, err := eng.FromHost(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]float64{-1, 0, 2})))
		if err != nil {
			log.Fatal(err)
		}
		if err := eng.BiasActivate(x, bias, act); err != nil {
			log.Fatal(err)
		}
		h, err := eng.ToHost(x)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v %.2f\n", act, h.Data())
	}
	// Output:
	// none [-1.00 0.00 2.00]
	// ReLU [0.00 0.00 2.00]
	// sigmoid [0.27 0.50 0.88]
	// tanh [-0.76 0.00 0.96]
	// rectify [-0.00 0.00 2.00]
}

// A graph is for GPUs: elsewhere a program goes on without.
func ExampleEngine_Capture() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stream, err := pool.NewStream() // the default stream cannot be captured
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithStream(stream))
	if err != nil {
		log.Fatal(err)
	}
	w, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2})))
	g, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{10, 20})))
	rate, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{0})))
	defer eng.FreeTensor(w, g, rate)
	step := func() error { return eng.SGDStep(cupool.SGD{Rate: rate}, cupool.Param{Value: w, Grad: g}) }

	var graph *cupool.Graph
	graph, err = eng.Capture(step)
	switch {
	case err == nil:
		defer graph.Close()
		step = graph.Launch
	case !errors.Is(err, cupool.ErrNotSupported):
		log.Fatal(err)
	}
	for _, r := range []float64{0.01, 0.03} { // the graph reads it when it runs
		if err := eng.Copy(rate, tensor.New(tensor.WithBacking([]float64{r}))); err != nil {
			log.Fatal(err)
		}
		if err := step(); err != nil {
			log.Fatal(err)
		}
	}
	h, _ := eng.ToHost(w)
	fmt.Printf("%.1f\n", h.Data())
	// Output: [0.6 1.2]
}

// What does not fill the device runs beside something else in a graph: here the
// weights' gradient and update, beside the gradient that the layer before needs.
func ExampleEngine_Fork() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	scope := eng.Scope()
	defer scope.Close()
	matrix := func(values ...float64) *tensor.Dense {
		t, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(values)))
		return t
	}
	x, w, dz, dx, dw := matrix(1, 0, 0, 1), matrix(1, 2, 3, 4), matrix(1, 1, 0, 1), matrix(0, 0, 0, 0), matrix(0, 0, 0, 0)

	back := func() error { // for Capture; it may as well be called
		weights := func() error { return eng.LinearBack(x, w, dz, nil, dw, nil, cupool.NoActivation) }
		if err := eng.Fork(weights); err != nil {
			return err
		}
		if err := eng.LinearBack(x, w, dz, dx, nil, nil, cupool.NoActivation); err != nil {
			return err
		}
		update := func() error { return eng.SGDStep(cupool.SGD{LearningRate: 1}, cupool.Param{Value: w, Grad: dw}) }
		if err := eng.Fork(update); err != nil { // after dx, which is made from w
			return err
		}
		return eng.Join() // before whatever reads w
	}
	if err := back(); err != nil {
		log.Fatal(err)
	}
	for _, t := range []tensor.Tensor{dx, w} {
		h, _ := eng.ToHost(t)
		fmt.Println(h.Data())
	}
	// Output:
	// [3 7 2 4]
	// [0 1 3 3]
}
