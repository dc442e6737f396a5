package cupool_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

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

// Iterations that are found where the requests repeat: the program says nothing.
func ExamplePlannerConfig() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	planner, err := cupool.NewPlanner(pool, cupool.PlannerConfig{
		Detect:      true,
		Confirm:     2,           // iterations that are the same, before they are planned
		Budget:      time.Second, // for making a plan, in the background
		MaxRequests: 1000,        // of an iteration
	})
	if err != nil {
		log.Fatal(err)
	}
	defer planner.Close()

	for range 10 {
		for i := range int64(20) {
			b, err := planner.Alloc((1+i)<<10, nil)
			if err != nil {
				log.Fatal(err)
			}
			if err := planner.Free(b); err != nil {
				log.Fatal(err)
			}
		}
		_ = planner.Wait(context.Background()) // so that the example is the same every time
	}
	fmt.Println("most of the 200 requests served by a plan:", planner.Stats().PlannedHits > 100)
	// Output: most of the 200 requests served by a plan: true
}

// What a plan takes and how it is used, within an iteration.
func ExamplePlannerStats() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	planner, err := cupool.NewPlanner(pool, cupool.PlannerConfig{Confirm: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer planner.Close()
	show := func(st cupool.PlannerStats) {
		fmt.Printf("plans: %d, arenas: %d, of %d bytes\n", st.Plans, st.Arenas, st.ArenaBytes)
		fmt.Printf("live there: %d blocks of %d bytes, %d requested\n", st.LiveBlocks, st.LiveBytes, st.RequestedBytes)
		fmt.Printf("height: %d bytes, live at once: %d bytes\n", st.Height, st.Bound)
		slog.Debug("plan", "placements tried", st.Rounds, "time", st.SolveTime)
	}

	for range 2 { // the second one is planned
		errBegin := planner.BeginIteration()
		a, errA := planner.Alloc(3<<20, nil)
		b, errB := planner.Alloc(1000, nil)
		if err := errors.Join(errBegin, errA, errB); err != nil {
			log.Fatal(err)
		}
		show(planner.Stats())
		if err := errors.Join(planner.Free(a), planner.Free(b), planner.EndIteration()); err != nil {
			log.Fatal(err)
		}
		_ = planner.Wait(context.Background()) // so that the example is the same every time
	}
	// Output:
	// plans: 0, arenas: 0, of 0 bytes
	// live there: 0 blocks of 0 bytes, 0 requested
	// height: 0 bytes, live at once: 0 bytes
	// plans: 1, arenas: 1, of 3146752 bytes
	// live there: 2 blocks of 3146752 bytes, 3146728 requested
	// height: 3146752 bytes, live at once: 3146752 bytes
}

// An iteration that is not as planned goes on without the plan, and Deviation
// says why.
func ExampleDeviation() {
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
	iteration := func(planner *cupool.Planner, sizes ...int64) error {
		errs := []error{planner.BeginIteration()}
		for _, size := range sizes {
			b, err := planner.Alloc(size, nil)
			errs = append(errs, err, planner.Free(b))
		}
		errs = append(errs, planner.EndIteration(), planner.Wait(context.Background()))
		return errors.Join(errs...)
	}

	for range 3 { // the third one is planned
		if err := iteration(planner, 1<<20, 2<<20); err != nil {
			log.Fatal(err)
		}
	}
	if err := iteration(planner, 1<<20, 5<<20); err != nil {
		log.Fatal(err)
	}
	st := planner.Stats()
	if d := st.LastDeviation; d != (cupool.Deviation{}) {
		fmt.Printf("request %d of %d bytes, where %d were planned: %s\n", d.Request, d.Size, d.Recorded, d.Reason)
	}
	fmt.Println(st.Deviations, "iteration deviated")
	fmt.Println(st.Passed, "requests went to the allocator,", st.Strays, "of them served from the arena")
	fmt.Println(st.HeldBlocks, "planned blocks wait for other streams")
	// Output:
	// request 1 of 5242880 bytes, where 2097152 were planned: another size was recorded
	// 1 iteration deviated
	// 5 requests went to the allocator, 0 of them served from the arena
	// 0 planned blocks wait for other streams
}

// Iterations begin and end in turn.
func ExamplePlanner_BeginIteration() {
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

	if err := planner.BeginIteration(); err != nil {
		log.Fatal(err)
	}
	if err := planner.BeginIteration(); errors.Is(err, cupool.ErrIteration) {
		fmt.Println(err)
	}
	if err := planner.EndIteration(); err != nil {
		log.Fatal(err)
	}
	if err := planner.EndIteration(); errors.Is(err, cupool.ErrIteration) {
		fmt.Println(err)
	}
	// Output:
	// cupool: begin iteration: not at this point of the iteration: the last one has not ended
	// cupool: end iteration: not at this point of the iteration: none has begun
}
