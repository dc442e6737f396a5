package cupool_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cupool/cupool"
)

// strict is a device that knows its own streams.
type strict struct{ cupool.Driver }

func (strict) OwnsStream(h cupool.StreamHandle) error {
	if h > 100 {
		return errors.New("no such stream here")
	}
	return nil
}

// Streams that another library made are used as they are, and stay its own.
func ExamplePool_AdoptStream() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	var device cupool.Driver = strict{host}
	_, knows := device.(cupool.StreamOwner)
	pool, err := cupool.New(cupool.Config{Driver: device})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	theirs, err := device.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	s, err := pool.AdoptStream(theirs)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Handle() == theirs, knows)
	_, err = pool.AdoptStream(101)
	fmt.Println(errors.Is(err, cupool.ErrForeignStream))
	if err := errors.Join(s.Close(), device.DestroyStream(theirs)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true true
	// true
}

// chatty is a device that tells when it is asked for memory.
type chatty struct{ cupool.Driver }

func (d chatty) MemAlloc(size int64) (cupool.Ptr, error) {
	fmt.Println("segment of", size>>20, "MiB")
	return d.Driver.MemAlloc(size)
}

// A Driver may be wrapped. Of its optional parts only those are seen that
// the wrapper has: this one hides VirtualMemory.
func ExampleDriver() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	pool, err := cupool.New(cupool.Config{Driver: chatty{host}})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for range 3 {
		b, err := pool.Alloc(5<<20, nil)
		if err != nil {
			log.Fatal(err)
		}
		if err := pool.Free(b); err != nil {
			log.Fatal(err)
		}
	}
	// Output: segment of 20 MiB
}

// Events are seldom needed by hand, but a Driver has them.
func ExampleEventHandle() {
	device, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	var s cupool.StreamHandle // the default stream
	var e cupool.EventHandle
	if e, err = device.NewEvent(); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(device.RecordEvent(e, s), device.SyncEvent(e)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(device.QueryEvent(e))
	// Output: true <nil>
}

func ExampleOpen() {
	for _, name := range []string{"host", "host:64MiB", "quantum"} {
		device, err := cupool.Open(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(device.Name())
		if err := device.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host (16 GiB)
	// host (64 MiB)
	// cupool: invalid configuration: device = quantum: must be "host", "host:BYTES", "cuda" or "cuda:ORDINAL"
}

func ExampleOpenHost() {
	device, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	free, total, err := device.MemInfo()
	fmt.Println(free>>20, total>>20, err)
	// Output: 1024 1024 <nil>
}
