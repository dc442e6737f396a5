package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/cupool/cupool"
)

// What a device can do beyond a Driver is found by type assertion. CUDA's has
// all of these, the host device only what a GPU is not needed for.
func ExampleDriver_abilities() {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	_, pools := device.(cupool.NativePools)
	_, functions := device.(cupool.Launcher)
	_, batch := device.(cupool.EventBatch)
	_, info := device.(cupool.StreamInfo)
	_, pinned := device.(cupool.HostMemory)
	_, hints := device.(cupool.ManagedHints)
	_, ipc := device.(cupool.MemoryIPC)
	_, handles := device.(cupool.CUDAHandles)
	fmt.Println("native pools:", pools, "Go functions on streams:", functions)
	fmt.Println("events by the batch:", batch, "more of streams:", info)
	fmt.Println("page-locked memory:", pinned, "hints:", hints, "other processes:", ipc, "CUDA:", handles)
	// Output:
	// native pools: true Go functions on streams: true
	// events by the batch: false more of streams: false
	// page-locked memory: false hints: false other processes: false CUDA: false
}

// A Driver's own streams: one waits for another on the device, not on the
// host.
func ExampleDriver_streams() {
	device := firstGPU()
	defer device.Close()
	producer, err1 := device.NewStream()
	consumer, err2 := device.NewStream()
	ready, err3 := device.NewEvent()
	x, err4 := device.MemAlloc(4096)
	y, err5 := device.MemAlloc(4096)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(
		device.Memset(x, 5, 4096, producer),
		device.RecordEvent(ready, producer),
		device.StreamWaitEvent(consumer, ready),
		device.Copy(y, x, 4096, consumer),
		device.SyncStream(consumer),
	); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(device.CopyOut(got, y, consumer), got)
	fmt.Println(errors.Join(device.DestroyEvent(ready), device.DestroyStream(producer), device.DestroyStream(consumer),
		device.MemFree(x), device.MemFree(y)))
	// Output:
	// <nil> [5 5 5]
	// <nil>
}

// Many events in one call where the device has it, and one by one elsewhere.
func ExampleEventBatch() {
	device := firstGPU()
	defer device.Close()
	var events []cupool.EventHandle
	for range 3 {
		e, err := device.NewEvent()
		if err != nil {
			log.Fatal(err)
		}
		events = append(events, e)
		if err := device.RecordEvent(e, 0); err != nil {
			log.Fatal(err)
		}
	}
	if err := device.SyncStream(0); err != nil {
		log.Fatal(err)
	}

	query := func() (done int, err error) {
		if batch, ok := device.(cupool.EventBatch); ok {
			return batch.QueryEvents(events)
		}
		for _, e := range events {
			if is, err := device.QueryEvent(e); err != nil || !is {
				return done, err
			}
			done++
		}
		return done, nil
	}
	done, err := query()
	fmt.Println(done, "of", len(events), "are done,", err)
	// Output: 3 of 3 are done, <nil>
}

// A program that keeps something for each stream does so by the stream's
// number, as handles are used again. While a stream is captured, what it is
// given becomes part of a graph.
func ExampleStreamInfo() {
	device := firstGPU()
	defer device.Close()
	s, err := device.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	key, capturing := uint64(s), false
	if info, ok := device.(cupool.StreamInfo); ok {
		id, err := info.StreamID(s)
		if err == nil {
			key = id
		} else if !errors.Is(err, cupool.ErrNotSupported) { // a driver before CUDA 12.0
			log.Fatal(err)
		}
		if capturing, _, err = info.StreamCapture(s); err != nil {
			log.Fatal(err)
		}
	}
	notes := map[uint64]string{key: "mine"}
	fmt.Println(notes[key], capturing)
	// Output: mine false
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
	if host, ok := device.(cupool.HostMemory); ok {
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

// Managed memory goes to the GPU before it is used there, not page by page
// as it is touched, and its copies may be many. Results are the same without.
func ExampleManagedHints() {
	device := firstGPU(cupool.CUDAManaged())
	defer device.Close()
	const n = 1 << 20
	p, err := device.MemAlloc(n)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 2)
	use := func() error { return errors.Join(device.Memset(p, 3, n, 0), device.CopyOut(got, p, 0)) }

	gpus, _ := cupool.CUDADevices() // none in a build without CUDA
	able := slices.ContainsFunc(gpus, func(g cupool.CUDADevice) bool { return g.Ordinal == 0 && g.ConcurrentManagedAccess })
	if hints, ok := device.(cupool.ManagedHints); ok && able {
		gpu, host := cupool.Location{Kind: cupool.OnDevice, ID: 0}, cupool.Location{Kind: cupool.OnHost}
		advise := func(a cupool.Advice, at cupool.Location) error { return hints.Advise(p, n, a, at) }
		err = errors.Join(
			advise(cupool.AdvisePreferredLocation, gpu),
			advise(cupool.AdviseAccessedBy, host), // which reads it where it is
			advise(cupool.AdviseReadMostly, gpu),  // wherever that may be
			hints.Prefetch(p, n, gpu, 0),
			use(),
			advise(cupool.AdviseNotReadMostly, gpu),
			advise(cupool.AdviseNotAccessedBy, host),
			advise(cupool.AdviseNoPreferredLocation, gpu),
			hints.Prefetch(p, n, host, 0),
		)
	} else {
		err = use()
	}
	fmt.Println(got, err, device.MemFree(p))
	// Output: [3 3] <nil> <nil>
}
