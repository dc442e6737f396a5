package planner_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/planner"
)

// A training run whose iterations allocate the same blocks is served by a
// plan from the third one on.
func ExamplePlanner() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	plans, err := planner.New(pool, planner.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer plans.Close()

	train := func(a cupool.Allocator) error { // a step of the program
		activations, err := cupool.NewBuffer[float32](a, 1<<20, nil)
		if err != nil {
			return err
		}
		gradients, err := cupool.NewBuffer[float32](a, 1<<18, nil)
		if err != nil {
			return err
		}
		if err := activations.Free(); err != nil {
			return err
		}
		return gradients.Free()
	}
	for range 5 {
		if err := plans.BeginIteration(); err != nil {
			log.Fatal(err)
		}
		if err := train(plans); err != nil {
			log.Fatal(err)
		}
		if err := plans.EndIteration(); err != nil {
			log.Fatal(err)
		}
		_ = plans.Wait(context.Background()) // so that the example is the same every time
	}
	st := plans.Stats()
	fmt.Printf("%d iterations, %d planned, %d requests served by the plan of %d bytes\n", st.Iterations, st.Planned, st.PlannedHits, st.ArenaBytes)
	// Output: 5 iterations, 3 planned, 6 requests served by the plan of 5242880 bytes
}

// Iterations that are found where the requests repeat: the program says nothing.
func ExampleConfig() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	plans, err := planner.New(pool, planner.Config{
		Detect:      true,
		Confirm:     2,           // iterations that are the same, before they are planned
		Budget:      time.Second, // for making a plan, in the background
		MaxRequests: 1000,        // of an iteration
	})
	if err != nil {
		log.Fatal(err)
	}
	defer plans.Close()

	for range 10 {
		for i := range int64(20) {
			b, err := plans.Alloc((1+i)<<10, nil)
			if err != nil {
				log.Fatal(err)
			}
			if err := plans.Free(b); err != nil {
				log.Fatal(err)
			}
		}
		_ = plans.Wait(context.Background()) // so that the example is the same every time
	}
	fmt.Println("most of the 200 requests served by a plan:", plans.Stats().PlannedHits > 100)
	// Output: most of the 200 requests served by a plan: true
}
