package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// How the pools grow, what stays whole, and what is given back first.
func ExampleConfig_growth() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{
		Driver:                     device,
		InitialSize:                64 << 20, // reserved by New
		GrowthFactor:               2,        // then twice as much
		MaxSplit:                   256 << 20,
		GarbageCollectionThreshold: 0.8,
		BeforeGrow:                 func(size int64) { fmt.Println("growing for", size>>20, "MiB") },
		OnRelease:                  func(bytes int64) { fmt.Println("released", bytes>>20, "MiB") },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := pool.Alloc(60<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(30<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.ReservedBytes.Current>>20, "MiB reserved")
	if err := errors.Join(pool.Free(a), pool.Free(b), pool.EmptyCache()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// growing for 30 MiB
	// 128 MiB reserved
	// released 128 MiB
}

func ExampleDivisions() {
	d, err := cupool.ParseDivisions("[64:1,128:2,>:4]") // as PyTorch's roundup_power2_divisions
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d == cupool.Divisions{1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4, 4, 4})
	pool, err := cupool.New(cupool.Config{Divisions: cupool.SameDivisions(4)})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.Alloc(1200<<10, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().LiveBytes>>10, "KiB") // 1, 1.25, 1.5 or 1.75 MiB
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true
	// 1280 KiB
}

// Each part of a program has a name of its own.
func ExampleCaching_WithLabel() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	encoder := pool.WithLabel("encoder") // an Allocator, for an Engine too
	w, err := cupool.NewBuffer[float32](encoder, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	tmp, err := cupool.NewBuffer[float32](encoder, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(w.Free(), tmp.Free()); err != nil {
		log.Fatal(err)
	}
	for _, l := range pool.Labels() {
		var now cupool.LabelStats = l
		fmt.Println(now.Label, now.Blocks.Current, "blocks; at most", now.Bytes.Peak>>20, "MiB")
	}
	// Output: encoder 0 blocks; at most 8 MiB
}
