package gorgoniavm_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// A weight becomes what the graph computed of it, without a solver.
func ExampleVM_Set() {
	eng, _ := engine()
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName("w"))
	half := gorgonia.Must(gorgonia.Mul(w, gorgonia.NewConstant(0.5)))
	vm, _ := gorgoniavm.New(g, eng)
	fmt.Println(vm.Let(w, tensor.New(tensor.WithBacking([]float64{8, 16}))))
	for range 3 {
		fmt.Println(vm.RunAll(), vm.Set(w, half))
	}
	fmt.Println(vm.Close(), w.Value())
	// Output:
	// <nil>
	// <nil> <nil>
	// <nil> <nil>
	// <nil> <nil>
	// <nil> [1  2]
}
