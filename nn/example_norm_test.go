package nn_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// A batch norm of one channel learns its running statistics, and is then used
// with them.
func ExampleBatchNorm() {
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

	numbers := func(xs ...float64) *tensor.Dense {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(xs)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	x, _ := eng.FromHost(tensor.New(tensor.WithShape(4, 1), tensor.WithBacking([]float64{1, 1, 3, 3})))
	y, _ := eng.Empty(tensor.Float64, 4, 1)
	dx, _ := eng.Empty(tensor.Float64, 4, 1)
	scale, bias, dscale, dbias := numbers(2), numbers(1), numbers(0), numbers(0)
	s := nn.BatchStats{Mean: numbers(0), Inverse: numbers(0), RunningMean: numbers(0), RunningVariance: numbers(1), Momentum: 0.5}
	err = errors.Join(
		nn.BatchNorm(eng, x, scale, bias, y, s, nn.ReLU),
		nn.BatchNormBack(eng, x, y, y, scale, dx, dscale, dbias, s, nn.ReLU))
	if err != nil {
		log.Fatal(err)
	}
	print := func(name string, t tensor.Tensor) {
		h, _ := eng.ToHost(t)
		fmt.Printf("%s %.2f\n", name, h.Data())
	}
	print("normalized", y)
	print("by scale  ", dscale)
	print("running   ", s.RunningMean)
	s.Evaluate = true
	if err := nn.BatchNorm(eng, x, scale, bias, y, s, nn.NoActivation); err != nil {
		log.Fatal(err)
	}
	print("evaluated ", y)
	// Output:
	// normalized [0.00 0.00 3.00 3.00]
	// by scale   6.00
	// running    1.00
	// evaluated  [1.00 1.00 4.70 4.70]
}

// The channels of a sample are normalized in two groups.
func ExampleGroupNorm() {
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

	x, _ := eng.FromHost(tensor.New(tensor.WithShape(1, 4), tensor.WithBacking([]float64{1, 3, 10, 30})))
	y, _ := eng.Empty(tensor.Float64, 1, 4)
	dx, _ := eng.Empty(tensor.Float64, 1, 4)
	mean, _ := eng.Empty(tensor.Float64, 2)
	inverse, _ := eng.Empty(tensor.Float64, 2)
	err = errors.Join(
		nn.GroupNorm(eng, x, y, mean, inverse, 2, 0),
		nn.GroupNormBack(eng, x, x, dx, mean, inverse, 2))
	if err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(y)
	m, _ := eng.ToHost(mean)
	fmt.Println(h.Data(), m.Data())
	// Output: [-1 1 -1 1] [2 20]
}
