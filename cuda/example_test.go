package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// The first GPU where there is one, and elsewhere the host device. Some GPUs have no
// managed memory.
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

// What a device can do beyond cupool.Driver is found by type assertion. A
// cuda.Driver has all of these but functions; the host device has native pools
// and functions.
func ExampleDriver() {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	_, pools := device.(cuda.NativePools)
	_, functions := device.(cupool.Launcher)
	_, batch := device.(cuda.EventBatch)
	_, info := device.(cuda.StreamInfo)
	_, pinned := device.(cuda.HostMemory)
	_, hints := device.(cuda.ManagedHints)
	_, ipc := device.(cuda.MemoryIPC)
	_, handles := device.(cuda.Handles)
	_, gpu := device.(cuda.Driver) // all of it
	fmt.Println("native pools:", pools, "Go functions on streams:", functions)
	fmt.Println("events by the batch:", batch, "more of streams:", info)
	fmt.Println("page-locked memory:", pinned, "hints:", hints, "other processes:", ipc, "handles:", handles, "all:", gpu)
	// Output:
	// native pools: true Go functions on streams: true
	// events by the batch: false more of streams: false
	// page-locked memory: false hints: false other processes: false handles: false all: false
}

// Work of one device on the memory of another one, here two host devices. The
// second waits on the device for what the first was given.
func ExamplePeers() {
	a, err1 := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	b, err2 := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	defer func() { _, _ = a.Close(), b.Close() }()
	p, err1 := a.MemAlloc(4096)
	ready, err2 := a.NewEvent()
	peers := b.(cuda.Peers)
	got := make([]byte, 2)
	fmt.Println(errors.Join(err1, err2,
		peers.CanAccessPeer(a), peers.EnablePeer(a),
		a.Memset(p, 7, 4096, 0), a.RecordEvent(ready, 0),
		peers.StreamWaitPeerEvent(0, ready, a), b.Memset(p+1, 8, 1, 0), b.CopyOut(got, p, 0)), got)
	// Output: <nil> [7 8]
}

// From page-locked memory to the device and into a Go slice: none of the
// copies waits, and one synchronization at the end is enough.
func ExampleHostMemory() {
	device := firstGPU()
	defer device.Close()
	const n = 4096
	result := make([]byte, n)
	s, err1 := device.NewStream()
	x, err2 := device.MemAlloc(n)
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	if host, ok := device.(cuda.HostMemory); ok {
		staging, err1 := host.HostAlloc(n)
		there, err2 := host.HostRegister(result) // its address on the GPU
		if err := errors.Join(err1, err2,
			device.Memset(staging, 7, n, s),
			device.Copy(x, staging, n, s),
			device.Copy(there, x, n, s),
			device.SyncStream(s),
			host.HostUnregister(result), host.HostFree(staging)); err != nil {
			log.Fatal(err)
		}
	} else if err := errors.Join(device.Memset(x, 7, n, s), device.CopyOut(result, x, s)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result[0], result[n-1])
	// Output: 7 7
}

// The driver's own pools without package native around them. The host device has such pools, too.
func ExampleNativePools() {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	pools := device.(cuda.NativePools)
	const mine cupool.StreamHandle = 0 // the default stream
	pool, err := pools.NewNativePool(cuda.NativePoolConfig{MaxSize: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	p, err := pools.AllocAsync(4<<20, pool, mine)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(device.Memset(p, 1, 4<<20, mine), pools.FreeAsync(p, mine)); err != nil {
		log.Fatal(err)
	}
	q, err := pools.AllocAsync(4<<20, pool, mine) // though the work on p may still run
	fmt.Println(q == p, err)
	_, err = pools.AllocAsync(100<<20, pool, mine)
	fmt.Println(errors.Is(err, cupool.ErrOutOfMemory))
	if err := errors.Join(pools.FreeAsync(q, mine), pools.DestroyNativePool(pool)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(pools.DestroyNativePool(pool), cupool.ErrInvalidHandle))
	// Output:
	// true <nil>
	// true
	// true
}
