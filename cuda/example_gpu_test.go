//go:build gpu

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// The Examples of what only builds with -tags gpu have. They run on the first
// GPU, as every test of such a build does.

// A second Driver over the context of the first, for pinned memory, and the
// name of their device.
func ExampleOpenContext() {
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	staging, err := cuda.OpenContext(device.Context(), cuda.Pinned())
	if err != nil {
		log.Fatal(err)
	}
	defer staging.Close()
	s, err1 := device.NewStream()
	from, err2 := staging.MemAlloc(4096)
	to, err3 := device.MemAlloc(4096)
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(errors.Join(staging.Memset(from, 4, 4096, s), device.Copy(to, from, 4096, s), device.CopyOut(got, to, s)), got)
	gpus, err := cuda.Devices()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gpus[device.Ordinal()].Name != "", err)
	// Output:
	// <nil> [4 4 4]
	// true <nil>
}

// Streams that no library makes, as programs written in CUDA C++ use them.
func ExamplePerThreadStream() {
	runtime.LockOSThread() // whose default stream it is
	defer runtime.UnlockOSThread()
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for _, h := range []cupool.StreamHandle{cuda.PerThreadStream, cuda.LegacyStream} {
		fmt.Println(device.OwnsStream(h))
		s, err := pool.AdoptStream(h)
		if err != nil {
			log.Fatal(err)
		}
		b, err := pool.Alloc(4096, s)
		if err != nil {
			log.Fatal(err)
		}
		got := make([]byte, 2)
		fmt.Println(errors.Join(s.Memset(b.Ptr(), byte(h), 4096), s.CopyOut(got, b.Ptr()), pool.Free(b), s.Close()), got)
	}
	// Output:
	// <nil>
	// <nil> [2 2]
	// <nil>
	// <nil> [1 1]
}

// What CUDA says of a GPU that is not there, and of a size that none has.
func ExampleError_calls() {
	_, err := cuda.Open(1000)
	var failed *cuda.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Device, failed.Call, failed.Code, failed.Name)
	}
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	_, err = device.MemAlloc(1 << 50)
	if errors.As(err, &failed) {
		fmt.Println(failed.Device, failed.Call, failed.Detail, failed.Code, failed.Name)
	}
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory))
	// Output:
	// cuda:1000 cuDeviceGet 101 CUDA_ERROR_INVALID_DEVICE
	// cuda:0 cuMemAlloc 1125899906842624 bytes 2 CUDA_ERROR_OUT_OF_MEMORY
	// true
}

// Memory of one process in another, which is this program once more: it
// reads the handle and changes what it finds.
func ExampleMemoryIPC() {
	device, err := cuda.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	var ipc cuda.MemoryIPC = device
	const role = "CUPOOL_EXAMPLE_MEMORY_IPC"
	if os.Getenv(role) != "" {
		var h cuda.IPCHandle
		if _, err := io.ReadFull(os.Stdin, h[:]); err != nil {
			log.Fatal(err)
		}
		p, err := ipc.OpenMemory(h)
		if err != nil {
			log.Fatal(err)
		}
		if err := errors.Join(device.Memset(p, 2, 4096, 0), device.SyncStream(0), ipc.CloseMemory(p)); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	p, err := device.MemAlloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	h, err := ipc.ExportMemory(p)
	if err != nil {
		log.Fatal(err)
	}
	other := exec.Command(os.Args[0], "-test.run=^ExampleMemoryIPC$")
	other.Env = append(os.Environ(), role+"=receiver")
	other.Stdin, other.Stderr = bytes.NewReader(h[:]), os.Stderr // a handle is plain bytes
	got := make([]byte, 2)
	fmt.Println(errors.Join(device.Memset(p, 1, 4096, 0), device.SyncStream(0), other.Run(), device.CopyOut(got, p, 0)), got)
	// Output: <nil> [2 2]
}
