package cupool_test

import (
	"fmt"

	"github.com/cupool/cupool"
)

// A history is switched on for a while, and off again.
func ExamplePool_StartHistory() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := pool.StartHistory(cupool.History{Events: 1000, SampleBytes: 1}); err != nil { // everything
		fmt.Println(err)
		return
	}
	b, err := pool.WithLabel("weights").Alloc(1<<20, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = pool.Free(b)
	pool.StopHistory()
	for _, e := range pool.Snapshot().Events {
		if e.Label != "" {
			fmt.Println(e.Kind, e.Size, e.Label)
		}
	}
	// Output:
	// alloc 1048576 weights
	// free_requested 1048576 weights
	// free_completed 1048576 weights
}
