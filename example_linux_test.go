package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"time"

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

// A server that hands the GPU over to another one for a while: the memory
// goes, the addresses stay, and the weights are put back.
func ExamplePool_Sleep() {
	pool, err := cupool.New(cupool.Config{SoftLimit: 1 << 30, Decay: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	weights, err1 := pool.Alloc(4<<20, nil)
	cache, err2 := pool.Alloc(12<<20, nil)
	if err := errors.Join(err1, err2, pool.DefaultStream().Memset(weights.Ptr(), 7, weights.Size())); err != nil {
		log.Fatal(err)
	}

	err = pool.Sleep(func(b cupool.Block) bool { return b == weights })
	st := pool.Stats()
	fmt.Println(st.AsleepBytes>>20, "MiB asleep,", st.All.ReservedBytes.Current, "reserved,", err)
	_, err = pool.Alloc(100, nil)
	fmt.Println(errors.Is(err, cupool.ErrAsleep))

	err = pool.Wake()
	word := make([]byte, 2)
	err = errors.Join(err, pool.DefaultStream().CopyOut(word, weights.Ptr()))
	fmt.Println(word, err)
	fmt.Println(pool.Free(weights), pool.Free(cache))
	// Output:
	// 16 MiB asleep, 0 reserved, <nil>
	// true
	// [7 7] <nil>
	// <nil> <nil>
}
