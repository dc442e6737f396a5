package cupool_test

import (
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// Where a device has virtual memory, free pieces are stitched together:
// here 24 MiB of two 12 MiB blocks that are no neighbours, though the limit
// leaves no room for 24 MiB more.
func ExampleVirtualMemory() {
	pool, err := cupool.New(cupool.Config{Backing: cupool.BackingVMM, Limit: 40 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	vm := pool.Driver().(cupool.VirtualMemory)
	fmt.Println(vm.VMMGranularity() > 0)

	var blocks [3]cupool.Block
	for i, size := range []int64{12 << 20, 8 << 20, 12 << 20} {
		if blocks[i], err = pool.Alloc(size, nil); err != nil {
			log.Fatal(err)
		}
	}
	for _, i := range []int{0, 2} {
		if err := pool.Free(blocks[i]); err != nil {
			log.Fatal(err)
		}
	}
	large, err := pool.Alloc(24<<20, nil)
	fmt.Println(large.Size()>>20, "MiB,", err)
	for _, b := range []cupool.Block{large, blocks[1]} {
		if err := pool.Free(b); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// true
	// 24 MiB, <nil>
}
