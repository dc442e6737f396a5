package cupool_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// published is what /debug/vars shows under "cupool", by the name of an allocator.
var published = expvar.NewMap("cupool")

// Programs that import expvar serve what is published at /debug/vars, as JSON.
func ExamplePool_Stats_expvar() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	published.Set("train", expvar.Func(func() any { return pool.Stats() }))

	x, err := cupool.NewBuffer[float32](pool, 1_000_000, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()

	var got struct {
		LiveBytes int64
		Large     struct{ Allocation struct{ Current, Peak int64 } }
	}
	if err := json.Unmarshal([]byte(published.Get("train").String()), &got); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", got)
	// Output:
	// {LiveBytes:4000256 Large:{Allocation:{Current:1 Peak:1}}}
}
