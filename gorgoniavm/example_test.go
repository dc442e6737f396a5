package gorgoniavm_test

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math"
	"os"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// engine returns an engine over a new pool of the default device.
func engine() (*cupool.Engine, *cupool.Pool) {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	return eng, pool
}

// vector returns an input of a graph.
func vector(g *gorgonia.ExprGraph, name string, xs ...float32) *gorgonia.Node {
	return gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(len(xs)), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithBacking(xs))))
}

// A graph learns a vector: its values, gradients and the solver's moments are
// in the pool, and what a step needs goes back to it.
func Example() {
	eng, pool := engine()
	g := gorgonia.NewGraph()
	w, want := vector(g, "w", 0, 0, 0), vector(g, "want", 1, 2, 3)
	cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(w, want))))))
	if _, err := gorgonia.Grad(cost, w); err != nil {
		log.Fatal(err)
	}

	vm, err := gorgoniavm.New(g, eng, gorgoniavm.BindDualValues(w))
	if err != nil {
		log.Fatal(err)
	}
	solver, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{LearnRate: 0.25})
	if err != nil {
		log.Fatal(err)
	}
	for range 20 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(gorgonia.Nodes{w})); err != nil {
			log.Fatal(err)
		}
		vm.Reset() // as other machines need it
	}
	fmt.Printf("cost %.2g, w %.4f\n", cost.Value(), w.Value())
	fmt.Println(errors.Join(vm.Close(), solver.Close(), pool.Close()))
	// Output:
	// cost 5.1e-11, w [1.0000  2.0000  3.0000]
	// <nil>
}

// Values of inner nodes are gone after RunAll, unless they are kept or read.
func ExampleKeep() {
	eng, _ := engine()
	g := gorgonia.NewGraph()
	x := vector(g, "x", 1, 2, 3)
	square := gorgonia.Must(gorgonia.Square(x))
	double := gorgonia.Must(gorgonia.Add(square, square))
	sum := gorgonia.Must(gorgonia.Sum(double))
	var read gorgonia.Value
	gorgonia.Read(double, &read)

	vm, err := gorgoniavm.New(g, eng, gorgoniavm.Keep(square))
	if err != nil {
		log.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.Value(), square.Value(), double.Value(), read)

	traced, err := gorgoniavm.New(g, eng, gorgoniavm.TraceValues())
	if err != nil {
		log.Fatal(err)
	}
	if err := traced.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(double.Value())
	// Output:
	// 28 [1  4  9] <nil> [ 2   8  18]
	// [ 2   8  18]
}

// An error names the node, and unwraps to what happened.
func ExampleOpError() {
	eng, _ := engine()
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("x"))
	root := gorgonia.Must(gorgonia.Sqrt(x))
	vm, err := gorgoniavm.New(g, eng, gorgoniavm.WatchNaN(), gorgoniavm.WatchInf())
	if err != nil {
		log.Fatal(err)
	}
	err = vm.RunAll()
	fmt.Println(errors.Is(err, gorgoniavm.ErrNoValue), err)

	for _, numbers := range [][]float32{{4, 9, float32(math.Inf(1))}, {4, 9, -1}, {4, 9, 16}} {
		if err := gorgonia.Let(x, tensor.New(tensor.WithBacking(numbers))); err != nil {
			log.Fatal(err)
		}
		err = vm.RunAll()
		var op *gorgoniavm.OpError
		if errors.As(err, &op) {
			fmt.Println(errors.Is(err, gorgoniavm.ErrNotANumber), op.Op, "of", op.Node)
		}
	}
	fmt.Println(err, root.Value())

	gorgonia.WithValue(tensor.New(tensor.WithBacking([]float32{4, 9})))(x) // which gorgonia takes
	err = vm.RunAll()
	fmt.Println(errors.Is(err, gorgoniavm.ErrOperand), err)
	// Output:
	// true gorgoniavm: x (node 0): input: no value; give it one with gorgonia.Let
	// true input of x (node 0)
	// true gorgonia.elemUnaryOp of sqrt(%0) (node 1)
	// <nil> [2  3  4]
	// true gorgoniavm: x (node 0): input: its value is a (2) of float32, the node a (3) of float32: value does not fit the graph
}

