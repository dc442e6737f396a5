package cupool_test

import (
	"fmt"
	"log"
	"maps"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// distant is a device whose memory the CPU cannot touch, as that of a GPU.
type distant struct{ cupool.Driver }

func (distant) HostAccessible() bool { return false }

// Operations that the device has no kernel for are computed on copies, which
// takes long: EngineStats tell which those are. This device has none at all.
func ExampleEngine_Stats() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	pool, err := cupool.New(cupool.Config{Driver: distant{host}})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors

	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tensor.Add(x, x); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err := tensor.Square(x); err != nil {
			log.Fatal(err)
		}
	}

	show := func(st cupool.EngineStats) {
		fmt.Println(st.Fallbacks, "operations on copies,", st.Bytes, "bytes copied")
		for _, op := range slices.Sorted(maps.Keys(st.ByOp)) {
			fmt.Println(op, st.ByOp[op])
		}
	}
	show(eng.Stats())
	// Output:
	// 3 operations on copies, 84 bytes copied
	// Add 1
	// Square 2
}
