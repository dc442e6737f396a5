package gorgoniavm_test

import (
	"errors"
	"fmt"
	"log"

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
