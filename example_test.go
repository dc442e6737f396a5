package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/cupool/cupool"
)

// The zero Config is the embedded host device.
func ExampleNew() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Size(), "bytes, aligned:", b.Ptr()%512 == 0)
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: 1000 bytes, aligned: true
}

func ExampleConfig() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{
		Driver:   device,
		Fraction: 0.5,                    // of the device
		Limit:    400 << 20,              // and no more than this
		Backing:  cupool.BackingSegments, // as PyTorch does; BackingAuto prefers BackingVMM
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnOutOfMemory: func(requested int64) bool {
			fmt.Println("asked for", requested>>20, "MiB")
			return false // nothing to give
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	_, err = pool.Alloc(500<<20, nil)
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory))
	// Output:
	// asked for 500 MiB
	// true
}

func ExampleStrategy() {
	for _, s := range []cupool.Strategy{cupool.BestFit, cupool.FirstFit, cupool.Segregated, cupool.PowerOfTwo} {
		pool, err := cupool.New(cupool.Config{Strategy: s})
		if err != nil {
			fmt.Println(err)
			return
		}
		b, _ := pool.Alloc(100_000, nil)
		fmt.Println(s, pool.Stats().LiveBytes)
		_ = pool.Free(b)
		_ = pool.Close()
	}
	// Output:
	// best-fit 100352
	// first-fit 100352
	// segregated 106496
	// power-of-two 131072
}

func ExampleBacking() {
	for b := range cupool.Backing(3) {
		fmt.Println(b, b == cupool.BackingAuto, b == cupool.BackingSegments, b == cupool.BackingVMM)
	}
	// Output:
	// auto true false false
	// segments false true false
	// vmm false false true
}

// Blocks are cut from segments, and merge again when they are freed.
func ExamplePool() {
	var pool *cupool.Pool
	pool, err := cupool.New(cupool.Config{
		Backing:       cupool.BackingSegments,
		MagazineBytes: -1, // for placement that follows from the calls alone
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	a, err1 := pool.Alloc(2<<20, nil)
	b, err2 := pool.Alloc(3<<20, nil)
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Snapshot().Layout())
	if err := pool.Free(a); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Snapshot().Layout())

	// A block is found by any address inside it, and freed by the first.
	same, err := pool.Lookup(b.Ptr() + 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(same == b)
	if err := pool.FreePtr(b.Ptr(), b.Size()); err != nil {
		log.Fatal(err)
	}
	fmt.Print(pool.Snapshot().Layout())
	fmt.Println("rules broken:", pool.Check())
	// Output:
	// 0 large: [Live 2M][Live 3M][Free 15M]
	// 0 large: [Free 2M][Live 3M][Free 15M]
	// true
	// 0 large: [Free 20M]
	// rules broken: <nil>
}

// Anything that takes an Allocator works with any pool.
func ExampleAllocator() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	fill := func(a cupool.Allocator, size int64, value byte) (cupool.Block, error) {
		s := a.DefaultStream()
		b, err := a.Alloc(size, s)
		if err != nil {
			return b, err
		}
		return b, s.Memset(b.Ptr(), value, size)
	}
	b, err := fill(pool, 4, 'x')
	if err != nil {
		log.Fatal(err)
	}
	data := make([]byte, 4)
	if err := pool.DefaultStream().CopyOut(data, b.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data), "on", pool.Driver().Name())
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output: xxxx on host (16 GiB)
}

func ExampleBlock() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	b, err := pool.Alloc(0, nil)
	fmt.Println(b, b.IsEmpty(), err)

	b, err = pool.Alloc(100, nil)
	if err != nil {
		log.Fatal(err)
	}
	var address cupool.Ptr = b.Ptr()
	fmt.Println(b.String() == fmt.Sprintf("%v (100 bytes)", address))
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0x0 (0 bytes) true <nil>
	// true
}

func ExampleParseBytes() {
	for _, s := range []string{"4096", "512K", "1.5GiB"} {
		n, err := cupool.ParseBytes(s)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n)
	}
	// Output:
	// 4096
	// 524288
	// 1610612736
}