// A program sees what its graph computes.
func ExampleWatch() {
	eng, _ := engine()
	g := gorgonia.NewGraph()
	x := vector(g, "x", 1, 2, 3)
	square := gorgonia.Must(gorgonia.Square(x))
	gorgonia.Must(gorgonia.Sum(square))
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	vm, err := gorgoniavm.New(g, eng, gorgoniavm.WithLogger(logger), gorgoniavm.Watch(square))
	if err != nil {
		log.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg="gorgoniavm: executed" node="square(%0) (node 1)" op=gorgonia.elemUnaryOp shape=(3) type=float32 value="[  1    4    9]"
}

// On a GPU, the second run is recorded as a CUDA graph, and later ones are
// launches of that. This device has no graphs: the VM runs as without Replay.
func ExampleReplay() {
	eng, pool := engine()
	g := gorgonia.NewGraph()
	x := vector(g, "x", 1, 2, 3)
	sum := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(x))))
	vm, err := gorgoniavm.New(g, eng, gorgoniavm.Replay())
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
	}
	stats := vm.Replays()
	fmt.Println(sum.Value(), stats.Recordings, stats.Launches, errors.Is(stats.Err, cupool.ErrNotSupported))
	fmt.Println(errors.Join(vm.Close(), pool.Close()))
	// Output:
	// 14 0 0 true
	// <nil>
}

// Gradients that the VM makes anew in each run need no zeroing.
func ExampleGradients() {
	eng, _ := engine()
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName("w"),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{3, -4}))))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(w))))
	if _, err := gorgonia.Grad(loss, w); err != nil {
		log.Fatal(err)
	}
	vm, err := gorgoniavm.New(g, eng, gorgoniavm.Gradients(w))
	if err != nil {
		log.Fatal(err)
	}
	defer vm.Close()
	solver, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{LearnRate: 0.25}, gorgoniavm.KeepGradients())
	if err != nil {
		log.Fatal(err)
	}
	defer solver.Close()
	for range 3 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(gorgonia.Nodes{w})); err != nil {
			log.Fatal(err)
		}
		fmt.Println(loss.Value().Data(), w.Value().Data())
	}
	// Output:
	// 25 [1.5 -2]
	// 6.25 [0.75 -1]
	// 1.5625 [0.375 -0.5]
}

// Gorgonia's own tape machine and Adam, with their memory in the pool as far as
// it goes, and nothing leaked.
func ExampleTape() {
	eng, pool := engine()
	g := gorgonia.NewGraph()
	w := vector(g, "w", 3, -4)
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(w))))
	if _, err := gorgonia.Grad(loss, w); err != nil {
		log.Fatal(err)
	}
	if err := gorgoniavm.ToPool(eng, w); err != nil {
		log.Fatal(err)
	}
	vm, err := gorgoniavm.NewTape(g, eng, gorgoniavm.TapeConfig{
		BindDualValues: gorgonia.Nodes{w},
		Options:        []gorgonia.VMOpt{gorgonia.WithNaNWatch()},
		Exclusive:      true, // nobody else makes tensors meanwhile
	})
	if err != nil {
		log.Fatal(err)
	}
	solver, err := gorgoniavm.NewStockSolver(eng, gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.1)))
	if err != nil {
		log.Fatal(err)
	}
	var last any
	for range 300 {
		if err := vm.RunAll(); err != nil {
			log.Fatal(err)
		}
		last = loss.Value().Data()
		if err := solver.Step(gorgonia.NodesToValueGrads(gorgonia.Nodes{w})); err != nil {
			log.Fatal(err)
		}
		vm.Reset()
	}
	fmt.Printf("%.1f\n", last)
	fmt.Println(errors.Join(vm.Close(), solver.Close(), eng.FreeTensor(w.Value().(*tensor.Dense)), pool.Close()))
	// Output:
	// 0.0
	// <nil>
}
