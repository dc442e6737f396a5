package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// hostPools opens a host device, as it has native pools too.
func hostPools() (cupool.Driver, cuda.NativePools) {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	return device, device.(cuda.NativePools)
}

// The driver's own pools without a Native around them.
func ExampleNativePools() {
	device, pools := hostPools()
	defer device.Close()
	const mine cupool.StreamHandle = 0 // the default stream
	var pool cuda.NativePool
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

// Pool 0 is the current one: libraries that are told of no pool use it.
func ExampleNativePools_current() {
	device, pools := hostPools()
	defer device.Close()
	before, err := pools.CurrentNativePool()
	if err != nil {
		log.Fatal(err)
	}
	pool, err := pools.NewNativePool(cuda.NativePoolConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := pools.SetCurrentNativePool(pool); err != nil {
		log.Fatal(err)
	}
	p, err := pools.AllocAsync(1<<20, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	used, err := pools.NativePoolAttribute(pool, cuda.PoolUsedCurrent)
	fmt.Println(used, err)
	standard, err := pools.DefaultNativePool()
	fmt.Println(before == standard, err)
	if err := errors.Join(pools.FreeAsync(p, 0), pools.SetCurrentNativePool(before), pools.DestroyNativePool(pool)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1048576 <nil>
	// true <nil>
}

// A pool that does not take memory from one stream for another, and that
// keeps 2 MiB when the program waits for the device.
func ExampleNativePoolAttribute() {
	device, pools := hostPools()
	defer device.Close()
	pool, err := pools.NewNativePool(cuda.NativePoolConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer pools.DestroyNativePool(pool)
	for a, v := range map[cuda.NativePoolAttribute]uint64{
		cuda.PoolReuseFollowEvents:       0,
		cuda.PoolReuseOpportunistic:      0,
		cuda.PoolReuseInternalDependency: 0,
		cuda.PoolReleaseThreshold:        2 << 20,
	} {
		if err := pools.SetNativePoolAttribute(pool, a, v); err != nil {
			log.Fatal(err)
		}
	}
	report := func(when string) {
		used, err1 := pools.NativePoolAttribute(pool, cuda.PoolUsedCurrent)
		most, err2 := pools.NativePoolAttribute(pool, cuda.PoolUsedHigh)
		reserved, err3 := pools.NativePoolAttribute(pool, cuda.PoolReservedCurrent)
		fmt.Println(when, used>>20, "MiB used,", most>>20, "at most,", reserved>>20, "reserved", errors.Join(err1, err2, err3))
	}
	p, err1 := pools.AllocAsync(2<<20, pool, 0)
	q, err2 := pools.AllocAsync(2<<20, pool, 0)
	report("allocated:")
	err3 := errors.Join(pools.FreeAsync(p, 0), pools.FreeAsync(q, 0), device.SyncStream(0))
	report("freed:")
	err4 := errors.Join(
		pools.TrimNativePool(pool, 0),
		pools.SetNativePoolAttribute(pool, cuda.PoolUsedHigh, 0), pools.SetNativePoolAttribute(pool, cuda.PoolReservedHigh, 0),
	)
	report("trimmed:")
	fmt.Println(errors.Join(err1, err2, err3, err4))
	// Output:
	// allocated: 4 MiB used, 4 at most, 4 reserved <nil>
	// freed: 0 MiB used, 4 at most, 2 reserved <nil>
	// trimmed: 0 MiB used, 0 at most, 0 reserved <nil>
	// <nil>
}

// What other GPUs may do with a pool's memory: at first nothing. The host
// device has no others.
func ExampleAccess() {
	device, pools := hostPools()
	defer device.Close()
	pool, err := pools.DefaultNativePool()
	if err != nil {
		log.Fatal(err)
	}
	words := map[cuda.Access]string{
		cuda.NoAccess:        "nothing",
		cuda.ReadAccess:      "reads",
		cuda.ReadWriteAccess: "reads and writes",
	}
	a, err := pools.NativePoolAccess(pool, 0)
	fmt.Println(words[a], err)
	err = pools.SetNativePoolAccess(pool, 0, cuda.NoAccess) // its own device
	fmt.Println(errors.Is(err, cupool.ErrInvalidRange))
	err = pools.SetNativePoolAccess(pool, 1, cuda.ReadWriteAccess)
	fmt.Println(err)
	// Output:
	// reads and writes <nil>
	// true
	// hostdev: SetNativePoolAccess: invalid device address range: there is no device 1
}

// A pool in the memory of the host, by preference of a NUMA node, where the
// driver has that, and else in the device's.
func ExampleLocation() {
	device, pools := hostPools()
	defer device.Close()
	words := map[cuda.LocationKind]string{cuda.OnNUMA: "NUMA node", cuda.OnHost: "host", cuda.OnDevice: "device"}
	for _, at := range []cuda.Location{{Kind: cuda.OnNUMA, ID: 0}, {Kind: cuda.OnHost}, {Kind: cuda.OnDevice, ID: 0}} {
		pool, err := pools.NewNativePool(cuda.NativePoolConfig{Location: at})
		if errors.Is(err, cupool.ErrNotSupported) {
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("a pool on", words[at.Kind], at.ID)
		if err := pools.DestroyNativePool(pool); err != nil {
			log.Fatal(err)
		}
		break
	}
	// Output: a pool on device 0
}
