package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"syscall"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// Memory that package ipc shares with other processes, on a GPU where there is one.
func ExampleShareable() {
	var device cupool.Driver
	var err error
	device, err = cuda.Open(0, cuda.Shareable())
	if errors.Is(err, cupool.ErrNotSupported) {
		device, err = cupool.OpenHost(cupool.HostConfig{})
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(device.Close())
	// Output: <nil>
}

// A pool in another process: a file descriptor for the pool, and 64 bytes for
// each allocation.
func ExampleNativePools_share() {
	device, pools := hostPools()
	defer device.Close()
	pool, err := pools.NewNativePool(cuda.NativePoolConfig{Shareable: true})
	if err != nil {
		log.Fatal(err)
	}
	p, err := pools.AllocAsync(4096, pool, 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(device.Memset(p, 6, 4096, 0), device.SyncStream(0)); err != nil {
		log.Fatal(err)
	}
	fd, err := pools.ExportNativePool(pool) // before what is in it
	if err != nil {
		log.Fatal(err)
	}
	var data cuda.PoolPointer
	if data, err = pools.ExportNativePointer(p); err != nil {
		log.Fatal(err)
	}

	// The other process, which has got the descriptor and the bytes.
	theirs, err := pools.ImportNativePool(fd)
	if err != nil {
		log.Fatal(err)
	}
	q, err := pools.ImportNativePointer(theirs, data)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(device.CopyOut(got, q, 0), got)
	fmt.Println(errors.Join(pools.FreeAsync(q, 0), pools.FreeAsync(p, 0), // the importer first
		pools.DestroyNativePool(theirs), pools.DestroyNativePool(pool), syscall.Close(fd)))
	// Output:
	// <nil> [6 6 6]
	// <nil>
}
