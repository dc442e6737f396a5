package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

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
		if batch, ok := device.(cuda.EventBatch); ok {
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
	if info, ok := device.(cuda.StreamInfo); ok {
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

// Managed memory goes to the GPU before it is used there, not page by page
// as it is touched, and its copies may be many. Results are the same without.
func ExampleManagedHints() {
	device := firstGPU(cuda.Managed())
	defer device.Close()
	const n = 1 << 20
	p, err := device.MemAlloc(n)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 2)
	use := func() error { return errors.Join(device.Memset(p, 3, n, 0), device.CopyOut(got, p, 0)) }

	gpus, _ := cuda.Devices() // none in a build without CUDA
	able := slices.ContainsFunc(gpus, func(g cuda.Device) bool { return g.Ordinal == 0 && g.ConcurrentManagedAccess })
	if hints, ok := device.(cuda.ManagedHints); ok && able {
		gpu, host := cuda.Location{Kind: cuda.OnDevice, ID: 0}, cuda.Location{Kind: cuda.OnHost}
		advise := func(a cuda.Advice, at cuda.Location) error { return hints.Advise(p, n, a, at) }
		err = errors.Join(
			advise(cuda.AdvisePreferredLocation, gpu),
			advise(cuda.AdviseAccessedBy, host), // which reads it where it is
			advise(cuda.AdviseReadMostly, gpu),  // wherever that may be
			hints.Prefetch(p, n, gpu, 0),
			use(),
			advise(cuda.AdviseNotReadMostly, gpu),
			advise(cuda.AdviseNotAccessedBy, host),
			advise(cuda.AdviseNoPreferredLocation, gpu),
			hints.Prefetch(p, n, host, 0),
		)
	} else {
		err = use()
	}
	fmt.Println(got, err, device.MemFree(p))
	// Output: [3 3] <nil> <nil>
}
