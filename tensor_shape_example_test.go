package cupool_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// T says that a tensor is transposed, and Transpose moves its elements, which
// makes reading them faster.
func ExampleEngine_Transpose() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	if err := x.T(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Shape(), x.Data())
	if err := x.Transpose(); err != nil { // which has eng.Transpose do it
		log.Fatal(err)
	}
	fmt.Println(x.Shape(), x.Data())
	// Output:
	// (3, 2) [1 2 3 4 5 6]
	// (3, 2) [1 4 2 5 3 6]
}

// A view becomes a tensor with memory of its own.
func ExampleEngine_Materialize() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	columns, err := x.Slice(nil, tensor.S(1, 3)) // a view of two of the columns
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.Materialize(columns)
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Zero(x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y.Shape(), y.Data())
	// Output:
	// (2, 2) [2 3 5 6]
}

// Tensors one after another, and side by side along an axis of their own.
func ExampleEngine_Concat() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2})))
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	long, err := eng.Concat(x, 0, y) // tensor.Concat(0, x, y)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := eng.StackDense(x, 0, y) // tensor.Stack(0, x, y)
	if err != nil {
		log.Fatal(err)
	}
	columns, err := eng.StackDense(x, 1, y)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range []tensor.Tensor{long, rows, columns} {
		fmt.Println(t.Shape(), t.Data())
	}
	// Output:
	// (4) [1 2 3 4]
	// (2, 2) [1 2 3 4]
	// (2, 2) [1 3 2 4]
}

// A bias for every row, and rows as often as wanted.
func ExampleEngine_Repeat() {
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
	matrix := func(rows, cols int, values ...float64) *tensor.Dense {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Shape(), t.Data())
	}

	bias := matrix(1, 2, 1, 2)
	show(eng.Repeat(bias, 0, 3)) // tensor.Repeat(bias, 0, 3): three times along axis 0
	rows := matrix(2, 2, 1, 2, 3, 4)
	show(eng.Repeat(rows, 0, 1, 2)) // the first once, the second twice
	into := matrix(3, 2, 0, 0, 0, 0, 0, 0)
	show(eng.RepeatReuse(rows, into, 0, 2, 1)) // into memory that is there
	// Output:
	// (3, 2) [1 2 1 2 1 2]
	// (3, 2) [1 2 3 4 3 4]
	// (3, 2) [1 2 1 2 3 4]
}

// An embedding: rows of a table by their indices, and the gradient by the table.
func ExampleEngine_SelectByIndices() {
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
	matrix := func(rows, cols int, values ...float64) *tensor.Dense {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Shape(), t.Data())
	}
	tokens, err := eng.FromHost(tensor.New(tensor.WithBacking([]int{2, 0, 2})))
	if err != nil {
		log.Fatal(err)
	}

	table := matrix(3, 2, 1, 2, 3, 4, 5, 6)
	show(eng.SelectByIndices(table, tokens, 0)) // tensor.ByIndices(table, tokens, 0)
	grad := matrix(3, 2, 1, 1, 10, 10, 100, 100)
	show(eng.SelectByIndicesB(table, grad, tokens, 0))
	// Output:
	// (3, 2) [5 6 1 2 5 6]
	// (3, 2) [10 10 0 0 101 101]
}

// The diagonal of a matrix is what the result begins with.
func ExampleEngine_Diag() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	d, err := eng.Diag(x) // tensor.Diag(x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Shape(), d.Data())
	// Output:
	// (2, 2) [1 4 0 0]
}

// Anything else is computed by the CPU, on copies where it cannot touch the
// memory: here running sums.
func ExampleEngine_Compute() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	sums, err := eng.Compute(func(ts []*tensor.Dense) (*tensor.Dense, error) {
		r := ts[0].Clone().(*tensor.Dense)
		for s, i := r.Float64s(), 1; i < len(s); i++ {
			s[i] += s[i-1]
		}
		return r, nil
	}, x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sums, eng.Owns(sums))
	// Output:
	// [ 1   3   6  10] true
}
