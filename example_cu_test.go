//go:build cu

package cupool_test

import (
	_ "embed"
	"errors"
	"fmt"
	"log"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

//go:embed testdata/add.ptx
var addPTX string // made by nvcc

// A program that works with gorgonia.org/cu gives its context to a Driver, and has a
// kernel of its own compute on a Buffer. cu's streams and memory serve the pool, and
// the pool's memory cu. The kernel's stream is cu's, and the Buffer belongs to the
// pool's default stream. So the kernel's stream waits for what the Buffer's stream
// does first, and RecordStream tells the pool that the memory is in use there until
// the kernel is done.
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
	module, err1 := cu.LoadData(addPTX)
	add, err2 := module.Function("add")
	theirs, err3 := cu.MakeStream(cu.NonBlocking)
	memory, err4 := cu.MemAlloc(4096)
	device, err5 := cuda.OpenContext(cupool.CUContext(context)) // 0 is the current one
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s, err := pool.AdoptStream(cupool.CUStream(theirs))
	if err != nil {
		log.Fatal(err)
	}

	b, err := cupool.NewBuffer[uint32](pool, 1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	p, n, value := b.Ptr(), uint64(b.Len()), uint64(7)
	err = errors.Join(
		b.Memset(0),
		s.WaitStream(b.Stream()), // the kernel comes after the Memset
		add.Launch(4, 1, 1, 256, 1, 1, 0, theirs, []unsafe.Pointer{unsafe.Pointer(&p), unsafe.Pointer(&n), unsafe.Pointer(&value)}),
		s.Copy(cupool.CUPtr(memory), b.Ptr(), b.Bytes()),
		pool.RecordStream(b.Block(), s),
		b.Stream().WaitStream(s), // what the Buffer's stream does comes after the kernel
	)
	if err != nil {
		log.Fatal(err)
	}
	numbers, err := b.ToHost()
	copied := make([]byte, 4)
	fmt.Println(numbers[0], numbers[999], errors.Join(err, s.CopyOut(copied, cupool.CUPtr(memory))), copied)
	fmt.Println(errors.Join(b.Free(), s.Close(), cu.MemFree(memory), theirs.Destroy(), module.Unload()))
	// Output:
	// 7 7 <nil> [7 0 0 0]
	// <nil>
}
