package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/cupool/cupool"
)

// Trim gives cached memory back to the device, down to a reserve.
func ExamplePool_Trim() {
	pool, err := cupool.New(cupool.Config{Backing: cupool.BackingSegments})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err1 := pool.Alloc(10<<20, nil)
	b, err2 := pool.Alloc(30<<20, nil)
	if err := errors.Join(err1, err2, pool.Free(a), pool.Free(b)); err != nil {
		log.Fatal(err)
	}
	released, err := pool.Trim(10 << 20)
	fmt.Println(released>>20, "MiB given back,", err)
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB reserved")
	// Output:
	// 30 MiB given back, <nil>
	// 10 MiB reserved
}

// SetSoftLimit bounds what stays reserved from then on, as far as it is not in use.
func ExamplePool_SetSoftLimit() {
	pool, err := cupool.New(cupool.Config{Backing: cupool.BackingSegments})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err1 := pool.Alloc(30<<20, nil)
	b, err2 := pool.Alloc(50<<20, nil)
	if err := errors.Join(err1, err2, pool.SetSoftLimit(40<<20)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB while all is in use")
	if err := errors.Join(pool.Free(b), pool.Free(a)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB after the frees")
	// Output:
	// 80 MiB while all is in use
	// 30 MiB after the frees
}

// Reset ends a phase of a program, whatever it left behind.
func ExamplePool_Reset() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	forgotten, err := pool.Alloc(30<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Reset(), pool.Stats().All.ReservedBytes.Current)
	fmt.Println(errors.Is(pool.Free(forgotten), cupool.ErrDoubleFree))
	next, err := pool.Alloc(1<<20, nil)
	fmt.Println(pool.Free(next), err)
	// Output:
	// <nil> 0
	// true
	// <nil> <nil>
}

func ExamplePool_EmptyCache() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Reserve(30<<20, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.EmptyCache())
	fmt.Println(pool.Stats().All.ReservedBytes.Current, "bytes reserved")
	// Output:
	// <nil>
	// 0 bytes reserved
}

// Reserve makes the first step of a program as fast as the others.
func ExamplePool_Reserve() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Reserve(64<<20, nil); err != nil {
		log.Fatal(err)
	}
	misses := pool.Stats().Misses
	b, err := pool.Alloc(64<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().Misses-misses, "misses")
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: 0 misses
}

func ExampleStats() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for range 100 {
		b, err := pool.Alloc(1000, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.Free(b); err != nil {
			log.Fatal(err)
		}
	}

	var st cupool.Stats = pool.Stats()
	fmt.Printf("%.0f %% hits, fragmentation at most 1: %v\n", 100*st.HitRatio(), st.Fragmentation() <= 1)
	var p cupool.PoolStats = st.Small // up to Config.SmallLimit
	var blocks cupool.Stat = p.Allocation
	fmt.Println(blocks.Allocated, "allocated,", blocks.Freed, "freed,", blocks.Current, "live")

	pool.ResetPeak() // what follows has peaks of its own
	fmt.Println(pool.Stats().All.RequestedBytes.Peak <= 1000)
	table := st.String() // for people
	fmt.Println(table[:strings.Index(table, "\n")])
	// Output:
	// 99 % hits, fragmentation at most 1: true
	// 100 allocated, 100 freed, 0 live
	// true
	// cupool on host (16 GiB)
}
