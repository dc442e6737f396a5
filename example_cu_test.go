//go:build gpu

package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"runtime"

	"gorgonia.org/cu"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// A program that works with gorgonia.org/cu gives its context to a Driver.
// cu's streams and memory serve the pool, and the pool's memory cu.
func ExampleCUContext() {
	runtime.LockOSThread() // cu's contexts are current on a thread
	defer runtime.UnlockOSThread()
	gpu, err := cu.GetDevice(0)
	if err != nil {
		log.Fatal(err)
	}
	context, err := gpu.MakeContext(cu.SchedAuto)
	if err != nil {
		log.Fatal(err)
	}
	defer context.Destroy()
	device, err := cuda.OpenContext(cupool.CUContext(context)) // 0 is the current one
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	theirs, err1 := cu.MakeStream(cu.NonBlocking)
	memory, err2 := cu.MemAlloc(4096)
	s, err3 := pool.AdoptStream(cupool.CUStream(theirs))
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	b, err := pool.Alloc(4096, s)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(errors.Join(
		cu.MemsetD8Async(cu.DevicePtr(b.Ptr()), 7, 4096, theirs),
		s.Copy(cupool.CUPtr(memory), b.Ptr(), 4096),
		s.CopyOut(got, cupool.CUPtr(memory)),
	), got)
	fmt.Println(errors.Join(pool.Free(b), s.Close(), cu.MemFree(memory), theirs.Destroy()))
	// Output:
	// <nil> [7 7 7]
	// <nil>
}
