package gorgoniavm_test

import (
	"errors"
	"fmt"
	"log"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Point is a parameter with a gradient, as a graph's nodes are with
// gorgonia.BindDualValues.
type Point struct{ x, dx *tensor.Dense }

func (p Point) Value() gorgonia.Value         { return p.x }
func (p Point) Grad() (gorgonia.Value, error) { return p.dx, nil }

// A solver finds where x² is least, with what it remembers in the pool.
func ExampleSolver() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	p := Point{
		x:  tensor.New(tensor.WithBacking([]float64{3, -4})),
		dx: tensor.New(tensor.WithBacking([]float64{0, 0})),
	}
	for _, m := range []gorgoniavm.Method{
		gorgoniavm.SGD{LearnRate: 0.1, Regularization: gorgoniavm.Regularization{Clip: 1}},
		gorgoniavm.Momentum{LearnRate: 0.1, Momentum: 0.5, Nesterov: true},
		gorgoniavm.RMSProp{LearnRate: 0.1},
		gorgoniavm.Adam{LearnRate: 0.1},
		gorgoniavm.AdamW{LearnRate: 0.1},
	} {
		if err := descend(eng, m, p); err != nil {
			log.Fatal(err)
		}
	}
	near := math.Hypot(p.x.Float64s()[0], p.x.Float64s()[1]) < 0.01
	fmt.Printf("there: %v, %d bytes left in the pool\n", near, pool.Stats().All.AllocatedBytes.Current)
	// Output: there: true, 0 bytes left in the pool
}

// descend takes a hundred steps at falling learning rates.
func descend(eng *cupool.Engine, m gorgoniavm.Method, p Point) (err error) {
	solver, err := gorgoniavm.NewSolver(eng, m, gorgoniavm.KeepGradients()) // they are set, not added to
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, solver.Close()) }()
	for range 100 {
		for i, x := range p.x.Float64s() {
			p.dx.Float64s()[i] = 2 * x
		}
		if err := solver.Step([]gorgonia.ValueGrad{p}); err != nil {
			return err // a *gorgoniavm.SolverError says which weight it was
		}
		if err := solver.SetLearnRate(0.95 * solver.LearnRate()); err != nil {
			return err
		}
	}
	return nil
}

// An error names the weight.
func ExampleSolverError() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	solver, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{})
	if err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.Zeroes()))
	err = solver.Step([]gorgonia.ValueGrad{w})
	var failed *gorgoniavm.SolverError
	fmt.Println(errors.As(err, &failed), failed.Index, failed.Name)
	// Output: true 0 w
}

// Gradients that the VM makes anew in each run need no zeroing.
func ExampleGradients() {
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
