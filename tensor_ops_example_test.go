package cupool_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Where a result goes: to a new tensor, to one that is there, or on top of what
// is in one.
func ExampleEngine_FMA() {
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
	vector := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t)
	}

	x, y, sum := vector(1, 2, 3), vector(10, 20, 30), vector(0, 0, 0)
	show(eng.Mul(x, y))                        // a new tensor
	show(eng.Mul(x, y, tensor.WithReuse(sum))) // sum = x·y
	show(eng.FMA(x, y, sum))                   // sum += x·y, as tensor.WithIncr(sum) does
	show(eng.FMAScalar(x, 100.0, sum))         // sum += x·100
	show(eng.Add(x, y, tensor.UseUnsafe()))    // x += y
	// Output:
	// [10  40  90]
	// [10  40  90]
	// [ 20   80  180]
	// [120  280  480]
	// [11  22  33]
}

// Elements between bounds, and a function of one's own.
func ExampleEngine_Map() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{-8, -1, 0, 1, 8})))
	if err != nil {
		log.Fatal(err)
	}

	clamped, err := eng.Clamp(x, float32(-2), float32(2)) // tensor.Clamp
	if err != nil {
		log.Fatal(err)
	}
	leaky := func(v float32) float32 { return max(v, v/4) }
	mapped, err := eng.Map(leaky, x) // x.Apply(leaky)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(clamped)
	fmt.Println(mapped)
	// Output:
	// [-2  -1   0   1   2]
	// [   -2  -0.25      0      1      8]
}

// SoftMax makes probabilities of each row. Its gradient is made from its result
// and the gradient by that.
func ExampleEngine_SoftMax() {
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
	matrix := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(name string, t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %.3f\n", name, t.Data())
	}

	x, grad := matrix(0, 0, 2, 0), matrix(1, 0, 1, 0)
	p, err := eng.SoftMax(x, 1) // tensor.SoftMax(x, 1): along axis 1
	show("p", p, err)
	dx, err := eng.SoftMaxB(p, grad, 1)
	show("dx", dx, err)
	logP, err := eng.LogSoftMax(x, 1)
	show("log p", logP, err)
	dx, err = eng.LogSoftMaxB(logP, grad, 1)
	show("dx", dx, err)
	// Output:
	// p [0.500 0.500 0.881 0.119]
	// dx [0.250 -0.250 0.105 -0.105]
	// log p [-0.693 -0.693 -0.127 -2.127]
	// dx [0.500 -0.500 0.119 -0.119]
}
