package adaptor_test

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
)

func newExamplePool() *cupool.Pool {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

// A tenant of a shared pool, limited and counted.
func Example() {
	pool := newExamplePool()
	defer pool.Close()
	limited, err := adaptor.NewLimiting(pool, 64<<20)
	if err != nil {
		log.Fatal(err)
	}
	var tenant cupool.Allocator = adaptor.NewStatistics(limited)

	b, err := tenant.Alloc(50<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = tenant.Alloc(50<<20, nil)
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory), limited.Used()>>20, "of", limited.Limit()>>20, "MiB")
	if err := tenant.FreePtr(b.Ptr(), b.Size()); err != nil {
		log.Fatal(err)
	}
	behind, ok := adaptor.Find[*cupool.Pool](tenant)
	fmt.Println(ok, behind == pool)
	// Output:
	// true 50 of 64 MiB
	// true true
}

// What a section of a program allocates.
func ExampleStatistics() {
	pool := newExamplePool()
	defer pool.Close()
	stats := adaptor.NewStatistics(pool)
	stats.Push()
	for range 3 {
		b, err := stats.Alloc(1<<20, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := stats.Free(b); err != nil {
			log.Fatal(err)
		}
	}
	section, _ := stats.Pop()
	fmt.Println(section.Blocks.Allocated, "blocks, at most", section.Bytes.Peak, "bytes;", stats.Counters().Bytes.Current, "live")
	// Output: 3 blocks, at most 1048576 bytes; 0 live
}

// Where the live blocks were allocated.
func ExampleTracking() {
	pool := newExamplePool()
	defer pool.Close()
	tracked := adaptor.NewTracking(pool)
	b, err := tracked.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range tracked.Live() {
		fmt.Println(l.Size, strings.Contains(l.Stack, "ExampleTracking"))
	}
	var leaks *cupool.LeakError
	fmt.Println(errors.As(tracked.Check(), &leaks))
	if err := tracked.Free(b); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tracked.Check())
	// Output:
	// 1000 true
	// true
	// <nil>
}

func ExampleLogging() {
	pool := newExamplePool()
	defer pool.Close()
	short := func(_ []string, a slog.Attr) slog.Attr { // what is the same each time
		if a.Key == "size" || a.Key == "msg" || a.Key == "level" {
			return a
		}
		return slog.Attr{}
	}
	out := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: short})
	logged := adaptor.NewLogging(pool, slog.New(out))
	b, err := logged.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(logged.RecordStream(b, nil), logged.Free(b)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=DEBUG msg=alloc size=1000
	// level=DEBUG msg="record stream" size=1000
	// level=DEBUG msg=free size=1000
}

// A trace for `cupool replay`.
func ExampleRecording() {
	pool := newExamplePool()
	defer pool.Close()
	recorded := adaptor.NewRecording(pool, os.Stdout)
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := recorded.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(recorded.RecordStream(b, side), recorded.Free(b), recorded.Flush()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a 0 1000 0
	// r 0 1
	// f 0
}

func ExampleFailureCallback() {
	pool, err := cupool.New(cupool.Config{Limit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	cache, err := pool.Alloc(50<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	retrying := adaptor.NewFailureCallback(pool, func(f adaptor.Failure) (retry bool) {
		fmt.Println("attempt", f.Attempt, "at", f.Size>>20, "MiB failed")
		return pool.Free(cache) == nil // false the second time
	})
	b, err := retrying.Alloc(30<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Free(b))
	// Output:
	// attempt 1 at 30 MiB failed
	// <nil>
}

// A small pool of its own, and the shared one when that is full.
func ExampleFallback() {
	pool := newExamplePool()
	defer pool.Close()
	own, err := pool.NewPool(cupool.PoolConfig{Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	both := adaptor.NewFallback(own, pool)
	s, err := both.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	a, err := both.Alloc(20<<20, s)
	if err != nil {
		log.Fatal(err)
	}
	b, err := both.Alloc(20<<20, s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(own.Stats().LiveBytes>>20, pool.Stats().LiveBytes>>20)
	fmt.Println(errors.Join(both.Free(a), both.Free(b), both.CloseStream(s)))
	// Output:
	// 20 20
	// <nil>
}

// Small, medium and large pools.
func ExampleBySize() {
	pool := newExamplePool()
	defer pool.Close()
	medium, err := pool.NewPool(cupool.PoolConfig{Name: "medium"})
	if err != nil {
		log.Fatal(err)
	}
	large, err := pool.NewPool(cupool.PoolConfig{Name: "large"})
	if err != nil {
		log.Fatal(err)
	}
	a, err := adaptor.NewBySize(
		adaptor.SizePool{Max: 64 << 10, Allocator: pool},
		adaptor.SizePool{Max: 1 << 20, Allocator: medium},
		adaptor.SizePool{Allocator: large},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, size := range []int64{1000, 500_000, 5_000_000} {
		b, err := a.Alloc(size, nil)
		if err != nil {
			log.Fatal(err)
		}
		same, err := a.Lookup(b.Ptr())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(pool.Stats().LiveBytes, medium.Stats().LiveBytes, large.Stats().LiveBytes)
		if err := a.Free(same); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 1024 0 0
	// 0 500224 0
	// 0 0 5000192
}
