package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"runtime"

	"github.com/cupool/cupool"
)

// Memory of one stream is used on another.
func ExamplePool_RecordStream() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}

	gate := make(chan struct{})
	if err := errors.Join(
		side.Launch(func() { <-gate }), // work that takes its time
		side.Memset(b.Ptr(), 1, b.Size()),
		pool.RecordStream(b, side),
		pool.Free(b), // at once: the memory waits for side
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	close(gate)
	if err := side.Sync(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	// Output:
	// 1048576 bytes pending
	// 0 bytes pending
}

// FreeOn says at the end which stream used the memory last.
func ExamplePool_FreeOn() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	consumer, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	gate := make(chan struct{})
	if err := errors.Join(
		consumer.Launch(func() { <-gate }), // work that takes its time
		consumer.Memset(b.Ptr(), 0, b.Size()),
		pool.FreeOn(b, consumer), // at once: the memory waits for consumer
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	close(gate)
	if err := consumer.Sync(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	// Output:
	// 1048576 bytes pending
	// 0 bytes pending
}

// The pool looks for finished work when it runs out of cached memory; a
// program may do so whenever it suits.
func ExamplePool_ProcessDeferred() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	side, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		b, err := pool.Alloc(4096, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.FreeOn(b, side); err != nil {
			log.Fatal(err)
		}
	}
	freed, err := pool.ProcessDeferred()
	fmt.Println(freed, err)
	// Output: 100 <nil>
}

// Handles that are lost are freed by the garbage collector: FreeLater takes
// no lock and calls no device, so a cleanup may use it.
func ExamplePool_FreeLater() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	type weights struct{ block cupool.Block }
	b, err := pool.Alloc(1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	w := &weights{b}
	runtime.AddCleanup(w, pool.FreeLater, b)
	// From here on nobody needs to free w. The same by hand:
	pool.FreeLater(w.block)
	if _, err := pool.ProcessDeferred(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().LiveBytes, "bytes live")
	// Output: 0 bytes live
}

// Work on a stream runs asynchronously and in order. The host device's
// streams run Go functions too, where a GPU has kernels.
func ExampleStream() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	a, err1 := pool.Alloc(5, s)
	b, err2 := pool.Alloc(5, s)
	data := make([]byte, 5)
	if err := errors.Join(err1, err2,
		s.CopyIn(a.Ptr(), []byte("hello")),
		s.Memset(a.Ptr(), 'j', 1),
		s.Copy(b.Ptr(), a.Ptr(), 5),
		s.CopyOut(data, b.Ptr()), // waits
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(data))

	busy := make(chan bool)
	if err := s.Launch(func() { <-busy; fmt.Println("on the stream") }); err != nil { // host device only
		log.Fatal(err)
	}
	// What s does next runs later, so that it may have the memory at once. The
	// default stream may not.
	err = pool.Free(a)
	other, err1 := pool.Alloc(5, nil)
	next, err2 := pool.Alloc(5, s)
	if err := errors.Join(err, err1, err2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(other.Ptr() == a.Ptr(), next.Ptr() == a.Ptr())
	close(busy)
	if err := errors.Join(s.Sync(), pool.Free(b), pool.Free(next), pool.Free(other), s.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// jello
	// false true
	// on the stream
}

// One stream waits for another without the host waiting for either. The
// pool understands the order: what the event proves needs no query.
func ExampleStream_Wait() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	load, err1 := pool.NewStream()
	compute, err2 := pool.NewStream()
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(1, load)
	if err != nil {
		log.Fatal(err)
	}
	if err := load.CopyIn(b.Ptr(), []byte{42}); err != nil {
		log.Fatal(err)
	}
	loaded, err := load.Record()
	if err != nil {
		log.Fatal(err)
	}
	if err := compute.Wait(loaded); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 1)
	if err := compute.CopyOut(got, b.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got[0])
	if err := errors.Join(
		pool.FreeOn(b, compute),
		load.WaitStream(compute), // the same as Record and Wait
		loaded.Close(),
	); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().PendingBytes, "bytes pending")
	// Output:
	// 42
	// 0 bytes pending
}
