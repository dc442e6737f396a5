package cupool_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// Arithmetic on two tensors of one shape. tensor.Add calls the Add of its first
// operand's engine, and so do the others: either way will do.
func ExampleEngine_Add() {
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
	x, y := vector(5, 6, 7), vector(2, 2, 2)

	for _, op := range []struct {
		name string
		f    func(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"+", eng.Add}, {"-", eng.Sub}, {"*", eng.Mul}, {"/", eng.Div}, {"pow", eng.Pow}, {"mod", eng.Mod},
	} {
		z, err := op.f(x, y)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("x", op.name, "y =", z)
	}
	// Output:
	// x + y = [7  8  9]
	// x - y = [3  4  5]
	// x * y = [10  12  14]
	// x / y = [2.5    3  3.5]
	// x pow y = [25  36  49]
	// x mod y = [1  0  1]
}

// Arithmetic on a tensor and a number of its element type, which may stand on
// either side: leftTensor says whether the tensor is the left operand.
func ExampleEngine_AddScalar() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 4, 8})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"+", eng.AddScalar}, {"-", eng.SubScalar}, {"*", eng.MulScalar},
		{"/", eng.DivScalar}, {"pow", eng.PowScalar}, {"mod", eng.ModScalar},
	} {
		left, err := op.f(x, 2.0, true) // tensor.Sub(x, 2.0)
		if err != nil {
			log.Fatal(err)
		}
		right, err := op.f(x, 2.0, false) // tensor.Sub(2.0, x)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("x %s 2 = %v, 2 %s x = %v\n", op.name, left, op.name, right)
	}
	// Output:
	// x + 2 = [ 3   6  10], 2 + x = [ 3   6  10]
	// x - 2 = [-1   2   6], 2 - x = [ 1  -2  -6]
	// x * 2 = [ 2   8  16], 2 * x = [ 2   8  16]
	// x / 2 = [0.5    2    4], 2 / x = [   2   0.5  0.25]
	// x pow 2 = [ 1  16  64], 2 pow x = [  2   16  256]
	// x mod 2 = [1  0  0], 2 mod x = [0  2  2]
}

// Comparisons of two tensors tell in tensors of bool, or with AsSameType in
// ones and zeros to compute on with.
func ExampleEngine_Gt() {
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
	vector := func(values ...float32) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	x, y := vector(1, 2, 3), vector(2, 2, 2)

	for _, op := range []struct {
		name string
		f    func(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{">", eng.Gt}, {">=", eng.Gte}, {"<", eng.Lt}, {"<=", eng.Lte}, {"=", eng.ElEq}, {"≠", eng.ElNe},
	} {
		is, err := op.f(x, y) // tensor.Gt(x, y)
		if err != nil {
			log.Fatal(err)
		}
		ones, err := op.f(x, y, tensor.AsSameType())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("x", op.name, "y:", is.Data(), ones.Data())
	}
	// Output:
	// x > y: [false false true] [0 0 1]
	// x >= y: [false true true] [0 1 1]
	// x < y: [true false false] [1 0 0]
	// x <= y: [true true false] [1 1 0]
	// x = y: [false true false] [0 1 0]
	// x ≠ y: [true false true] [1 0 1]
}

// Comparisons with a number: here, how many elements each is true of.
func ExampleEngine_GtScalar() {
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
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4, 5})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"> 2", eng.GtScalar}, {">= 2", eng.GteScalar}, {"< 2", eng.LtScalar},
		{"<= 2", eng.LteScalar}, {"= 2", eng.EqScalar}, {"≠ 2", eng.NeScalar},
	} {
		ones, err := op.f(x, 2.0, true, tensor.AsSameType()) // tensor.Gt(x, 2.0, tensor.AsSameType())
		if err != nil {
			log.Fatal(err)
		}
		count, err := eng.Sum(ones)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(op.name+":", count)
	}
	// Output:
	// > 2: 3
	// >= 2: 4
	// < 2: 1
	// <= 2: 2
	// = 2: 1
	// ≠ 2: 4
}

// The smaller and the larger of two elements, and of an element and a number.
func ExampleEngine_MinBetween() {
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
	vector := func(values ...float32) tensor.Tensor {
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

	x, y := vector(-2, 1, 4), vector(3, 2, 1)
	show(eng.MinBetween(x, y)) // tensor.MinBetween(x, y)
	show(eng.MaxBetween(x, y))
	show(eng.MinBetweenScalar(x, float32(2), true))
	show(eng.MaxBetweenScalar(x, float32(0), true)) // ReLU
	// Output:
	// [-2   1   1]
	// [3  2  4]
	// [-2   1   2]
	// [0  1  4]
}

// Functions of every element.
func ExampleEngine_Sqrt() {
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
	x, y := vector(-2, 0.5, 3), vector(1, 4, 64)

	for _, op := range []struct {
		name string
		f    func(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
		a    tensor.Tensor
	}{
		{"-x", eng.Neg, x}, {"|x|", eng.Abs, x}, {"sign x", eng.Sign, x}, {"x²", eng.Square, x}, {"x³", eng.Cube, x},
		{"exp x", eng.Exp, x}, {"tanh x", eng.Tanh, x}, {"ln y", eng.Log, y}, {"log₂ y", eng.Log2, y}, {"log₁₀ y", eng.Log10, y},
		{"1/y", eng.Inv, y}, {"√y", eng.Sqrt, y}, {"∛y", eng.Cbrt, y}, {"1/√y", eng.InvSqrt, y},
	} {
		r, err := op.f(op.a) // tensor.Neg(x)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %.3g\n", op.name, r.Data())
	}
	// Output:
	// -x: [2 -0.5 -3]
	// |x|: [2 0.5 3]
	// sign x: [-1 1 1]
	// x²: [4 0.25 9]
	// x³: [-8 0.125 27]
	// exp x: [0.135 1.65 20.1]
	// tanh x: [-0.964 0.462 0.995]
	// ln y: [0 1.39 4.16]
	// log₂ y: [0 2 6]
	// log₁₀ y: [0 0.602 1.81]
	// 1/y: [1 0.25 0.0156]
	// √y: [1 2 8]
	// ∛y: [1 1.59 4]
	// 1/√y: [1 0.5 0.125]
}
