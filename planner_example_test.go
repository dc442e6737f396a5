package cupool_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// A training run whose iterations allocate the same blocks is served by a
// plan from the third one on.
func ExamplePlanner() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	planner, err := cupool.NewPlanner(pool, cupool.PlannerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer planner.Close()

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
		if err := planner.BeginIteration(); err != nil {
			log.Fatal(err)
		}
		if err := train(planner); err != nil {
			log.Fatal(err)
		}
		if err := planner.EndIteration(); err != nil {
			log.Fatal(err)
		}
		_ = planner.Wait(context.Background()) // so that the example is the same every time
	}
	st := planner.Stats()
	fmt.Printf("%d iterations, %d planned, %d requests served by the plan of %d bytes\n", st.Iterations, st.Planned, st.PlannedHits, st.ArenaBytes)
	// Output: 5 iterations, 3 planned, 6 requests served by the plan of 5242880 bytes
}
