package arena_test

import (
	"fmt"
	"log"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
)

// Everything a phase allocates is given back at once.
func ExampleArena() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	phases, err := arena.New(pool, arena.Config{Size: 16 << 20, Overflow: true})
	if err != nil {
		log.Fatal(err)
	}
	defer phases.Close()

	var first cupool.Block
	for phase := range 3 {
		a, err := phases.AllocAligned(1<<20, 1<<16, phases.Stream())
		if err != nil {
			log.Fatal(err)
		}
		first = a
		if _, err := phases.Alloc(100, nil); err != nil {
			log.Fatal(err)
		}
		st := phases.Stats()
		fmt.Println("phase", phase, st.Blocks, "blocks, aligned:", a.Ptr()%(1<<16) == 0)
		if err := phases.Reset(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(phases.Free(first) != nil) // it went with the Reset
	// Output:
	// phase 0 2 blocks, aligned: true
	// phase 1 2 blocks, aligned: true
	// phase 2 2 blocks, aligned: true
	// true
}

// Temporaries of an inner step go at its end, what is around it stays.
func ExampleArena_Release() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	temporary, err := arena.New(pool, arena.Config{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer temporary.Close()

	if _, err := temporary.Alloc(1000, nil); err != nil {
		log.Fatal(err)
	}
	before := temporary.Mark()
	for range 10 {
		if _, err := temporary.Alloc(5000, nil); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(temporary.Stats().Blocks, "blocks")
	if err := temporary.Release(before); err != nil {
		log.Fatal(err)
	}
	fmt.Println(temporary.Stats().Blocks, "block")
	// Output:
	// 11 blocks
	// 1 block
}

// An engine whose tensors live for a step.
func ExampleArena_engine() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	temporary, err := arena.New(pool, arena.Config{Size: 1 << 20, Overflow: true})
	if err != nil {
		log.Fatal(err)
	}
	defer temporary.Close()
	eng, err := cupool.NewEngine(temporary)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		x := tensor.New(tensor.WithShape(2, 2), tensor.Of(tensor.Float32), tensor.WithEngine(eng))
		y, err := tensor.Add(x, float32(1))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(y.Data(), temporary.Stats().Blocks)
		if err := temporary.Reset(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// [1 1 1 1] 2
	// [1 1 1 1] 2
	// [1 1 1 1] 2
}
