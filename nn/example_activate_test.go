package nn_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// Each weight moves by about as much, however large its gradient is.
func ExampleRMSProp_Step() {
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
	g, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{10, 0.1})))
	v, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{0, 0})))
	defer eng.FreeTensor(w, g, v)

	o := nn.RMSProp{LearningRate: 0.1, Rho: 0.75, Epsilon: 1e-8}
	if err := o.Step(eng, nn.Param{Value: w, Grad: g, Momentum: v}); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(w)
	fmt.Printf("%.3f\n", h.Data())
	// Output: [0.800 1.800]
}

// An activation and its gradient.
func ExampleActivate() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	x, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{-2, 0, 3})))
	dy, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{5, 5, 5})))
	defer eng.FreeTensor(x, dy)

	if err := nn.Activate(eng, x, x, nn.ReLU); err != nil { // in place
		log.Fatal(err)
	}
	if err := nn.ActivateBack(eng, x, dy, dy, nn.ReLU); err != nil {
		log.Fatal(err)
	}
	y, _ := eng.ToHost(x)
	dx, _ := eng.ToHost(dy)
	fmt.Println(y.Data(), dx.Data())
	// Output: [0 0 3] [0 0 5]
}
