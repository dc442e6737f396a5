package cupool_test

import (
	"fmt"
	"log"
	"runtime"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// A safety net: what a program forgets to free goes back when the garbage
// collector has found it.
func ExampleWithLifetimes() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithLifetimes())
	if err != nil {
		log.Fatal(err)
	}
	row := func() tensor.View {
		x := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4}))
		y, err := eng.FromHost(x)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.Exp(y); err != nil { // forgotten
			log.Fatal(err)
		}
		row, err := y.Slice(tensor.S(1))
		if err != nil {
			log.Fatal(err)
		}
		return row // which keeps all of y's memory
	}()
	for pool.Stats().All.Allocation.Current > 1 {
		runtime.GC()
		if _, err := pool.ProcessDeferred(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(row.Data(), cupool.EngineOf(row) == eng)
	// Output: [3 4] true
}

// Tensors that tensor makes by itself are given to Track.
func ExampleEngine_Track() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithLifetimes())
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(3, 3), tensor.WithEngine(eng))
	if err := eng.Track(x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Sum())
	for pool.Stats().All.Allocation.Current > 0 {
		runtime.GC()
		if _, err := pool.ProcessDeferred(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("given back")
	// Output:
	// 0 <nil>
	// given back
}

// A step's memory that the next step may still need.
func ExampleScope_Leave() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	var last *cupool.Scope
	for range 3 {
		step := eng.Scope()
		if _, err := eng.Empty(tensor.Float32, 100); err != nil {
			log.Fatal(err)
		}
		step.Leave()
		if last != nil {
			if err := last.Close(); err != nil {
				log.Fatal(err)
			}
		}
		last = step
	}
	fmt.Println(pool.Stats().All.Allocation.Current, last.Close())
	// Output: 1 <nil>
}
