package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"runtime"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// Tensors in a pool, computed with as usual.
func ExampleEngine() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}

	x := tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32), tensor.WithEngine(eng)) // zeroed
	if err := x.Memset(float32(2)); err != nil {
		log.Fatal(err)
	}
	y, err := tensor.Add(x, float32(1))
	if err != nil {
		log.Fatal(err)
	}
	sum, err := tensor.Sum(y, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum, eng.Owns(sum))

	if err := eng.FreeTensor(x, y, sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "blocks live")
	// Output:
	// [6  6  6] true
	// 0 blocks live
}

// A training step frees all of its temporaries at once.
func ExampleEngine_Scope() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	weights, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}

	step := func() (loss tensor.Tensor, err error) {
		sc := eng.Scope()
		defer sc.Close()
		squares, err := tensor.Square(weights)
		if err != nil {
			return nil, err
		}
		if loss, err = tensor.Sum(squares); err != nil {
			return nil, err
		}
		return loss, sc.Keep(loss)
	}
	for range 100 {
		loss, err := step()
		if err != nil {
			log.Fatal(err)
		}
		if err := eng.FreeTensor(loss); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "block live: the weights")
	if err := eng.FreeTensor(weights); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 block live: the weights
}

// Try turns tensor's panic into an error.
func ExampleTry() {
	pool, err := cupool.New(cupool.Config{Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	err = cupool.Try(func() error {
		tensor.New(tensor.WithShape(1<<24), tensor.Of(tensor.Float32), tensor.WithEngine(eng))
		return nil
	})
	var oom *cupool.OOMError
	fmt.Println(errors.As(err, &oom) && oom.Requested == 64<<20)
	// Output:
	// true
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
	step := func() error { return nn.SGD{Rate: rate}.Step(eng, nn.Param{Value: w, Grad: g}) }

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
		weights := func() error { return nn.LinearBack(eng, x, w, dz, nil, dw, nil, nn.NoActivation) }
		if err := eng.Fork(weights); err != nil {
			return err
		}
		if err := nn.LinearBack(eng, x, w, dz, dx, nil, nil, nn.NoActivation); err != nil {
			return err
		}
		update := func() error { return nn.SGD{LearningRate: 1}.Step(eng, nn.Param{Value: w, Grad: dw}) }
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

// A safety net: what a program forgets to free goes back when the garbage
// collector has found it.
func ExampleWithLifetimes() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithLifetimes())
	if err != nil {
		log.Fatal(err)
	}
	row := func() tensor.View {
		x := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4}))
		y, err := eng.FromHost(x)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.Exp(y); err != nil { // forgotten
			log.Fatal(err)
		}
		row, err := y.Slice(tensor.S(1))
		if err != nil {
			log.Fatal(err)
		}
		return row // which keeps all of y's memory
	}()
	for pool.Stats().All.Allocation.Current > 1 {
		runtime.GC()
		if _, err := pool.ProcessDeferred(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(row.Data(), cupool.EngineOf(row) == eng)
	// Output: [3 4] true
}
