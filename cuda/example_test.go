package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// The first GPU where there is one, and elsewhere the host device: programs
// built without -tags gpu have no CUDA, and some GPUs no managed memory.
func ExampleOpen() {
	var device cupool.Driver
	var err error
	device, err = cuda.Open(0, cuda.Managed())
	var failed *cuda.Error
	switch {
	case errors.Is(err, cupool.ErrNotSupported):
		device, err = cupool.OpenHost(cupool.HostConfig{})
	case errors.As(err, &failed):
		log.Fatalf("%s: %s failed with %s", failed.Device, failed.Call, failed.Name)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()

	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	x, err := cupool.BufferFrom(pool, []float32{1, 2, 3}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()
	y := make([]float32, 3)
	fmt.Println(x.CopyTo(y), y, device.HostAccessible())
	// Output: <nil> [1 2 3] true
}

// firstGPU opens the first GPU, or the host device where there is none.
func firstGPU(opts ...cuda.Option) cupool.Driver {
	gpu, err := cuda.Open(0, opts...)
	if err == nil {
		return gpu
	}
	if !errors.Is(err, cupool.ErrNotSupported) {
		log.Fatal(err)
	}
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	return host
}

// Memory for data on their way to the GPU, of the kind that a program's
// flags say.
func ExampleOption() {
	managed, pinned := false, true
	var opts []cuda.Option // none: the GPU's own memory
	switch {
	case managed:
		opts = append(opts, cuda.Managed())
	case pinned:
		opts = append(opts, cuda.Pinned())
	}
	device := firstGPU(opts...)
	defer device.Close()
	fmt.Println("Go code may touch it:", device.HostAccessible())
	// Output: Go code may touch it: true
}

func ExampleMemoryKind() {
	for _, kind := range []cuda.MemoryKind{cuda.MemoryDevice, cuda.MemoryManaged, cuda.MemoryPinned} {
		touch := kind != cuda.MemoryDevice
		device, err := cuda.Open(0, cuda.Memory(kind))
		switch {
		case errors.Is(err, cupool.ErrNotSupported): // not on this GPU, or built without CUDA
		case err != nil:
			log.Fatal(err)
		default:
			touch = device.HostAccessible()
			if err := device.Close(); err != nil {
				log.Fatal(err)
			}
		}
		fmt.Printf("%v memory: Go code may touch it: %v\n", kind, touch)
	}
	// Output:
	// device memory: Go code may touch it: false
	// managed memory: Go code may touch it: true
	// pinned memory: Go code may touch it: true
}

// The GPU with the most free memory, of those that have native pools; the
// host device where there is none.
func ExampleDevices() {
	gpus, err := cuda.Devices()
	if err != nil && !errors.Is(err, cupool.ErrNotSupported) {
		log.Fatal(err)
	}
	name, most := "host", int64(0)
	for _, g := range gpus {
		if g.NativePools && g.FreeBytes > most {
			name, most = fmt.Sprintf("cuda:%d", g.Ordinal), g.FreeBytes
		}
	}
	device, err := cupool.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	free, total, err := device.MemInfo()
	fmt.Println(0 < free && free <= total, err)
	// Output: true <nil>
}

// How a program may report a GPU of CUDADevices. This one is made up.
func ExampleDevice() {
	g := cuda.Device{
		Ordinal: 1, Name: "Example", UUID: "GPU-0123", Major: 8, Minor: 6, Multiprocessors: 10,
		FreeBytes: 3 << 30, TotalBytes: 4 << 30, VMMGranularity: 2 << 20, NativePools: true, Managed: true, ShareFD: true,
	}
	fmt.Printf("cuda:%d: %s (%s), sm_%d%d, %d SMs\n", g.Ordinal, g.Name, g.UUID, g.Major, g.Minor, g.Multiprocessors)
	if g.FreeBytes >= 0 { // -1: no context could be made
		fmt.Println("MiB free:", g.FreeBytes>>20, "of", g.TotalBytes>>20)
	}
	var has []string
	for _, a := range []struct {
		yes  bool
		what string
	}{
		{g.VMMGranularity > 0, "virtual memory"},
		{g.NativePools, "native pools"},
		{g.Managed, "managed memory"},
		{g.ConcurrentManagedAccess, "managed memory for GPU and host at once"},
		{g.PageableAccess, "all of the host's memory"},
		{g.ShareFD, "virtual memory for other processes"},
		{g.ShareFabric, "virtual memory for other nodes"},
		{g.PoolShareFD, "native pools for other processes"},
		{g.IPCEvents, "events for other processes"},
	} {
		if a.yes {
			has = append(has, a.what)
		}
	}
	fmt.Println(strings.Join(has, ", "))
	// Output:
	// cuda:1: Example (GPU-0123), sm_86, 10 SMs
	// MiB free: 3072 of 4096
	// virtual memory, native pools, managed memory, virtual memory for other processes
}

// A program tells at its start what the driver lacks.
func ExampleVersion() {
	var v cuda.Versions
	v, err := cuda.Version()
	withCUDA := !errors.Is(err, cupool.ErrNotSupported)
	if withCUDA && err != nil {
		log.Fatal(err)
	}
	if v.Driver < v.Headers {
		log.Printf("built for CUDA %d.%d, the driver serves %d.%d", v.Headers/1000, v.Headers%1000/10, v.Driver/1000, v.Driver%1000/10)
	}
	for _, call := range v.Missing {
		log.Print("the driver lacks ", call)
	}
	fmt.Println("good enough:", !withCUDA || v.Driver >= 11000)
	// Output: good enough: true
}

// Errors of CUDA's calls match those of this package, and hold what CUDA
// says. This one is as it comes from a GPU that is full.
func ExampleError() {
	err := fmt.Errorf("loading the weights: %w", &cuda.Error{
		Device: "cuda:0", Call: "cuMemAlloc", Detail: "4096 bytes",
		Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", Err: cupool.ErrOutOfMemory,
	})
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory), errors.Is(err, cupool.ErrDeviceLost))
	var failed *cuda.Error
	if errors.As(err, &failed) {
		fmt.Printf("%s(%s) on %s: %s, code %d\n", failed.Call, failed.Detail, failed.Device, failed.Name, failed.Code)
		fmt.Printf("CUDA: %q, cupool: %q\n", failed.Text, failed.Err)
	}
	fmt.Println(err)
	// Output:
	// true false
	// cuMemAlloc(4096 bytes) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY, code 2
	// CUDA: "out of memory", cupool: "out of memory"
	// loading the weights: cupool: cuda:0: cuMemAlloc (4096 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory
}
