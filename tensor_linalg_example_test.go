package cupool_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Products of a matrix and vectors, into tensors that are there.
func ExampleEngine_MatVecMul() {
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
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}
	zeros := func(shape ...int) *tensor.Dense {
		return tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float64), tensor.WithEngine(eng))
	}
	x, y, grad := zeros(3), zeros(2), zeros(2, 3)
	if err := x.Memset(1.0); err != nil {
		log.Fatal(err)
	}

	if err := eng.MatVecMul(m, x, y); err != nil { // tensor.MatVecMul(m, x, tensor.WithReuse(y))
		log.Fatal(err)
	}
	fmt.Println("m·x =", y)
	for range 2 {
		if err := eng.Outer(y, x, grad); err != nil { // adds to grad
			log.Fatal(err)
		}
	}
	fmt.Println("y⊗x, twice:", grad.Data())
	// Output:
	// m·x = [ 6  15]
	// y⊗x, twice: [12 12 12 30 30 30]
}

// Products that choose by the shapes, and those that are a number.
func ExampleEngine_Dot() {
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
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 10})))
	if err != nil {
		log.Fatal(err)
	}

	for _, y := range []tensor.Tensor{m, x} {
		for _, z := range []tensor.Tensor{m, x} {
			product, err := eng.Dot(y, z) // tensor.Dot(y, z)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(y.Shape(), "·", z.Shape(), "=", product.Data())
		}
	}
	inner, err := eng.Inner(x, x) // x.Inner(x)
	if err != nil {
		log.Fatal(err)
	}
	trace, err := eng.Trace(m) // m.Trace()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(inner.(float64), trace.(float64))
	// Output:
	// (2, 2) · (2, 2) = [7 10 15 22]
	// (2, 2) · (2) = [21 43]
	// (2) · (2, 2) = [31 42]
	// (2) · (2) = 101
	// 101 5
}

// Singular values and vectors: the matrix is U·diag(s)·Vᵀ.
func ExampleEngine_SVD() {
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
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{0, 2, 3, 0})))
	if err != nil {
		log.Fatal(err)
	}

	s, u, v, err := eng.SVD(m, true, false) // m.SVD(true, false)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f, in the pool: %v\n", s.Data(), eng.Owns(s) && eng.Owns(u) && eng.Owns(v))
	// Output:
	// [3.0 2.0], in the pool: true
}

// Norms of the rows of a matrix, and of all of it.
func ExampleEngine_Norm() {
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
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{3, 4, 0, 12})))
	if err != nil {
		log.Fatal(err)
	}

	for _, n := range []struct {
		name string
		ord  tensor.NormOrder
		axes []int
	}{
		{"Σ|x| of rows", tensor.Norm(1), []int{1}},
		{"√Σx² of rows", tensor.Norm(2), []int{1}},
		{"√Σx² of all", tensor.FrobeniusNorm(), []int{0, 1}},
	} {
		norm, err := eng.Norm(m, n.ord, n.axes...) // unlike m.Norm, it loses no temporaries
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n.name, norm)
	}
	// Output:
	// Σ|x| of rows [ 7  12]
	// √Σx² of rows [ 5  12]
	// √Σx² of all 13
}

// A product over two axes at once: the sum of the products of all elements of
// two matrices for each of the others' indices.
func ExampleEngine_Contract() {
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
	a, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6, 7, 8})))
	if err != nil {
		log.Fatal(err)
	}
	b, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 1), tensor.WithBacking([]float64{1, 10, 100, 1000})))
	if err != nil {
		log.Fatal(err)
	}

	c, err := eng.Contract(a, b, []int{1, 2}, []int{0, 1}) // unlike tensor.Contract, it loses no temporaries
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Shape(), c.Data())
	// Output:
	// (2, 1) [4321 8765]
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

// tensor.MatMul makes the tensor for its result; MatMul writes to one that is
// there.
func ExampleEngine_MatMul() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	a, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	b, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float64{1, 10})))
	c, _ := eng.Empty(tensor.Float64, 2, 1)
	defer eng.FreeTensor(a, b, c)
	if err := eng.MatMul(a, b, c); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(c)
	fmt.Println(h.Data())
	// Output: [21 43]
}
