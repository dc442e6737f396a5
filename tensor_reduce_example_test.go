package cupool_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Reductions along an axis, or of all elements.
func ExampleEngine_Sum() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 5, 3, 6, 4, 2})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(a tensor.Tensor, along ...int) (tensor.Tensor, error)
	}{{"sum", eng.Sum}, {"smallest", eng.Min}, {"largest", eng.Max}} {
		all, err := op.f(x) // tensor.Sum(x); x.Min()
		if err != nil {
			log.Fatal(err)
		}
		columns, err := op.f(x, 0)
		if err != nil {
			log.Fatal(err)
		}
		rows, err := op.f(x, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %v, of columns %v, of rows %v\n", op.name, all, columns, rows)
	}
	// Output:
	// sum: 21, of columns [7  9  5], of rows [ 9  12]
	// smallest: 1, of columns [1  4  2], of rows [1  2]
	// largest: 6, of columns [6  5  3], of rows [5  6]
}

// Where the largest and the smallest elements of each row are.
func ExampleEngine_Argmax() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 5, 3, 6, 4, 2})))
	if err != nil {
		log.Fatal(err)
	}

	largest, err := eng.Argmax(x, 1) // tensor.Argmax(x, 1)
	if err != nil {
		log.Fatal(err)
	}
	smallest, err := eng.Argmin(x, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(largest, smallest)
	// Output:
	// [1  0] [0  2]
}

// A reduction by a function of one's own, here the products of columns.
func ExampleEngine_Reduce() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	product := func(a, b float64) float64 { return a * b }
	r, err := eng.Reduce(product, x, 0, 1.0) // x.Reduce(product, 0, 1.0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
	// Output: [ 4  10  18]
}

// Reductions by functions of whole slices take three: for the first axis, for
// the last one, and of two elements for those in between.
func ExampleEngine_OptimizedReduce() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	first := func(into, from []float64) {
		for i := range into {
			into[i] *= from[i]
		}
	}
	last := func(a []float64) float64 {
		r := 1.0
		for _, v := range a {
			r *= v
		}
		return r
	}
	between := func(a, b float64) float64 { return a * b }
	for axis := range 2 {
		r, err := eng.OptimizedReduce(x, axis, first, last, between, 1.0)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r)
	}
	// Output:
	// [ 4  10  18]
	// [  6  120]
}
