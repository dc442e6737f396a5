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

// Gorgonia's own tape machine and Adam, with their memory in the pool as far as
// it goes, and nothing leaked.
func ExampleTape() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName("w"),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{3, -4}))))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(w))))
	if _, err := gorgonia.Grad(loss, w); err != nil {
		log.Fatal(err)
	}
	if err := gorgoniavm.ToPool(eng, w); err != nil {
		log.Fatal(err)
	}
	last, err := descendOnTape(eng, g, w, loss)
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.FreeTensor(w.Value().(*tensor.Dense)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f, %d bytes left in the pool\n", last, pool.Stats().All.AllocatedBytes.Current)
	// Output: 0.0, 0 bytes left in the pool
}

func descendOnTape(eng *cupool.Engine, g *gorgonia.ExprGraph, w, loss *gorgonia.Node) (last float64, err error) {
	vm, err := gorgoniavm.NewTape(g, eng, gorgoniavm.TapeConfig{
		BindDualValues: gorgonia.Nodes{w},
		Options:        []gorgonia.VMOpt{gorgonia.WithNaNWatch()},
		Exclusive:      true, // nobody else makes tensors meanwhile
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	solver, err := gorgoniavm.NewStockSolver(eng, gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.1)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, solver.Close()) }()
	for range 300 {
		if err := vm.RunAll(); err != nil {
			return 0, err
		}
		last = loss.Value().Data().(float64)
		if err := solver.Step(gorgonia.NodesToValueGrads(gorgonia.Nodes{w})); err != nil {
			return 0, err
		}
		vm.Reset()
	}
	return last, nil
}
