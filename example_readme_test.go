package cupool_test

import (
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// README begins with this program: TestReadme compares the two.
func Example() {
	pool, err := cupool.New(cupool.Config{}) // the device: a part of this computer's memory
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 {
		x, err := cupool.BufferFrom(pool, []float32{1, 2, 3}, nil) // an array on the device
		if err != nil {
			log.Fatal(err)
		}
		if err := x.Free(); err != nil { // the next array gets this memory
			log.Fatal(err)
		}
	}
	s := pool.Stats()
	fmt.Println(s.Hits, "from the pool,", s.Misses, "from the device")
	// Output: 999 from the pool, 1 from the device
}
