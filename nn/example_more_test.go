package nn_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// exampleEngine returns an engine whose tensors done frees.
func exampleEngine() (eng *cupool.Engine, done func()) {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if eng, err = cupool.NewEngine(pool); err != nil {
		log.Fatal(err)
	}
	scope := eng.Scope()
	return eng, func() {
		scope.Close()
		pool.Close()
	}
}

// show prints a tensor with two decimals.
func show(eng *cupool.Engine, t tensor.Tensor, err error) {
	if err != nil {
		log.Fatal(err)
	}
	h, err := eng.ToHost(t)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f\n", h.Data())
}

// What the functions make of two numbers.
func ExampleApply() {
	eng, done := exampleEngine()
	defer done()
	x, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{-0.5, 2})))
	y, _ := eng.Empty(tensor.Float64, 2)
	for _, f := range []nn.Function{nn.Sin, nn.Cos, nn.Ceil, nn.Floor, nn.Log1p, nn.Expm1, nn.Softplus, nn.Logistic} {
		fmt.Printf("%-9s", f.String())
		show(eng, y, nn.Apply(eng, f, x, y))
	}
	// Output:
	// sin      [-0.48 0.91]
	// cos      [0.88 -0.42]
	// ceil     [-0.00 2.00]
	// floor    [-1.00 2.00]
	// log1p    [-0.69 1.10]
	// expm1    [-0.39 6.39]
	// softplus [0.47 2.13]
	// logistic [0.38 0.88]
}

// Numbers as ints, and on a diagonal.
func ExampleConvert() {
	eng, done := exampleEngine()
	defer done()
	x, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{-1.5, 2.5})))
	ints, _ := eng.Empty(tensor.Int, 2)
	square, _ := eng.Empty(tensor.Float64, 2, 2)
	if err := nn.Convert(eng, x, ints); err != nil {
		log.Fatal(err)
	}
	show(eng, square, nn.DiagFlat(eng, x, square))
	show(eng, x, nn.Convert(eng, ints, x))
	// Output:
	// [-1.50 0.00 0.00 2.50]
	// [-1.00 2.00]
}

// Probabilities of which some are 0, and the gradient by what they were made of.
func ExampleSparsemax() {
	eng, done := exampleEngine()
	defer done()
	x, _ := eng.FromHost(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]float64{1, 1.5, -1})))
	dy, _ := eng.FromHost(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]float64{1, 0, 0})))
	show(eng, x, nn.Sparsemax(eng, x, x))
	show(eng, dy, nn.SparsemaxBack(eng, x, dy, dy))
	// Output:
	// [0.25 0.75 0.00]
	// [0.50 -0.50 0.00]
}

// The loss of a transcript with one class for two frames, and its gradient.
func ExampleCTCLoss() {
	eng, done := exampleEngine()
	defer done()
	ints := func(x int) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking([]int{x})))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	half := -0.69314718056 // the logarithm of a half
	x, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 1, 2), tensor.WithBacking([]float64{half, half, half, half})))
	dx, _ := eng.Empty(tensor.Float64, 2, 1, 2)
	loss, _ := eng.Empty(tensor.Float64, 1)
	t := nn.Transcripts{Targets: ints(1), Lengths: ints(2), TargetLengths: ints(1)}
	show(eng, loss, nn.CTCLoss(eng, x, t, loss, true))
	show(eng, dx, nn.CTCLossBack(eng, x, t, dx, 1))
	// Output:
	// [0.29]
	// [0.17 -0.17 0.17 -0.17]
}

// The box of an image of one cell.
func ExampleYOLO() {
	eng, done := exampleEngine()
	defer done()
	x, _ := eng.FromHost(tensor.New(tensor.WithShape(1, 6, 1, 1), tensor.WithBacking([]float64{0, 0, 0, 0, 2, -2})))
	y, _ := eng.Empty(tensor.Float64, 1, 1, 6)
	o := nn.YOLO{Anchors: [][2]float64{{10, 13}}, Classes: 1, Stride: 32}
	show(eng, y, o.Boxes(eng, x, y))
	// Output:
	// [16.00 16.00 10.00 13.00 0.88 0.12]
}
