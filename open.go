package cupool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/hostdev"
)

// A cuda.Driver has what the allocator asks of a device. That the type behind it has
// what Engine asks, too, is tested in open_test.go.
var _ interface {
	Driver
	StreamOwner
	VirtualMemory
} = cuda.Driver(nil)

// HostConfig sets up a host device. The zero value is a device of 16 GiB.
type HostConfig struct {
	// Capacity is the device's memory in bytes. It is address space until
	// it is touched. 0: 16 GiB.
	Capacity int64
	// Shareable makes memory that other processes can map (package ipc): each
	// allocation, and each piece of virtual memory, is a file in memory of its own.
	// It takes Linux.
	Shareable bool
}

// OpenHost opens an embedded device in the computer's own memory, outside
// Go's heap, with streams that work asynchronously and real events. It
// behaves as a GPU does where the allocator can see it, so that everything
// can be developed and tested without one. It fails with a *ConfigError for a negative
// Capacity, and with ErrNotSupported where the system has no such memory.
func OpenHost(cfg HostConfig) (Driver, error) {
	if cfg.Capacity < 0 {
		return nil, &ConfigError{Field: "Capacity", Value: cfg.Capacity, Reason: "must not be negative; 0 means 16 GiB"}
	}
	d, err := hostdev.Open(hostdev.Config{Capacity: cfg.Capacity, Shareable: cfg.Shareable})
	if err != nil {
		return nil, fmt.Errorf("cupool: opening the host device: %w", err)
	}
	return d, nil
}

// Open opens a device by name, as programs take it from a flag: "host" or
// "host:BYTES" (with a unit: "host:4GiB"), "cuda" or "cuda:ORDINAL", the
// latter two followed by ",managed" or ",pinned" for those kinds of memory. "" is "host".
// It fails with a *ConfigError for any other name, or as OpenHost and cuda.Open do: "cuda"
// with ErrNotSupported where there is no driver.
func Open(name string) (Driver, error) {
	fail := func(value, reason string) (Driver, error) {
		return nil, &ConfigError{Field: "device", Value: value, Reason: reason}
	}
	dev, options, _ := strings.Cut(name, ",")
	kind, arg, hasArg := strings.Cut(dev, ":")
	switch kind {
	case "host", "":
		var cfg HostConfig
		if hasArg {
			var err error
			if cfg.Capacity, err = bytesize.Parse(arg); err != nil || cfg.Capacity == 0 {
				return fail(name, "the capacity of the host device is a size such as 4GiB")
			}
		}
		if options != "" {
			return fail(name, "the host device takes no options")
		}
		return OpenHost(cfg)
	case "cuda":
		var ordinal int
		if hasArg {
			var err error
			if ordinal, err = strconv.Atoi(arg); err != nil || ordinal < 0 {
				return fail(name, "a CUDA device is cuda:0, cuda:1, ...")
			}
		}
		kinds := map[string]cuda.MemoryKind{"device": cuda.MemoryDevice, "managed": cuda.MemoryManaged, "pinned": cuda.MemoryPinned}
		memory, ok := kinds[cmp.Or(options, "device")]
		if !ok {
			return fail(name, "a CUDA device has one kind of memory: device, managed or pinned")
		}
		return cuda.Open(ordinal, cuda.Memory(memory))
	default:
		return fail(name, `must be "host", "host:BYTES", "cuda" or "cuda:ORDINAL"`)
	}
}

// ParseBytes reads a size: a number of bytes, or one with a unit of K, M,
// G, T (powers of 1,024), with or without "iB" or "B" behind it. It fails with a
// *ConfigError.
func ParseBytes(s string) (int64, error) {
	n, err := bytesize.Parse(s)
	if err != nil {
		return 0, &ConfigError{Field: "size", Value: s, Reason: err.Error()}
	}
	return n, nil
}

// upstream is a device whose memory comes from functions of the program or of a
// sanitizer, and which does without the optional parts that have to do with memory.
// It is as safe for use from several goroutines as the functions are.
type upstream struct {
	Driver
	alloc func(size int64) (Ptr, error)
	free  func(p Ptr, size int64) error

	mu   sync.Mutex
	held []span // by address
}

// span is memory that an upstream has given.
type span struct {
	at   Ptr
	size int64
}

func newUpstream(d Driver, alloc func(size int64) (Ptr, error), free func(p Ptr, size int64) error) *upstream {
	return &upstream{Driver: d, alloc: alloc, free: free}
}

// MemAlloc does not give back what overlaps memory that is held, as that may be the same memory.
func (u *upstream) MemAlloc(size int64) (Ptr, error) {
	p, err := u.alloc(size)
	if err != nil || p == 0 {
		return 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	i := u.find(p)
	for _, x := range u.held[max(i-1, 0):min(i+1, len(u.held))] {
		if x.at < p+Ptr(size) && p < x.at+Ptr(x.size) {
			return 0, fmt.Errorf("the function for memory returned %v, but the pool holds the %d bytes at %v: %w", p, x.size, x.at, ErrInvalidRange)
		}
	}
	u.held = slices.Insert(u.held, i, span{p, size})
	return p, nil
}

func (u *upstream) MemFree(p Ptr) error {
	u.mu.Lock()
	i := u.find(p)
	x := u.held[i]
	u.held = slices.Delete(u.held, i, i+1) // another goroutine may be given the address before free returns
	u.mu.Unlock()
	err := u.free(p, x.size)
	if err != nil { // it is still there
		u.mu.Lock()
		defer u.mu.Unlock()
		i = u.find(p)
		u.held = slices.Insert(u.held, i, x)
	}
	return err
}

// find returns the place of the memory at an address, or for it. The lock is held.
func (u *upstream) find(p Ptr) int {
	i, _ := slices.BinarySearchFunc(u.held, p, func(x span, p Ptr) int { return cmp.Compare(x.at, p) })
	return i
}
