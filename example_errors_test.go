package cupool_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/cupool/cupool"
)

func ExampleConfigError() {
	_, err := cupool.New(cupool.Config{Fraction: 1.5})
	var bad *cupool.ConfigError
	if errors.As(err, &bad) {
		fmt.Println(bad.Field, bad.Reason)
	}
	fmt.Println(errors.Is(err, cupool.ErrInvalidConfig))
	// Output:
	// Fraction must be in (0, 1]; 0 means no limit
	// true
}

// A program that writes behind the end of a block is told which one it is.
func ExampleSanitizers() {
	pool, err := cupool.New(cupool.Config{
		Sanitize:     cupool.Sanitizers{Canaries: 64, Poison: true, Wait: true},
		OnCorruption: func(e *cupool.CorruptionError) { fmt.Println("found:", e.Bytes, "bytes at offset", e.Offset) },
	})
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := pool.DefaultStream().Memset(b.Ptr(), 1, 1004); err != nil {
		log.Fatal(err)
	}
	err = pool.Free(b)
	var bad *cupool.CorruptionError
	if errors.As(err, &bad) {
		fmt.Println("overrun of a block of", bad.Size, "bytes, after a free:", bad.AfterFree)
	}
	fmt.Println(errors.Is(err, cupool.ErrCorrupted))
	fmt.Println(errors.Is(pool.Close(), cupool.ErrCorrupted)) // for programs that drop the error of Free
	// Output:
	// found: 4 bytes at offset 1000
	// overrun of a block of 1000 bytes, after a free: false
	// true
	// true
}

// A wrong call says what is wrong and changes nothing.
func ExampleBlockError() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	other, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()

	b, err := pool.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = pool.Alloc(-1, nil)
	fmt.Println(errors.Is(err, cupool.ErrInvalidSize))
	fmt.Println(errors.Is(other.Free(b), cupool.ErrForeignPointer))
	fmt.Println(errors.Is(pool.RecordStream(b, other.DefaultStream()), cupool.ErrForeignStream))
	fmt.Println(errors.Is(pool.FreePtr(b.Ptr()+512, -1), cupool.ErrInteriorPointer))
	fmt.Println(errors.Is(pool.FreePtr(b.Ptr(), 2000), cupool.ErrSizeMismatch))

	err = pool.Free(b)
	fmt.Println(err)
	err = pool.Free(b)
	var wrong *cupool.BlockError
	fmt.Println(errors.As(err, &wrong) && wrong.Ptr == b.Ptr(), errors.Is(err, cupool.ErrDoubleFree))
	fmt.Println(errors.Is(pool.RecordStream(b, nil), cupool.ErrUseAfterFree))

	again, err := pool.Alloc(1000, nil) // the same memory
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(pool.Free(b), cupool.ErrStaleBlock))
	fmt.Println(pool.Free(again))
	// Output:
	// true
	// true
	// true
	// true
	// true
	// <nil>
	// true true
	// true
	// true
	// <nil>
}

// An allocation that fails has tried everything, and says how things stand.
// The pool goes on working.
func ExampleOOMError() {
	pool, err := cupool.New(cupool.Config{Limit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	b, err := pool.Alloc(48<<20, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = pool.Alloc(32<<20, nil)
	var oom *cupool.OOMError
	if errors.As(err, &oom) {
		fmt.Println(oom.Requested>>20, "MiB wanted,", oom.Live>>20, "MiB live of", oom.Limit>>20)
		fmt.Println(oom.Hint)
		fmt.Println(oom.Reason, oom.Settings[0])
		fmt.Println(oom.Table[0].Live == oom.Live, pool.LastOOM() == oom)
	}
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	b, err = pool.Alloc(32<<20, nil)
	fmt.Println(err)
	if err := pool.Free(b); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 32 MiB wanted, 48 MiB live of 64
	// the device has the memory: raise Limit or Fraction
	// limit Limit: 80<<20
	// true true
	// <nil>
}

// Close names what was forgotten, and where it came from.
func ExampleLeakError() {
	pool, err := cupool.New(cupool.Config{History: &cupool.History{SampleBytes: 1}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Alloc(1000, nil); err != nil {
		log.Fatal(err)
	}
	if live := pool.Leaks(); live != nil { // at any time
		var largest cupool.LeakGroup = live.Groups()[0]
		fmt.Println(largest.Blocks, "block in the largest group")
	}
	err = pool.Close()
	var leaked *cupool.LeakError
	if errors.As(err, &leaked) {
		var first cupool.Leak = leaked.Leaks[0]
		fmt.Println(len(leaked.Leaks), "block of", first.Size, "bytes")
		fmt.Println(strings.Contains(first.Stack, "ExampleLeakError"))
	}
	fmt.Println(errors.Is(pool.Close(), cupool.ErrClosed))
	// Output:
	// 1 block in the largest group
	// 1 block of 1000 bytes
	// true
	// true
}

// A program bounds how long calls wait for a device that hangs. The error names
// the stream, and the call can be made again.
func ExampleWaitError() {
	pool, err := cupool.New(cupool.Config{WaitTimeout: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	stream, err := pool.NewStream()
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	if err := stream.Launch(func() { <-done }); err != nil { // work that hangs
		panic(err)
	}
	var late *cupool.WaitError
	if err := stream.Close(); errors.As(err, &late) {
		fmt.Println("the stream is late:", late.Stream == stream.Handle(), errors.Is(err, context.DeadlineExceeded))
	}
	close(done) // it goes on after all
	fmt.Println(stream.Sync(), stream.Close(), pool.Close())
	// Output:
	// the stream is late: true true
	// <nil> <nil> <nil>
}
