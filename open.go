package cupool

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cupool/cupool/internal/hostdev"
)

// HostConfig sets up a host device. The zero value is a device of 16 GiB.
type HostConfig struct {
	// Capacity is the device's memory in bytes. It is address space until
	// it is touched. 0: 16 GiB.
	Capacity int64
}

// OpenHost opens an embedded device in the computer's own memory, outside
// Go's heap, with streams that work asynchronously and real events. It
// behaves as a GPU does where the allocator can see it, so that everything
// can be developed and tested without one.
func OpenHost(cfg HostConfig) (Driver, error) {
	if cfg.Capacity < 0 {
		return nil, &ConfigError{Field: "Capacity", Value: cfg.Capacity, Reason: "must not be negative; 0 means 16 GiB"}
	}
	d, err := hostdev.Open(hostdev.Config{Capacity: cfg.Capacity})
	if err != nil {
		return nil, fmt.Errorf("cupool: opening the host device: %w", err)
	}
	return d, nil
}

// Open opens a device by name, as programs take it from a flag: "host" or
// "host:BYTES" (with a unit: "host:4GiB"), "cuda" or "cuda:ORDINAL", the
// latter followed by ",managed" or ",pinned" for those kinds of memory. In
// a build without -tags gpu, "cuda" fails with ErrNotSupported.
func Open(name string) (Driver, error) {
	device, options, _ := strings.Cut(name, ",")
	kind, arg, hasArg := strings.Cut(device, ":")
	switch kind {
	case "host", "":
		var cfg HostConfig
		if hasArg {
			n, err := ParseBytes(arg)
			if err != nil || n == 0 {
				return nil, &ConfigError{Field: "device", Value: name, Reason: "the capacity of the host device is a size such as 4GiB"}
			}
			cfg.Capacity = n
		}
		if options != "" {
			return nil, &ConfigError{Field: "device", Value: name, Reason: "the host device takes no options"}
		}
		return OpenHost(cfg)
	case "cuda":
		ordinal := 0
		if hasArg {
			n, err := strconv.Atoi(arg)
			if err != nil || n < 0 {
				return nil, &ConfigError{Field: "device", Value: name, Reason: "a CUDA device is cuda:0, cuda:1, ..."}
			}
			ordinal = n
		}
		return openCUDA(ordinal, options)
	default:
		return nil, &ConfigError{Field: "device", Value: name, Reason: `must be "host", "host:BYTES", "cuda" or "cuda:ORDINAL"`}
	}
}

// ParseBytes reads a size: a number of bytes, or one with a unit of K, M,
// G, T (powers of 1,024), with or without "iB" or "B" behind it.
func ParseBytes(s string) (int64, error) {
	num := strings.TrimRight(s, "KMGTiBkmgtb ")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !(v >= 0) || num == "" { // not a number is refused too
		return 0, &ConfigError{Field: "size", Value: s, Reason: "is not a number of bytes such as 4096, 512MiB or 2G"}
	}
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s[len(num):])), "B"), "I")
	shift, ok := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	if v *= float64(uint64(1) << shift); !ok || v >= 1<<62 {
		return 0, &ConfigError{Field: "size", Value: s, Reason: "has an unknown unit or is too large"}
	}
	return int64(v), nil
}
